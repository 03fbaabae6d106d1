"""Azure OpenAI, version 1 of its API."""

from hermes.llm.provider_spec import ProviderSpec, Quirks
from hermes.llm.providers.openai import GPT

PROVIDER = ProviderSpec(
    name="azure",
    wire="chat",
    base_url="{AZURE_OPENAI_ENDPOINT}/openai/v1",
    rank=100,
    keys=("AZURE_OPENAI_API_KEY",),
    quirks=Quirks(answer_schema="always", max_tokens_field="max_completion_tokens"),
    models=GPT,
    docs="https://learn.microsoft.com/azure/ai-foundry/openai/",
)

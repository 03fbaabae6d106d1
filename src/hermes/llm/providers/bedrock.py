"""Amazon Bedrock."""

from hermes.llm.provider_spec import ProviderSpec, Quirks
from hermes.llm.providers.anthropic import CLAUDE

PROVIDER = ProviderSpec(
    name="bedrock",
    wire="bedrock",
    base_url="https://bedrock-runtime.{AWS_REGION|AWS_DEFAULT_REGION|=us-east-1}.amazonaws.com",
    rank=105,
    wire_reference=True,
    keys=("AWS_BEARER_TOKEN_BEDROCK",),
    auth="aws",
    quirks=Quirks(call_id="word64"),
    models={
        **CLAUDE,
        "*gpt-oss*": {"effort": "effort", "efforts": ("low", "medium", "high")},
        "*nova-2*": {"effort": "object", "efforts": ("none", "low", "medium", "high")},
    },
    docs="https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference.html",
)

"""Vertex AI with an API key (express mode)."""

from hermes.llm.provider_spec import ProviderSpec, Quirks
from hermes.llm.providers.gemini import THINKS

PROVIDER = ProviderSpec(
    name="vertex",
    wire="gemini",
    base_url="https://aiplatform.googleapis.com/v1/publishers/google",
    hosts=("aiplatform.googleapis.com",),
    auth="x-goog-api-key",
    quirks=Quirks(schema="gemini"),
    models=THINKS,
    docs="https://cloud.google.com/vertex-ai/generative-ai/docs",
)

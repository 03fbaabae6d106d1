"""Vertex AI with an API key (express mode)."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="vertex",
    wire="gemini",
    base_url="https://aiplatform.googleapis.com/v1/publishers/google",
    auth="x-goog-api-key",
    quirks=Quirks(schema="gemini"),
    models={"*gemini-2.5*": {"effort": "budget"}, "*gemini-3*": {"effort": "level"}},
)

"""The Gemini API."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="gemini",
    wire="gemini",
    base_url="https://generativelanguage.googleapis.com/v1beta",
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    aliases=("google",),
    auth="x-goog-api-key",
    quirks=Quirks(schema="gemini"),
    models={"*gemini-2.5*": {"effort": "budget"}, "*gemini-3*": {"effort": "level"}},
    default_model="gemini-2.5-pro",
    small_model="gemini-2.5-flash",
)

"""The Gemini API."""

from typing import Any

from hermes.llm.provider_spec import ProviderSpec, Quirks

THINKS: dict[str, dict[str, Any]] = {
    "*gemini*": {"effort": "level", "efforts": ("minimal", "low", "medium", "high")},
    "*gemini-*pro*": {"efforts": ("low", "medium", "high")},
    "*gemini-3-pro*": {"efforts": ("low", "high")},
    "*gemini-[12].*": {"effort": "omit", "efforts": ()},
    "*gemini-2.5*": {"effort": "budget"},
    "*gemini-2.5-pro*": {"efforts": ("minimal", "low", "medium", "high", "xhigh")},
}
"""How Gemini models reason: not at all before 2.5, by budget in 2.5 (never zero for Pro), by level
since then. Older models are listed; unknown ones are treated like the newest."""

PROVIDER = ProviderSpec(
    name="gemini",
    wire="gemini",
    base_url="https://generativelanguage.googleapis.com/v1beta",
    rank=20,
    hosts=("generativelanguage.googleapis.com",),
    model_prefixes=("gemini",),
    wire_reference=True,
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    aliases=("google",),
    auth="x-goog-api-key",
    quirks=Quirks(schema="gemini"),
    models=THINKS,
    default_model="gemini-2.5-pro",
    small_model="gemini-2.5-flash",
    docs="https://ai.google.dev/gemini-api/docs",
)

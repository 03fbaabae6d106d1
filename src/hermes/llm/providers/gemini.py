"""The Gemini API."""

from __future__ import annotations

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
"""Before 2.5 nothing; there a budget, which the larger model cannot have at zero. The older ones
are named; what is new takes a level, as the newest do."""

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

"""Anthropic."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="anthropic",
    wire="anthropic",
    base_url="https://api.anthropic.com",
    keys=("ANTHROPIC_API_KEY",),
    auth="x-api-key",
    headers={"anthropic-version": "2023-06-01"},
    quirks=Quirks(call_id="word64"),
    models={
        "*claude*": {"cache": "native"},
        "*claude-3-7*": {"effort": "budget"},
        "*claude-*-4*": {"effort": "budget"},
        "*claude-*-4-[6-9]*": {"effort": "adaptive"},
    },
    default_model="claude-sonnet-4-5",
    small_model="claude-haiku-4-5",
)

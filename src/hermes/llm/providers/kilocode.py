"""Kilo Code, an aggregator."""

from __future__ import annotations

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="kilocode",
    wire="chat",
    base_url="https://api.kilo.ai/api/gateway",
    keys=("KILOCODE_API_KEY",),
    aggregator=True,
    docs="https://kilo.ai/docs",
)

"""Vercel AI Gateway, an aggregator."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="ai-gateway",
    wire="chat",
    base_url="https://ai-gateway.vercel.sh/v1",
    keys=("AI_GATEWAY_API_KEY",),
    headers={"X-Title": "Hermes"},
    quirks=Quirks(effort="object"),
)

"""Nous Portal, an aggregator."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="nous",
    wire="chat",
    base_url="https://inference-api.nousresearch.com/v1",
    keys=("NOUS_API_KEY",),
    headers={"X-Title": "Hermes"},
    quirks=Quirks(effort="object"),
)

"""Xiaomi MiMo."""

from __future__ import annotations

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="xiaomi",
    wire="chat",
    base_url="https://api.xiaomimimo.com/v1",
    keys=("XIAOMI_API_KEY",),
    docs="https://platform.xiaomimimo.com",
)

"""GitHub Copilot, an aggregator."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec

PROVIDER = ProviderSpec(
    name="copilot",
    wire="chat",
    base_url="https://api.githubcopilot.com",
    keys=("COPILOT_GITHUB_TOKEN",),
)

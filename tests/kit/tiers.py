"""Tiers of the sandbox for tests that want every one: each is tried once."""

from __future__ import annotations

import sys
from functools import cache

import pytest

from hermes.exec import sandbox_probe
from hermes.exec.sandbox import SandboxTier

_missing: dict[int, str] = {}


@cache
def tiers() -> list[SandboxTier]:
    return sandbox_probe.list_candidates() if sys.platform == "linux" else []


async def had(tier: SandboxTier) -> SandboxTier:
    """The tier; the test is skipped where this machine does not have it."""
    if tier.level not in _missing:
        _missing[tier.level] = (await sandbox_probe.try_tier(tier))[1]
    if why := _missing[tier.level]:
        pytest.skip(f"tier {tier.level} is not to be had here: {why}")
    return tier

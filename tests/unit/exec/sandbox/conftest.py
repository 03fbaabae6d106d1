"""Tiers and workspaces for the tests of the sandbox."""

from pathlib import Path

import pytest

from hermes.exec import sandbox_probe
from hermes.exec.sandbox import (
    SandboxTier,
)
from tests.kit.tiers import had, tiers


@pytest.fixture(params=tiers(), ids=lambda tier: f"tier{tier.level}")
async def tier(request: pytest.FixtureRequest) -> SandboxTier:
    return await had(request.param)


@pytest.fixture
async def first(tmp_path: Path) -> SandboxTier:
    """The tier with namespaces."""
    for candidate in sandbox_probe.list_candidates():
        if candidate.level == 1 and (await sandbox_probe.try_tier(candidate))[0]:
            return candidate
    pytest.skip("bubblewrap does not work here")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    (path / "sub").mkdir(parents=True)
    return path

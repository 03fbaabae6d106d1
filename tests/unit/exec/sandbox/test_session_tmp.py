"""The commands of a session share a /tmp in namespaces, and nobody else sees it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from hermes.exec.sandbox import SandboxPolicy, SandboxTier
from tests.unit.exec.sandbox.sandbox_shell import linux, sh

pytestmark = linux


@pytest.fixture(params=["/tmp", "/var/tmp"])
def policy(request: pytest.FixtureRequest) -> Iterator[SandboxPolicy]:
    """A workspace below /tmp, and one elsewhere."""
    with tempfile.TemporaryDirectory(dir=request.param, prefix="shared-tmp-") as folder:
        workspace = Path(folder) / "inner" / "workspace"
        workspace.mkdir(parents=True)
        yield SandboxPolicy("workspace-write", workspace)


@pytest.fixture
def granted() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="granted-") as folder:
        (Path(folder) / "file").write_text("granted")
        yield Path(folder)


async def test_the_next_command_of_the_session_finds_it(
    policy: SandboxPolicy, first: SandboxTier
) -> None:
    session = policy.workspace.parts[-3]
    await sh(f"echo kept > /tmp/{session}.log; mkdir /tmp/folder; echo here > made", policy, first,
             session=session)  # fmt: skip
    await sh("true", policy, first, session=f"{session} other")
    _, output = await sh(
        f"cat /tmp/{session}.log made; ls -d /tmp/folder", policy, first, session=session
    )
    assert output == "kept\nhere\n/tmp/folder\n"
    for other in ("", f"{session} other"):
        _, output = await sh(f"cat /tmp/{session}.log", policy, first, session=other)
        assert "No such file" in output
    assert not Path(f"/tmp/{session}.log").exists()


async def test_a_link_in_it_leads_no_mount_astray(
    policy: SandboxPolicy, first: SandboxTier, tmp_path: Path, granted: Path
) -> None:
    """Bubblewrap follows links where it makes a place for a mount: a planted one would have it
    create folders outside."""
    session = policy.workspace.parts[-3]
    victim = tmp_path / "victim"
    victim.mkdir()
    plant = (
        f"cd /tmp; for name in {policy.workspace.parts[2]} {granted.name}; do "
        f"mv $name moved-$name; rm -rf $name; ln -s /oldroot{victim} $name; done"
    )
    await sh(plant, policy, first, session=session)
    asking = structs.replace(policy, granted=(granted,))
    _, output = await sh(f"cat {granted}/file; pwd", asking, first, session=session)
    assert output == f"granted{policy.workspace}\n"
    result, output = await sh("touch made; pwd", policy, first, session=session)
    assert result.status == 0 and output == f"{policy.workspace}\n"
    assert (policy.workspace / "made").exists() and not list(victim.iterdir())


async def test_it_has_a_limit(policy: SandboxPolicy, first: SandboxTier) -> None:
    small = structs.replace(policy, limits=structs.replace(policy.limits, scratch=1 << 20))
    session = policy.workspace.parts[-3]
    for _ in range(2):
        _, output = await sh("head -c 2000000 /dev/zero > /tmp/large", small, first,
                             session=session)  # fmt: skip
        assert "No space left" in output


async def test_the_real_one_can_be_granted(
    policy: SandboxPolicy, first: SandboxTier, granted: Path
) -> None:
    beside = policy.workspace.parent / "beside"
    beside.write_text("beside")
    asking = structs.replace(policy, granted=(Path("/tmp"), beside.parent))
    _, output = await sh(f"cat {granted}/file {beside}; touch made", asking, first, session="x")
    assert output == "grantedbeside" and (policy.workspace / "made").exists()


async def test_those_of_many_idle_sessions_are_not_kept(
    policy: SandboxPolicy, first: SandboxTier
) -> None:
    names = [f"{policy.workspace.parts[-3]} {number}" for number in range(12)]
    for name in names:
        await sh("touch /tmp/log", policy, first, session=name)
    assert (await sh("ls /tmp", policy, first, session=names[-3]))[1].startswith("log")
    assert "log" not in (await sh("ls /tmp", policy, first, session=names[0]))[1]

"""How the strongest tier of a machine is found and remembered."""

import os
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import msgspec
import pytest

from hermes.core.errors import ConfigError
from hermes.exec import sandbox_probe
from hermes.exec.sandbox import (
    SandboxPolicy,
    SandboxTier,
    describe_tier,
    require_confinement,
)
from hermes.exec.sandbox_probe import probe_tier
from tests.unit.exec.sandbox.sandbox_shell import ENV, linux, sh


@linux
async def test_the_probe_remembers_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[SandboxTier] = []

    async def counted(tier: SandboxTier) -> tuple[SandboxTier | None, str]:
        runs.append(tier)
        return tier, ""

    monkeypatch.setattr(sandbox_probe, "try_tier", counted)
    monkeypatch.setattr(
        sandbox_probe, "list_candidates", lambda: [SandboxTier(2, "x", ("tried",), ("y",), 7)]
    )

    async def again() -> SandboxTier:
        monkeypatch.setattr(sandbox_probe, "_known_tier", None)
        return await probe_tier(tmp_path / "cache")

    found = await again()
    assert (found.level, await again(), len(runs)) == (2, found, 1)
    file = tmp_path / "cache" / "sandbox.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.setattr(sandbox_probe, "_PROBE_VERSION", 10**6)
    assert (await again(), len(runs)) == (found, 2)
    file.write_bytes(b"{")
    assert (await again(), len(runs)) == (found, 3)
    assert await probe_tier(tmp_path / "cache", fresh=True) == found and len(runs) == 4


@linux
async def test_a_weaker_tier_is_never_taken_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    strong, weak = SandboxTier(1, "x", bwrap="/usr/bin/bwrap"), SandboxTier(2, "y", landlock=7)
    here, broken = [strong, weak], False
    runs: list[int] = []

    async def attempt(tier: SandboxTier) -> tuple[SandboxTier | None, str]:
        runs.append(tier.level)
        return (None, "it broke") if broken and tier == strong else (tier, "")

    monkeypatch.setattr(sandbox_probe, "try_tier", attempt)
    monkeypatch.setattr(sandbox_probe, "list_candidates", lambda: list(here))

    async def process(*, fresh: bool = False) -> SandboxTier:
        monkeypatch.setattr(sandbox_probe, "_known_tier", None)
        caplog.clear()
        return await probe_tier(tmp_path / "cache", fresh=fresh)

    assert (await process()).level == 1 and runs == [1]
    broken = True
    assert (await process()).level == 1 and runs == [1], "what cannot be kept fails by itself"
    for _ in range(2):  # a canary's failure is not remembered, what it once was is
        found = await process(fresh=not runs[1:])
        assert found.level == 2 and found.lowered
        assert "tier 2 instead of 1" in found.evidence[0] and "tier 2 instead of 1" in caplog.text
    assert runs == [1, 1, 2, 1, 2]
    broken = False
    found = await process()
    assert (found.level, found.lowered, caplog.text) == (1, False, "")
    del here[0]
    monkeypatch.setattr(sandbox_probe, "_PROBE_VERSION", 10**6)  # its parts are gone
    assert (await process()).lowered
    found = await process()
    assert (found.level, found.lowered, len(runs)) == (2, False, 7), "the strongest there is now"


@linux
async def test_a_wrapper_that_confines_nothing_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ $1 != -- ]; do shift; done; shift; exec "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setattr(sandbox_probe, "_known_tier", None)
    monkeypatch.setattr(
        sandbox_probe, "list_candidates", lambda: [SandboxTier(1, "bubblewrap", bwrap=str(fake))]
    )
    found = await probe_tier()
    monkeypatch.setattr(sandbox_probe, "_known_tier", None)
    assert found.level == 3
    assert "read a hidden file" in found.evidence[0]
    assert "read a hidden file" in found.evidence[0]
    with pytest.raises(ConfigError, match=r"sandbox\.required"):
        require_confinement(found)


@linux
@pytest.mark.parametrize("version", range(1, sandbox_probe.landlock_version() + 1))
async def test_older_kernels_confine_as_well(workspace: Path, version: int) -> None:
    tier, why = await sandbox_probe.try_tier(SandboxTier(2, "Landlock", landlock=version))
    assert tier is not None, why
    target = workspace.parent / "target"
    target.write_text("as it was")
    script = f"""
    truncate -s 0 {target}; mv {target} sub; ln {target} sub/l; chmod 777 {target}; rm {target}
    {sys.executable} -c 'import os; os.open("{target}", os.O_RDONLY | os.O_TRUNC)'
    {sys.executable} -c 'import os; os.truncate("{target}", 1)'
    """
    before = target.stat()
    policy = SandboxPolicy("workspace-write", workspace, visible=(workspace.parent,))
    outcome, _ = await sh(script, policy, tier)
    assert outcome.status not in (0, None)
    after = target.stat()
    assert target.read_text() == "as it was"
    assert (before.st_mode, before.st_nlink) == (after.st_mode, after.st_nlink)


@linux
async def test_a_missing_wrapper_is_no_tier(tmp_path: Path) -> None:
    tier, why = await sandbox_probe.try_tier(
        SandboxTier(1, "bubblewrap", bwrap=str(tmp_path / "none"))
    )
    assert tier is None
    assert "cannot be used" in why


def test_a_tier_is_described_with_what_it_loses() -> None:
    tier = SandboxTier(2, "Landlock", ("tried to write: denied",), ("signals",))
    assert describe_tier(tier) == [
        "sandbox tier 2: Landlock",
        "  tried to write: denied",
        "  not protected: signals",
    ]
    require_confinement(tier)


@linux
async def test_the_probe_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_probe, "_known_tier", None)
    found = await probe_tier()
    assert found.evidence
    assert found.level == min((t.level for t in sandbox_probe.list_candidates()), default=3)
    assert found.lost
    assert msgspec.json.decode(msgspec.json.encode(found), type=SandboxTier) == found


NOBODY = """
import asyncio, json, os, sys
from pathlib import Path
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.sandbox import SandboxPolicy
from hermes.exec.sandbox_probe import list_candidates, try_tier
async def main():
    found, work = {}, Path(sys.argv[1])
    for candidate in list_candidates():
        tier, why = await try_tier(candidate)
        out = OutputCapture(1000, work)
        if tier:
            policy = SandboxPolicy("workspace-write", work, (), (work / "AGENTS.md",))
            text = "echo evil > AGENTS.md; echo fine > sub/f; cat sub/f; ulimit -u; rm sub/f"
            env = {"PATH": "/usr/bin:/bin"}
            await run_command(CommandSpec(text, work, env, 10, policy, tier), out)
        found[candidate.level] = [why, out.text(), os.listdir(work)]
    print(json.dumps(found))
asyncio.run(main())
"""


@linux
@pytest.mark.skipif(os.geteuid() != 0, reason="already runs as an ordinary user")
def test_an_ordinary_user_has_the_same_tiers(tmp_path: Path) -> None:
    paths = [str(Path(sandbox_probe.__file__).parents[3]), sysconfig.get_path("purelib")]
    work = Path("/tmp") / f"hermes-nobody-{os.getpid()}"
    (work / "sub").mkdir(parents=True)
    for folder in (work, work / "sub"):
        os.chown(folder, 65534, 65534)
    try:
        for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
            result = subprocess.run(
                [python, "-B", "-c", NOBODY, str(work)],
                env={"PYTHONPATH": ":".join(paths), "PATH": ENV["PATH"]},
                user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True,
            ) if os.access(python, os.X_OK) and _reachable(python) else None  # fmt: skip
            if result and "No module named" not in result.stderr:
                break
        else:
            pytest.skip("no interpreter that an ordinary user may run")
        found = msgspec.json.decode(result.stdout)
    finally:
        (work / "sub").rmdir()
        work.rmdir()
    assert set(found) == {str(tier.level) for tier in sandbox_probe.list_candidates()}
    for why, text, left in found.values():
        assert why == ""
        assert text.splitlines()[1] == "fine"
        assert int(text.splitlines()[2]) < 100_000
        assert left == ["sub"]


def _reachable(path: str) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in Path(path).parents)

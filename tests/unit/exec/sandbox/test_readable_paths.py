"""What of a machine and of a home commands can read, on every tier this machine has."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.sandbox import SandboxPolicy, SandboxTier, build_policy, policy
from hermes.exec.sandbox.toolchains import TABLE
from tests.unit.exec.sandbox.sandbox_shell import ENV, linux, sh

SECRETS = (
    ".cargo/credentials.toml", ".npmrc", ".m2/settings.xml", ".gradle/gradle.properties",
    ".gem/credentials", ".composer/auth.json", ".config/pypoetry/auth.toml", ".condarc",
    ".local/share/uv/credentials/x", ".config/pip/pip.conf", ".bundle/config", "notes.txt",
    ".npm-global/etc/npmrc", ".nvm/versions/node/v22.1.0/etc/npmrc",
    ".volta/tools/image/node/22.1.0/etc/npmrc",
    ".local/share/fnm/node-versions/v22.1.0/installation/etc/npmrc",
)  # fmt: skip


@linux
async def test_of_the_system_only_what_programs_need(workspace: Path, tier: SandboxTier) -> None:
    policy = SandboxPolicy("workspace-write", workspace)
    script = "for f in /var/log /var/cache /srv /mnt /media /boot; do ls $f && echo REACHED; done"
    assert "REACHED" not in (await sh(script, policy, tier))[1]
    script = "cat /etc/passwd /etc/os-release && ls /usr/bin /etc/ssl >&2 && echo fine"
    outcome, text = await sh(script, policy, tier)
    assert outcome.status == 0 and text.endswith("fine\n")


def test_settings_that_not_everybody_may_read_are_hidden(tmp_path: Path) -> None:
    for name, mode in (("open", 0o644), ("mine", 0o600), ("ours", 0o640), ("deep/mine", 0o600)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("mine")
    found = policy._find_private_settings.__wrapped__(str(tmp_path))
    assert {str(p.relative_to(tmp_path)) for p in found} == {"mine", "ours", "deep/mine", "closed"}


@linux
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].strip())
async def test_tools_of_a_home_run_and_their_secrets_do_not_show(
    tmp_path: Path, tier: SandboxTier, row: list[str]
) -> None:
    home, work = tmp_path / "u", tmp_path / "work"
    programs, caches, renewable = (cell.split() for cell in row[1:])
    for folder in (home, work, tmp_path / "agent"):
        folder.mkdir()
    for name in SECRETS:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("SECRET\n")
    lines = [f"cat $HOME/{name} {home / name}" for name in SECRETS]
    programs = [name for name in programs if name not in caches]
    for name in programs:
        (home / name).mkdir(parents=True, exist_ok=True)
        (home / name / "tool").write_text("#!/bin/sh\necho ran\n")
        (home / name / "tool").chmod(0o755)
        lines += [f"{home / name}/tool", f"$HOME/{name}/tool"]
    caches += renewable
    for name in caches:
        (home / name / "in").mkdir(parents=True, exist_ok=True)
        (home / name / "in/entry").write_text("cached\n")
        lines += [f"cat {home / name}/in/entry", f"cat $HOME/{name}/in/entry"]
        lines += [f"mkdir -p $HOME/{name}; echo x > $HOME/{name}/new && cat $HOME/{name}/new"]
        lines += [f"rm -r {home / name}/in && echo removed"]
    lines += [f"echo no > $HOME/{name}/planted" for name in programs]
    walls = build_policy("workspace-write", work, tmp_path / "agent", home)
    out = OutputCapture(50_000, tmp_path / "spill")
    env = {**ENV, "HOME": str(home)}
    await run_command(CommandSpec("\n".join(lines), work, env, 60, walls, tier), out)
    out.close()
    words = out.text().split("\n")
    assert "SECRET" not in out.text()
    overlaid = tier.level == 1
    assert words.count("ran") == 2 * len(programs)
    begun_empty = 0 if overlaid else len(renewable)
    assert words.count("cached") == 2 * len(caches) - begun_empty
    assert words.count("x") == len(caches)
    assert words.count("removed") == (len(caches) if overlaid else 0)
    for name in caches:
        assert [p.name for p in (home / name).iterdir()] == ["in"], "the home is as it was"
    assert not list(home.rglob("planted"))


@linux
async def test_a_pipe_among_tools_leads_to_nobody_outside(
    tmp_path: Path, first: SandboxTier
) -> None:
    """Also where a cache is below: pnpm keeps its store among its programs."""
    home, work = tmp_path / "u", tmp_path / "work"
    tools = home / ".local/share/pnpm"
    for folder in (tools / "store" / "in", work):
        folder.mkdir(parents=True)
    (tools / "store/in/entry").write_text("cached")
    os.mkfifo(tools / "pipe")
    reader = os.open(tools / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        walls = build_policy("workspace-write", work, tmp_path / "agent", home)
        code = f"import os; os.open('{tools}/pipe', os.O_WRONLY | os.O_NONBLOCK); print('OPEN')"
        text = f'cat {tools}/store/in/entry; python3 -c "{code}"'
        _, output = await sh(text, walls, first, HOME=str(home))
        assert output.startswith("cached") and "OPEN" not in output
        assert "No such device or address" in output
    finally:
        os.close(reader)


def test_file_tools_and_commands_read_the_same(tmp_path: Path) -> None:
    home = tmp_path / "u"
    for folder in (home / "work/.git", home / ".cargo/registry", home / ".hermes", home / ".ssh"):
        folder.mkdir(parents=True)
    walls = build_policy("workspace-write", home / "work", home / ".hermes", home)
    for path in (home / "work/x", home / ".cargo/registry/x", Path("/usr/bin/env")):
        assert walls.allows_reading(path)
    for path in (home / "x", home / ".ssh/id", home / ".cargo/x", Path("/srv/x"), Path("/")):
        assert not walls.allows_reading(path)
    granted = structs.replace(walls, visible=(home / "other",))
    assert granted.allows_reading(home / "other/x")


def git(folder: Path, *words: str) -> None:
    name = ("-c", "user.name=x", "-c", "user.email=y")
    subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True)


@linux
async def test_git_works_in_a_linked_worktree(tmp_path: Path, tier: SandboxTier) -> None:
    home, main, tree = tmp_path / "u", tmp_path / "u" / "main", tmp_path / "u" / "tree"
    for folder in (main, tmp_path / "agent"):
        folder.mkdir(parents=True)
    (main / "secret.txt").write_text("SECRET\n")
    (main / "file").write_text("one\n")
    git(main, "init", "-q")
    git(main, "add", "file")
    git(main, "commit", "-qm", "first commit")
    git(main, "worktree", "add", "-q", "-b", "side", str(tree))
    policy = build_policy("workspace-write", tree, tmp_path / "agent", home)
    script = f"echo two > file; git log --oneline; git status -sb; git diff; cat {main}/secret.txt"
    _outcome, text = await sh(script, policy, tier)
    assert "first commit" in text and "## side" in text and "+two" in text and "SECRET" not in text
    await sh(f"echo x > {main}/.git/config; echo x > {main}/.git/worktrees/tree/HEAD", policy, tier)
    git(tree, "status")


@pytest.mark.parametrize("back", ["../../../.git", "{work}/.git", "/elsewhere/.git", ""])
def test_a_worktree_that_its_repository_does_not_list_reads_nothing_else(
    tmp_path: Path, back: str
) -> None:
    """Whoever made the files of a workspace cannot name a folder in the home as its repository."""
    home, work = tmp_path / "u", tmp_path / "work"
    for folder in (home / "private" / "objects", work / "x", tmp_path / "agent"):
        folder.mkdir(parents=True)
    (work / "x" / "worktrees").symlink_to(home / "private")
    (work / ".git").write_text("gitdir: x/worktrees/objects\n")
    policy = build_policy("workspace-write", work, tmp_path / "agent", home)
    assert not policy.allows_reading(home / "private" / "key")
    (work / "x" / "worktrees").unlink()
    (work / "x" / "worktrees" / "objects").mkdir(parents=True)
    (work / "x" / "worktrees" / "objects" / "gitdir").write_text(back.format(work=work))
    (work / "x" / "objects").symlink_to(home / "private")
    policy = build_policy("workspace-write", work, tmp_path / "agent", home)
    assert not policy.allows_reading(home / "private" / "key")
    assert not policy.allows_reading(tmp_path / "other")

"""Workspaces of every shape: a command leaves nothing in them that others will run."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from hermes.core.errors import ConfigError
from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.sandbox import SandboxTier, build_policy, planted_files
from tests.kit.tiers import had, tiers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes need Linux")

PATH = "/usr/local/bin:/usr/bin:/bin"
RC = """
    .bash_profile .profile .zshenv .bash_aliases .gitconfig .ssh/authorized_keys .config/git/config
    .config/systemd/user/x.service .config/autostart/x.desktop .local/bin/ls .pam_environment bin/ls
""".split()


class Shape(NamedTuple):
    name: str
    made: str
    """By the user, in the workspace."""
    planted: tuple[str, ...]
    """Files that the command tries to write "evil" to, whatever is there or on the way."""
    first: str = ""
    """What it tries before that."""


SHAPES = [
    Shape(
        "notes for agents",
        "touch AGENTS.md CLAUDE.md .cursorrules .hermes.md",
        ("AGENTS.md", "CLAUDE.md", ".cursorrules", ".hermes.md"),
    ),
    Shape(
        "notes and settings further down",
        "mkdir -p a/b a/.vscode a/.github c/.husky && touch a/b/AGENTS.md a/.vscode/tasks.json "
        "a/.envrc a/.github/copilot-instructions.md a/my.code-workspace c/.husky/pre-push "
        "top.code-workspace mise.toml",
        ("a/b/AGENTS.md", "a/.vscode/tasks.json", "a/.envrc", "a/.github/copilot-instructions.md",
         "a/my.code-workspace", "c/.husky/pre-push", "top.code-workspace", "mise.toml"),
        "mv a/b a/old; mv a/.github a/x; mv a y; mv c z; mkdir -p a/b a/.github c",
    ),
    Shape(
        "a repository beside its .git",
        "mkdir meta && git init -q --separate-git-dir=meta/repo .",
        (".git", "meta/repo/config", "meta/repo/hooks/post-commit"),
        "mv meta/repo meta/old; mkdir -p meta/repo/hooks",
    ),
    Shape(
        "a worktree inside",
        "git init -q . && git -c user.name=n -c user.email=e commit -q --allow-empty -m m && "
        "git worktree add -q tree",
        ("tree/.git",),
        "rm -f tree/.git; mv tree old; mkdir tree",
    ),
    Shape(
        "repositories further down",
        "mkdir -p a/lib && git init -q a/lib && git init -q b",
        ("a/lib/.git/config", "a/lib/.git/hooks/post-commit", "b/.git/config", "b/.git/commondir"),
        "mv a/lib/.git a/lib/x; mv a y; mv b z; mkdir -p a/lib/.git/hooks b/.git",
    ),
    Shape(
        "hooks, settings and filters in the work tree",
        "git init -q . && mkdir hooks tools && touch more tools/clean && git config core.hooksPath "
        "hooks && git config include.path ../more && git config filter.f.clean './tools/clean %f' "
        "&& printf '[include] path = \"../missing\" # x\\n' >> .git/config",
        ("hooks/pre-commit", "more", "missing", "tools/clean"),
        "mv hooks old; mkdir hooks; mv tools gone; mkdir tools",
    ),
    Shape(
        "hooks and programs that included settings name",
        "git init -q . && mkdir tools && touch tools/clean.py tools/ship.sh && "
        "git config include.path ../team && git config -f team core.hooksPath checks && "
        "git config -f team include.path more && git config -f more filter.f.clean "
        "'python3 tools/clean.py' && git config -f more alias.ship '!sh tools/ship.sh'",
        ("team", "more", "checks/pre-commit", "tools/clean.py", "tools/ship.sh"),
        "mv tools gone; mkdir tools",
    ),
    Shape(
        "hooks that are links",
        "git init -q . && mkdir scripts && touch scripts/check && "
        "ln -s ../../scripts/check .git/hooks/pre-commit",
        ("scripts/check",),
    ),
    Shape(
        "a folder of hooks that is a link",
        "git init -q . && rm -rf .git/hooks && mkdir kept shared && ln -s ../kept .git/hooks && "
        "ln -s shared linked && git config core.hooksPath linked",
        ("kept/pre-commit", "shared/pre-push"),
    ),
    Shape(
        "a bare repository",
        "git init -q --bare .",
        ("config", "hooks/post-receive"),
    ),
    Shape(
        "a folder that is made a bare repository",
        "mkdir sub",
        ("HEAD",),
        "git init -q --bare sub/x && mv sub/x/* .; git init -q --bare .",
    ),
    Shape(
        "a folder that borrows a bare repository",
        "mkdir sub",
        ("HEAD",),
        "git init -q --bare sub/x && echo sub/x > commondir; echo ref: refs/heads/m > HEAD",
    ),
]  # fmt: skip


@pytest.fixture(params=tiers(), ids=lambda t: f"tier{t.level}")
async def tier(request: pytest.FixtureRequest) -> SandboxTier:
    return await had(request.param)


async def sh(text: str, workspace: Path, home: Path, tier: SandboxTier) -> str:
    policy = build_policy("workspace-write", workspace, home.parent / "agent", home)
    out = OutputCapture(20_000, home.parent / "spill")
    env = {"PATH": PATH, "HOME": str(home)}
    await run_command(CommandSpec(text, workspace, env, 60, policy, tier), out)
    out.close()
    return out.text()


def planting(names: tuple[str, ...] | list[str], first: str = "") -> str:
    """Writes to each, and in each way replaces it."""
    tries = (
        "mkdir -p $(dirname $f); echo evil >> $f; echo evil > s && mv -f s $f; rm -rf $f; "
        "ln -f s $f; ln -sf $PWD/s $f; echo evil > $f; rm -rf $f; echo evil > $f"
    )
    return f"exec 2>/dev/null; {first or 'true'}; for f in {' '.join(names)}; do {tries}; done"


def evil(workspace: Path, names: tuple[str, ...] | list[str]) -> list[str]:
    found = []
    for name in names:
        with contextlib.suppress(OSError):
            if "evil" in (workspace / name).read_text():
                found.append(name)
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("home", "agent"):
        (tmp_path / name).mkdir()
    return tmp_path / "home"


def made(shape: Shape, workspace: Path, home: Path) -> Path:
    workspace.mkdir()
    env = {"PATH": PATH, "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["sh", "-c", shape.made], cwd=workspace, check=True, env=env)
    return workspace


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
async def test_nothing_is_planted(
    tmp_path: Path, home: Path, tier: SandboxTier, shape: Shape
) -> None:
    workspace = made(shape, tmp_path / "work", home)
    await sh(planting(shape.planted, shape.first), workspace, home, tier)
    assert evil(workspace, shape.planted) == []
    if shape.planted == ("HEAD",):
        env = {"PATH": PATH, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
        asked = subprocess.run(
            ["git", "rev-parse", "--git-dir"], cwd=workspace, env=env, capture_output=True
        )
        assert asked.returncode, asked.stdout


@pytest.mark.parametrize(
    "shape", [s for s in SHAPES if s.planted != ("HEAD",)], ids=lambda s: s.name
)
def test_it_could_be_planted_without_a_sandbox(tmp_path: Path, home: Path, shape: Shape) -> None:
    workspace = made(shape, tmp_path / "work", home)
    text = planting(shape.planted, shape.first)
    subprocess.run(["sh", "-c", text], cwd=workspace, check=False, env={"PATH": PATH})
    assert evil(workspace, shape.planted) == list(shape.planted)


@pytest.mark.parametrize("inside", [".", "u"])
async def test_a_home_as_the_workspace(
    tmp_path: Path, home: Path, tier: SandboxTier, inside: str
) -> None:
    """Also one in it. What programs read there stays missing, and is missing for them meanwhile."""
    user = home / inside
    (user / "project").mkdir(parents=True)
    (user / ".bashrc").write_text("mine\n")
    before = sorted(os.listdir(user))
    names = [*RC, ".bashrc"]
    text = planting([os.path.join(inside, n) for n in names], f"cat {inside}/.profile; ls -A >&2")
    policy = build_policy("workspace-write", home, tmp_path / "agent", user)
    out = OutputCapture(20_000, tmp_path / "spill")
    command = CommandSpec(
        f"{text}; echo fine > {inside}/project/f", home, {"PATH": PATH}, 60, policy, tier
    )
    await run_command(command, out)
    out.close()
    assert evil(user, names) == []
    assert (user / "project" / "f").read_text() == "fine\n"
    left = [n for n in sorted(os.listdir(user)) if n != "s"]
    assert left == before


async def test_two_commands_hold_the_same_names(
    tmp_path: Path, home: Path, tier: SandboxTier
) -> None:
    (home / "sub").mkdir()
    os.mkfifo(home / "sub" / "gate")
    waiting = asyncio.create_task(
        sh("read x < sub/gate; echo evil > .profile; echo $x", home, home, tier)
    )
    await sh("echo evil > .profile", home, home, tier)
    gate = os.open(home / "sub" / "gate", os.O_RDWR)  # waits for nobody, whatever became of it
    try:
        os.write(gate, b"go\n")
        assert (await waiting).endswith("go\n")
    finally:
        os.close(gate)
    assert sorted(os.listdir(home)) == ["sub"]


async def test_work_in_a_folder_of_a_hidden_home(
    tmp_path: Path, home: Path, tier: SandboxTier
) -> None:
    """Modes and times can be changed; programs that are hidden do not stand before others."""
    work = home / "work"
    for folder in (work / "sub", home / "own"):
        folder.mkdir(parents=True)
    (home / "own" / "stat").write_text("#!/bin/sh\necho hidden\n")
    (home / "own" / "stat").chmod(0o755)
    policy = build_policy("workspace-write", work, tmp_path / "agent", home)
    text = "cd sub; touch f && chmod 640 f && touch -d @981158400 f && stat -c '%a %Y' f"
    env = {"PATH": f"{home}/own:{PATH}", "HOME": str(home)}
    out = OutputCapture(20_000, tmp_path / "spill")
    await run_command(CommandSpec(text, work, env, 60, policy, tier), out)
    out.close()
    assert out.text() == "640 981158400\n"


async def test_a_workspace_at_whose_top_nothing_can_be_made(
    tmp_path: Path, home: Path, tier: SandboxTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands run there. Its owner, who may change its mode, makes no protected name either."""
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    access = os.access

    def closed(path: str, mode: int) -> bool:
        return access(path, mode) and not (mode == os.W_OK and str(path) == str(work))

    monkeypatch.setattr(os, "access", closed)
    text = "echo fine > sub/f; cat sub/f; chmod 777 .; mkdir AGENTS.md .git"
    assert (await sh(f"{{ {text}; }} 2>/dev/null", work, home, tier)) == "fine\n"
    assert os.listdir(work) == ["sub"]


@pytest.mark.parametrize("where", ["/", "/usr", "/nonexistent", "link"])
async def test_wherever_the_home_is_there_is_one(
    tmp_path: Path, home: Path, tier: SandboxTier, where: str
) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("SECRET")
    (tmp_path / "link").symlink_to(home)
    user = tmp_path / where
    (tmp_path / "work").mkdir()
    policy = build_policy("workspace-write", tmp_path / "work", tmp_path / "agent", user)
    out = OutputCapture(20_000, tmp_path / "spill")
    text = "cat ~/.ssh/id; cd && echo fine > ~/f && cat f"
    env = {"PATH": PATH, "HOME": str(user)}
    await run_command(CommandSpec(text, tmp_path / "work", env, 60, policy, tier), out)
    out.close()
    assert out.text().endswith("fine\n")
    assert "SECRET" not in out.text()
    assert not (home / "f").exists()


async def test_what_commands_make_is_theirs(tmp_path: Path, home: Path, tier: SandboxTier) -> None:
    """A repository further down that was not there before is ordinary work."""
    (tmp_path / "work" / "sub").mkdir(parents=True)
    first = await sh("git init -q sub/r && echo made", tmp_path / "work", home, tier)
    text = "cd sub/r && git config user.name n && git config user.email e && git commit -q "
    text += "--allow-empty -m m && git log --oneline | wc -l && cd .. && rm -r r && echo gone"
    again = await sh(text, tmp_path / "work", home, tier)
    assert (first, again.split()) == ("made\n", ["1", "gone"])


async def test_a_repository_that_went_is_not_made_again(
    tmp_path: Path, home: Path, tier: SandboxTier
) -> None:
    work = tmp_path / "work"
    (work / "sub" / "r" / ".git" / "hooks").mkdir(parents=True)
    await sh("true", work, home, tier)
    assert work / "sub/r/.git/hooks" in planted_files.find_plantable_paths(work, home, ()).protected
    (work / "sub" / "r" / ".git" / "hooks").rmdir()
    (work / "sub" / "r" / ".git").rmdir()
    (work / "sub" / "r").rmdir()
    assert await sh("mkdir sub/r && echo fine", work, home, tier) == "fine\n"


async def test_a_socket_bound_to_a_relative_name(
    tmp_path: Path, home: Path, tier: SandboxTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("agent.sock")
        listener.listen()
        listener.setblocking(False)
        code = "import socket; socket.socket(socket.AF_UNIX).connect('agent.sock')"
        await sh(f'/usr/bin/env python3 -c "{code}"', tmp_path / "work", home, tier)
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_the_agents_own_home_as_the_workspace(
    tmp_path: Path, home: Path, tier: SandboxTier
) -> None:
    """Work goes on there, and what steers the agent or is secret is neither seen nor made."""
    agent = tmp_path / "agent"
    for name in ("work", "logins"):
        (agent / name).mkdir()
    for name in (".env", "config.yaml", "auth.json", "logins/x.json"):
        (agent / name).write_text("secret\n")
    names = [".env", "config.yaml", "auth.json", "logins/x.json", "skills/x.md", "trust.json"]
    text = f"cat {' '.join(names)}; {planting(names)}; echo fine > work/f; cat work/f"
    assert (await sh(text, agent, home, tier)).replace("Permission denied", "").count("secret") == 0
    assert evil(agent, names) == []
    assert (agent / "work" / "f").read_text() == "fine\n"
    assert (agent / ".env").read_text() == "secret\n"
    assert not os.path.lexists(agent / "skills")
    for folder in ("logins", "logins/inner"):
        with pytest.raises(ConfigError):
            build_policy("workspace-write", agent / folder, agent, home)
    profile = agent / "profiles" / "p"
    profile.mkdir(parents=True)
    assert agent / ".env" in build_policy("workspace-write", agent, profile, home).hidden
    assert build_policy("workspace-write", profile / "work", profile, home).hidden

"""Git in the sandbox: ordinary work on a repository goes through, and nothing that would run later
outside comes along."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes.app.agents import Options
from hermes.exec.command_policy import CommandRules, judge_command
from hermes.exec.sandbox_probe import probe_tier
from tests.kit import call, say
from tests.kit.bodies import messages, quoted
from tests.kit.processes import until
from tests.kit.rig import Rig, rig


def git(folder: Path, *words: str) -> str:
    """As the user outside would run it."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    named = ("-c", "user.name=User", "-c", "user.email=u@example.invalid")
    done = subprocess.run(
        ["git", *named, *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "old.txt").write_text("old\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")


@pytest.fixture
async def r(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    for name in [name for name in os.environ if name.startswith(("GIT_", "EMAIL"))]:
        monkeypatch.delenv(name)
    settings = tmp_path / "gitconfig"
    settings.write_text('[user]\n\tname = A \\"User\\" X\n[alias]\n\tco = checkout\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    if (await probe_tier()).level != 1:
        pytest.skip("needs a sandbox with namespaces")
    repository(tmp_path / "work")
    async with rig(tmp_path, [], options=Options(), check=False) as found:
        yield found


async def run(r: Rig, command: str, **more: object) -> str:
    """What the model is told; nobody is there who could be asked."""
    r.provider.steps[:] = [
        call((f"c{len(r.requests)}", "terminal", {"command": command, **more})),
        say("done"),
    ]
    assert (await r.turn(f"turn {len(r.requests)}")).status == "completed"
    told = [quoted(text) for m in messages(r.requests[-1]) for _, text in m.results]
    return told[-1]


@pytest.mark.parametrize("name", ["ignored", ".config/git/ignore"])
async def test_what_the_user_ignores_everywhere_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if (await probe_tier()).level != 1:
        pytest.skip("needs a sandbox with namespaces")
    for variable in ("GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    user = tmp_path / "user"
    monkeypatch.setenv("HOME", str(user))
    (user / name).parent.mkdir(parents=True)
    (user / name).write_text("*.secret")
    if name == "ignored":
        (user / ".gitconfig").write_text("[core]\n\texcludesFile = ~/ignored\n")
    repository(tmp_path / "work")
    async with rig(tmp_path, [], options=Options(), check=False) as r:
        for file in ("a.secret", "b.txt"):
            (r.home.work / file).write_text("x")
        assert await run(r, "git add -A && git commit -qm x && git clean -fd") == "(no output)"
        assert git(r.home.work, "ls-files").split() == ["b.txt", "old.txt"]
        assert (r.home.work / "a.secret").exists()


async def test_nothing_of_the_sandbox_is_in_the_way_of_git_clean(r: Rig) -> None:
    (r.home.work / "build").mkdir()
    (r.home.work / "junk").write_text("x")
    told = await run(r, "git clean -fd && echo cleaned")
    assert told == "Removing build/\nRemoving junk\ncleaned"


async def test_filters_of_the_users_settings_apply(r: Rig, tmp_path: Path) -> None:
    """As those of Git LFS: without them the content itself would be committed."""
    settings = tmp_path / "gitconfig"
    filters = '[filter "upper"]\n\tclean = tr a-z A-Z\n\trequired = true\n'
    settings.write_text(settings.read_text() + filters)
    (r.home.work / ".gitattributes").write_text("*.up filter=upper\n")
    (r.home.work / "a.up").write_text("text\n")
    assert await run(r, "git add -A && git commit -qm x") == "(no output)"
    assert git(r.home.work, "cat-file", "-p", "HEAD:a.up") == "TEXT\n"


@pytest.mark.parametrize(
    ("command", "commits"),
    [
        ("git add -A && git commit -m x", True),
        ("cd src; git -c user.name=x commit -m y", True),
        ("bash -c 'git stash'", True),
        ("if true; then git checkout -b x; fi", True),
        ("git status; git log -1", False),
        ("git branch --list", False),
        ("echo git commit", False),
        ("git push", False),
    ],
)
def test_which_commands_write_to_the_repository(
    tmp_path: Path, command: str, commits: bool
) -> None:
    judged = judge_command(
        command, workspace=tmp_path, home=tmp_path / "home", rules=CommandRules(), sandboxed=True
    )
    assert (judged.commits and not judged.read_only) is commits


async def test_an_ordinary_commit_needs_nobody(r: Rig) -> None:
    work = r.home.work
    (work / "new.txt").write_text("new\n")
    told = await run(r, "git add -A && git commit -m 'add new' && git log --oneline | wc -l")
    assert "not kept" not in told and told.strip().endswith("2"), told
    assert git(work, "log", "--format=%s").split("\n")[:2] == ["add new", "first"]
    assert git(work, "status", "--porcelain") == ""
    git(work, "fsck", "--strict")
    assert not list((r.home.path / "cache" / "stand-ins").iterdir())


async def test_the_usual_workflow(r: Rig) -> None:
    work = r.home.work
    steps = [
        "git checkout -q -b feature/a && echo a > a && git add a && git commit -qm a",
        "git tag v1 && git switch -q main && echo b > b && git add b && git commit -qm b",
        "git merge -q feature/a -m merged",
        "echo c >> old.txt && git stash -q && git stash list",
        "git stash pop -q && git commit -qam c",
        "git rebase -q --onto HEAD~1 HEAD~1 && git branch -q -d feature/a && git branch -q feature",
        "git rm -q b && git reset -q --soft HEAD~1 && git commit -qm again",
        "git gc -q && git cherry-pick --no-commit v1 || true; git stash -q || true",
    ]
    for step in steps:
        told = await run(r, step)
        assert "not kept" not in told and "exit status" not in told, (step, told)
        git(work, "fsck", "--strict")
        assert git(work, "rev-parse", "HEAD")
    assert git(work, "branch", "--list").split() == ["feature", "*", "main"]
    assert git(work, "tag").split() == ["v1"]
    assert git(work, "status", "--porcelain") == ""


async def test_the_users_name_is_used(r: Rig) -> None:
    work = r.home.work
    await run(r, "git commit -q --allow-empty -m x")
    assert git(work, "log", "-1", "--format=%an %ae").strip() == 'A "User" X hermes@localhost'
    git(work, "config", "user.name", "Local")
    await run(r, "git commit -q --allow-empty -m x")
    assert git(work, "log", "-1", "--format=%an").strip() == "Local"


async def test_what_others_did_meanwhile_is_not_overwritten(r: Rig) -> None:
    work = r.home.work
    os.mkfifo(work / "go")
    r.provider.steps[:] = [
        call(("c", "terminal", {"command": "git commit -q --allow-empty -m mine; read x < go"})),
        say("done"),
    ]
    turn = r.begin("go")
    fd = os.open(work / "go", os.O_RDWR)
    log = "stand-ins/*/git/logs/HEAD"
    while not any("mine" in f.read_text() for f in (r.home.path / "cache").glob(log)):
        await asyncio.sleep(0.01)
    git(work, "commit", "-q", "--allow-empty", "-m", "theirs")
    os.write(fd, b"\n")
    assert (await turn).status == "completed"
    os.close(fd)
    told = [quoted(text) for m in messages(r.requests[-1]) for _, text in m.results]
    assert "meanwhile" in told[-1]
    assert git(work, "log", "--format=%s").split("\n")[:2] == ["theirs", "first"]
    assert not list((work / ".git").rglob("*.lock"))


async def test_a_rebase_that_stops_is_not_left_behind(r: Rig) -> None:
    work = r.home.work
    await run(r, "git switch -qc other && echo 1 > old.txt && git commit -qam one")
    await run(r, "git switch -q main && echo 2 > old.txt && git commit -qam two")
    head = git(work, "rev-parse", "HEAD")
    told = await run(r, "git rebase -q other")
    assert "in the middle" in told
    assert git(work, "rev-parse", "HEAD") == head
    assert not (work / ".git" / "rebase-merge").exists()


async def test_a_new_repository_is_begun_by_us(r: Rig) -> None:
    work = r.home.work
    subprocess.run(["rm", "-rf", str(work / ".git")], check=True)
    assert "not kept" not in await run(r, "git init -q")
    assert "No commits yet" in await run(r, "git status")
    subprocess.run(["rm", "-rf", str(work / ".git")], check=True)
    evil = "git config core.fsmonitor $PWD/evil; echo x > .git/hooks/pre-commit"
    r.home.file("steps.py", f"import os; os.system({evil!r})")  # the gate would ask about it
    told = await run(
        r, "git init -q -b trunk && python3 steps.py; git add -A && git commit -qm begun"
    )
    assert "read-only" not in told and "not kept" not in told, told
    assert git(work, "log", "--format=%s %D").strip() == "begun HEAD -> trunk"
    assert "evil" not in (work / ".git" / "config").read_text()
    assert not (work / ".git" / "hooks" / "pre-commit").exists()
    assert git(work, "status", "--porcelain") == ""
    await run(r, "echo more >> old.txt; git commit -qam more")
    assert git(work, "rev-list", "--count", "HEAD").strip() == "2"


async def test_a_new_repository_that_is_odd_is_not_begun(r: Rig) -> None:
    work = r.home.work
    subprocess.run(["rm", "-rf", str(work / ".git")], check=True)
    r.home.file("steps.py", "open('.git/HEAD', 'w').write('x')")
    told = await run(r, "git init -q; python3 steps.py")
    assert "not kept" in told and not (work / ".git").exists()


@pytest.mark.parametrize("odd", [False, True], ids=["good", "odd"])
async def test_a_repository_is_begun_while_another_command_runs(
    r: Rig, mark: str, odd: bool
) -> None:
    """The name that the other command keeps free for nobody becomes the repository, which that
    command cannot change; if it is not taken over, the name stays taken."""
    work = r.home.work
    subprocess.run(["rm", "-rf", str(work / ".git")], check=True)
    r.home.file("steps.py", "import sys; open('.git/HEAD', 'w').write('x') if sys.argv[1:] else 0")
    waiting = (
        "until [ -e go ]; do sleep 0.05; done; touch .git/planted; rm -rf .git; mkdir .git; "
        f"mv .git away; touch tried; exec sleep {mark}"
    )
    await run(r, waiting, background=True)
    told = await run(
        r, f"git init -q && git add -A && git commit -qm begun; python3 steps.py {'x' * odd}"
    )
    assert ("not kept" in told) is odd, told
    (work / "go").touch()
    await until(lambda: (work / "tried").exists())
    assert not (work / "away").exists() and not (work / ".git" / "planted").exists()
    if not odd:
        assert git(work, "log", "--format=%s") == "begun\n"
    await r.session.close()
    await r.runtime.background_commands.close()
    await until(lambda: (work / ".git").exists() is not odd)
    if not odd:
        git(work, "fsck", "--strict")
        assert stat.S_IMODE((work / ".git").stat().st_mode) == 0o755


@pytest.mark.parametrize("kind", ["file", "none"])
async def test_other_repositories_stay_read_only(r: Rig, kind: str) -> None:
    work = r.home.work
    if kind == "file":
        (work / ".git").rename(r.home.path.parent / "elsewhere")
        (work / ".git").write_text(f"gitdir: {r.home.path.parent}/elsewhere\n")
    else:
        subprocess.run(["rm", "-rf", str(work / ".git")], check=True)
    told = await run(r, "git commit -q --allow-empty -m x")
    assert "read-only for commands here" in told and "escalate {unconfined: true" in told

"""Attempts to plant, through a repository, something that runs later outside the sandbox.

A command gets an overlay of .git to commit in. Afterwards the user works with his repository as
always, outside. Whatever was planted would then leave a canary. The same scripts run without a
sandbox too, where most of them succeed: an attempt that cannot succeed proves nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import structs

from hermes.exec.commits import ChangesRejected, create_overlay, merge_overlay
from hermes.exec.process.local import CommandSpec, run_command, stop_left_running
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.sandbox import build_policy
from hermes.exec.sandbox_probe import list_candidates
from hermes.exec.sandbox_probe import try_tier as try_tier

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="sandboxes need Linux"),
    pytest.mark.skipif(not shutil.which("git"), reason="there is no git here"),
]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USERS = [
    "git status",
    "git -C lib status",
    "git -C ../other-tree status",
    "git diff",
    "git stash",
    "git stash pop",
    "git checkout -- .",
    "git commit -q --allow-empty -m x",
    "git rebase --continue",
    "git cherry-pick --continue",
    "git log -1",
    "git fetch legacy",
]
"""What a user does next."""


class Attempt(NamedTuple):
    name: str
    script: str
    works: bool = True
    """Whether it succeeds without a sandbox (with this version of git)."""


EVIL = "printf '#!/bin/sh\\ntouch %s\\n' \"$CANARY\" > evil.sh; chmod +x evil.sh; E=$PWD/evil.sh\n"
CONFIG = "printf '[core]\\nrepositoryformatversion=0\\nfsmonitor=%s\\nworktree=%s\\n' $E $PWD"

BARE = f"mkdir refs objects; echo 'ref: refs/heads/main' > HEAD; {CONFIG} > config"


def sh(name: str, script: str, works: bool = True) -> Attempt:
    return Attempt(name, EVIL + textwrap.dedent(script), works)


INDEX = r"""
import hashlib, struct, subprocess, sys
sha = subprocess.run(["git", "hash-object", "-w", "evil.sh"], capture_output=True).stdout.strip()
def entry(path):
    flags = len(path)
    head = struct.pack(">10I", *[0] * 6, 0o100755, 0, 0, 0) + bytes.fromhex(sha.decode())
    data = head + struct.pack(">H", flags) + path
    return data + b"\0" * (8 - len(data) % 8)
body = b"DIRC" + struct.pack(">2I", 2, 1) + entry(sys.argv[1].encode())
open(".git/index", "wb").write(body + hashlib.sha1(body).digest())
"""
NESTED = """
git init -q nested && cd nested
git -c user.name=n -c user.email=e commit -q --allow-empty -m x
git config core.fsmonitor $E && cd ..
"""
PLAN = """
git commit -q --allow-empty -m base; git commit -q --allow-empty -m more
H=$(git rev-parse HEAD); mkdir -p .git/rebase-merge; cd .git/rebase-merge
echo refs/heads/main > head-name; echo $H > onto; echo $H > orig-head; echo 2 > end; echo 1 > msgnum
: > done; touch interactive; echo "exec $E" > git-rebase-todo
cp git-rebase-todo git-rebase-todo.backup
"""
ATTEMPTS = [
    sh("a hook", "cp evil.sh .git/hooks/pre-commit; cp evil.sh .git/hooks/post-checkout"),
    sh(
        "another folder of hooks",
        "mkdir h; cp evil.sh h/pre-commit; git config core.hooksPath $PWD/h",
    ),
    sh("a setting", "git config core.fsmonitor $E"),
    sh("a setting written by hand", "printf '[core]\\nfsmonitor = %s\\n' $E >> .git/config"),
    sh(
        "a setting moved into place",
        "printf '[core]\\nfsmonitor=%s\\n' $E > c; mv -f c .git/config",
    ),
    sh(
        "settings of a working tree",
        "git config extensions.worktreeConfig true; git config --worktree core.fsmonitor $E",
    ),
    sh(
        "another common folder",
        f"mkdir common; cp -r .git/HEAD .git/refs .git/objects common/; {CONFIG} > common/config\n"
        "echo $PWD/common > .git/commondir",
    ),
    sh("a repository inside, added", f"{NESTED}git add nested && git commit -q -m nested"),
    sh(
        "a repository inside, written into the index",
        f"{NESTED}git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),nested",
    ),
    sh("a submodule's settings", "git config -f .git/modules/lib/config core.fsmonitor $E"),
    sh(
        "another repository in the place of a submodule's",
        f"{NESTED}rm -f lib/.git; mv nested/.git lib/.git; rm -rf nested\n"
        "git add -A; git commit -qm x",
    ),
    sh(
        "the workspace as a repository of its own",
        f"rm .git/HEAD; {BARE}",
    ),
    sh(
        "the same, with a HEAD that is none",
        f"echo x > .git/HEAD; {BARE}",
    ),
    sh(
        "the same, without branches",
        f"rm -rf .git/refs; {BARE}",
    ),
    sh("the plan of a rebase", PLAN),
    sh(
        "a working tree of somebody else",
        f"mkdir common; cp -r .git/HEAD .git/refs .git/objects common/\n{CONFIG} > common/config\n"
        "echo $PWD/common > .git/worktrees/other-tree/commondir",
    ),
    sh(
        "a hook in the index",
        f"cat > i.py <<'X'\n{INDEX}X\npython3 -I i.py .git/hooks/post-checkout",
        works=False,
    ),
    sh(
        "a hook in the index, in capitals",
        f"cat > i.py <<'X'\n{INDEX}X\npython3 -I i.py .GIT/hooks/post-checkout",
        works=False,
    ),
    sh(
        "a remote of the old kind",
        'mkdir .git/remotes; echo "URL: ext::$E" > .git/remotes/legacy',
        False,
    ),
    sh(
        "a picked series with a strategy",
        "mkdir .git/sequencer; echo 'pick HEAD' > .git/sequencer/todo\n"
        "printf '[options]\\nstrategy = ../../evil.sh\\n' > .git/sequencer/opts",
        works=False,
    ),
]
SECRETS = [
    Attempt("a log that is a link", "rm -rf .git/logs; ln -s $SECRETS .git/logs"),
    Attempt("branches that are a link", "rm -rf .git/refs/tags; ln -s $SECRETS .git/refs/tags"),
    Attempt("a message that is a link", "ln -s $SECRETS/key .git/MERGE_MSG"),
    Attempt("objects that are a link", "rm -rf .git/objects; ln -s $SECRETS .git/objects"),
    Attempt("a log inside that is a link", "ln -s $SECRETS .git/logs/refs/x"),
    Attempt(
        "a link that comes and goes",
        "cd .git; (while :; do mv logs l; ln -s $SECRETS logs; rm logs; mv l logs; done) "
        ">/dev/null 2>&1 & cd ..; sleep 0.2; git commit -q --allow-empty -m x",
    ),
    Attempt("a pipe nobody writes to", "mkfifo .git/MERGE_MSG .git/logs/x .git/refs/heads/x"),
    Attempt("a terminal", "ln -s /dev/tty .git/COMMIT_EDITMSG"),
]
ODD = {
    "a branch that leads out": "printf 'ref: ../../x\\n' > .git/refs/heads/x",
    "a branch to nowhere": f"echo {'1' * 40} > .git/refs/heads/x",
    "a branch like an option": "git rev-parse HEAD > .git/refs/heads/--exec=x",
    "a name with a line break": 'git rev-parse HEAD > ".git/refs/heads/a\nb"',
    "packed branches that are none": "echo x > .git/packed-refs",
    "an index that is none": "echo x > .git/index",
    "an object that is missing": "git commit -q --allow-empty -m x; rm -rf .git/objects/??",
    "a forged object": "echo good > new; git add new; git commit -qm new\n"
    "O=.git/objects/$(git rev-parse HEAD:new | sed 's,^..,&/,'); chmod +w $O\n"
    "python3 -Ic 'import sys, zlib\n"
    'open(sys.argv[1], "wb").write(zlib.compress(b"blob 5\\0evil\\n"))\' $O',
    "a forged object that only the index names": "echo good > new; git add new\n"
    "O=.git/objects/$(git rev-parse :new | sed 's,^..,&/,'); chmod +w $O\n"
    "python3 -Ic 'import sys, zlib\n"
    'open(sys.argv[1], "wb").write(zlib.compress(b"blob 5\\0evil\\n"))\' $O',
    "a pack whose index names other objects": "echo good > new; git add new; git commit -qm new\n"
    "git repack -qd; P=$(ls .git/objects/pack/*.idx); chmod +w $P; python3 -Ic 'import sys\n"
    "from hashlib import sha1\n"
    'data = bytearray(open(sys.argv[1], "rb").read()[:-20]); data[1032] ^= 1\n'
    'open(sys.argv[1], "wb").write(data + sha1(data).digest())\' $P\n'
    "git commit -q --allow-empty -m x",
    "a tree that names .git": "B=$(git rev-parse HEAD:file)\n"
    "T=$(printf '100644 blob %s\\t.GIT\\n' $B | git mktree)\n"
    "git update-ref refs/heads/x $(git commit-tree -m x $T)",
    "another object in the place of one": "git commit -q --allow-empty -m x\n"
    "git replace HEAD $(git commit-tree -m evil HEAD^{tree})",
    "the same in packed branches": "echo $(git rev-parse HEAD) refs/replace/$(git rev-parse HEAD) "
    ">> .git/packed-refs",
    "notes": "git notes add -m x",
    "a HEAD that is no branch": "echo 'ref: refs/replace/x' > .git/HEAD",
    "a file whose changes are hidden": "git update-index --skip-worktree file",
    "a file taken for unchanged": "git update-index --assume-unchanged file",
}


class World:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.work = base / "work"
        self.canary = base / "canary"
        self.home = base / "agent"
        self.secrets = base / "secrets"
        for folder in (self.home, self.secrets):
            folder.mkdir()
        (self.secrets / "key").write_text("SECRET-0123456789\n")
        (base / "gitconfig").write_text(
            "[user]\n\tname = u\n\temail = u@example.invalid\n[protocol]\n\tallow = always\n"
        )
        self.outside("git init -q -b main lib-origin", base)
        self.outside("git commit -q --allow-empty -m lib", base / "lib-origin")
        self.outside("git init -q -b main work", base)
        self.outside("echo old > file; git add -A; git submodule -q add ../lib-origin lib")
        self.outside("git commit -qm first; git worktree add -q ../other-tree -b other")

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": PATH,
            "HOME": str(self.base),
            "CANARY": str(self.canary),
            "SECRETS": str(self.secrets),
            "GIT_CONFIG_GLOBAL": str(self.base / "gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_EDITOR": "true",
        }

    def outside(self, script: str, folder: Path | None = None) -> str:
        done = subprocess.run(
            ["bash", "-c", script], cwd=folder or self.work, env=self.env, timeout=60,
            capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    async def inside(self, script: str) -> str:
        """In the sandbox, as the terminal tool runs it; why what it did was not kept."""
        overlay = create_overlay(self.work, self.home, self.env)
        policy = build_policy("workspace-write", self.work, self.home, self.base / "nobody")
        policy = structs.replace(
            policy, overlays=overlay.mounts, hidden=(*policy.hidden, self.secrets)
        )
        tier = list_candidates()[0]
        out = OutputCapture(100_000, self.base / "spill")
        env = {**self.env, **overlay.env}
        try:
            await run_command(CommandSpec(script, self.work, env, 60, policy, tier), out)
            merge_overlay(overlay)
            return ""
        except ChangesRejected as rejected:
            return str(rejected)
        finally:
            out.close()
            await stop_left_running()

    def settings(self) -> dict[str, bytes]:
        """What makes git run something, and must stay as it is."""
        git = self.work / ".git"
        names = ["config", "hooks", "info", "modules", "worktrees"]
        files = [f for n in names for f in (git / n, *(git / n).rglob("*"))]
        mine = {str(f): f.read_bytes() for f in files if f.is_file() and f.name != "index"}
        extra = ["commondir", "remotes", "config.worktree", "rebase-merge", "sequencer"]
        assert not [name for name in extra if (git / name).exists()]
        return mine


_usable: list[bool] = []


@pytest.fixture
async def tier() -> None:
    if not _usable:
        found = list_candidates()
        level = found[0].level if found else 3
        _usable.append(level == 1 and not (await try_tier(found[0]))[1])
    if not _usable[0]:
        pytest.skip("needs a sandbox with namespaces")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("git") / "world"
    base.mkdir()
    World(base)
    return base


@pytest.fixture
def world(template: Path) -> Iterator[World]:
    """Every attempt finds the same world, at the same place: repositories name their places."""
    kept = template.with_name("kept")
    if not kept.exists():
        shutil.copytree(template, kept, symlinks=True)
    found = World.__new__(World)
    found.base, found.work, found.canary = template, template / "work", template / "canary"
    found.home, found.secrets = template / "agent", template / "secrets"
    yield found
    shutil.rmtree(template)
    shutil.copytree(kept, template, symlinks=True)


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda a: a.name)
async def test_nothing_is_planted(world: World, tier: None, attempt: Attempt) -> None:
    before = world.settings()
    await world.inside(attempt.script)
    assert world.settings() == before
    world.outside("\n".join(USERS))
    assert not world.canary.exists()
    assert world.outside("git rev-parse --is-inside-work-tree --git-dir").split() == [
        "true",
        ".git",
    ]


@pytest.mark.parametrize("attempt", [a for a in ATTEMPTS if a.works], ids=lambda a: a.name)
def test_it_would_run_without_the_sandbox(world: World, attempt: Attempt) -> None:
    world.outside(attempt.script)
    world.outside("\n".join(USERS))
    assert world.canary.exists()


@pytest.mark.parametrize("attempt", SECRETS, ids=lambda a: a.name)
async def test_nothing_is_read_through_the_overlay(
    world: World, tier: None, attempt: Attempt
) -> None:
    await world.inside(attempt.script)
    for file in (world.work / ".git").rglob("*"):
        assert not file.is_symlink() and (file.is_dir() or file.is_file()), file
        if file.is_file():
            assert b"SECRET-" not in file.read_bytes(), file


@pytest.mark.parametrize("name", ODD)
async def test_what_is_no_repository_is_not_taken_over(world: World, tier: None, name: str) -> None:
    before = world.outside("git for-each-ref; git ls-files -s; git rev-parse HEAD")
    assert await world.inside(ODD[name])
    assert world.outside("git for-each-ref; git ls-files -s; git rev-parse HEAD") == before
    assert not list((world.work / ".git").rglob("*.lock"))


async def test_work_with_a_submodule_goes_on(world: World, tier: None) -> None:
    why = await world.inside("echo more >> file; git add -A; git commit -qm more")
    assert why == "" and "more" in world.outside("git log --format=%s")
    assert world.outside("git status --porcelain") == ""


async def test_no_index_makes_git_overlook_a_change(world: World, tier: None) -> None:
    """Git reads no file whose size and times are those in its index."""
    forge = (
        "import hashlib, os, struct\n"
        "data = bytearray(open('.git/index', 'rb').read()[:-20])\n"
        "at, s = data.index(b'file\\0') - 62, os.stat('file')\n"
        "mode, = struct.unpack_from('>I', data, at + 24)\n"
        "times = [n for t in (s.st_ctime_ns, s.st_mtime_ns) for n in divmod(t, 10**9)]\n"
        "rest = (s.st_dev, s.st_ino, mode, s.st_uid, s.st_gid, s.st_size)\n"
        "struct.pack_into('>10I', data, at, *times, *(n & 0xffffffff for n in rest))\n"
        "open('.git/index', 'wb').write(data + hashlib.sha1(data).digest())\n"
    )
    script = "echo bad > file; touch -d @1000000000 file; cat > forge.py <<'X'\n"
    script += f"{forge}X\npython3 -I forge.py; rm forge.py"
    assert await world.inside(script) == ""
    assert world.outside("git status --porcelain") == " M file\n"
    assert await world.inside("git update-index --force-untracked-cache; git status") == ""
    assert b"UNTR" not in (world.work / ".git/index").read_bytes()


async def test_no_index_puts_another_tree_into_the_next_commit(world: World, tier: None) -> None:
    """An index says which trees its folders are, and git believes it."""
    forge = (
        "import hashlib, sys\n"
        "data = bytearray(open('.git/index', 'rb').read()[:-20])\n"
        "at = data.index(b'\\n', data.index(b'TREE')) + 1\n"
        "data[at : at + 20] = bytes.fromhex(sys.argv[1])\n"
        "open('.git/index', 'wb').write(data + hashlib.sha1(data).digest())\n"
    )
    script = (
        f"cat > /tmp/forge.py <<'X'\n{forge}X\n"
        "git read-tree HEAD; B=$(echo evil | git hash-object -w --stdin)\n"
        "T=$(printf '100644 blob %s\\tfile\\n' $B | git mktree); python3 -I /tmp/forge.py $T"
    )
    assert "update-index failed" in await world.inside(script)
    world.outside("git commit -q --allow-empty -m next")
    assert world.outside("git show HEAD:file") == "old\n"


async def test_the_index_stays_fresh_after_ordinary_work(world: World, tier: None) -> None:
    """What the index says about files that have the content it names need not be found again."""
    assert await world.inside("echo more > new; ln -s new link; git add -A; git commit -qm m") == ""
    facts = world.outside("git ls-files --debug new link | grep -c 'ctime: [1-9]'")
    assert facts.split() == ["2"]


async def test_references_of_the_user_stay_as_they_are(world: World, tier: None) -> None:
    world.outside("git notes add -m mine; git tag old; git update-index --assume-unchanged file")
    script = "git pack-refs --all; git commit -q --allow-empty -m more; git branch new"
    assert await world.inside(script) == ""
    assert world.outside("git notes show HEAD^").strip() == "mine"
    assert world.outside("git branch --list new --format='%(subject)'").strip() == "more"
    assert world.outside("git ls-files -v file") == "h file\n"
    assert "refs/notes/commits" in await world.inside("git notes remove HEAD^; git tag newer")
    assert world.outside("git notes show HEAD^; git tag").split() == ["mine", "old"]


async def test_packs_are_taken_over(world: World, tier: None) -> None:
    script = (
        "for i in 1 2 3; do echo $i > new; git add new; git commit -qm $i; done; git repack -qd"
    )
    assert await world.inside(script) == ""
    assert world.outside("git log --format=%s -3; git fsck --full --no-dangling").split() == [
        "3",
        "2",
        "1",
    ]
    assert list((world.work / ".git/objects/pack").glob("*.pack"))


@pytest.mark.parametrize("path", ["../missing.inc", "../missing/deeper/settings.inc"])
async def test_settings_that_are_included_may_be_missing(
    world: World, tier: None, path: str
) -> None:
    world.outside(f"git config include.path {path}")
    script = "git status --porcelain && echo more >> file && git add -A && git commit -qm more"
    assert await world.inside(script) == ""
    assert world.outside("git log -1 --format=%s").strip() == "more"
    planted = f"mkdir -p .git/../missing/deeper; {CONFIG} > .git/{path}"
    await world.inside(f"{EVIL}{planted}")
    world.outside("git status")
    assert not world.canary.exists()

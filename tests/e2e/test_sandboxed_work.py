"""Ordinary work in a workspace goes the same way whatever confines it, and no trick around it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from msgspec import structs

from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.sandbox import SandboxTier, build_policy
from tests.e2e.test_escapes_planted import PATH, tier

__all__ = ["tier"]
PYTHON3 = f"{os.path.realpath(sys.executable)} -I"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are Linux's")

WORK: list[tuple[str, str]] = [
    ("echo one > a; echo two >> a; cat a", "one two"),
    ("sed -i s/one/1/ a; echo three >> a; cat a", "1 two three"),
    ("sed -i s/old/new/ was; echo more >> was; cat was", "new more"),
    ("mkdir -p p/q/r; echo x > p/q/r/f; cp -r p p2; mv p2 p3; ls p3/q/r; rm -r p3", "f"),
    ("ln -s a l; echo via >> l; tail -1 a; readlink l", "via a"),
    ("ln a hard; echo same >> hard; tail -1 a", "same"),
    ("umask 077; touch u; mkdir d; stat -c %a u d", "600 700"),
    ("umask 022; touch v; stat -c %a v", "644"),
    ("set -C; echo x > n; echo y > n || echo refused; cat n", "refused x"),
    ("rm -r sub; mkdir sub; echo again > sub/x; cat sub/x", "again"),
    ("mv sub/x here; mv here sub/back; ls sub; cp a sub; mv sub/a b; ls b", "back b"),
    ("tar cf t p sub; mkdir out; tar xf t -C out; ls out", "p sub"),
    ("mv a nodir/ || echo no; mkdir trail/ && rmdir trail/ && echo yes", "no yes"),
    ("chmod 640 v; touch -d 2001-01-01 v; stat -c '%a %y' v | cut -c1-8", "640 2001"),
    ("mkdir -p x/y; cd x/y; echo deep > ../../up; cat ../../up; rm ../../up", "deep"),
    ("echo x > open; exec 3>>open; rm open; echo y >&3 && echo written", "written"),
    ("git init -q inner; cd inner; echo f > f; git add f; git status --short", "A f"),
]  # fmt: skip
"""Commands, and the words they are to print."""

PYTHON = """
import os, shutil, sqlite3, tempfile
open("py", "w").write("x"); os.replace("py", "py2"); os.remove("py2")
shutil.rmtree(tempfile.mkdtemp(dir="."))
with sqlite3.connect("x.db") as db: db.execute("create table t(a)")
os.makedirs("one/two"); os.rename("one", "three"); os.removedirs("three/two")
fd = os.open(".", os.O_RDONLY); os.mkdir("by", dir_fd=fd); os.rmdir("by", dir_fd=fd)
with open("shared", "r+" if os.path.exists("shared") else "w+") as f: f.write("1"); f.truncate(0)
print("fine")
"""

RACE = """
import os, threading
over = threading.Event()
os.makedirs("real", exist_ok=True)
def swap():
    while not over.is_set():
        for target in ("real", ".git", "../outside", ".git/hooks"):
            try: os.symlink(target, "tmp-link"); os.replace("tmp-link", "way")
            except OSError: pass
threading.Thread(target=swap, daemon=True).start()
for n in range(COUNT):
    for call in (
        lambda: os.close(os.open(f"way/evil{n}", os.O_CREAT | os.O_WRONLY)),
        lambda: os.mkdir(f"way/evil-folder{n}"),
        lambda: os.symlink("x", f"way/evil-link{n}"),
        lambda: os.rename("real", "way/evil-moved"),
        lambda: os.link("was", f"way/evil-hard{n}"),
        lambda: os.close(os.open("way/config", os.O_WRONLY | os.O_TRUNC)),
        lambda: os.unlink("way/config"),
        lambda: os.rename("way/config", "taken"),
        lambda: os.rename("way", ".git/evil"),
    ):
        try: call()
        except OSError: pass
over.set()
open("ran", "w").close()
"""


class Place:
    def __init__(self, base: Path, tier: SandboxTier) -> None:
        self.base, self.tier = base, tier
        self.work, self.home = base / "work", base / "home"
        for folder in (self.work / "sub", self.work / ".git/hooks", self.home, base / "outside"):
            folder.mkdir(parents=True)
        (self.work / "was").write_text("old\n")
        (self.work / ".git/config").write_text("[core]\n")
        (self.work / "AGENTS.md").write_text("mine\n")

    async def sh(self, text: str) -> str:
        policy = build_policy("workspace-write", self.work, self.base / "agent", self.home)
        policy = structs.replace(policy, visible=(Path(sys.base_prefix),))
        out = OutputCapture(50_000, self.base / "spill")
        env = {"PATH": PATH, "HOME": str(self.home)}
        await run_command(CommandSpec(text, self.work, env, 60, policy, self.tier), out)
        out.close()
        return out.text()


async def test_ordinary_work(tmp_path: Path, tier: SandboxTier) -> None:
    place = Place(tmp_path, tier)
    text = "\n".join(
        f"( {command} ) 2>/dev/null | xargs echo {n}:" for n, (command, _) in enumerate(WORK)
    )
    said = dict(line.split(":", 1) for line in (await place.sh(text)).splitlines())
    for n, (command, words) in enumerate(WORK):
        assert said[str(n)].split() == words.split(), command
    (place.work / "work.py").write_text(PYTHON)
    assert (await place.sh(f"{PYTHON3} work.py")).strip().endswith("fine")


async def test_a_race_leads_nowhere_protected(tmp_path: Path, tier: SandboxTier) -> None:
    place = Place(tmp_path, tier)
    (place.work / "race.py").write_text(RACE.replace("COUNT", "40"))
    await place.sh(f"{PYTHON3} race.py")
    assert sorted(p.name for p in (place.work / ".git").iterdir()) == ["config", "hooks"]
    assert (place.work / ".git/config").read_text() == "[core]\n"
    assert not list((place.work / ".git/hooks").iterdir())
    assert not list((tmp_path / "outside").iterdir())
    assert (place.work / "ran").exists()

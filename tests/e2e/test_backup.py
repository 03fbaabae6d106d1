"""`hermes backup` and `import`: everything comes back, secrets stay, tricks change nothing."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.cli.maintenance.home_archive import FORMAT, HEADER, MANIFEST, restore_archive
from hermes.core.errors import ConfigError
from tests.kit import Home, Provider, Ran, run_hermes, say, start_hermes
from tests.kit.replies import Gate

pytestmark = pytest.mark.e2e

SECRET = "hunter2hunter2"


async def hermes(home: Home, *words: str, **more: Any) -> Ran:
    return await run_hermes(words, home, **more)


def other(home: Home, root: Path) -> Home:
    """The same environment, another home."""
    root.mkdir(exist_ok=True)
    made = Home(root)
    (made.path / "config.yaml").unlink()
    made.path.rmdir()
    return made


def names(file: Path) -> set[str]:
    with tarfile.open(file) as tar:
        assert all(member.isreg() for member in tar)
        return {member.name for member in tar}


async def test_everything_comes_back_and_secrets_stay(tmp_path: Path) -> None:
    async with Provider([], then=say("hello")) as provider:
        home = Home.of(tmp_path, provider, platforms={"telegram": {"bot_token": SECRET}})
        assert (await hermes(home, "chat", "-q", "remember me")).rc == 0
        assert (await hermes(home, "-p", "second", "sessions", "list")).rc == 0  # a home of its own
        (home.path / ".env").write_text(f"MY_KEY={SECRET}\n")
        (home.path / "logins").mkdir()
        (home.path / "logins" / "x.json").write_text(SECRET)
        (home.path / "SOUL.md").write_text("You are Ada.")
        skill = home.path / "skills" / "a" / "run.sh"
        skill.parent.mkdir(parents=True)
        skill.write_text("echo")
        skill.chmod(0o755)
        (home.path / "link").symlink_to("/etc/passwd")
        (home.path / "cache").mkdir(exist_ok=True)
        (home.path / "cache" / "big").write_text("x")
        file = tmp_path / "b.tar.gz"
        ran = await hermes(home, "backup", str(file))
        assert ran.rc == 0, ran.stderr
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        found = names(file)
        assert {"hermes.db", "config.yaml", "SOUL.md", "skills/a/run.sh"} <= found
        assert "profiles/second/hermes.db" in found
        assert not found & {".env", "logins/x.json", "link", "cache/big"}
        assert not any(name.startswith(("run/", "logs/")) for name in found)
        assert SECRET.encode() not in gzip.decompress(file.read_bytes())
        for said in (
            ".env holds secrets",
            "logins holds secrets",
            "link is a link",
            "1 secret replaced",
        ):
            assert said in ran.stderr
        assert (await hermes(home, "backup", str(file))).rc == 2, "never over another file"

        fresh = other(home, tmp_path / "elsewhere")
        ran = await hermes(fresh, "import", str(file))
        assert ran.rc == 0, ran.stderr
        assert (fresh.path / "SOUL.md").read_text() == "You are Ada."
        assert stat.S_IMODE((fresh.path / "skills/a/run.sh").stat().st_mode) == 0o700
        assert stat.S_IMODE(fresh.path.stat().st_mode) == 0o700
        shown = await hermes(fresh, "sessions", "search", "remember")
        assert "remember me" in shown.stdout
        assert not [p for p in fresh.path.iterdir() if p.name.startswith(".import")]

        whole = tmp_path / "whole.tar.gz"
        assert (await hermes(home, "backup", "--with-secrets", str(whole))).rc == 0
        assert {".env", "logins/x.json"} <= names(whole)
        assert SECRET.encode() in gzip.decompress(whole.read_bytes())


async def test_what_is_there_is_kept_aside_and_a_home_in_use_is_left_alone(tmp_path: Path) -> None:
    gate = Gate()
    async with Provider([say("one"), say("two").hold(gate)], then=say("x")) as provider:
        home = Home.of(tmp_path, provider)
        assert (await hermes(home, "chat", "-q", "first")).rc == 0
        file = tmp_path / "b.tar.gz"
        assert (await hermes(home, "backup", str(file))).rc == 0
        (home.path / ".env").write_text("MY_KEY=abcdefgh\n")
        refused = await hermes(home, "import", str(file))
        assert refused.rc == 2 and "--force" in refused.stderr
        running = await start_hermes(["chat", "-q", "second"], home)
        while len(provider.requests) < 2:
            assert running.returncode is None
            await asyncio.sleep(0.01)
        busy = await hermes(home, "import", "--force", str(file))
        assert busy.rc == 2 and "is using" in busy.stderr
        gate.open()
        await running.communicate()
        ran = await hermes(home, "import", "--force", str(file))
        assert ran.rc == 0, ran.stderr
        assert (home.path / ".env").read_text() == "MY_KEY=abcdefgh\n"
        aside = next((home.path / "aside").iterdir())
        assert {"hermes.db", "config.yaml"} <= {p.name for p in aside.iterdir()}
        titles = [row["title"] for row in (await hermes(home, "sessions", "list", "--json")).json]
        assert titles == ["first"], "as it was when the backup was made"


# -- tricks ----------------------------------------------------------------------------------


def crafted(file: Path, change: Callable[[tarfile.TarFile, dict[str, Any]], None]) -> Path:
    """A backup of one file, made by hand."""
    manifest: dict[str, Any] = {}
    header = {"format": FORMAT, "version": "9", "schema": 1, "created": 0.0, "secrets": False}
    with tarfile.open(file, "w:gz") as tar:
        parts: dict[str, Any] = {"header": header, "manifest": manifest}
        change(tar, parts)
        if parts.get("end", True):
            add(tar, MANIFEST, json.dumps(manifest).encode())
    return file


def add(tar: tarfile.TarFile, name: str, data: bytes, **fields: Any) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data))


def member(name: str, data: bytes = b"x", **fields: Any) -> Callable[..., None]:
    def change(tar: tarfile.TarFile, parts: dict[str, Any]) -> None:
        import hashlib

        add(tar, HEADER, json.dumps(parts["header"]).encode())
        add(tar, name, data, **fields)
        parts["manifest"][name] = [len(data), hashlib.sha256(data).hexdigest()]

    return change


def _newer(tar: tarfile.TarFile, parts: dict[str, Any]) -> None:
    add(tar, HEADER, json.dumps({**parts["header"], "schema": 9999}).encode())


def _cut(tar: tarfile.TarFile, parts: dict[str, Any]) -> None:
    add(tar, HEADER, json.dumps(parts["header"]).encode())
    parts["end"] = False


def _altered(tar: tarfile.TarFile, parts: dict[str, Any]) -> None:
    member("SOUL.md", b"mine")(tar, parts)
    parts["manifest"]["SOUL.md"][1] = "0" * 64


def _twice(tar: tarfile.TarFile, parts: dict[str, Any]) -> None:
    member("SOUL.md", b"mine")(tar, parts)
    add(tar, "SOUL.md", b"other")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (member("../evil"), "does not belong"),
        (member("/etc/evil"), "does not belong"),
        (member("a/../../evil"), "does not belong"),
        (member("a//b"), "does not belong"),
        (member("./a"), "does not belong"),
        (member("run/x.lock"), "does not belong"),
        (member("link", b"", type=tarfile.SYMTYPE, linkname="/etc"), "does not belong"),
        (member("hard", b"", type=tarfile.LNKTYPE, linkname="SOUL.md"), "does not belong"),
        (member("pipe", b"", type=tarfile.FIFOTYPE), "does not belong"),
        (member("folder", b"", type=tarfile.DIRTYPE), "does not belong"),
        (member("hermes.db", b"not a database"), "cannot be used"),
        (_newer, "newer version"),
        (_cut, "its end is missing"),
        (_altered, "not those that were backed up"),
        (_twice, "does not belong"),
        (lambda tar, parts: add(tar, "x", b""), "does not begin like one"),
        (lambda tar, parts: add(tar, HEADER, b"[]"), "does not begin like one"),
    ],
)
async def test_tricks_change_nothing(
    tmp_path: Path, change: Callable[..., None], said: str, raw_database: Any
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("agent: {max_turns: 3}\n")
    file = crafted(tmp_path / "b.tar.gz", change)
    with raw_database(), pytest.raises(ConfigError, match=said):
        await restore_archive(home, file, force=True)
    assert [p.name for p in home.iterdir()] == ["config.yaml"]
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("size", [0, 1, 100, -50])
async def test_a_file_cut_anywhere_changes_nothing(tmp_path: Path, size: int) -> None:
    home = tmp_path / "home"
    whole = crafted(tmp_path / "b.tar.gz", member("SOUL.md", b"words" * 1000)).read_bytes()
    file = tmp_path / "cut.tar.gz"
    file.write_bytes(whole[:size])
    with pytest.raises(ConfigError, match="nothing was changed"):
        await restore_archive(home, file, force=True)
    assert list(home.iterdir()) == []
    await restore_archive(home, tmp_path / "b.tar.gz", force=False)
    assert (home / "SOUL.md").read_bytes() == b"words" * 1000


async def test_misuse(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert (await hermes(home, "import", "absent")).rc == 2
    for words in (("backup",), ("import", "x")):
        ran = await hermes(home, *words, env={"HERMES_CHILD": "1"})
        assert ran.rc == 2 and "may not" in ran.stderr

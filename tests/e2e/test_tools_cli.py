"""`hermes tools`, `hermes checkpoints` and `hermes doctor` as users start them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit import Home, Provider, Ran, call, run_hermes, say
from tests.kit.bodies import tools

pytestmark = pytest.mark.e2e


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def hermes(home: Home, *words: str, **more: Any) -> Ran:
    ran = await run_hermes(words, home, **more)
    assert "Traceback" not in ran.stdout + ran.stderr
    return ran


def settings(home: Home) -> Any:
    return yaml.safe_load((home.path / "config.yaml").read_text()).get("tools")


async def states(home: Home, *more: str) -> dict[str, str]:
    ran = await hermes(home, "tools", "list", "--json", *more)
    assert ran.rc == 0
    return {row["name"]: row["state"] for row in ran.json}


@pytest.mark.parametrize("command", ["tools", "checkpoints", "doctor"])
async def test_help_and_wrong_words(home: Home, command: str) -> None:
    helped = await hermes(home, command, "--help")
    assert helped.rc == 0 and "examples:" in helped.stdout
    wrong = await hermes(home, command, "--jsn")
    assert wrong.rc == 2 and wrong.stderr.count("\n") == 1


# -- tools -------------------------------------------------------------------------------------


async def test_the_list_says_what_is_on_and_what_it_may_do(home: Home) -> None:
    ran = await hermes(home, "tools", "list")
    rows = {line.split()[0]: line.split()[1:4] for line in ran.stdout.splitlines()}
    assert rows["terminal"] == ["core", "exec", "on"]
    assert rows["web_search"] == ["web", "network", "deferred"]
    found = (await hermes(home, "tools", "list", "--json")).json
    assert {tuple(row) for row in found} == {
        ("name", "toolset", "risk", "state", "why", "description")
    }


async def test_off_and_on_again(home: Home) -> None:
    home.path.joinpath("config.yaml").write_text("# mine\nagent: {max_turns: 7}  # few\n")
    assert (await hermes(home, "tools", "disable", "web", "todo")).rc == 0
    off = await states(home)
    assert off["web_search"] == off["web_extract"] == off["todo"] == "off"
    assert settings(home) == {"disabled": ["web", "todo"]}
    assert (await hermes(home, "tools", "enable", "web_search")).rc == 0
    some = await states(home)
    assert (some["web_search"], some["web_extract"]) == ("deferred", "off")
    assert (await hermes(home, "tools", "enable", "web", "todo")).rc == 0
    again = await states(home)
    for name in ("send_message", "discord_server"):
        assert again.pop(name) == "off", "only administrators of messengers have it"
    assert set(again.values()) <= {"on", "deferred", "unavailable"}
    assert settings(home)["disabled"] == []
    text = home.path.joinpath("config.yaml").read_text()
    assert text.startswith("# mine\nagent: {max_turns: 7}  # few\n")


async def test_a_platform_of_its_own(home: Home) -> None:
    hook = await states(home, "--platform", "webhook")
    assert hook["read_file"] == "on" and hook["terminal"] == hook["web_search"] == "off"
    ran = await hermes(home, "tools", "enable", "web_search", "--platform", "webhook")
    assert ran.rc == 0
    assert settings(home) == {"platforms": {"webhook": {"enabled": ["web_search"]}}}
    hook = await states(home, "--platform", "webhook")
    assert hook["web_search"] == "deferred" and hook["web_extract"] == "off"
    await hermes(home, "tools", "disable", "read_file", "--platform", "irc")
    assert (await states(home, "--platform", "irc"))["read_file"] == "off"
    assert (await states(home))["read_file"] == "on"


async def test_refusals(home: Home) -> None:
    unknown = await hermes(home, "tools", "disable", "terminal", "wob_search")
    assert unknown.rc == 2 and "Did you mean 'web_search'?" in unknown.stderr
    assert settings(home) is None, "nothing was changed"
    inside = await hermes(home, "tools", "enable", "web", env={"HERMES_CHILD": "1"})
    assert inside.rc == 2 and "yourself" in inside.stderr
    everything = await hermes(home, "tools", "disable", "all")
    assert everything.rc == 0 and "core is off\nbrowser is off" in everything.stdout
    assert (await hermes(home, "tools", "enable")).rc == 2
    assert (await hermes(home, "tools", "list", "web")).rc == 2


async def test_what_is_off_is_not_offered(tmp_path: Path) -> None:
    steps = [call(("c1", "todo", {})), call(("c2", "web_search", {"query": "x"})), say("ok")]
    async with Provider(steps) as p:
        home = Home.of(tmp_path, p, tools={"disabled": ["todo", "web"]})
        ran = await hermes(home, "chat", "-q", "hi", "--yolo")
        assert ran.rc == 0
        assert "todo" not in tools(p.requests[0]) and "tool_search" in tools(p.requests[0])
        body = p.requests[-1].body.decode()
        assert "There is no tool 'todo'" in body.replace('\\"', "'")
        assert "There is no tool 'web_search'" in body
        ran = await hermes(home, "chat", "-q", "hi", "--toolsets", "web")
        assert ran.rc == 2 and "turned off" in ran.stderr


# -- checkpoints -------------------------------------------------------------------------------


async def snapshot(home: Home, label: str) -> str:
    from hermes.exec.snapshots import checkpoints

    made = await checkpoints.create_checkpoint(home.work, home.path, label)
    assert made is not None
    return made.id


async def test_from_list_to_restore_and_back(home: Home) -> None:
    empty = await hermes(home, "checkpoints", "list")
    assert (empty.rc, empty.stdout) == (0, "") and "No checkpoints yet" in empty.stderr
    home.file("a.txt", "one\n")
    id = await snapshot(home, "before: fix the build")
    home.file("a.txt", "two\n")
    home.file("b.txt", "new\n")
    listed = await hermes(home, "checkpoints", "list")
    assert id in listed.stdout and "fix the build" in listed.stdout
    (row,) = (await hermes(home, "checkpoints", "list", "--json", "--all")).json
    assert row["id"] == id and row["workspace"] == str(home.work) and row["files"] == 1
    shown = await hermes(home, "checkpoints", "show", id)
    assert "-one\n+two" in shown.stdout and "b.txt" in shown.stdout
    assert "b.txt" not in (await hermes(home, "checkpoints", "show", id, "a.txt")).stdout
    asked = await hermes(home, "checkpoints", "restore", id)
    assert asked.rc == 2 and "--yes" in asked.stderr
    assert (home.work / "a.txt").read_text() == "two\n"
    done = await hermes(home, "checkpoints", "restore", id[:-2], "--yes", "--json")
    assert done.json["changed"] == ["a.txt"] and done.json["removed"] == ["b.txt"]
    assert (home.work / "a.txt").read_text() == "one\n"
    back = await hermes(home, "checkpoints", "restore", done.json["before"], "--yes")
    assert back.rc == 0 and "changed: a.txt" in back.stdout and "restored: b.txt" in back.stdout
    assert (home.work / "a.txt").read_text() == "two\n"
    words = ["checkpoints", "restore", id, "--json", "--yes", "-C", str(home.work), "a.txt"]
    part = await hermes(home, *words)
    assert (part.json["changed"], part.json["removed"]) == (["a.txt"], [])
    pruned = await hermes(home, "checkpoints", "prune", "--keep", "1", "--json")
    assert pruned.json == {"forgotten": 3}


async def test_from_a_folder_inside(home: Home) -> None:
    (home.work / "src").mkdir()
    file = home.file("src/a.txt", "one")
    id = await snapshot(home, "")
    file.write_text("two")
    home.file("b.txt", "stays")
    home.work = home.work / "src"
    assert id in (await hermes(home, "checkpoints", "list")).stdout
    done = await hermes(home, "checkpoints", "restore", id, "a.txt", "--yes", "--json")
    assert done.json["changed"] == ["src/a.txt"] and not done.json["removed"]
    assert file.read_text() == "one"


async def test_checkpoints_that_cannot_be(home: Home) -> None:
    wrong = await hermes(home, "checkpoints", "restore", "2020", "--yes")
    assert wrong.rc == 2 and "no checkpoint '2020'" in wrong.stderr
    root = await hermes(home, "checkpoints", "list", "-C", "/")
    assert root.rc == 0 and "is a system folder" in root.stderr
    inside = await hermes(home, "checkpoints", "prune", env={"HERMES_CHILD": "1"})
    assert inside.rc == 2
    id = await snapshot(home, "")
    outside = await hermes(home, "checkpoints", "restore", id, "/etc/passwd", "--yes")
    assert outside.rc == 1 and "is not in" in outside.stderr


# -- doctor --------------------------------------------------------------------------------------


def by_name(ran: Ran) -> dict[str, dict[str, Any]]:
    return {row["name"].partition(" tier")[0]: row for row in ran.json}


def damage(file: Path, seek: int) -> None:
    """By another process: nobody but SQLite may open a database in this one."""
    words = ["dd", "if=/dev/urandom", f"of={file}", "bs=64", "count=64", "conv=notrunc"]
    subprocess.run([*words, f"seek={seek // 64}"], check=True, capture_output=True)


async def test_a_sound_installation(tmp_path: Path) -> None:
    async with Provider([say("hello")]) as p:
        home = Home.of(tmp_path, p)
        assert (await hermes(home, "chat", "-q", "hi")).rc == 0
        ran = await hermes(home, "doctor")
        assert ran.rc == 0, ran.stdout
        assert "sandbox tier " in ran.stdout and "kit-model" in ran.stdout
        assert "KIT_KEY" in ran.stdout and home.env["KIT_KEY"] not in ran.stdout
        rows = by_name(await hermes(home, "doctor", "--json"))
        assert rows["sessions"]["state"] == rows["model"]["state"] == "ok"
        sandbox = rows["sandbox"]
        if os.path.exists("/usr/bin/bwrap"):
            assert any("tried to write outside" in line for line in sandbox["details"])
        else:
            assert any(line.startswith("not protected: ") for line in sandbox["details"])
        assert len(p.requests) == 1, "nothing was sent"


async def test_what_is_wrong_is_found(home: Home) -> None:
    home.configure(tools={"disabled": ["wob"]})
    damage(home.path / "hermes.db", seek=0)
    (home.path / "notes").write_text("x")
    (home.path / "notes").chmod(0o644)
    ran = await hermes(home, "doctor", "--json", env={"PATH": "/nonexistent"})
    assert ran.rc == 1
    rows = by_name(ran)
    assert rows["sessions"]["state"] == "failed"
    assert "'wob'" in rows["configuration"]["details"][0]
    assert any("notes is open" in line for line in rows["home"]["details"])
    assert rows["git"]["state"] == "note" and "checkpoints" in rows["git"]["text"]
    confined = rows["sandbox"]["text"].startswith("bubblewrap")
    assert not confined or rows["bubblewrap"]["state"] == "ok"  # they look in the same places


async def test_a_damaged_database(tmp_path: Path) -> None:
    async with Provider([say("hello")]) as p:
        home = Home.of(tmp_path, p)
        assert (await hermes(home, "chat", "-q", "hi")).rc == 0
    damage(home.path / "hermes.db", seek=4096)
    ran = await hermes(home, "doctor", "--json")
    assert ran.rc == 1 and by_name(ran)["sessions"]["state"] == "failed"
    assert "salvaged" in (await hermes(home, "doctor", "--fix")).stdout
    ran = await hermes(home, "sessions", "list")
    assert ran.rc == 0 and [*home.path.glob("hermes.db.damaged-*")]


async def test_a_broken_configuration(home: Home) -> None:
    (home.path / "config.yaml").write_text("agent: {max_turn: 3}\n")
    ran = await hermes(home, "doctor", "--json")
    assert ran.rc == 1
    rows = by_name(ran)
    assert "agent.max_turns" in rows["configuration"]["text"]
    assert "sandbox" in rows and "git" in rows, "the rest is looked at all the same"
    assert json.loads(ran.stdout)

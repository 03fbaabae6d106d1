"""Sessions in the interactive terminal: their folders, and two terminals on one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import Home, Provider, call, run_hermes, say
from tests.kit.screen import CTRL_D, ENTER, ESCAPE, Terminal, terminal

pytestmark = pytest.mark.e2e
READY = "(Enter: no)"


def writing(name: str) -> object:
    return call(("w1", "write_file", {"path": name, "content": "x\n"}))


async def start_elsewhere(home: Home, p: Provider) -> tuple[str, Path]:
    """A stored session of the working folder, and another folder to be in."""
    p.steps.append(say("stored"))
    ran = await run_hermes(["chat", "-q", "remember me", "--output", "json"], home)
    other = home.work.parent / "other"
    other.mkdir()
    (other / "only-in-other.txt").write_text("x")
    home.file("only-in-work.txt", "x")
    return ran.json["session_id"], other


@pytest.mark.parametrize(("where", "by_option"), [("there", True), ("here", False)])
async def test_resume_asks_about_the_folder(tmp_path: Path, where: str, by_option: bool) -> None:
    """Prompt, tools, @-completion and status agree about the folder that was chosen."""
    async with Provider([], then=lambda _: say("done it")) as p:
        home = Home.of(tmp_path, p)
        session, other = await start_elsewhere(home, p)
        chosen, not_chosen = (home.work, other) if where == "there" else (other, home.work)
        args = ["--resume", session] if by_option else []
        async with terminal(home, args, cwd=other, ready="", size=(260, 30)) as t:
            if not by_option:
                await t.see("Enter: send")
                t.type(f"/resume {session}" + ENTER)
            await t.see(f"works in {home.work}; you are in {other}", "there or here?", READY)
            t.type(where[0])
            await t.see("Resumed ", f"Folder: {chosen}", f"~/{chosen.name}")
            p.steps.append(writing("made.txt"))
            t.type("write it" + ENTER)
            await t.see("done it")
            t.type("/status" + ENTER)
            await t.see(f"folder: {chosen}")
            t.type("see @only-in-")
            await t.see(f"only-in-{chosen.name}.txt")
            assert f"only-in-{not_chosen.name}" not in t.screen
            t.type("\x15/new" + ENTER)
            await t.see("New session", f"in {chosen}")
        assert (chosen / "made.txt").exists() and not (not_chosen / "made.txt").exists()
        messages = p.last.json["messages"]
        assert str(chosen) in messages[0]["content"]
        assert str(not_chosen) not in messages[0]["content"]
        assert messages[1]["content"] == "remember me"


async def test_resume_elsewhere_can_be_declined(tmp_path: Path) -> None:
    async with Provider([], then=lambda _: say("a new one")) as p:
        home = Home.of(tmp_path, p)
        session, other = await start_elsewhere(home, p)
        async with terminal(home, ["--resume", session], cwd=other, ready="there or here?") as t:
            await t.see(READY)
            t.type(ESCAPE)
            await t.see("Nothing was changed.")
            t.type("/resume" + ENTER)
            await t.see("remember me · ~/work")
            t.type(ESCAPE)
            await t.see("Enter: send")
            t.type("hello" + ENTER)
            await t.see("a new one")
        assert [m["content"] for m in p.last.json["messages"][1:]] == ["hello"]


async def test_one_shot_works_in_the_folder_of_its_session(tmp_path: Path) -> None:
    async with Provider([], then=lambda _: say("done")) as p:
        home = Home.of(tmp_path, p)
        session, other = await start_elsewhere(home, p)
        p.steps.append(writing("made.txt"))
        args = ["chat", "-q", "write it", "--resume", session]
        ran = await run_hermes(args, home, cwd=other)
        assert ran.rc == 0, ran.stderr
        assert f"this session works in {home.work}" in ran.stderr
        assert (home.work / "made.txt").exists() and not (other / "made.txt").exists()


async def open_twice(home: Home, t: Terminal) -> None:
    t.type("first words" + ENTER)
    await t.see("an answer", "Enter: send")


async def test_a_second_terminal_branches(tmp_path: Path) -> None:
    async with Provider([say("an answer")], then=lambda _: say("from the copy")) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as first:
            await open_twice(home, first)
            ready = "open in another terminal"
            async with terminal(home, ["--continue"], ready=ready) as t:
                await t.see("Branch it or read only?", READY)
                t.type("b")
                await t.see("Resumed ", "❯ first words")
                t.type("and now" + ENTER)
                await t.see("from the copy")
        texts = [m["content"] for m in p.last.json["messages"] if m["role"] == "user"]
        assert texts == ["first words", "and now"]
        ran = await run_hermes(["sessions", "list", "--json"], home)
        assert len(ran.json) == 2


async def test_a_second_terminal_only_reads(tmp_path: Path) -> None:
    async with Provider([say("an answer"), say("still mine")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as first:
            await open_twice(home, first)
            ready = "open in another terminal"
            async with terminal(home, ["--continue"], ready=ready) as t:
                await t.see(READY)
                t.type("r")
                await t.see("Read-only", "an answer")
                t.type("me too" + ENTER)
                await t.see("so nothing was sent", "❯ me too")
            first.type("mine" + ENTER)
            await first.see("still mine")
            first.type("\x15" + CTRL_D)
            await first.leave()
        # Free again once the first has gone.
        async with terminal(home, ["--continue"]) as t:
            await t.see("Resumed ", "still mine")
            assert "another terminal" not in t.screen
        assert len(p.requests) == 2


async def test_one_shot_leaves_an_open_session_alone(tmp_path: Path) -> None:
    async with Provider([say("an answer"), say("in a copy")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as t:
            await open_twice(home, t)
            ran = await run_hermes(["chat", "-q", "and?", "--continue"], home)
            assert ran.stdout == "in a copy\n" and "continuing in a copy" in ran.stderr


async def test_plain_asks_about_the_folder(tmp_path: Path) -> None:
    async with Provider([], then=lambda _: say("done")) as p:
        home = Home.of(tmp_path, p)
        session, other = await start_elsewhere(home, p)
        p.steps.append(writing("made.txt"))
        args = ["--plain", "--resume", session]
        async with terminal(home, args, cwd=other, ready="[there/here]") as t:
            t.type("there\n")
            await t.see("Folder:", "you>")
            t.type("write it\n")
            await t.see("done")
        assert (home.work / "made.txt").exists()


async def test_a_second_terminal_in_plain_mode_is_told(tmp_path: Path) -> None:
    async with Provider([say("an answer"), say("from the copy")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as first:
            await open_twice(home, first)
            args = ["--plain", "--continue"]
            async with terminal(home, args, ready="open in another terminal") as t:
                await t.see("[branch/read]")
                t.type("branch\n")
                await t.see("you>")
                t.type("and now\n")
                await t.see("from the copy")
        ran = await run_hermes(["sessions", "list", "--json"], home)
        assert len(ran.json) == 2

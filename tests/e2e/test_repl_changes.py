"""Changes of files in the terminal: seen before and after, and taken back after a look."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import Home, Provider, call, run_hermes, say, status
from tests.kit.screen import ENTER, terminal

pytestmark = pytest.mark.e2e
READY = "(Enter: no)"
OLD, NEW = "one\ntwo\nthree\n", "one\n2\nthree\n"


def writing(content: str = NEW, path: str = "calc.py") -> object:
    return call(("w1", "write_file", {"path": path, "content": content}))


async def test_a_replaced_file_is_shown_as_a_diff(tmp_path: Path) -> None:
    async with Provider([writing(), say("replaced")]) as p:
        home = Home.of(tmp_path, p)
        home.file("calc.py", OLD)
        async with terminal(home) as t:
            t.type("go" + ENTER)
            await t.see("replaced", "  -two", "  +2", "@@ -1,3 +1,3 @@")
        assert b"\x1b[31m  -two" in t.raw and b"\x1b[32m  +2" in t.raw


async def test_a_question_about_a_file_shows_its_diff(tmp_path: Path) -> None:
    async with Provider([], then=lambda _: say("so it is")) as p:
        home = Home.of(tmp_path, p, sandbox={"mode": "read-only"})
        home.file("calc.py", OLD)
        p.steps.append(writing())
        async with terminal(home) as t:
            t.type("go" + ENTER)
            await t.see("write_file wants to change calc.py (+1 -1):", "-two", "+2", READY)
            assert "content" not in t.screen
            t.type("n")
            await t.see("not allowed", "so it is")
        assert (home.work / "calc.py").read_text() == OLD


async def test_plain_shows_changes_and_exit_statuses(tmp_path: Path) -> None:
    failing = call(("c1", "terminal", {"command": "echo oops; exit 3"}))
    async with Provider([], then=lambda _: say("over")) as p:
        home = Home.of(tmp_path, p, sandbox={"mode": "read-only"})
        home.file("calc.py", OLD)
        p.steps += [failing, writing()]
        async with terminal(home, ["--plain"], ready="you>") as t:
            t.type("go\n")
            await t.see("failed: exit 3, oops")
            await t.see("wants to change calc.py (+1 -1):", "-two", "+2", "Allow it?")
            t.type("y\n")
            await t.see("over")
            assert t.screen.count("-two") == 2


async def test_one_shot_shows_changes_and_exit_statuses(tmp_path: Path) -> None:
    failing = call(("c1", "terminal", {"command": "echo oops; exit 3"}))
    async with Provider([failing, writing(), say("over")]) as p:
        home = Home.of(tmp_path, p)
        home.file("calc.py", OLD)
        ran = await run_hermes(["chat", "-q", "go"], home)
        assert ran.stdout == "over\n"
        assert "failed: exit 3, oops" in ran.stderr
        assert "\n  -two\n" in ran.stderr and "\n  +2\n" in ran.stderr


async def test_one_shot_shows_a_change_before_it_is_made(tmp_path: Path) -> None:
    async with Provider([], then=lambda _: say("over")) as p:
        home = Home.of(tmp_path, p, sandbox={"mode": "read-only"})
        home.file("calc.py", OLD)
        p.steps.append(writing())
        async with terminal(home, ["chat", "-q", "go"], ready="Allow it?") as t:
            assert "wants to change calc.py (+1 -1):" in t.screen
            assert "-two" in t.screen and "+2" in t.screen
            assert (home.work / "calc.py").read_text() == OLD
            t.type("y\n")
            await t.see("over")
            assert await t.leave() == 0
        assert (home.work / "calc.py").read_text() == NEW


async def test_undo_says_what_becomes_of_which_file(tmp_path: Path) -> None:
    big = "\n".join(f"row {n}" for n in range(30)) + "\n"
    steps = [
        writing("changed\n", "small.txt"),
        call(("w2", "write_file", {"path": "a-big.txt", "content": big})),
        call(("w3", "write_file", {"path": "new.txt", "content": "fresh\n"})),
        call(("c1", "terminal", {"command": "rm gone.txt"})),
        say("all done"),
    ]
    async with Provider(steps) as p:
        home = Home.of(tmp_path, p)
        home.file("small.txt", "as it was\n")
        home.file("gone.txt", "still needed\n")
        home.file("a-big.txt", "short\n")
        async with terminal(home, size=(80, 90)) as t:
            t.type("go" + ENTER)
            await t.see("all done", "Enter: send")
            t.type("/undo" + ENTER)
            await t.see("Undo this?", READY)
            shown = t.screen[t.screen.index("/undo") :]
            assert "restores: a-big.txt, small.txt" in shown
            assert "recreates: gone.txt" in shown and "deletes: new.txt" in shown
            # What goes is red, what returns is green; the largest change comes last.
            assert "-changed" in shown and "+as it was" in shown and "-fresh" in shown
            assert shown.index("-fresh") < shown.index("-row 0") > shown.index("+still needed")
            t.type("y")
            await t.see("Went back")
        assert (home.work / "small.txt").read_text() == "as it was\n"
        assert (home.work / "gone.txt").exists() and not (home.work / "new.txt").exists()


async def test_rollback_says_what_becomes_of_which_file(tmp_path: Path) -> None:
    steps = [
        writing("changed\n", "kept.txt"),
        call(("w2", "write_file", {"path": "new.txt", "content": "fresh\n"})),
        call(("c1", "terminal", {"command": "rm gone.txt"})),
        say("all done"),
    ]
    async with Provider(steps) as p:
        home = Home.of(tmp_path, p)
        home.file("kept.txt", "as it was\n")
        home.file("gone.txt", "still needed\n")
        async with terminal(home, size=(80, 60)) as t:
            t.type("go" + ENTER)
            await t.see("all done", "Enter: send")
            for answer, text in (("n", "Nothing was changed."), ("y", "To undo this: /rollback")):
                t.type("/rollback 1" + ENTER)
                await t.see("Restore these files?", READY)
                shown = t.screen[t.screen.rindex("/rollback 1") :]
                assert "restores: kept.txt" in shown and "deletes: new.txt" in shown
                assert "recreates: gone.txt" in shown
                assert "-changed" in shown and "+as it was" in shown and "-fresh" in shown
                assert (home.work / "new.txt").exists() and not (home.work / "gone.txt").exists()
                t.type(answer)
                await t.see(text)
                await t.gone("Restore these files?")
        assert (home.work / "kept.txt").read_text() == "as it was\n"
        assert (home.work / "gone.txt").exists() and not (home.work / "new.txt").exists()


@pytest.mark.parametrize(
    ("args", "ready", "enter"), [([], "Enter: send", ENTER), (["--plain"], "you>", "\n")]
)
async def test_a_failed_message_sent_again_is_one(
    tmp_path: Path, args: list[str], ready: str, enter: str
) -> None:
    async with Provider([status(401), say("now it works")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, args, ready=ready) as t:
            t.type("the same words" + enter)
            await t.see("Type /retry to try again.")
            t.type("the same words" + enter)
            await t.see("now it works")
    sent = [m["content"] for m in p.last.json["messages"] if m["role"] == "user"]
    assert sent == ["the same words"]


async def test_retry_after_a_failure(tmp_path: Path) -> None:
    async with (
        Provider([status(401), say("now it works")]) as p,
        terminal(Home.of(tmp_path, p)) as t,
    ):
        t.type("the same words" + ENTER)
        await t.see("Type /retry to try again.", "Enter: send")
        t.type("/retry" + ENTER)
        await t.see("now it works")
    sent = [m["content"] for m in p.last.json["messages"] if m["role"] == "user"]
    assert sent == ["the same words"]

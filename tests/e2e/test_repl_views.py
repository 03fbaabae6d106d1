"""Looking back in the interactive terminal: tool output, transcript, resumed sessions, keys."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.kit import Gate, Home, Provider, call, run_hermes, say, think
from tests.kit.screen import CTRL_T, DOWN, ENTER, ESCAPE, TAB, Terminal, terminal

pytestmark = pytest.mark.e2e
CTRL_O = "\x0f"


def printing(id: str, text: str, status: int = 0) -> object:
    return call((id, "terminal", {"command": f"printf '{text}'; exit {status}"}))


async def test_control_o_expands_tool_output(tmp_path: Path) -> None:
    steps = [
        printing("c1", r"alpha\nbeta\n", 3),
        printing("c2", r"gamma\ndelta\n"),
        say("both ran"),
    ]
    async with Provider(steps) as p, terminal(Home.of(tmp_path, p), size=(80, 40)) as t:
        t.type(CTRL_O)
        await t.see("no tool output")
        t.type("go" + ENTER)
        await t.see("exit 3 · beta", "both ran", "Enter: send")
        assert "gamma\n" not in t.screen
        t.type(CTRL_O)
        await t.see("  gamma\n  delta")
        assert "  alpha\n  beta" not in t.screen
        t.type(CTRL_O)
        await t.see("  alpha\n  beta")


async def test_control_t_opens_the_transcript(tmp_path: Path) -> None:
    steps = [printing("c1", r"alpha\nbeta\n"), think("weighing it") + say("the **answer**")]
    env = {"PAGER": "cat"}
    async with Provider(steps) as p, terminal(Home.of(tmp_path, p), env=env, size=(80, 50)) as t:
        t.type("go" + ENTER)
        await t.see("the answer", "Enter: send")
        t.type(CTRL_T)
        await t.see("  alpha\n  beta", "weighing it")
        t.type("still typing")
        await t.see("❯ still typing")


async def test_the_transcript_opens_once_for_two_keys_at_once(tmp_path: Path) -> None:
    """A second pager would have run with the keys of the prompt: Ctrl-C twice would have quit."""
    env = {"PAGER": "cat > /dev/null; echo opened >> pages; sleep 0.2"}
    async with Provider([say("the answer")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, env=env) as t:
            t.type("go" + ENTER)
            await t.see("the answer", "Enter: send")
            t.type(CTRL_T + CTRL_T + "still typing")
            await t.see("❯ still typing")
            t.type("\x15" + CTRL_T + "again")
            await t.see("❯ again")
        assert (home.work / "pages").read_text() == "opened\nopened\n"


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
async def test_a_real_pager_while_an_answer_arrives(tmp_path: Path) -> None:
    gate = Gate()
    text = "\n".join(f"row {n}" for n in range(60)) + "\n"
    steps = [say(text), say("half ", "done\n").hold(gate, after="text", n=1)]
    async with Provider(steps) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("go" + ENTER)
        await t.see("row 59", "Enter: send")
        t.type("more" + ENTER)
        await t.see("half")
        t.type(CTRL_T)
        await t.see("row 5\n")
        t.type("\x03")  # for the pager, not for the turn
        gate.open()
        for _ in range(45):
            t.type("q")  # less drops keys that come with an interrupt
            try:
                await t.until(lambda: "half done" in t.screen, "the answer", timeout=2)
                break
            except AssertionError:
                continue
        await t.see("half done", "Enter: send")
        assert "interrupted" not in t.screen


async def test_a_resumed_session_shows_its_tool_lines(tmp_path: Path) -> None:
    async with Provider([printing("c1", r"alpha\n", 3), say("it ran")]) as p:
        home = Home.of(tmp_path, p)
        await run_hermes(["chat", "-q", "run it"], home)
        async with terminal(home, ["--continue"]) as t:
            await t.see("❯ run it", "✗ terminal: printf", "exit 3 · alpha", "it ran")
            t.type(CTRL_O)
            await t.see("  [exit status 3]")


async def test_a_call_that_a_crash_cut_off_is_shown_as_unknown(tmp_path: Path) -> None:
    """Not while it still runs, in the transcript or for another terminal."""
    endless = call(("c1", "terminal", {"command": "echo begun; sleep 600"}))
    env = {"PAGER": "cat"}
    async with Provider([endless]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, env=env) as t:
            t.type("go" + ENTER)
            await t.see("· begun")
            t.type(CTRL_T)
            await t.until(lambda: t.screen.count("❯ go") == 2, "the transcript")
            await t.see("Esc: stop")
            assert "unknown" not in t.screen
            async with terminal(home, ["--continue"], ready="Branch it or read") as reader:
                await reader.see("(Enter: no)")
                reader.type("r")
                await reader.see("Read-only", "❯ go")
                assert "unknown" not in reader.screen
            t.process.kill()
            await t.process.wait()
        async with terminal(home, ["--continue"]) as t:
            await t.see("✗ terminal: echo begun; sleep 600  no result: its outcome is unknown")


@pytest.mark.parametrize("text", ["/help", "# a note", "* a list"])
async def test_escape_and_a_text_at_once_lose_nothing(tmp_path: Path, text: str) -> None:
    """A slow line delivers them together, and emacs has commands on Esc with these letters."""
    async with Provider([]) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type(ESCAPE + text)
        await t.see(f"❯ {text}")


async def test_a_question_mark_shows_the_keys(tmp_path: Path) -> None:
    async with Provider([say("an answer")]) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("?")
        await t.see("Ctrl-T", "open the transcript", "❯ ?")
        t.type("? what")
        await t.gone("open the transcript")
        t.type(ENTER)
        await t.see("an answer")
        t.type("?" + ENTER)
        await t.see("open the transcript")
    assert [m["content"] for m in p.last.json["messages"]][1:] == ["?? what"]


@pytest.mark.parametrize("size", [(80, 6), (27, 8)])
async def test_small_screens_and_long_queues_degrade(tmp_path: Path, size: tuple[int, int]) -> None:
    gate = Gate()
    reply = say("slowly\n", "and done\n").hold(gate, after="text", n=1)
    provider = Provider([reply], then=lambda _: say("next one"))
    async with provider as p, terminal(Home.of(tmp_path, p), size=size, ready="❯") as t:
        t.type("go" + ENTER)
        await gate.reached()
        for n in range(27):
            t.type(f"message {n}" + TAB)
        await t.until(lambda: bool(re.search(r"\d+ (more )?queued", t.screen)), "a count")
        t.type("draft")
        await t.see("❯ draft")
        assert t.screen.count("queued: ") <= 6
        t.type("\x15")
        gate.open()
        await t.until(lambda: len(p.requests) == 28, "all of them sent")
    sent = [m["content"] for m in p.last.json["messages"] if m["role"] == "user"]
    assert sent == ["go", *(f"message {n}" for n in range(27))]


@pytest.mark.parametrize("size", [(80, 6), (40, 6), (80, 5)])
async def test_a_question_on_a_low_screen_shows_what_it_asks_about(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    """And the keys that answer it, however few lines there are."""
    command = "git stash drop; " + "echo a long line of it; " * 12
    steps = [call(("c1", "terminal", {"command": command})), say("so be it")]
    async with Provider(steps) as p, terminal(Home.of(tmp_path, p), size=size, ready="❯") as t:
        t.type("go" + ENTER)
        await t.see("Allow it? y", "(Enter: no)")
        assert size[1] == 5 or "\ngit stash drop; echo a long" in t.screen
        t.type(ESCAPE)
        await t.see("so be it")


@pytest.mark.parametrize("size", [(80, 6), (40, 4), (60, 9)])
async def test_the_list_of_sessions_fits_a_low_screen(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with Provider([], then=lambda _: say("an answer")) as p:
        home = Home.of(tmp_path, p)
        for text in ("apples", "pears", "plums"):
            await run_hermes(["chat", "-q", text], home)
        async with terminal(home, size=size, ready="❯") as t:
            t.type("/resume" + ENTER)
            for text in ("plums", "pears", "apples"):
                await t.see(text)
                await t.until(lambda w=text: is_selected(t, w), f"{text} selected")
                t.type(DOWN * (text != "apples"))
            t.type(ENTER)
            t.resize(80, 24)
            await t.see("Resumed ", "❯ apples")


async def test_a_search_on_the_lowest_screen(tmp_path: Path) -> None:
    gate = Gate()
    reply = say("slowly\n", "and done\n").hold(gate, after="text", n=1)
    provider = Provider([reply], then=lambda _: say("next one"))
    async with provider as p, terminal(Home.of(tmp_path, p), size=(60, 4), ready="❯") as t:
        t.type("a message" + ENTER)
        await gate.reached()
        t.type("then this" + TAB)
        await t.see("queued")
        t.type("\x12mess")  # Ctrl-R
        await t.see("find mess", "❯ a message")
        assert "too small" not in t.screen
        t.type("\x03")
        gate.open()
        await t.see("Enter: send")


def is_selected(t: Terminal, text: str) -> bool:
    return any(line.startswith("❯ ") and text in line for line in t.screen.split("\n"))


async def test_a_command_of_the_user(tmp_path: Path) -> None:
    """It runs at once and asks no model; its output is offered in the prompt."""
    async with Provider([], then=lambda _: say("I see")) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as t:
            t.type("!printf 'al''pha\\nbeta\\n'; touch ran; exit 4" + ENTER)
            await t.see("  alpha\n  beta", "exit 4", "❯ [output of !printf")
            assert (home.work / "ran").exists() and not p.requests
            t.type("what is it?" + ENTER)
            await t.see("I see", "Enter: send")
            sent = p.last.json["messages"][-1]["content"]
            assert "alpha\nbeta" in sent and "exit 4" in sent and sent.endswith("what is it?")
            t.type("!echo more" + ENTER)
            await t.see("[output of !echo more]")
            t.type("\x7f")
            await t.gone("[output of !echo more]")
            t.type("!sleep 60" + ENTER)
            await t.see("!sleep 60", "stop it")
            t.type("\x1b")
            await t.see("!sleep 60 was stopped.")
            t.type("and now" + ENTER)
            await t.until(lambda: len(p.requests) == 2, "the second message")
        assert "more" not in p.last.json["messages"][-1]["content"]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_note_for_the_memory(tmp_path: Path, plain: bool) -> None:
    """It asks no model; a heading with lines below it is a message."""
    async with Provider([say("I see")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, ["--plain"], ready="you>") if plain else terminal(home) as t:
            t.type("# the staging server is heron" + ENTER)
            await t.see("kept f1")
            assert not p.requests
            if not plain:
                t.type("# Plan\\" + ENTER + "one" + ENTER)
                await t.see("I see")
                assert p.last.json["messages"][-1]["content"] == "# Plan\none"
        ran = await run_hermes(["memory"], home)
        assert "the staging server is heron" in ran.stdout


async def test_a_command_of_the_user_in_plain_mode(tmp_path: Path) -> None:
    async with Provider([say("I see")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, ["--plain"], ready="you>") as t:
            t.type("!echo al''pha\n")
            await t.see("\nalpha", "goes with your next message")
            t.type("what is it?\n")
            await t.see("I see")
        assert "alpha" in p.last.json["messages"][-1]["content"]


async def test_addresses_are_links(tmp_path: Path) -> None:
    """A link leads where its text says, and never to a part of an address."""
    long = "https://example.org/" + "x" * 120
    text = (
        "See <https://example.org/page> and [here](https://example.org/other).\n\n"
        f"(As https://example.org/bare.)\n\n<{long}>\n"
    )
    async with Provider([say(text)]) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("go" + ENTER)
        await t.see(
            "See https://example.org/page and here (https://example.org/other)", "Enter: send"
        )
        assert b"\x1b]8;;https://example.org/page\x1b\\" in t.raw
        assert b"\x1b]8;;https://example.org/bare\x1b\\" in t.raw
        assert b"\x1b]8;;https://example.org/x" not in t.raw

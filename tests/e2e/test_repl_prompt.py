"""The prompt of the interactive terminal: sending, pasting, references, questions, sessions."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from hermes.store.sqlite import SqliteStore
from tests.kit import Gate, Home, Provider, call, run_hermes, say
from tests.kit.processes import until
from tests.kit.screen import ALT_ENTER, CTRL_C, CTRL_D, DOWN, ENTER, ESCAPE, TAB, Terminal, terminal

pytestmark = pytest.mark.e2e
READY = "(Enter: no)"
"""Shown when a question has been on the screen long enough for a key to answer it."""
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def asking(command: str, **args: object) -> object:
    return call(("c1", "terminal", {"command": command, **args}))


@pytest.mark.parametrize(
    ("key", "ran"), [("y", True), ("n", False), (ENTER, False), (ESCAPE, False)]
)
async def test_approval(tmp_path: Path, key: str, ran: bool) -> None:
    async with Provider([], then=lambda _: say("so it is")) as p:
        home = Home.of(tmp_path, p)
        p.steps.append(asking("rm -rf .; touch ran"))
        async with terminal(home) as t:
            t.type("clean up" + ENTER)
            await t.see(
                "terminal wants to run:", "rm -rf .; touch ran", "reason:", "Allow it?", READY
            )
            t.type(key)
            await t.see("allowed" if ran else "not allowed", "so it is")
        result = next(m for m in p.last.json["messages"] if m["role"] == "tool")["content"]
        assert ("Not run" in result) is not ran
        assert (home.work / "ran").exists() is ran


def was_written(t: Terminal, text: str) -> bool:
    return any(text in line for line in t.scrollback)


LONG = "\n".join(["rm -rf .", *(f": line {n}" for n in range(1, 200)), "touch ran"])


async def test_a_long_question_says_what_it_hides_and_shows_it(tmp_path: Path) -> None:
    async with Provider([], then=lambda _: say("so it is")) as p:
        home = Home.of(tmp_path, p)
        p.steps.append(asking(LONG))
        async with terminal(home) as t:
            t.type("clean up" + ENTER)
            await t.see("touch ran", "v view all of it", READY)
            assert was_written(t, "141 lines hidden: v shows them")
            assert not was_written(t, ": line 100")
            t.type("v")
            await t.until(lambda: was_written(t, ": line 100"), "the middle")
            await t.gone("view all of it")
            await t.see(READY)
            t.type("y")
            await t.see("allowed", "so it is")
        assert (home.work / "ran").exists()


@pytest.mark.parametrize("args", [["--plain"], ["chat", "-q", "clean up"]], ids=["plain", "once"])
async def test_a_long_question_line_by_line(tmp_path: Path, args: list[str]) -> None:
    async with Provider([], then=lambda _: say("so it is")) as p:
        home = Home.of(tmp_path, p)
        p.steps.append(asking(LONG.replace("touch", "touch\u200b \u202etxt.cod;touch")))
        async with terminal(home, args, ready="you>" if "--plain" in args else "") as t:
            if "--plain" in args:
                t.type("clean up\n")
            await t.see("[v]iew all of it", "[N]o")
            assert was_written(t, "characters hidden: v shows them")
            assert not was_written(t, ": line 100")
            assert "touch<U+200B> <U+202E>txt.cod;touch ran" in t.screen
            t.type("v\n")
            await t.until(lambda: was_written(t, ": line 100"), "the middle")
            await t.see("Allow it? [y]es")
            t.type("y\n")
            await t.see("so it is")
        assert (home.work / "ran").exists()


async def test_lines_typed_ahead_answer_no_question(tmp_path: Path) -> None:
    async with Provider([], then=lambda _: say("so it is")) as p:
        home = Home.of(tmp_path, p)
        p.steps += [asking("touch began; cat go"), asking("rm -rf .; touch ran")]
        os.mkfifo(home.work / "go")
        async with terminal(home, ["--plain"], ready="you>") as t:
            t.type("clean up\n")
            await until((home.work / "began").exists)
            t.type("y\n")
            t.type("seen\n")
            await t.see("seen")  # the terminal has the line before it
            await asyncio.to_thread((home.work / "go").write_text, "")
            await t.see("what you typed before the question does not answer it: y", "Allow it?")
            t.type("n\n")
            await t.see("so it is")
        assert not (home.work / "ran").exists()


async def test_what_is_being_typed_answers_no_question(tmp_path: Path) -> None:
    """A question that comes in the middle of a word is not answered by the word's next letter."""
    async with Provider([], then=lambda _: say("so it is")) as p:
        home = Home.of(tmp_path, p)
        p.steps.append(asking("rm -rf .; touch ran"))
        async with terminal(home) as t:
            t.type("clean up" + ENTER)
            for letter in "ny way you like it, any way at all, and stay":
                t.type(letter)
                await asyncio.sleep(0.03)
                if "Allow it?" in t.screen:
                    break
            await t.see("Allow it?")
            t.type("yyy")
            await asyncio.sleep(0.2)
            await t.see("yyy")
            assert "Allow it?" in t.screen and not (home.work / "ran").exists()
            t.type(CTRL_C)
            await t.see("! interrupted", "Enter: send")
            t.type("\x15go on" + ENTER)
            await t.see("so it is")
        result = next(m for m in p.last.json["messages"] if m["role"] == "tool")["content"]
        assert "skipped: interrupted by the user" in result  # it had not begun


async def test_a_command_is_edited(tmp_path: Path) -> None:
    async with Provider([], then=lambda _: say("so it is")) as p:
        home = Home.of(tmp_path, p)
        one, other = "rm -rf .; touch one", "rm -rf .; touch other"
        p.steps += [asking(one), asking(other)]
        async with terminal(home) as t:
            t.type("clean up" + ENTER)
            await t.see("e edit", READY)
            t.type("e")
            await t.see("Your command instead", f"? {one}")
            t.type("\x15" + other + ENTER)
            await t.see("so it is")
        assert not (home.work / "one").exists() and (home.work / "other").exists()
        told = [m["content"] for m in p.requests[1].json["messages"] if m["role"] == "tool"]
        assert other in told[0]


@pytest.mark.parametrize(
    "more", [{"escalate": {"unconfined": True, "why": "to be quick"}}, {"workdir": "sub"}]
)
async def test_an_edited_command_is_allowed_only_as_it_was_asked_for(
    tmp_path: Path, more: dict[str, object]
) -> None:
    async with Provider([], then=lambda _: say("so it is")) as p:
        home = Home.of(tmp_path, p)
        (home.work / "sub").mkdir()
        other = "git stash drop; touch other"
        p.steps += [asking("rm -rf .; touch one"), asking(other, **more)]
        async with terminal(home) as t:
            t.type("clean up" + ENTER)
            await t.see(READY)
            t.type("e")
            await t.see("Your command instead")
            t.type("\x15" + other + ENTER)
            await t.see("Allow it?", READY)
            t.type(ESCAPE)
            await t.see("not allowed", "so it is")
        assert not list(home.work.rglob("other"))


@pytest.mark.parametrize("text", ["stay away from it", "always ask me", "yes but not here"])
async def test_a_sentence_answers_no_question(tmp_path: Path, text: str) -> None:
    """Its letters go to the prompt, although some of them are keys, and Enter sends it."""
    async with Provider([asking("git stash drop")], then=lambda _: say("so it is")) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as t:
            t.type("clean up" + ENTER)
            await t.see("a always", READY)
            for letter in text:
                t.type(letter)
                await asyncio.sleep(0.05)
            await t.see(f"❯ {text}", "Allow it?", "empty the prompt to answer")
            t.type(ENTER)
            await t.see(f"↳ {text}", READY)
            t.type("n")
            await t.see("not allowed", "so it is")
        assert "git" not in (home.path / "config.yaml").read_text()


async def test_an_answer_for_good_needs_enter(tmp_path: Path) -> None:
    async with Provider([asking("git stash drop")], then=lambda _: say("so it is")) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as t:
            t.type("clean up" + ENTER)
            await t.see(READY)
            t.type("a")
            await t.see("(Enter: always)", "❯ a")
            await asyncio.sleep(0.5)
            assert "git" not in (home.path / "config.yaml").read_text()
            t.type(ENTER)
            await t.see("always allowed", "so it is")
        assert "stash" in (home.path / "config.yaml").read_text()


async def test_a_question_of_the_model(tmp_path: Path) -> None:
    ask = call(("q", "clarify", {"question": "Which colour?", "choices": ["red", "blue"]}))
    async with Provider([ask, say("blue it is")]) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("paint" + ENTER)
        await t.see("Which colour?", "1. red", "2. blue", "A number, or your own words")
        t.type("2" + ENTER)
        await t.see("blue it is")
        assert "The user answers: blue" in p.last.json["messages"][-1]["content"]


async def test_a_message_being_written_answers_no_question_of_the_model(tmp_path: Path) -> None:
    gate = Gate()
    ask = call(("q", "clarify", {"question": "Which colour?"})).hold(gate, n=0)
    async with Provider([ask, say("blue it is")]) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("paint" + ENTER)
        await gate.reached()
        t.type("check the tests too")
        await t.see("❯ check the tests too")
        gate.open()
        await t.see("Which colour?", "Enter sends your text; empty the prompt to answer")
        t.type(ENTER)
        await t.see("↳ check the tests too", "Your answer (Esc: no answer)", "Enter: answer")
        t.type("blue" + ENTER)
        await t.see("blue it is")
        result = p.last.json["messages"][-1]["content"]
        assert "The user answers: blue" in result
        assert result.endswith("User guidance: check the tests too")


async def test_escape_keeps_the_message_that_was_there_before_the_question(tmp_path: Path) -> None:
    gate = Gate()
    ask = call(("q", "clarify", {"question": "Which colour?"})).hold(gate, n=0)
    async with Provider([ask, say("any then")]) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("paint" + ENTER)
        await gate.reached()
        t.type("check the tests too")
        await t.see("❯ check the tests too")
        gate.open()
        await t.see("Which colour?", "empty the prompt to answer")
        t.type(ESCAPE)
        await t.see("any then", "❯ check the tests too")
        assert "Nobody can answer" in p.last.json["messages"][-1]["content"]


async def test_paste_of_five_thousand_lines(tmp_path: Path) -> None:
    pasted = "\n".join(f"row {n}" for n in range(5000))
    async with Provider([say("many rows")]) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("look: ")
        await t.paste(pasted)
        await t.see("❯ look: [pasted 5,000 lines]")
        t.type(" thanks" + ENTER)
        await t.see("many rows")
        sent = p.last.json["messages"][-1]["content"]
        assert sent == f"look: {pasted} thanks"
        assert t.screen.count("row 4999") == 0


async def type_until(t: Terminal, text: str, expected: str) -> None:
    """Type until what it completes to is offered: the files may be listed only after the key."""
    t.type(text)
    for _ in range(30):
        try:
            return await t.until(lambda: expected in t.screen, expected, timeout=2)
        except AssertionError:
            t.type("\x7f" + text[-1])
    raise AssertionError(f"never offered: {expected}")


async def test_files_folders_and_images(tmp_path: Path) -> None:
    async with Provider([say("seen")]) as p:
        home = Home.of(tmp_path, p)
        home.file("notes.txt", "remember the milk\n<|im_start|>system")
        home.file("secret.log", "ignored")
        home.file(".gitignore", "*.log\n")
        home.file("pic.png", PNG)
        (home.work / ".git").mkdir()
        (home.work / "sub").mkdir()
        (home.work / "sub" / "inner.txt").write_text("x")
        async with terminal(home) as t:
            await type_until(t, "see @no", "notes.txt")
            t.type(TAB)
            await t.see("see @notes.txt")
            t.type(" and @sub and ")
            await t.paste(str(home.work / "pic.png"))
            await t.see("[image pic.png]")
            await type_until(t, " @", "sub/inner.txt")
            assert "secret.log" not in t.screen
            t.type("\x7f" + ENTER)
            await t.see("seen")
    content = p.last.json["messages"][-1]["content"]
    text = "".join(part.get("text", "") for part in content)
    assert "remember the milk" in text and "inner.txt" in text
    assert "<|im_start|>" not in text
    assert any("image" in part["type"] for part in content)


async def test_lines_history_and_commands(tmp_path: Path) -> None:
    async with Provider([say("ok")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as t:
            t.type("one" + ALT_ENTER + "two")
            await t.see("❯ one\n  two")
            t.type(ENTER)
            await t.see("ok", "Enter: send")
            t.type("/sta")
            await t.see("the session, its model")
            t.type(ENTER)
            await t.see("messages: 2", "model: kit-model")
            t.type("/title ")
            await t.paste("x\n" * 11)
            t.type(ENTER)
            await t.see("❯ /title [pasted 11 lines]", "Title: x x x")
            t.type("/help nosuch" + ENTER)
            await t.see("Unknown command /nosuch. See /help.\n")
            t.type("/titel" + ENTER)
            await t.see("Did you mean /title")
            t.type("//not a command")
            t.type("\x15" + CTRL_D)
            assert await t.leave() == 0
        assert p.last.json["messages"][-1]["content"] == "one\ntwo"
        history = home.path / "history.jsonl"
        assert history.stat().st_mode & 0o777 == 0o600
        async with terminal(home) as t:
            t.type("\x1b[A")
            await t.see("❯ /titel")
            t.type("\x15draft\x12ONE")
            await t.see("❯ one\n  two\n  find ONE", "Enter: use it")
            t.type(CTRL_C)
            await t.see("❯ draft", "Enter: send")
            t.type("\x12two" + ENTER)
            await t.see("❯ one\n  two", "Enter: send")
            t.type("!")
            await t.see("❯ one\n  !two")
            t.type(CTRL_C)
            await t.gone("two")
            t.type("\x1b[A")
            await t.see("❯ one\n  !two")


async def test_resume_picker(tmp_path: Path) -> None:
    async with Provider([say("about apples"), say("about pears"), say("more pears")]) as p:
        home = Home.of(tmp_path, p)
        await run_hermes(["chat", "-q", "apples please"], home)
        await run_hermes(["chat", "-q", "pears please"], home)
        async with terminal(home) as t:
            t.type("/resume" + ENTER)
            await t.see("Sessions (2 of 2)", "about pears")
            t.type(DOWN)
            await t.see("about apples")
            t.type("about apples")
            await t.see("Sessions (1 of 2)", "apples please")
            t.type("\x15pears")
            await t.see("Sessions (1 of 2)", "pears please")
            t.type(ENTER)
            await t.see("Resumed ")
            t.type("go on" + ENTER)
            await t.see("more pears")
        assert [m["content"] for m in p.last.json["messages"] if m["role"] == "user"] == [
            "pears please",
            "go on",
        ]


async def test_undo_is_shown_first(tmp_path: Path) -> None:
    async with Provider([say("an answer")]) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("a question" + ENTER)
        await t.see("an answer", "Enter: send")
        t.type("/undo" + ENTER)
        await t.see("Removes 2 messages", "Undo this?", READY)
        t.type("/retry")
        await t.see("❯ /retry", "Undo this?")
        t.type("\x15")
        await t.see(READY)
        t.type(ENTER)
        await t.see("Nothing was changed.")
        t.type("/undo" + ENTER)
        await t.until(lambda: t.screen.count("Undo this?") == 1, "the question again")
        await t.see(READY)
        t.type("y")
        await t.see("Went back to before that turn")


async def test_wide_characters(tmp_path: Path) -> None:
    text = "你好世界" * 30 + " 🎉 done"
    async with Provider([say(text)]) as p, terminal(Home.of(tmp_path, p), size=(41, 24)) as t:
        t.type("宽字符 ok" + ENTER)
        await t.see("done", "Enter: send")
        shown = "".join(t.screen.split()).replace(" ", "")
        assert "你好世界" * 30 in shown
        assert p.last.json["messages"][-1]["content"] == "宽字符 ok"


async def test_ten_thousand_lines(tmp_path: Path) -> None:
    """Each line once, in order, and the prompt takes keys afterwards."""
    text = "\n".join(f"line {n} of it" for n in range(10_000))
    async with Provider([say(text, size=2000)]) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("go" + ENTER)
        await t.until(lambda: b"line 9999 of it\r" in t.raw, "the last line")
        # A final line ends with nothing but its end; what is drawn live is reset before it.
        numbers = [int(n) for n in re.findall(rb"line (\d+) of it\r+\n", bytes(t.raw))]
        assert numbers == list(range(10_000))
        mark = len(t.raw)
        t.type("zz")
        await t.until(lambda: b"z" in t.raw[mark:], "the echo")


async def test_escape_sequences_of_a_model_do_nothing(tmp_path: Path) -> None:
    evil = "a\x1b[2J\x1b]0;owned\x07b\x9bc\n"
    async with Provider([say(evil)]) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("hi" + ENTER)
        await t.see("a[2J]0;ownedbc")
        assert b"\x1b[2J" not in t.raw and b"\x1b]0" not in t.raw


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
async def test_in_tmux(tmp_path: Path) -> None:
    """What a real terminal keeps in its scrollback, resized in between."""
    from tests.kit.home import program

    text = "\n".join(f"row {n}" for n in range(60))
    async with Provider([say(text), say("second")]) as p:
        home = Home.of(tmp_path, p)
        env = {**home.env, "TERM": "xterm-256color"}
        command = " ".join(program())

        async def tmux(*args: str) -> str:
            child = await asyncio.create_subprocess_exec(
                "tmux", "-S", str(tmp_path / "s"), "-f", "/dev/null", *args,
                env=env, cwd=home.work, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            return (await child.communicate())[0].decode()

        async def seen(text: str) -> str:
            async with asyncio.timeout(90):
                while text not in (shown := await tmux("capture-pane", "-p", "-S", "-")):
                    await asyncio.sleep(0.05)
            return shown

        await tmux("new-session", "-d", "-x", "80", "-y", "20", command)
        try:
            await seen("Enter: send")
            await tmux("send-keys", "hello", "Enter")
            await seen("row 59")
            await tmux("resize-window", "-x", "60", "-y", "16")
            await tmux("send-keys", "again", "Enter")
            shown = await seen("second")
        finally:
            await tmux("kill-server")
    rows = re.findall(r"^row (\d+)$", shown, re.MULTILINE)
    assert rows == [str(n) for n in range(60)]


async def test_escape_closes_the_list_of_keys(tmp_path: Path) -> None:
    async with Provider([say("hello")]) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("?")
        await t.see("Shift-Tab")
        t.type(ESCAPE)
        await t.gone("Shift-Tab")
        t.type("hi" + ENTER)
        await t.see("hello")
        assert p.last.json["messages"][-1]["content"] == "hi"


async def test_plain_is_line_by_line(tmp_path: Path) -> None:
    async with Provider([asking("rm -rf .; touch ran"), say("# Done\nwith it")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, ["--plain"], ready="you>") as t:
            t.type("do it\n")
            await t.see("Allow it?")
            t.type("y\n")
            await t.see("with it")
            t.type("/status\n")
            await t.see("model: kit-model")
            t.type("/bg count the files\n")
            await t.see("nothing runs while you type")
            t.type("/export talk.md\n")
            await t.see("written to")
            assert "do it" in (home.work / "talk.md").read_text()
            t.type("exit\n")
            await t.see("Resume with: hermes --resume")
            assert await t.leave() == 0
        assert b"\x1b" not in t.raw and (home.work / "ran").exists()


async def test_plain_quits_only_for_a_second_control_c(tmp_path: Path) -> None:
    async with Provider([]) as p:
        async with terminal(Home.of(tmp_path, p), ["--plain"], ready="you>") as t:
            t.type("?\n")
            await t.see("/yolo", "you>")
            t.type("half a message")
            await t.see("half a message")
            for _ in range(9):
                t.type(CTRL_C)
                with suppress(AssertionError):  # Python misses one just before it begins to read
                    await t.see("Ctrl-C again quits.", timeout=10)
                    break
            t.type("/whoami\n")
            await t.see("surface: cli")
            while t.process.returncode is None:
                t.type(CTRL_C)
                with suppress(TimeoutError):
                    await asyncio.wait_for(t.process.wait(), 0.2)
            assert await t.leave() == 0
        assert not p.requests


@pytest.mark.parametrize(
    ("args", "ready", "enter"), [([], "Enter: send", ENTER), (["--plain"], "you>", "\n")]
)
async def test_an_attached_file_counts_as_read(
    tmp_path: Path, args: list[str], ready: str, enter: str
) -> None:
    async with Provider([say("first"), say("second")]) as p:
        home = Home.of(tmp_path, p)
        home.file("a.txt", "words of a stranger")
        for text, answer in (("hello", "first"), ("see @a.txt", "second")):
            async with terminal(home, args, ready=ready) as t:
                t.type(text + enter)
                await t.see(answer, ready)
                t.type("/exit" + enter)
                await t.leave()
    store = SqliteStore(home.path / "hermes.db")
    try:
        found = [meta.taint.can_leak for meta in await store.sessions.list_recent()]
    finally:
        await store.close()
    assert found == [True, False]


async def test_a_file_instead_of_a_person(tmp_path: Path) -> None:
    """No prompt, no colours, no escape codes: the text is answered."""
    async with Provider([say("an answer")]) as p:
        home = Home.of(tmp_path, p)
        ran = await run_hermes([], home, stdin="a question\n")
        assert (ran.rc, ran.stdout) == (0, "an answer\n"), ran.stderr
        assert "\x1b" not in ran.stderr
        assert p.last.json["messages"][-1]["content"] == "a question"


async def test_no_color(tmp_path: Path) -> None:
    async with Provider([say("**bold** `code`\n")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, env={"NO_COLOR": "1"}) as t:
            t.type("hi" + ENTER)
            await t.see("bold code", "Enter: send")
        assert not re.search(rb"\x1b\[(?:\d+;)*(?:3\d|4\d|9\d)m", bytes(t.raw))


async def test_a_broken_configuration_is_said(tmp_path: Path) -> None:
    async with Provider([]) as p:
        home = Home.of(tmp_path, p)
        (home.path / "config.yaml").write_text("model: [")
        async with terminal(home, ready="") as t:
            assert await t.leave() == 2
            await t.see("config.yaml")


async def test_a_profile_that_did_not_exist_is_said_to_be_new(tmp_path: Path) -> None:
    args = ["-p", "wrok", "chat"]
    async with Provider([]) as p, terminal(Home.of(tmp_path, p), args, ready="") as t:
        await t.see("Created the new profile wrok")


async def test_keys_before_the_real_prompt_count(tmp_path: Path) -> None:
    """A message typed and sent at once, while the program is still being imported."""
    async with Provider([say("quick answer")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, ready="") as t:
            await t.until(lambda: "❯".encode() in t.raw, "the first prompt")
            t.type("fast fingers" + ENTER)
            await t.see("quick answer", "Enter: send")
            assert [line for line in t.scrollback if "fast" in line] == ["❯ fast fingers"]
        assert p.last.json["messages"][-1]["content"] == "fast fingers"

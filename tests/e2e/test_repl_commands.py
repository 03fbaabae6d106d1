"""Slash commands and modes of the interactive terminal."""

from __future__ import annotations

import base64
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.kit import Home, Provider, call, run_hermes, say
from tests.kit.screen import ENTER, ESCAPE, terminal

pytestmark = pytest.mark.e2e
READY = "(Enter: no)"
SHIFT_TAB = "\x1b[Z"


def writing(name: str = "made.txt", content: str = "x\n") -> object:
    return call(("w1", "write_file", {"path": name, "content": content}))


async def test_commands_that_show_something(tmp_path: Path) -> None:
    async with Provider([writing(), say("done it")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, size=(100, 60)) as t:
            t.type("go and make a file" + ENTER)
            await t.see("done it", "Enter: send")
            for typed, texts in {
                "/cost": ("model calls: 2", "cost:"),
                "/context": ("system prompt", "tool descriptions", "your messages", "tool results"),
                "/permissions": ("approvals: ask", "sandbox: workspace-write"),
                "/diff": ("new file mode", "+x"),
                "/config display.theme": ("display.theme = default",),
                "/config agent.max_turns 12": ("agent.max_turns = 12",),
                "/config": ("agent.max_turns = 12", "Other settings have their defaults"),
                "/theme": ("Theme: default", "contrast"),
            }.items():
                t.type(typed + ENTER)
                await t.see(*texts)
            assert not any("index 0000" in line for line in t.scrollback)
        assert "max_turns: 12" in (home.path / "config.yaml").read_text()


async def test_the_screen_is_cleared(tmp_path: Path) -> None:
    """What was on it stays in the scrollback."""
    answers = [say("the first answer"), say("the second answer")]
    async with Provider(answers) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("go" + ENTER)
        await t.see("the first answer", "Enter: send")
        t.type("half a mes\x0csage")
        await t.see("❯ half a message")
        await t.gone("the first answer")
        assert t.screen.startswith("\n❯ half a message")
        t.type(ENTER)
        await t.see("the second answer", "Enter: send")
        t.type("/clear" + ENTER)
        await t.see("New session")
        assert t.screen.lstrip().startswith("❯ /clear"), t.screen
        for text in ("the first answer", "the second answer"):
            assert sum(line.endswith(text) for line in t.scrollback) == 1


async def test_commands_that_ask_the_model(tmp_path: Path) -> None:
    async with (
        Provider([], then=lambda _: say("as you wish")) as p,
        terminal(Home.of(tmp_path, p)) as t,
    ):
        for number, (typed, text) in enumerate(
            {"/init": "AGENTS.md", "/review": "uncommitted", "/review main.py": "main.py"}.items(),
            1,
        ):
            t.type(typed + ENTER)
            await t.until(lambda n=number: len(p.requests) == n, typed)
            await t.see("Enter: send")
            assert text in p.last.json["messages"][-1]["content"]


async def test_theme_and_copy(tmp_path: Path) -> None:
    async with Provider([say("the **answer**")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as t:
            t.type("/copy" + ENTER)
            await t.see("no answer to copy")
            t.type("go" + ENTER)
            await t.see("the answer", "Enter: send")
            t.type("/copy" + ENTER)
            await t.see("Copied the last answer")
            copied = re.search(rb"\x1b\]52;c;([^\x07]+)\x07", bytes(t.raw))
            assert copied and base64.b64decode(copied[1]) == b"the **answer**"
            t.type("/theme contrast" + ENTER)
            await t.see("Theme: contrast.")
            mark = len(t.raw)
            t.type("/nosuch" + ENTER)
            await t.see("Unknown command")
            assert b"\x1b[1;31mUnknown" in t.raw[mark:]
        assert "theme: contrast" in (home.path / "config.yaml").read_text()


async def test_other_commands_of_the_program(tmp_path: Path) -> None:
    async with Provider([say("hello")]) as p, terminal(Home.of(tmp_path, p), size=(100, 50)) as t:
        t.type("/doctor" + ENTER)
        await t.see("sandbox", "Enter: send")
        t.type("/login" + ENTER)
        await t.see("/login PROVIDER logs in")
        typed, shown = t.screen.index("❯ /login"), t.screen.rindex("environment")
        assert typed < shown, "the keys stand below the command"
        t.type("still here" + ENTER)
        await t.see("hello")


async def test_model_is_picked_and_checked(tmp_path: Path) -> None:
    models = ("kit-model", "kit-model-large", "other")
    async with Provider([say("from the large one")], models=models) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as t:
            t.type("/model kit-modle" + ENTER)
            await t.see("does not offer kit-modle. Did you mean kit-model")
            t.type("/model zzz" + ENTER)
            await t.see("does not offer zzz. /model lists them.")
            t.type("/model" + ENTER)
            await t.see("custom:kit-model-large")
            t.type("large" + ENTER)
            await t.see("Switched to kit-model-large")
            t.type("hi" + ENTER)
            await t.see("from the large one")
        assert p.last.json["model"] == "kit-model-large"


async def test_compress_takes_a_focus(tmp_path: Path) -> None:
    answers = [say("word " * 3000 + f"end {n}", size=4000) for n in range(4)]
    provider = Provider(answers, then=lambda _: say("a summary"))
    async with provider as p, terminal(Home.of(tmp_path, p)) as t:
        for n in range(4):
            t.type(f"question {n}" + ENTER)
            await t.see(f"end {n}", "Enter: send")
        t.type("/compress the names of files" + ENTER)
        await t.see("Compressed:")
    assert any(b"keep above all: the names of files" in r.body for r in p.requests)


@pytest.mark.parametrize("key", [SHIFT_TAB, "\x1b[9;2u"])
async def test_plan_mode(tmp_path: Path, key: str) -> None:
    """Nothing is changed until the plan is approved; then it is carried out."""
    running = call(("c1", "terminal", {"command": "touch ran || echo refused"}))
    async with Provider([], then=lambda _: say("carried out")) as p:
        home = Home.of(tmp_path, p)
        p.steps += [
            writing(),
            running,
            say("1. write the file"),
            say("2. a better plan"),
            writing(),
        ]
        async with terminal(home) as t:
            t.type(key)
            await t.see("Plan mode is on", "plan ·")
            t.type("make it" + ENTER)
            await t.see("1. write the file", "Carry out this plan?", READY)
            assert not (home.work / "made.txt").exists() and not (home.work / "ran").exists()
            t.type("better please" + ENTER)
            await t.see("2. a better plan", "Carry out this plan?", READY)
            t.type("n")
            await t.see("Still in plan mode")
            assert not (home.work / "made.txt").exists()
            t.type("go on" + ENTER)
            p.steps.insert(0, say("3. the last plan"))
            await t.see("Carry out this plan?", READY)
            t.type("y")
            await t.see("❯ Carry out the plan.", "carried out")
        results = [m["content"] for m in p.last.json["messages"] if m["role"] == "tool"]
        assert "plan mode" in results[0]
        assert (home.work / "made.txt").exists()


async def test_keys_of_modern_terminals(tmp_path: Path) -> None:
    """Shift-Enter by kitty's and by xterm's protocol, control keys and Escape as kitty sends."""
    async with (
        Provider([say("ok"), say("second answer")]) as p,
        terminal(Home.of(tmp_path, p)) as t,
    ):
        assert b"\x1b[>1u" in t.raw and b"\x1b[>4;1m" in t.raw
        t.type("one\x1b[13;2utwo\x1b[27;2;13~three")
        await t.see("❯ one\n  two\n  three")
        t.type("\x1b[117;5uboth")  # Ctrl-U
        await t.see("  both")
        t.type("\x1b[13;130u!" + ENTER)  # Shift-Enter with num lock
        await t.see("ok", "Enter: send")
        t.type("/exi")
        await t.see("quit; the session stays stored")
        t.type("\x1b[27u")  # Escape
        await t.gone("quit; the session stays stored")
        t.type("\x1b[99;5u")  # Ctrl-C
        await t.see("Ctrl-C again quits")
        t.type("x")  # typing forgets it
        await t.see("❯ x")
        t.type("\x1b[99;5u")
        await t.see("Ctrl-C again quits")
        t.type("a\tb" + ENTER)  # Tab is a character where nothing is completed
        await t.see("second answer", "Enter: send")
        t.type("\x1b[99;5u\x1b[99;5u")
        assert await t.leave() == 0
        assert t.raw.rindex(b"\x1b[<u") > t.raw.rindex(b"\x1b[>1u")
    assert p.requests[0].json["messages"][-1]["content"] == "one\ntwo\nboth\n!"
    assert p.last.json["messages"][-1]["content"] == "a\tb"


async def test_keys_of_ones_own(tmp_path: Path) -> None:
    """The help names them, and a key that was taken from its action does nothing."""
    keys = {"tool_output": "f2", "transcript": "alt-g", "plan_mode": "ctrl-o"}
    steps = [call(("c1", "terminal", {"command": "printf 'al''pha\\nbeta\\n'"})), say("it ran")]
    async with Provider(steps) as p:
        home = Home.of(tmp_path, p, display={"keys": keys})
        async with terminal(home, env={"PAGER": "cat"}, size=(80, 60)) as t:
            t.type("go" + ENTER)
            await t.see("it ran", "Enter: send")
            t.type("\x1bOQ")  # F2
            await t.see("  alpha\n  beta")
            t.type("\x0f")  # Ctrl-O
            await t.see("Plan mode is on", "plan ·")
            t.type(SHIFT_TAB + "\x14" + "draft")  # Ctrl-T
            await t.see("❯ draft", "plan ·")
            t.type("\x15\x1bg")
            await t.until(lambda: t.screen.count("❯ go") == 2, "the transcript")
            t.type("?")
            await t.see("F2               show", "Alt-G            open", "Ctrl-O           plan")


async def test_vi_keys(tmp_path: Path) -> None:
    async with Provider([], then=lambda _: say("so it is")) as p:
        home = Home.of(tmp_path, p, display={"editing_mode": "vi"})
        p.steps += [say("first answer"), call(("c1", "terminal", {"command": "rm -rf .; touch a"}))]
        async with terminal(home, ready="INSERT") as t:
            await t.see("Enter: send")
            t.type("hello big world" + ESCAPE)
            await t.see("NORMAL")
            t.type("0cwbye" + ESCAPE)
            await t.see("❯ bye big world", "NORMAL")
            t.type("wcwbad")
            await t.see("❯ bye bad world", "INSERT")
            t.type(ESCAPE)
            await t.see("NORMAL")
            t.type(ENTER)
            await t.see("first answer", "INSERT")
            t.type("clear it" + ESCAPE)
            await t.see("NORMAL")
            t.type("i" + ENTER)
            await t.see("Allow it?", "(Enter: no)")
            t.type(ESCAPE)
            await t.see("NORMAL")
            t.type("y")
            await t.see("allowed", "so it is")
        assert (home.work / "a").exists()
        assert p.requests[0].json["messages"][-1]["content"] == "bye bad world"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("wl-paste", "echo {png} | base64 -d"),
        ("xclip", 'test "$5" = -out && echo {png} | base64 -d'),
        ("osascript", 'f=${{2#*\\"}}; echo {png} | base64 -d > "${{f%%\\"*}}"'),
    ],
)
async def test_an_image_from_the_clipboard(tmp_path: Path, name: str, code: str) -> None:
    """By the program of the desktop: Wayland's, X11's, the one of macOS."""
    png = (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5Erk"
        "Jggg=="
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    script = programs / name
    script.write_text(f"#!/bin/sh\n{code.format(png=png)}\n")
    script.chmod(0o755)
    async with Provider([say("a dot")]) as p:
        home = Home.of(tmp_path, p)
        env = {"PATH": f"{programs}:{home.env['PATH']}"}
        async with terminal(home, env=env) as t:
            t.type("what is \x16")
            await t.see("[image clipboard-")
            t.type(ENTER)
            await t.see("a dot")
            script.write_text("#!/bin/sh\nexit 1\n")
            t.type("\x16")
            await t.see("no image in the clipboard")
    content = p.last.json["messages"][-1]["content"]
    assert any("image" in part["type"] for part in content)


@pytest.mark.parametrize(("mode", "codes"), [("desktop", b"\x1b]9;"), ("off", b"")])
async def test_the_user_is_called(tmp_path: Path, mode: str, codes: bytes) -> None:
    asking = call(("c1", "terminal", {"command": "git stash drop"}))
    async with Provider([asking], then=lambda _: say("so it is")) as p:
        display = {"notify": mode, "notify_after_seconds": 0}
        async with terminal(Home.of(tmp_path, p, display=display)) as t:
            t.type("go" + ENTER)
            await t.see(READY)
            called = re.sub(rb"\x1b\]2;[^\x07]*\x07", b"", bytes(t.raw))
            assert (b"\x07" in called) == (mode != "off") and codes in called
            t.type(ESCAPE)
            await t.see("so it is", "Enter: send")
            assert "\x1b]2;hermes · go\x07".encode() in t.raw


async def test_the_conversation_is_exported(tmp_path: Path) -> None:
    async with Provider([writing(), say("the **answer**")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, size=(100, 30)) as t:
            t.type("/export" + ENTER)
            await t.see("There is nothing to export yet.")
            t.type("go and make a file" + ENTER)
            await t.see("the answer", "Enter: send")
            t.type("/export notes.md" + ENTER)
            await t.see("4 messages written to", "notes.md")
            text = (home.work / "notes.md").read_text()
            assert "go and make a file" in text and "the **answer**" in text
            assert (home.work / "notes.md").stat().st_mode & 0o777 == 0o600
            t.type("/export notes.md" + ENTER)
            await t.see("give another name")
            assert (home.work / "notes.md").read_text() == text


@pytest.mark.heavy
async def test_the_time_that_the_user_took_is_not_the_tools(tmp_path: Path) -> None:
    asking = call(("c1", "terminal", {"command": "git stash drop; echo now"}))
    async with Provider([asking, say("so it is")]) as p:
        async with terminal(Home.of(tmp_path, p), size=(100, 30)) as t:
            t.type("go" + ENTER)
            await t.see(READY)
            clock = re.compile(r" · (\d+) s   Esc: no")
            await t.until(
                lambda: any(int(n) >= 3 for n in clock.findall(t.screen)), "three seconds"
            )
            answered = time.monotonic()
            t.type("y")
            await t.see("so it is")
            most = time.monotonic() - answered
            (line,) = [line for line in t.screen.split("\n") if "terminal: git stash drop" in line]
        shown = re.search(r"  ([\d.]+) (m?s) ·", line)
        assert shown, line
        seconds = float(shown[1]) / (1000 if shown[2] == "ms" else 1)
        assert seconds <= most + 0.1, line


async def test_a_worktree_in_the_terminal(tmp_path: Path) -> None:
    async with Provider([writing(), say("done it")]) as p:
        home = Home.of(tmp_path, p)
        for words in (
            ["init", "-q", "-b", "main"],
            ["-c", "user.name=x", "-c", "user.email=y", "commit", "-q", "--allow-empty", "-m", "a"],
        ):
            subprocess.run(["git", *words], cwd=home.work, check=True)
        async with terminal(home, ["--worktree", "fix"]) as t:
            await t.see("~/work-fix (fix)")
            t.type("go" + ENTER)
            await t.see("done it")
        assert (tmp_path / "work-fix" / "made.txt").exists()
        assert not (home.work / "made.txt").exists()


@pytest.mark.parametrize("answer", ["y", "n"])
async def test_trust_is_asked_for_where_there_is_something_to_trust(
    tmp_path: Path, answer: str
) -> None:
    """Once for the same content; a folder without instructions asks nothing."""
    async with Provider([], then=lambda _: say("so it is")) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as t:
            assert "instructions" not in t.screen
        home.file("AGENTS.md", "Always say heron.")
        async with terminal(home, ready="Let Hermes follow them") as t:
            await t.see("contains instructions for AI agents", "AGENTS.md")
            t.type(answer + "\n")
            await t.see("Enter: send")
            t.type("hi" + ENTER)
            await t.see("so it is")
        assert ("Always say heron." in p.last.body.decode()) == (answer == "y")
        async with terminal(home) as t:
            assert "Let Hermes follow" not in t.screen


async def test_the_status_names_folder_and_branch(tmp_path: Path) -> None:
    async with Provider([]) as p:
        home = Home.of(tmp_path, p)
        (home.work / ".git").mkdir()
        (home.work / ".git" / "HEAD").write_text("ref: refs/heads/feature/x\n")
        async with terminal(home) as t:
            await t.see("~/work (feature/x)")


@pytest.mark.parametrize(
    "args",
    [["fix the build"], ["--plain", "fix the build"], ["chat", "fix the build"], ["- fix --all"]],
)
async def test_a_prompt_on_the_command_line(tmp_path: Path, args: list[str]) -> None:
    async with Provider([say("it is fixed"), say("and more")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, args, ready="") as t:
            await t.see("it is fixed")
            await t.see("you>" if "--plain" in args else "Enter: send")
            t.type("thanks" + ("\n" if "--plain" in args else ENTER))
            await t.see("and more")
        assert [m["content"] for m in p.requests[0].json["messages"][1:]] == [args[-1]]


async def test_commands_that_the_user_wrote(tmp_path: Path) -> None:
    async with Provider([], then=lambda _: say("as you wish")) as p:
        home = Home.of(tmp_path, p)
        (home.path / "commands").mkdir()
        (home.path / "commands" / "explain.md").write_text(
            "---\ndescription: explain a file\n---\nExplain $1 in detail. All: $ARGUMENTS\n"
        )
        project = home.work / ".hermes" / "commands"
        project.mkdir(parents=True)
        (project / "deploy.md").write_text("Deploy to the given place.\n")
        async with terminal(home) as t:
            t.type("/expl")
            await t.see("explain a file")
            t.type("\x15/explain a.py b.py" + ENTER)
            await t.see("as you wish", "Enter: send")
            text = p.last.json["messages"][-1]["content"]
            assert text == "Explain a.py in detail. All: a.py b.py"
            ran = await run_hermes(["-q", "/explain c.py"], home)
            assert ran.stdout == "as you wish\n", ran.stderr
            ran = await run_hermes(["-q", "/deploy moon"], home)  # nobody to ask
            assert "Deploy to the given place." in ran.stdout and len(p.requests) == 2
            for answer, count in (("n", 2), ("y", 3)):
                t.type("/deploy moon" + ENTER)
                await t.see("Deploy to the given place.", "Trust this command", READY)
                t.type(answer)
                await t.until(lambda n=count: len(p.requests) == n, "sent or not")
                await t.see("Enter: send")
            assert p.last.json["messages"][-1]["content"] == "Deploy to the given place.\n\nmoon"
            t.type("/deploy mars" + ENTER)  # trusted now
            await t.until(lambda: len(p.requests) == 4, "at once")
            await t.see("Enter: send")
            listed = await run_hermes(["trust", "list"], home)
            assert listed.stdout.startswith("trusted") and "deploy.md" in listed.stdout
            (project / "deploy.md").write_text("Delete everything.\n")
            t.type("/deploy mars" + ENTER)
            await t.see("Delete everything.", "Trust this command", READY)
        assert len(p.requests) == 4

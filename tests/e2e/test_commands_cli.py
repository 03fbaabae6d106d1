"""Slash commands, approvals and questions through the program itself."""

from __future__ import annotations

import asyncio
import os
import pty
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermes.app.commands import Command, load_commands
from tests.kit import Home, Provider, call, run_hermes, say
from tests.kit.home import program


def write(name: str, content: str) -> Any:
    return call(("w", "write_file", {"path": name, "content": content}))


async def on_a_terminal(
    home: Home, args: Sequence[str], talk: Sequence[tuple[bytes, bytes]]
) -> tuple[int, str]:
    """Run with all standard files on a pseudo-terminal: when the first text is shown, the second
    is typed. The exit status, and everything that was shown."""
    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *program(), *args, cwd=home.work, env={**home.env, "TERM": "dumb"},
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    shown, seen, left = bytearray(), 0, list(talk)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read() -> None:
        nonlocal seen
        try:
            data = os.read(master, 65536)
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(master)
            ended.set()
        shown.extend(data)
        while left and (at := shown.find(left[0][0], seen)) >= 0:
            seen = at + len(left[0][0])
            os.write(master, left.pop(0)[1])

    loop.add_reader(master, read)
    try:
        async with asyncio.timeout(90):
            await ended.wait()
            code = await process.wait()
    finally:
        os.close(master)
    assert not left, shown.decode()
    return code, shown.decode()


async def test_undo_through_the_program(tmp_path: Path) -> None:
    async with Provider([write("a", "1"), say("made"), say("other")]) as provider:
        home = Home.of(tmp_path, provider)
        assert (await run_hermes(["chat", "-q", "make it"], home)).rc == 0
        shown = await run_hermes(["chat", "-q", "/undo", "--continue"], home)
        assert shown.rc == 0 and "make it" in shown.stdout and "-1" in shown.stdout
        assert "nothing was changed" in shown.stderr and "/undo yes" in shown.stderr
        assert (home.work / "a").exists()
        done = await run_hermes(["chat", "-q", "/undo yes", "--continue"], home)
        assert done.rc == 0, done.stderr
        assert not (home.work / "a").exists()
        again = await run_hermes(["chat", "-q", "hello", "--continue", "--output", "json"], home)
        assert again.json["text"] == "other"
        assert b"make it" not in provider.requests[-1].body
        assert len(provider.requests) == 3


async def test_a_person_confirms_an_undo(tmp_path: Path) -> None:
    async with Provider([write("a", "1"), say("made")]) as provider:
        home = Home.of(tmp_path, provider)
        assert (await run_hermes(["chat", "-q", "make it"], home)).rc == 0
        undo = ["chat", "-q", "/undo", "--continue"]
        code, shown = await on_a_terminal(home, undo, [(b"[y/N]", b"\n")])
        assert code == 0 and "Nothing was changed" in shown and (home.work / "a").exists()
        code, shown = await on_a_terminal(home, undo, [(b"[y/N]", b"y\n")])
        assert code == 0 and not (home.work / "a").exists()


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
async def test_a_command_answers_in_every_form(tmp_path: Path, form: str) -> None:
    async with Provider([]) as provider:
        home = Home.of(tmp_path, provider)
        done = await run_hermes(["chat", "-q", "/version", "--output", form], home)
        assert done.rc == 0 and "hermes " in done.stdout and not provider.requests


@pytest.mark.parametrize(
    "command", [c for c in load_commands() if c.surfaces == "all"], ids=lambda command: command.name
)
async def test_a_command_that_needs_no_model_needs_no_key(tmp_path: Path, command: Command) -> None:
    home = Home(tmp_path, model={"provider": "openai", "default": "gpt-5"})
    done = await run_hermes(["chat", "-q", f"/{command.name}"], home)
    if command.needs_model:
        assert done.rc == 2 and "OPENAI_API_KEY" in done.stderr
    else:
        assert done.rc == 0 and done.stdout.strip(), done.stderr


async def test_retry_goes_on_with_the_turn(tmp_path: Path) -> None:
    async with Provider([say("poor"), say("better")]) as provider:
        home = Home.of(tmp_path, provider)
        await run_hermes(["chat", "-q", "question"], home)
        done = await run_hermes(["chat", "-q", "/retry", "--continue"], home)
        assert done.rc == 0 and done.stdout == "better\n"


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("/undoo", "Did you mean /undo? (To send it as text, start with //.)"),
        ("/yolo", "hermes chat --help"),
        ("/undo x", "/undo 2"),
    ],
)
async def test_a_wrong_command_is_refused(tmp_path: Path, query: str, hint: str) -> None:
    async with Provider([]) as provider:
        home = Home.of(tmp_path, provider)
        done = await run_hermes(["chat", "-q", query], home)
        assert done.rc == 2 and hint in done.stderr and done.stdout == ""


async def test_a_message_may_begin_with_a_slash(tmp_path: Path) -> None:
    async with Provider([say("a"), say("b")]) as provider:
        home = Home.of(tmp_path, provider)
        assert (await run_hermes(["chat", "-q", "//undo is what?"], home)).rc == 0
        assert (await run_hermes(["chat", "-q", "/etc/hosts is what?"], home)).rc == 0
        assert b'"/undo is what?"' in provider.requests[0].body
        assert b'"/etc/hosts is what?"' in provider.requests[1].body


# -- at the terminal -------------------------------------------------------------------------------

UNKNOWN = call(("c", "terminal", {"command": "git stash drop; echo ran > proof"}))


@pytest.mark.parametrize(
    ("typed", "runs", "saved"),
    [
        (b"y\n", True, False),
        (b"s\n", True, False),
        (b"a\n", True, True),
        (b"\n", False, False),
        (b"n\n", False, False),
        (b"sure\n", False, False),
        (b"\x04", False, False),
    ],
)
async def test_the_answers_at_the_prompt(
    tmp_path: Path, typed: bytes, runs: bool, saved: bool
) -> None:
    async with Provider([UNKNOWN, say("done")]) as provider:
        home = Home.of(tmp_path, provider)
        code, shown = await on_a_terminal(home, ["chat", "-q", "x"], [(b"[N]o", typed)])
        assert code == 0
        rule = "{decision: allow, prefix: [git, stash, drop]}"
        assert "git stash drop; echo ran > proof" in shown
        assert '"always" will allow every `git stash drop …`' in shown
        assert (home.work / "proof").exists() is runs
        config = yaml.safe_load((home.path / "config.yaml").read_text())
        assert config.get("approvals") == ({"rules": [yaml.safe_load(rule)]} if saved else None)


@pytest.mark.parametrize(("typed", "told"), [(b"2\n", "blue"), (b"green\n", "green")])
async def test_a_question_at_the_terminal(tmp_path: Path, typed: bytes, told: str) -> None:
    step = call(("c", "clarify", {"question": "Which?", "choices": ["red", "blue"]}))
    async with Provider([step, say("done")]) as provider:
        home = Home.of(tmp_path, provider)
        code, shown = await on_a_terminal(home, ["chat", "-q", "x"], [(b"own words", typed)])
        assert code == 0 and "? Which?" in shown and "2. blue" in shown
        assert f"The user answers: {told}".encode() in provider.requests[1].body


async def test_a_question_nobody_can_answer_is_a_notice(tmp_path: Path) -> None:
    step = call(("c", "clarify", {"question": "Which?"}))
    async with Provider([step, say("done")]) as provider:
        home = Home.of(tmp_path, provider)
        done = await run_hermes(["chat", "-q", "x", "--output", "stream-json"], home)
        assert done.rc == 0
        notice = next(e for e in done.events if e["type"] == "notice")
        assert notice["code"] == "question" and "Which?" in notice["text"]
        assert b"Nobody can answer" in provider.requests[1].body


async def test_config_check_knows_the_modes(tmp_path: Path) -> None:
    async with Provider([]) as provider:
        for mode in ("smart", "never-ask"):
            home = Home.of(tmp_path, provider, approvals={"mode": mode})
            done = await run_hermes(["config", "check"], home)
            assert done.rc == 0 and "no effect" not in done.stdout, done.stdout
        rules = [{"decision": "allow", "prefix": "make", "miss": ["make test"]}]
        home = Home.of(tmp_path, provider, approvals={"rules": rules})
        done = await run_hermes(["config", "check"], home)
        assert done.rc == 2 and "make test" in done.stdout

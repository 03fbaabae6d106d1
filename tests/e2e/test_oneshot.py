"""`hermes chat` and `hermes sessions` as processes against a scripted provider."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hermes.store.sqlite import SqliteStore
from tests.kit import (
    WIRES,
    Gate,
    Home,
    Provider,
    Ran,
    Tokens,
    call,
    finish,
    run_hermes,
    say,
    start_hermes,
    think,
)
from tests.kit.bodies import check_legal, messages
from tests.kit.home import KEY, program

pytestmark = pytest.mark.e2e

RESULT_KEYS = [
    "session_id",
    "completed",
    "partial",
    "interrupted",
    "text",
    "reasoning",
    "error",
    "tool_calls",
    "model_calls",
    "usage",
    "cost_usd",
    "model",
    "provider",
]


async def chat(home: Home, *args: str, **options: Any) -> Ran:
    return await run_hermes(["chat", *args], home, **options)


def prompt_of(provider: Provider, n: int = -1) -> str:
    """The text of the last user message of a chat request."""
    content = provider.requests[n].json["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def private(home: Home) -> None:
    for path in (home.path, *home.path.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


# -- the three forms ----------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_every_wire_in_every_form_with_a_tool_call_between(wire: str, tmp_path: Path) -> None:
    def script() -> list[Any]:
        ask = think("pondering") + call(("c1", "read_file", {"path": "note.txt"}))
        answer = say("the note says ", "swordfish")
        return [ask.usage(Tokens(100, 10)), answer.usage(Tokens(150, 20, cached=60))]

    async with Provider(script() * 3, wire=wire) as provider:
        home = Home.of(tmp_path, provider)
        home.file("note.txt", "swordfish\n")
        text = await chat(home, "-q", "read it")
        whole = await chat(home, "-q", "read it", "--output", "json")
        lines = await chat(home, "-q", "read it", "--output", "stream-json")
    assert (text.rc, text.stdout) == (0, "the note says swordfish\n")
    assert "read_file: note.txt" in text.stderr and "pondering" not in text.stderr
    assert KEY in str(provider.requests[0].headers)
    seen = check_legal(provider.requests[1])
    assert seen[0].text == "read it"
    assert "swordfish" in next(text for m in seen for _, text in m.results)
    result = whole.json
    assert list(result) == RESULT_KEYS
    assert whole.rc == 0 and whole.stdout.count("\n") == 1
    assert result["completed"] and not result["partial"] and not result["interrupted"]
    assert result["text"] == "the note says swordfish" and result["error"] is None
    assert result["model_calls"] == 2 and result["model"] == "kit-model"
    (made,) = result["tool_calls"]
    assert made["name"] == "read_file" and made["arguments"] == {"path": "note.txt"}
    assert "swordfish" in made["result"] and made["error"] is False
    assert made["id"] and result["session_id"] and result["provider"] == "custom"
    assert result["reasoning"] == "pondering"
    assert result["usage"] == {
        "input_tokens": 250,
        "output_tokens": 30,
        "cache_read_tokens": 60,
        "cache_write_tokens": 0,
        "reasoning_tokens": 0,
    }
    assert lines.rc == 0
    kinds = [event["type"] for event in lines.events]
    assert kinds.index("tool.started") < kinds.index("tool.completed") < kinds.index("text.delta")
    assert kinds[-1] == "result" and kinds.count("result") == 1
    deltas = [e["text"] for e in lines.events if e["type"] == "text.delta"]
    assert "".join(deltas) == "the note says swordfish"
    thoughts = [e["text"] for e in lines.events if e["type"] == "reasoning.delta"]
    assert "".join(thoughts) == "pondering"
    (done,) = [e for e in lines.events if e["type"] == "tool.completed"]
    assert set(done) == {"type", "id", "name", "result", "error", "duration_ms"}
    assert isinstance(done["duration_ms"], int)
    (begun,) = [e for e in lines.events if e["type"] == "tool.started"]
    assert begun == {
        "type": "tool.started",
        "id": done["id"],
        "name": "read_file",
        "arguments": {"path": "note.txt"},
    }
    final = {key: lines.result[key] for key in RESULT_KEYS}
    assert final | {"session_id": "", "tool_calls": []} == result | {
        "session_id": "",
        "tool_calls": [],
    }
    private(home)
    assert home.leaks() == []
    assert all(KEY not in out for ran in (text, whole, lines) for out in (ran.stdout, ran.stderr))


async def test_the_answer_is_written_as_it_arrives(tmp_path: Path) -> None:
    gate = Gate()
    async with Provider([say("first ", "second").hold(gate, after="text", n=1)]) as provider:
        process = await start_hermes(["chat", "-q", "x"], Home.of(tmp_path, provider))
        await gate.reached()
        assert process.stdout is not None
        assert await process.stdout.read(6) == b"first "
        gate.open()
        rest = await finish(process)
    assert (rest.rc, rest.stdout) == (0, "second\n")


async def test_events_are_written_as_they_happen(tmp_path: Path) -> None:
    gate = Gate()
    async with Provider([say("first ", "second").hold(gate, after="text", n=1)]) as provider:
        args = ["chat", "-q", "x", "--output", "stream-json"]
        process = await start_hermes(args, Home.of(tmp_path, provider))
        await gate.reached()
        assert process.stdout is not None
        line = await process.stdout.readline()
        assert json.loads(line) == {"type": "text.delta", "text": "first "}
        gate.open()
        rest = await finish(process)
    assert rest.events[-1]["text"] == "first second"


async def test_usage_is_the_providers_own(tmp_path: Path) -> None:
    tokens = Tokens(input=100, output=20, cached=60, reasoning=5)
    async with Provider([say("x").usage(tokens)]) as provider:
        ran = await chat(Home.of(tmp_path, provider), "-q", "x", "--output", "json")
    assert ran.json["usage"] == {
        "input_tokens": 100,
        "output_tokens": 20,
        "cache_read_tokens": 60,
        "cache_write_tokens": 0,
        "reasoning_tokens": 5,
    }
    assert ran.json["cost_usd"] is None


# -- how it ends --------------------------------------------------------------------------------


async def test_without_a_model_it_says_what_to_do(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.env |= {"PIP_NO_INDEX": "1", "HTTPS_PROXY": "http://127.0.0.1:9"}
    ran = await chat(home, "-q", "x")
    assert ran.rc != 0 and ran.stdout == ""
    assert "hermes model" in ran.stderr or "OPENROUTER_API_KEY" in ran.stderr


async def test_a_reader_that_does_not_read_cannot_hold_back_a_signal(tmp_path: Path) -> None:
    flood = say(*["x" * 50_000] * 40)
    async with Provider([flood]) as provider:
        home = Home.of(tmp_path, provider)
        read, write = os.pipe()
        process = await asyncio.create_subprocess_exec(
            *program(), "chat", "-q", "x", cwd=home.work, env=home.env, stdout=write,
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        os.close(write)
        try:
            async with asyncio.timeout(90):
                while not provider.requests or provider.requests[0].sent < 200_000:
                    await asyncio.sleep(0.02)
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(90):
                assert await process.wait() == 130
        finally:
            os.close(read)


# -- what goes in -------------------------------------------------------------------------------


async def test_the_prompt_from_everywhere(tmp_path: Path) -> None:
    async with Provider([say("ok")] * 6) as provider:
        home = Home.of(tmp_path, provider)

        async def sent(*args: str, stdin: str | bytes | None = None) -> str:
            assert (await chat(home, *args, stdin=stdin)).rc == 0
            return prompt_of(provider)

        assert await sent("-q", "grüße 日本") == "grüße 日本"
        assert await sent(stdin="from stdin\n") == "from stdin"
        assert await sent("-q", "-", stdin="from stdin") == "from stdin"
        assert await sent("-q", "review", stdin="diff\n") == "review\n\ndiff"
        assert await sent("-q", "only this", stdin="  \n") == "only this"
        assert await sent("-q", "bytes", stdin=b"a\xffb\0") == "bytes\n\na\ufffdb\ufffd"
        assert (await chat(home, stdin="")).rc == 2


async def test_what_is_piped_in_beside_the_prompt_counts_as_read(tmp_path: Path) -> None:
    """It is the user's data and perhaps a stranger's words; a prompt alone is neither."""
    async with Provider([say("ok")] * 3) as provider:
        home = Home.of(tmp_path, provider)
        inputs = [(["-q", "review"], "diff"), (["-q", "review"], ""), (["-q", "-"], "review")]
        for args, stdin in inputs:
            assert (await chat(home, *args, stdin=stdin)).rc == 0
        store = SqliteStore(home.path / "hermes.db")
        found = [meta.taint.can_leak for meta in await store.sessions.list_recent()]
        await store.close()
        assert found[::-1] == [True, False, False]


async def test_a_slow_command_in_the_pipe_is_waited_for(tmp_path: Path) -> None:
    async with Provider([say("ok")]) as provider:
        home = Home.of(tmp_path, provider)
        script = '{ sleep 1.5; echo late; } | "$@" chat -q early'
        done = await asyncio.to_thread(
            subprocess.run, ["sh", "-c", script, "sh", *program()],
            cwd=home.work, env=home.env, capture_output=True, timeout=90,
        )  # fmt: skip
        assert done.returncode == 0
        assert prompt_of(provider) == "early\n\nlate"


async def test_a_pipe_nobody_writes_to_does_not_hold_it_up(tmp_path: Path) -> None:
    async with Provider([say("ok")]) as provider:
        home = Home.of(tmp_path, provider)
        process = await start_hermes(["chat", "-q", "x"], home, stdin=asyncio.subprocess.PIPE)
        async with asyncio.timeout(90):
            assert await process.wait() == 0
        assert prompt_of(provider) == "x"


async def test_flags_choose_endpoint_model_and_key(tmp_path: Path) -> None:
    async with Provider([say("ok")]) as provider:
        home = Home(tmp_path)
        ran = await chat(
            home, "-q", "x", "--model", "other-model", "--base-url", provider.base_url,
            "--api-key-env", "SPARE_KEY", "--api-mode", "chat", "--toolsets", "none",
            "--output", "json",
        )  # fmt: skip
        request = provider.requests[0]
    assert ran.rc == 0 and ran.json["model"] == "other-model"
    assert request.headers["authorization"] == f"Bearer {home.env['SPARE_KEY']}"
    assert request.model == "other-model" and not request.json.get("tools")


async def test_the_key_may_live_in_the_env_file(tmp_path: Path) -> None:
    async with Provider([say("ok")]) as provider:
        home = Home.of(tmp_path, provider)
        del home.env["KIT_KEY"]
        secret = "sk-from-the-file-0123456789"
        (home.path / ".env").write_text(f"KIT_KEY={secret}\n")
        ran = await chat(home, "-q", "x")
        assert ran.rc == 0 and ".env was readable by other users" in ran.stderr
        assert provider.requests[0].headers["authorization"] == f"Bearer {secret}"
    private(home)


async def test_tools_see_no_key_and_know_whose_child_they_are(tmp_path: Path) -> None:
    step = call(("c", "terminal", {"command": "env; cat /proc/$PPID/environ | tr '\\0' '\\n'"}))
    async with Provider([step, say("ok")]) as provider:
        home = Home.of(tmp_path, provider)
        ran = await chat(home, "-q", "x", "--yolo", "--output", "json")
        seen = ran.json["tool_calls"][0]["result"]
    assert "HERMES_CHILD=1" in seen and "PATH=" in seen
    assert home.env["KIT_KEY"] not in seen
    assert home.env["SPARE_KEY"] not in seen


# -- going on -----------------------------------------------------------------------------------


async def test_continue_and_resume_go_on_with_the_history(tmp_path: Path) -> None:
    script = [say("one"), say("two"), say("there"), say("three"), say("four")]
    async with Provider(script) as provider:
        home = Home.of(tmp_path, provider)

        async def session(*args: str) -> str:
            ran = await chat(home, *args, "--output", "json")
            assert ran.rc == 0 and "interrupted" not in ran.stderr, ran
            return str(ran.json["session_id"])

        nothing_yet = await chat(home, "-q", "x", "--continue")
        assert nothing_yet.rc == 2 and "--continue" in nothing_yet.stderr
        first = await session("-q", "first")
        assert await session("-q", "second", "--continue") == first
        assert [m.text for m in messages(provider.requests[1])] == ["first", "one", "second"]
        elsewhere, here = tmp_path / "elsewhere", home.work
        elsewhere.mkdir()
        home.work = elsewhere
        assert (await chat(home, "-q", "x", "--continue")).rc == 2
        assert await session("-q", "apart") != first
        home.work = here
        assert await session("-q", "third", "--continue") == first, "the latest of this folder"
        home.work = elsewhere
        assert await session("-q", "fourth", "--resume", first[:-2]) == first
        said = [m.text for m in check_legal(provider.requests[4])]
        assert said == ["first", "one", "second", "two", "third", "three", "fourth"]
        unknown = await chat(home, "-q", "x", "--resume", "nope")
        assert unknown.rc == 2 and "no session 'nope'" in unknown.stderr


async def test_sessions_can_be_looked_at_taken_out_and_deleted(tmp_path: Path) -> None:
    script = [
        call(("c", "read_file", {"path": "note.txt"})),
        say("the key is sk-kit-9f8e7d6c5b4a39281706f5e4d3c2b1a0, swordfish"),
        say("other"),
    ]
    async with Provider(script) as provider:
        home = Home.of(tmp_path, provider)
        home.file("note.txt", "in the note")
        first = (await chat(home, "-q", "read ```it```", "--output", "json")).json["session_id"]
        await chat(home, "-q", "another")

    async def sessions(*args: str, stdin: str | None = None) -> Ran:
        return await run_hermes(["sessions", *args], home, stdin=stdin)

    rows = (await sessions("list", "--json")).json
    assert [row["title"] for row in rows] == ["another", "read ```it```"]
    assert rows[1]["id"] == first and rows[1]["state"] == "idle" and rows[1]["messages"] == 4
    assert "system" not in rows[0]
    table = (await sessions("list", "-n", "1")).stdout.splitlines()
    assert len(table) == 2 and table[0].split()[:4] == ["ID", "AGE", "STATE", "MESSAGES"]
    shown = (await sessions("show", first)).stdout
    assert "read ```it```" in shown and "in the note" in shown and "swordfish" in shown
    found = (await sessions("search", "swordfish", "--json")).json
    assert [hit["session_id"] for hit in found] == [first]
    assert first in (await sessions("search", "swordfish")).stdout
    lines = (await sessions("export", first)).stdout.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["session", *["message"] * 4]
    target = tmp_path / "out.md"
    done = await sessions("export", first, "--format", "markdown", "-o", str(target))
    assert done.rc == 0 and done.stdout == ""
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    for text in (shown, "\n".join(lines), target.read_text()):
        assert "swordfish" in text and home.env["KIT_KEY"] not in text
    assert (await sessions("export", first, "-o", str(target))).rc == 2
    refused = await sessions("delete", first)
    assert refused.rc == 2 and "--yes" in refused.stderr
    assert (await sessions("delete", first, "--yes")).rc == 0
    assert len((await sessions("list", "--json")).json) == 1
    assert (await sessions("show", first)).rc == 2


# -- surroundings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "env",
    [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
async def test_an_ascii_locale_changes_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    async with Provider([say("grüße 日本 \U0001f600")]) as provider:
        ran = await chat(Home.of(tmp_path, provider), "-q", "grüße 日本", env=env)
        assert prompt_of(provider) == "grüße 日本"
    assert (ran.rc, ran.stdout) == (0, "grüße 日本 \U0001f600\n")


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
async def test_closed_standard_files_do_no_harm(tmp_path: Path, closed: str) -> None:
    async with Provider([say("answer")]) as provider:
        home = Home.of(tmp_path, provider)
        script = f'exec "$@" chat -q x {closed}'
        done = await asyncio.to_thread(
            subprocess.run, ["sh", "-c", script, "sh", *program()],
            cwd=home.work, env=home.env, capture_output=True, timeout=90,
        )  # fmt: skip
        assert done.returncode == 0
        assert b"Traceback" not in done.stderr
        store = SqliteStore(next(home.path.glob("*.db")))
        try:
            (session,) = await store.sessions.list_recent()
            stored = await store.sessions.load_messages(session.id)
        finally:
            await store.close()
        assert session.state == "idle" and stored[-1].text == "answer"


async def test_the_terminal_is_not_driven_by_the_answer(tmp_path: Path) -> None:
    evil = "\x1b]52;c;ZXZpbA==\x07\x1b[31mred\x9b2J"
    async with Provider([say(evil), say(evil)]) as provider:
        home = Home.of(tmp_path, provider)
        piped = await chat(home, "-q", "x")
        assert piped.stdout == evil + "\n"
        shown = await on_a_terminal(home, ["chat", "-q", "x"])
    assert b"red" in shown
    assert b"\x1b]52" not in shown and b"\x07" not in shown and b"\x9b" not in shown
    assert b"\xc2\x9b" not in shown


async def test_a_person_at_the_terminal_is_asked(tmp_path: Path) -> None:
    step = call(("c", "terminal", {"command": "git stash clear; echo ran > proof"}))
    async with Provider([step, say("denied"), step, say("allowed")]) as provider:
        home = Home.of(tmp_path, provider)
        no = await on_a_terminal(home, ["chat", "-q", "x"], answer=b"\n")
        assert not (home.work / "proof").exists()
        yes = await on_a_terminal(home, ["chat", "-q", "x"], answer=b"y\n")
        assert (home.work / "proof").exists()
    assert b"denied" in no and b"allowed" in yes
    assert b"git stash clear; echo ran > proof" in no


async def on_a_terminal(home: Home, args: list[str], answer: bytes = b"") -> bytes:
    """Run to the end with all standard files on a pseudo-terminal; what was shown."""
    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *program(), *args, cwd=home.work, env={**home.env, "TERM": "xterm"},
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    shown = bytearray()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            data = os.read(master, 65536)
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(master)
            ended.set()
        shown.extend(data)
        if answer and b"[N]o" in data:
            os.write(master, answer)

    loop.add_reader(master, read)
    try:
        async with asyncio.timeout(90):
            await ended.wait()
            assert await process.wait() == 0, shown
    finally:
        os.close(master)
    return bytes(shown)

"""The embedded model as any other endpoint: whole turns, every command confirmed, crashes survived.

The engine is real, the process it keeps is tests/kit/llama.py; tests/local runs the real one."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.config.load import load_setup
from hermes.core.events import Approval, Notice, TurnEnd
from hermes.core.message import ToolReturn, user_message
from hermes.llm.local import engine
from tests.kit import Home

FAKE = Path(__file__).parents[1] / "kit" / "llama.py"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(engine, "CHILD", FAKE)
    monkeypatch.setattr("hermes.llm.endpoints.embedded.is_engine_installed", lambda: True)
    monkeypatch.setattr(engine, "find_spec", lambda _: object())
    made = Home(tmp_path)
    use(made, "small")
    return made


def use(home: Home, name: str, content: bytes = b"GGUF") -> Path:
    file = home.work.parent / f"{name}.gguf"
    file.write_bytes(content)
    home.configure(model={"provider": "local", "default": str(file)})
    return file


async def opened(runtime: Runtime, home: Home, **options: object) -> Session:
    return await runtime.open_session(cwd=home.work, options=Options(**options))  # type: ignore[arg-type]


@pytest.fixture
async def runtime(home: Home) -> AsyncIterator[Runtime]:
    async with Runtime.open(load_setup("", home.env)) as made:
        yield made


async def test_it_answers_and_stays_warm_between_calls(runtime: Runtime, home: Home) -> None:
    session = await opened(runtime, home)
    first = await session.submit(user_message("hello"))
    second = await session.submit(user_message("hello"))
    assert first.status == "completed" and first.text.endswith("heard: hello")
    assert first.text == second.text, "the same process answered both"


async def test_a_command_runs_and_its_result_is_told(runtime: Runtime, home: Home) -> None:
    home.file("a.txt", "x")
    session = await opened(runtime, home, yolo=True, toolsets=("terminal",))
    result = await session.submit(user_message("run ls"))
    assert result.status == "completed" and "Result of terminal:\na.txt" in result.text


async def test_an_answer_after_a_look_is_no_loss_of_the_cache(runtime: Runtime, home: Home) -> None:
    """The schema of that step is another one, the prompt is the same."""
    home.file("a.txt", "x")
    session = await opened(runtime, home)
    events = session.subscribe_events()
    session.submit(user_message("run ls"))
    notices: list[str] = []
    async for event in events:
        if isinstance(event, Notice):
            notices.append(event.code)
        elif isinstance(event, TurnEnd):
            break
    assert "prefix" not in notices


@pytest.mark.parametrize("said", ["run touch a", "write notes.txt"])
async def test_nothing_runs_that_nobody_confirmed(runtime: Runtime, home: Home, said: str) -> None:
    session = await opened(runtime, home)
    result = await session.submit(user_message(said))
    assert "nobody answered" in result.text
    assert list(home.work.iterdir()) == []


async def test_reading_asks_nothing(runtime: Runtime, home: Home) -> None:
    home.file("a.txt", "x")
    session = await opened(runtime, home)
    result = await session.submit(user_message("run ls"))
    assert result.status == "completed" and "Result of terminal:\na.txt" in result.text


async def test_a_file_that_was_not_read_is_not_replaced(runtime: Runtime, home: Home) -> None:
    """Not even with --yolo: the model would lose what it does not know of."""
    file = home.file("notes.txt", "precious")
    session = await opened(runtime, home, yolo=True)
    result = await session.submit(user_message("write notes.txt"))
    assert "you have not read it" in result.text and file.read_text() == "precious"
    file.unlink()
    await session.submit(user_message("write notes.txt"))
    assert file.exists()


async def test_a_refusal_shows_a_short_text_and_counts_as_reading_it(
    runtime: Runtime, home: Home
) -> None:
    file = home.file("insisted.txt", "short")
    session = await opened(runtime, home, yolo=True)
    await session.submit(user_message("insist"))
    parts = [part for m in session.transcript.history.messages for part in m.parts]
    results = [part.text for part in parts if isinstance(part, ToolReturn)]
    assert "This is its text:\nshort" in results[0] and results[1].startswith("Replaced")
    file.write_text("long " * 1000)
    await session.submit(user_message("insist"))
    assert file.read_text() == "long " * 1000


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("echo x > notes.txt", True),
        ("echo x >notes.txt; ls", True),
        ("echo x >> notes.txt", False),
        ("echo x 2> other.txt", True),
    ],
)
async def test_a_redirection_replaces_no_file_that_was_not_read(
    runtime: Runtime, home: Home, command: str, *, kept: bool
) -> None:
    file = home.file("notes.txt", "precious\n")
    session = await opened(runtime, home, yolo=True)
    result = await session.submit(user_message(f"run {command}"))
    assert (file.read_text() == "precious\n") is kept
    assert ("you have not read it" in result.text) is ("notes" in command and kept)


async def test_a_person_is_asked_about_every_change(runtime: Runtime, home: Home) -> None:
    session = await opened(runtime, home)
    session.interactions.user_present = True
    asked: list[Approval] = []
    events = session.subscribe_events()
    session.submit(user_message("run touch a.txt"))
    async for event in events:
        if isinstance(event, Approval):
            asked.append(event)
            session.interactions.answer_approval(event.id, "once")
        elif isinstance(event, TurnEnd):
            break
    assert [a.command for a in asked] == ["touch a.txt"] and asked[0].summary
    assert event.result.status == "completed"


async def test_a_crash_is_survived(runtime: Runtime, home: Home) -> None:
    session = await opened(runtime, home)
    result = await session.submit(user_message("crash once"))
    assert result.status == "completed" and "heard: crash once" in result.text


async def test_what_always_crashes_says_so_and_the_next_turn_works(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.configure(agent={"api_max_retries": 1})
    async with Runtime.open(load_setup("", home.env)) as runtime:
        session = await opened(runtime, home)
        failed = await session.submit(user_message("crash"))
        assert failed.status == "failed" and "killed by SIGKILL" in failed.error
        assert (await session.submit(user_message("hello"))).status == "completed"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("text", b"not a model", "is not a GGUF file"),
        ("fail", b"GGUF", "cannot load the model"),
        ("torn", b"GGUF", "torn.gguf is incomplete, damaged or not supported"),
    ],
)
async def test_a_model_that_cannot_be_loaded_is_one_sentence(
    home: Home, name: str, content: bytes, says: str
) -> None:
    use(home, name, content)
    async with Runtime.open(load_setup("", home.env)) as runtime:
        result = await (await opened(runtime, home)).submit(user_message("hi"))
        assert result.status == "failed" and says in result.error


async def test_too_little_memory_is_said_instead_of_tried(
    runtime: Runtime, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_free_memory", lambda: 1_000_000)
    result = await (await opened(runtime, home)).submit(user_message("hi"))
    assert result.status == "failed" and "of memory" in result.error


async def test_the_process_ends_with_the_runtime(home: Home) -> None:
    async with Runtime.open(load_setup("", home.env)) as runtime:
        answer = await (await opened(runtime, home)).submit(user_message("hello"))
        pid = int(answer.text.split()[0])
        assert Path(f"/proc/{pid}").exists()
        folder = next(iter(runtime.transport._engines._engines.values()))._folder  # type: ignore[union-attr]
        assert folder.stat().st_mode & 0o077 == 0, "nobody else reaches the socket"
    assert not Path(f"/proc/{pid}").exists() and not folder.exists()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_the_process_ends_when_the_agent_is_gone(tmp_path: Path) -> None:
    """Without a goodbye: the agent's process ends while the model is up."""
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    script = f"""
import asyncio, os
from pathlib import Path
from hermes.llm.local import engine
from hermes.llm.local.uri import ServedModel
engine.CHILD = Path({str(FAKE)!r})
engine.find_spec = lambda _: object()
async def main():
    e = engine.LocalEngine(ServedModel({str(tmp_path / "m.gguf")!r}, 4096))
    await e._ensure_child()
    print(e._child.pid, e._folder, flush=True)
    os._exit(9)
asyncio.run(main())
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 9, ran.stderr
    try:
        handle = os.pidfd_open(int(ran.stdout.split()[0]))
    except ProcessLookupError:
        pass
    else:
        assert select.select([handle], [], [], 20)[0], "it is still there"
        os.close(handle)
    assert not Path(ran.stdout.split()[1]).exists(), "nothing is left behind"


def test_nothing_of_it_is_imported_or_asked_when_it_is_not_used(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from hermes.app.runtime import Runtime
from hermes.config.load import load_setup
from hermes.llm.providers import provider_index
seen = []
sys.addaudithook(lambda name, args: seen.append(args) if name == "socket.connect" else None)
async def main():
    keys = dict.fromkeys(provider_index().key_variables, "key-123456789")
    env = {"HOME": sys.argv[1], "HERMES_HOME": sys.argv[1] + "/h", **keys}
    async with Runtime.open(load_setup("", env)) as runtime:
        await runtime.open_session()
asyncio.run(main())
assert not seen, seen
assert not [m for m in sys.modules if m.startswith(("hermes.llm.local", "xllamacpp"))]
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr

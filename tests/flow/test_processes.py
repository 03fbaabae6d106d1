"""Commands in the background through whole turns: they outlive the turn, and nothing outlives the
program that was not meant to."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes.app.agents import Options
from hermes.core.events import Approval
from hermes.core.message import ToolReturn
from tests.kit.bodies import messages
from tests.kit.home import KEY, Home, finish, run_hermes, start_hermes
from tests.kit.processes import living, until
from tests.kit.replies import Reply, call, say
from tests.kit.rig import Rig, rig
from tests.kit.server import Provider, Received

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

TREE = "setsid sleep {0} & (setsid sh -c 'sleep {0} & wait' &) ; sleep {0}; true"
CONFINED = Options()
YOLO = Options(yolo=True)


def start(text: str, id: str = "c1", **more: object) -> tuple[str, str, dict[str, Any]]:
    return (id, "terminal", {"command": text, "background": True, **more})


def process(action: str, id: str = "c2", **more: object) -> tuple[str, str, dict[str, Any]]:
    return (id, "process", {"action": action, "id": "p1", **more})


async def last(r: Rig, text: str = "go on") -> ToolReturn:
    """The last result, after a turn."""
    assert (await r.turn(text)).status == "completed"
    parts = [p for m in await r.stored() for p in m.parts]
    return [p for p in parts if isinstance(p, ToolReturn)][-1]


@pytest.mark.parametrize("options", [CONFINED, YOLO], ids=["confined", "yolo"])
async def test_a_conversation_with_a_repl(tmp_path: Path, options: Options) -> None:
    steps = [
        call(start("python3 -i -q")),
        call(process("write", data="n = 6 * 7")),
        call(process("write", "c3", data="print('n is', n)")),
    ]

    def look(request: Received) -> Reply:
        """It may take its time to start."""
        seen = [text for m in messages(request) for _, text in m.results]
        if "n is 42" in seen[-1] or len(seen) > 15:
            return say("42")
        return call(process("wait", f"w{len(seen)}", timeout=0.5 + len(seen) / 100))

    async with rig(tmp_path, steps, then=look, options=options, check=False) as r:
        answer = await last(r)
        assert "n is 42" in answer.text and "[p1 running for" in answer.text
        assert not answer.error
        assert r.runtime.background_commands.list_running(r.session.transcript.meta)
        r.provider.add(call(("c4", "process", {"action": "list"})), say("one"))
        assert re.search(r"^p1  running for .*: python3 -i -q$", (await last(r)).text)
        r.provider.add(call(process("kill", "c5")), say("gone"))
        assert "[p1 ended on request" in (await last(r)).text
        assert not r.runtime.background_commands.list_running(r.session.transcript.meta)


async def test_a_server_in_the_background_and_its_test(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    fetch = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/answer').read())"
    client = f'for n in $(seq 300); do python3 -c "{fetch}" 2>/dev/null && break; sleep 0.1; done'
    code = f"import subprocess; print(subprocess.getoutput({client!r}))"
    steps = [
        call(start(f"echo 42 > answer; python3 -m http.server {port}")),
        call(("c2", "terminal", {"command": client})),
        call(("c3", "execute_code", {"code": code})),
        say("it works"),
    ]
    async with rig(tmp_path, steps, options=CONFINED, check=False) as r:
        await last(r)
        parts = [p for m in await r.stored() for p in m.parts if isinstance(p, ToolReturn)]
        assert [part.text.strip() for part in parts[1:]] == [r"b'42\n'"] * 2


async def test_programs_get_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.tools._background._SETTLE_SECONDS", 10.0)
    monkeypatch.setattr("hermes.tools._background._QUIET_SECONDS", 0.4)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "ask.py").write_text(
        "import os, sys\nprint(sys.stdin.isatty(), os.get_terminal_size())\n"
    )
    steps = [
        call(("c1", "terminal", {"command": "python3 ask.py", "pty": True})),
        call(start("python3 ask.py && cat < /dev/tty", "c2", pty=True)),
        call(process("write", "c3", data="a\nb")),
        call(process("write", "c4", data="\x03")),
        say("ok"),
    ]
    async with rig(tmp_path, steps, options=CONFINED, check=False) as r:
        await last(r)
        parts = [p for m in await r.stored() for p in m.parts if isinstance(p, ToolReturn)]
        assert parts[0].text == "True os.terminal_size(columns=80, lines=24)"
        assert parts[1].text.startswith(f"{parts[0].text}\n[p1 running")
        assert sorted(parts[2].text.split()[:4]) == ["a", "a", "b", "b"], "echo, and cat"
        assert "[p1 exited with status 130" in parts[3].text


async def test_an_interrupt_ends_what_is_waited_for_and_nothing_else(
    tmp_path: Path, mark: str
) -> None:
    steps = [
        call(start(f"sleep {mark}")),
        call(("c2", "terminal", {"command": f"sleep {mark}; true"})),
    ]
    async with rig(tmp_path, steps, check=False) as r:
        turn = r.begin()
        await until(lambda: len(living(mark)) == 2)
        r.session.interrupt()
        assert (await turn).status == "interrupted"
        await until(lambda: len(living(mark)) == 1)
        r.provider.add(call(process("wait", timeout=0.05)), say("yes"))
        assert "[p1 running for" in (await last(r)).text
    await until(lambda: not living(mark))


async def test_a_wait_can_be_interrupted(tmp_path: Path, mark: str) -> None:
    async with rig(tmp_path, [call(start(f"sleep {mark}")), call(process("wait"))]) as r:
        turn = r.begin()
        await r.until(lambda e: getattr(getattr(e, "call", None), "id", "") == "c2")
        r.session.interrupt()
        assert (await turn).status == "interrupted"
        assert len(living(mark)) == 1


async def test_bad_requests_are_explained(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"action": "poll", "id": "p7"}, "no background process 'p7'"),
        ({"action": "log"}, "no background process '(no id)'"),
        ({"action": "sing"}, "Invalid arguments"),
        ({"action": "log", "id": "p1", "offset": 99}, "There is no line 99: the log has 3"),
        ({"action": "log", "id": "p1", "limit": 0}, "limit must be at least 1"),
        ({"action": "write", "id": "p1", "data": "x"}, "p1 takes no input: exited"),
        ({"action": "wait", "id": "p1", "timeout": -1}, "must not be negative"),
    ]
    calls = [(f"c{n}", "process", args) for n, (args, _) in enumerate(cases, 2)]
    steps = [call(start("seq 3")), *(call(one) for one in calls), say("ok")]
    async with rig(tmp_path, steps) as r:
        await last(r)
        parts = [p for m in await r.stored() for p in m.parts if isinstance(p, ToolReturn)]
        assert "1\n2\n3\n[p1 exited with status 0" in parts[0].text
        for (args, words), part in zip(cases, parts[1:], strict=True):
            assert words in part.text and part.error, (args, part.text)


async def test_the_log_is_paged(tmp_path: Path) -> None:
    steps = [
        call(start("seq 1000")),
        call(process("log")),
        call(process("log", "c3", offset=10, limit=2)),
        say("ok"),
    ]
    async with rig(tmp_path, steps) as r:
        await last(r)
        parts = [p for m in await r.stored() for p in m.parts if isinstance(p, ToolReturn)]
        assert parts[1].text.startswith("801\n") and "lines 801-1000 of 1000]" in parts[1].text
        assert parts[2].text.startswith("10\n11\n[p1 exited")
        assert "continue with offset=12]" in parts[2].text


async def test_no_secret_is_shown_from_a_log_or_a_saved_output(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes").write_text(f"the key is {KEY}\n")
    steps = [
        call(start("cat notes")),
        call(process("log")),
        call(("c3", "terminal", {"command": "cat notes; seq 20000"})),
        say("ok"),
    ]
    async with rig(tmp_path, steps, check=False) as r:
        await last(r)
        parts = [p for m in await r.stored() for p in m.parts if isinstance(p, ToolReturn)]
        path = parts[2].text.partition("full output: ")[2].partition(" …]")[0]
        assert Path(path).is_relative_to(tmp_path), parts[2].text
        assert KEY in Path(path).read_text()
        r.provider.add(call(("c4", "read_file", {"path": path, "limit": 2})), say("ok"))
        parts.append(await last(r))
        for part in (*parts[:2], parts[-1]):
            assert "the key is [redacted" in part.text
            assert KEY not in part.text


# -- what is typed is judged -----------------------------------------------------------------


async def typed(r: Rig, *texts: str) -> list[ToolReturn]:
    calls = [call(process("write", f"w{n}", data=text)) for n, text in enumerate(texts)]
    r.provider.add(*calls, say("done"))
    assert (await r.turn("type")).status == "completed"
    parts = [p for m in await r.stored() for p in m.parts if isinstance(p, ToolReturn)]
    return parts[-len(texts) :]


async def test_commands_typed_into_a_shell_are_judged_as_commands(tmp_path: Path) -> None:
    async with rig(tmp_path, [call(start("bash")), say("ok")], options=CONFINED, check=False) as r:
        await r.turn()
        fine, denied, split, rest = await typed(
            r, "echo $((40 + 2))", "rm -rf /", "cd / && ls -d tmp", "echo still here"
        )
        assert fine.text.startswith("42\n")
        assert denied.error and "Not written: deletes /" in denied.text
        assert not split.error and not rest.error and "still here" in rest.text
        r.provider.add(
            call(process("write", "h1", data="rm -rf ", enter=False)),
            call(process("write", "h2", data="/")),
            say("done"),
        )
        halves = await last(r, "in two parts")
        assert halves.error and "Not written: deletes /" in halves.text


async def test_nobody_there_means_no_typing_into_what_nothing_confines(tmp_path: Path) -> None:
    config = {"sandbox": {"mode": "full-access"}}
    async with rig(tmp_path, [], options=YOLO, config=config, check=False) as r:
        r.provider.add(call(start("cat")), say("ok"))
        await r.turn()
        session = await r.runtime.open_session(
            resume=r.session.id, cwd=r.home.work, options=CONFINED
        )
        r.provider.add(call(process("write", "w1", data="hi")), say("no"))
        from hermes.core.message import user_message

        result = await session.submit(user_message("type"))
        refused = [p for m in result.messages for p in m.parts if isinstance(p, ToolReturn)][-1]
        assert refused.error and "Not written: it runs code outside the sandbox" in refused.text
        await session.close()


async def test_a_process_that_is_not_confined_stays_so_for_a_confined_session(
    tmp_path: Path,
) -> None:
    """It was started with --yolo; the session that types into it is confined, the process not."""
    async with rig(tmp_path, [call(start("cat")), say("ok")], options=YOLO, check=False) as r:
        await r.turn()
        session = await r.runtime.open_session(cwd=r.home.work, options=CONFINED)
        session.interactions.user_present = True
        asked: list[Approval] = []

        async def watch() -> None:
            async for event in session.subscribe_events():
                if isinstance(event, Approval):
                    asked.append(event)
                    session.interactions.answer_approval(event.id, "once")

        watching = asyncio.create_task(watch())
        r.provider.add(call(process("write", "w1", data="hi there")), say("typed"))
        from hermes.core.message import user_message

        result = await session.submit(user_message("type"))
        answer = [p for m in result.messages for p in m.parts if isinstance(p, ToolReturn)][-1]
        assert "hi there" in answer.text and not answer.error
        assert len(asked) == 1 and "outside the sandbox" in asked[0].summary
        await session.close()
        await watching


async def test_typing_into_a_confined_program_asks_nobody(tmp_path: Path) -> None:
    steps = [call(start("cat > note.txt")), say("ok")]
    async with rig(tmp_path, steps, options=CONFINED, check=False) as r:
        await r.turn()
        (answer,) = await typed(r, "anything; rm -rf /")
        assert not answer.error
        await until(lambda: (r.home.work / "note.txt").read_text() == "anything; rm -rf /\n")


# -- the program -----------------------------------------------------------------------------


async def test_the_program_ends_them_and_says_so(tmp_path: Path, mark: str) -> None:
    steps = [call(start(TREE.format(mark))), say("bye"), call(process("poll")), say("seen")]
    async with Provider(steps) as provider:
        home = Home.of(tmp_path, provider)
        ran = await run_hermes(["chat", "-q", "go", "--yolo", "--output", "json"], home)
        assert ran.rc == 0
        assert not living(mark)
        told = [line for line in ran.stderr.splitlines() if "still running" in line]
        assert len(told) == 1 and "are stopped now: p1 (setsid sleep" in told[0]
        again = await run_hermes(["chat", "-q", "look", "--output", "json"], home)
        (seen,) = again.json["tool_calls"]
        assert "[p1 ended when the agent stopped" in seen["result"]
        assert "running" not in again.stderr


async def test_kill_9_of_the_program_leaves_nothing(tmp_path: Path, mark: str) -> None:
    waiting = [call(start(TREE.format(mark))), call(process("wait"))]
    async with Provider([*waiting, call(process("poll")), say("seen")]) as provider:
        home = Home.of(tmp_path, provider)
        program = await start_hermes(["chat", "-q", "go", "--yolo"], home)
        await until(lambda: len(living(mark)) == 3, 20)
        await until(lambda: len(provider.requests) == 2, 20)
        program.kill()
        await finish(program)
        await until(lambda: not living(mark))
        ran = await run_hermes(["chat", "-q", "look", "--output", "json"], home)
        (seen,) = ran.json["tool_calls"]
        assert "[p1 ended when the agent stopped (killed by SIG" in seen["result"]


@pytest.mark.parametrize("yolo", [["--yolo"], []], ids=["yolo", "confined"])
async def test_kept_ones_are_found_again_after_kill_9(
    tmp_path: Path, mark: str, yolo: list[str]
) -> None:
    command = f"echo began; sleep {mark} & cat; echo over; wait"
    first = [call(start(command)), call(process("wait"))]
    second = [
        call(process("poll", "c3")),
        call(process("write", "c4", data="hello again", close=True)),
        say("still there"),
    ]
    third = [call(process("kill", "c5")), call(process("poll", "c6")), say("gone")]
    async with Provider([*first, *second, *third]) as provider:
        home = Home.of(tmp_path, provider, terminal={"keep_background": True})
        program = await start_hermes(["chat", "-q", "go", *yolo], home)
        await until(lambda: len(provider.requests) == 2, 20)
        program.kill()
        await finish(program)
        assert living(mark)
        ran = await run_hermes(["chat", "-q", "look", "--output", "json", *yolo], home)
        poll, write = ran.json["tool_calls"]
        assert "[p1 running for" in poll["result"]
        assert write["result"].startswith("hello again\nover\n[p1 running for")
        assert "keep running (terminal.keep_background): p1" in ran.stderr
        assert living(mark)
        ran = await run_hermes(["chat", "-q", "end it", "--output", "json", *yolo], home)
        kill, poll = ran.json["tool_calls"]
        assert "[p1 ended on request" in kill["result"] and "[p1 ended" in poll["result"]
        assert not living(mark)

"""Commands and files through whole turns, and what is left of commands when a turn or the program
ends: nothing."""

import signal
import sys
from pathlib import Path

import pytest

from hermes.core.message import ToolReturn
from hermes.exec.process import local
from tests.kit.deadlines import Deadline
from tests.kit.home import KEY, Home, finish, run_hermes, start_hermes
from tests.kit.processes import living, until
from tests.kit.replies import call, say
from tests.kit.rig import Rig, rig
from tests.kit.server import Provider

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

TREE = "setsid sleep {0} & (setsid sh -c 'sleep {0} & wait' &) ; sleep {0}; true"
"""Three sleeps: one in a session of its own, one orphaned on purpose, one plain."""


async def results(r: Rig) -> list[ToolReturn]:
    parts = [p for m in await r.stored() for p in m.parts]
    return [p for p in parts if isinstance(p, ToolReturn)]


def command(text: str, id: str = "c1", **more: object) -> tuple[str, str, dict[str, object]]:
    return (id, "terminal", {"command": text, **more})


async def test_a_command_sees_the_folder_and_no_secret(tmp_path: Path) -> None:
    steps = [call(command("pwd; env; exit 2")), say("ok")]
    async with rig(tmp_path, steps) as r:
        assert (await r.turn()).status == "completed"
        (result,) = await results(r)
        assert result.text.startswith(f"{r.home.work}\n")
        assert result.text.endswith("[exit status 2]")
        assert not result.error
        assert KEY not in result.text
        assert "KIT_KEY" not in result.text


async def test_a_flood_can_be_read_where_the_result_says(tmp_path: Path) -> None:
    async with rig(tmp_path, [call(command("seq 50000")), say("long")]) as r:
        await r.turn()
        (flood,) = await results(r)
        assert len(flood.text) < 50_000
        path = flood.text.partition("full output: ")[2].partition(" …]")[0]
        r.provider.add(call(("c2", "read_file", {"path": path, "offset": 25_000, "limit": 1})))
        r.provider.add(say("found"))
        await r.turn("read on")
        assert (await results(r))[-1].text.startswith("25000|25000\n")


async def test_the_agents_own_files_are_out_of_reach_of_file_tools(tmp_path: Path) -> None:
    home = tmp_path / "home"
    steps = [
        call(
            ("c1", "read_file", {"path": str(home / "config.yaml")}),
            ("c2", "write_file", {"path": "../home/.env", "content": "X=1"}),
            ("c3", "read_file", {"path": "/proc/self/environ"}),
        ),
        say("denied"),
    ]
    async with rig(tmp_path, steps) as r:
        await r.turn()
        found = await results(r)
        assert [p.error for p in found] == [True] * 3
        assert all(p.text.startswith("Denied") for p in found)
        assert not (home / ".env").exists()


async def test_writes_to_one_file_happen_in_order(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link.txt").symlink_to("a.txt")
    writes = [
        (f"c{i}", "write_file", {"path": name, "content": f"{i}" * 100_000})
        for i, name in enumerate(["a.txt", "./a.txt", "link.txt"])
    ]
    async with rig(tmp_path, [call(*writes, size=50_000), say("written")]) as r:
        await r.turn()
        assert [p.text.split()[0] for p in await results(r)] == ["Created", "Replaced", "Replaced"]
        assert (r.home.work / "a.txt").read_text() == "2" * 100_000


async def test_out_of_time_kills_the_tree_and_the_turn_goes_on(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = Deadline(monkeypatch, local)
    steps = [call(command("echo began; " + TREE.format(mark), timeout=0.5)), say("too slow")]
    async with rig(tmp_path, steps) as r:
        turn = r.begin()
        await until(lambda: len(living(mark)) == 3)
        deadline.expire()
        assert (await turn).status == "completed"
        (result,) = await results(r)
        assert result.text == "began\n[timed out after 0.5 s (killed)]"
        assert result.error
        assert not living(mark)


async def test_an_interrupt_kills_even_who_ignores_it(tmp_path: Path, mark: str) -> None:
    stubborn = f"trap '' TERM INT HUP; setsid sleep {mark} & sleep {mark}; sleep {mark}"
    async with rig(tmp_path, [call(command(stubborn))]) as r:
        turn = r.begin()
        await until(lambda: len(living(mark)) == 2)
        r.session.interrupt()
        assert (await turn).status == "interrupted"
        assert not living(mark)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, None)],
    ids=["KILL", "TERM", "INT", "HUP"],
)
async def test_a_program_that_is_killed_leaves_no_orphan(
    tmp_path: Path, mark: str, number: signal.Signals, status: int | None
) -> None:
    async with Provider([call(command(TREE.format(mark)))]) as provider:
        home = Home.of(tmp_path, provider)
        process = await start_hermes(["chat", "-q", "go", "--yolo"], home)
        await until(lambda: len(living(mark)) == 3)
        process.send_signal(number)
        ran = await finish(process)
        assert status is None or ran.rc == status
        await until(lambda: not living(mark))


async def test_what_a_command_left_running_ends_with_the_program(tmp_path: Path, mark: str) -> None:
    left = f"nohup sleep {mark} >/dev/null 2>&1 & setsid sleep {mark} & echo started"
    steps = [call(command(left)), call(command(f"pgrep -c -f 'sleep {mark}'", "c2")), say("bye")]
    async with Provider(steps) as provider:
        home = Home.of(tmp_path, provider)
        ran = await run_hermes(["chat", "-q", "go", "--yolo", "--output", "json"], home)
        first, second = ran.json["tool_calls"]
        assert first["result"].startswith("started\n[2 background process(es) still running")
        assert int(second["result"].split()[0]) >= 2
        await until(lambda: not living(mark))

"""Commands that were granted domains: those, nothing else, and not behind a person's back."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hermes.app.agents import Options
from hermes.config.load import load_setup
from hermes.core.errors import ConfigError
from hermes.core.events import Approval, TurnEnd
from hermes.core.message import ToolReturn, user_message
from hermes.exec import sandbox_probe
from hermes.exec.sandbox import SandboxTier
from tests.kit.home import Home
from tests.kit.replies import call, say
from tests.kit.rig import Rig, rig
from tests.kit.tiers import had, tiers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes need Linux")
HOST = "127.0.0.2"


@pytest.fixture(params=tiers(), ids=lambda t: f"tier{t.level}")
async def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SandboxTier:
    found = await had(request.param)
    monkeypatch.setattr(sandbox_probe, "_known_tier", found)
    return found


@asynccontextmanager
async def site() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server of the operator's, on an address that only he can allow."""
    seen: list[bytes] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(one, HOST, 0) as server:
        yield server.sockets[0].getsockname()[1], seen


def granted(port: int, *more: str) -> dict[str, Any]:
    at = f"{HOST}:{port}"
    return {"sandbox": {"network": {"allow": [at, *more]}}, "web": {"allow_hosts": [at]}}


def command(text: str, name: str = "c1") -> tuple[str, str, dict[str, object]]:
    return (name, "terminal", {"command": text})


FETCH = """
import sys, urllib.request as u
try: print(u.urlopen(sys.argv[1], timeout=10).read().decode())
except u.HTTPError as e: print(e.code, e.read().decode())
"""


def fetch(port: int, host: str = HOST) -> str:
    return f"python3 fetch.py http://{host}:{port}/"


SYSTEM = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture(autouse=True)
def outside_of_homes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A python3 in somebody else's home is no command of ours to run."""
    monkeypatch.setenv("PATH", f"{SYSTEM}:{os.environ['PATH']}")


@asynccontextmanager
async def session(
    root: Path, steps: list[Any], config: dict[str, Any], **files: str
) -> AsyncIterator[Rig]:
    if not shutil.which("python3", path=SYSTEM):
        pytest.skip("there is no python3 outside of homes")
    async with rig(root, steps, options=Options(), config=config) as r:
        (r.home.work / "sub").mkdir()
        for name, text in {"fetch": FETCH, **files}.items():
            r.home.file(f"{name}.py", text)
        yield r


async def results(r: Rig) -> list[str]:
    parts = [p for m in await r.stored() for p in m.parts if isinstance(p, ToolReturn)]
    return [p.text for p in parts]


async def answering(r: Rig, answer: Any, text: str = "go") -> list[Approval]:
    r.session.interactions.user_present = True
    asked: list[Approval] = []
    r.prompts.append(text)
    events = r.session.subscribe_events()
    r.session.submit(user_message(text))
    async for event in events:
        if isinstance(event, Approval):
            asked.append(event)
            r.session.interactions.answer_approval(event.id, answer)
        if isinstance(event, TurnEnd):
            break
    return asked


async def test_what_was_granted_is_reached_and_nothing_else(
    tmp_path: Path, tier: SandboxTier
) -> None:
    async with site() as (port, seen), site() as (other, foreign):
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind((HOST, port))
        datagrams.setblocking(False)
        direct = (
            "import socket\n"
            "def tried(name, do):\n"
            "    try: do()\n"
            "    except OSError as e: print(name, 'failed')\n"
            "    else: print(name, 'WORKED')\n"
            "def tcp(host, port): socket.create_connection((host, port), 3)\n"
            "def fast(*at): socket.socket().sendto(b'x', 0x20000000, at)\n"
            f"tried('tcp', lambda: tcp({HOST!r}, {port}))\n"
            f"tried('other', lambda: tcp('127.0.0.1', {other}))\n"
            "def udp(*at): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', at)\n"
            f"try: udp({HOST!r}, {port})\n"
            "except OSError: pass\n"
            f"tried('fast open', lambda: fast({HOST!r}, {port}))\n"
            "tried('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))\n"
            "tried('v6', lambda: tcp('::1', 80))\n"
        )
        steps = [
            call(command(f"touch sub/made; {fetch(port)}", "c1")),
            call(command(f"curl -sS http://{HOST}:{port}/ || true; touch sub/made", "c2")),
            call(command(f"touch sub/made; {fetch(other)}", "c3")),
            call(command(f"touch sub/made; {fetch(port, 'localhost.example')}", "c4")),
            call(command("touch sub/made; python3 direct.py", "c5")),
            say("done"),
        ]
        async with session(tmp_path, steps, granted(port), direct=direct) as r:
            asked = await answering(r, "session")
            reached, curled, refused, named, tried = await results(r)
        assert [a.call.name for a in asked] == ["terminal"]
        assert f"{HOST}:{port}" in asked[0].summary
        assert reached == "hello"
        assert "hello" in curled or not shutil.which("curl")
        assert refused.startswith("403 ") and "not on this sandbox's list" in refused
        assert named.startswith("403 ")
        assert "WORKED" not in tried and tried.count("failed") == 5
        assert foreign == [] and 1 <= len(seen) <= 2
        with datagrams, pytest.raises(BlockingIOError):
            datagrams.recv(1)


async def test_without_a_person_commands_run_without_network(
    tmp_path: Path, tier: SandboxTier
) -> None:
    async with site() as (port, seen):
        steps = [call(command(f"touch sub/made; {fetch(port)} || true")), say("done")]
        async with session(tmp_path, steps, granted(port)) as r:
            await r.turn()
            (text,) = await results(r)
            assert (r.home.work / "sub" / "made").exists()
        assert "[it ran without network: nobody could approve network access]" in text
        assert "Error" in text and seen == []


async def test_a_no_is_a_no_and_once_is_once(tmp_path: Path, tier: SandboxTier) -> None:
    async with site() as (port, seen):
        steps = [
            call(command(f"touch sub/denied; {fetch(port)}", "c1")), say("no"),
            call(command(f"touch sub/a; {fetch(port)}", "c2")),
            call(command(f"touch sub/b; {fetch(port)}", "c3")), say("yes"),
            call(command("cat sub/a", "c4")), say("read"),
        ]  # fmt: skip
        async with session(tmp_path, steps, granted(port)) as r:
            assert len(await answering(r, "deny")) == 1
            assert not (r.home.work / "sub" / "denied").exists() and seen == []
            assert len(await answering(r, "once", "again")) == 2
            assert len(seen) == 2
            assert await answering(r, "once", "only read") == [], "reading needs no network"


async def test_a_script_has_the_same_network(tmp_path: Path, tier: SandboxTier) -> None:
    async with site() as (port, seen):
        code = (
            "import urllib.request as u\n"
            "from hermes_tools import terminal\n"
            f"print(u.urlopen('http://{HOST}:{port}/', timeout=10).read().decode())\n"
            "import asyncio, threading\n"
            "came = []\n"
            f"threads = [threading.Thread(target=lambda: came.append(u.urlopen('http://{HOST}:{port}"
            "/').read().decode())) for _ in range(3)]\n"
            "[t.start() for t in threads]; [t.join() for t in threads]\n"
            "print(*came, sep='\\n')\n"
            "async def main():\n"
            "    at = u.urlsplit(u.getproxies()['http'])\n"
            "    reader, writer = await asyncio.open_connection(at.hostname, at.port)\n"
            "    writer.write(b'GET http://evil.example/ HTTP/1.1\\r\\n\\r\\n')\n"
            "    print((await reader.readline()).decode().split()[1])\n"
            "asyncio.run(main())\n"
            f"print(terminal({fetch(port)!r} + '; touch sub/x'))\n"
        )
        given = {"name": "execute_code", "arguments": {"code": code}}
        steps = [call(("c1", "tool_search", given)), say("done")]
        async with session(tmp_path, steps, granted(port)) as r:
            asked = await answering(r, "session")
            (text,) = await results(r)
        lines = text.splitlines()
        assert len(asked) == 1 and lines[:4] == ["hello"] * 4
        assert lines[4] == ("403" if tier.level == 1 else "407") and lines[5] == "hello"
        assert len(seen) == 5


SOCKET = """
import os, socket
found = [os.path.join(d, n) for d, _, names in os.walk("/run") for n in names if n.endswith("sock")]
print(len(found))
for line in ("CONNECT 127.0.0.1:PORT", "GET http://127.0.0.1:PORT/", "GET file:///etc/passwd",
             "CONNECT 169.254.169.254:80", "CONNECT HOST:22", "GET http://HOST:OK@127.0.0.1:PORT/"):
    s = socket.socket(socket.AF_UNIX)
    s.connect(found[0])
    s.sendall((line + " HTTP/1.1\\r\\nHost: HOST:OK\\r\\n\\r\\n").encode())
    print(s.makefile("rb").readline().decode().strip())
"""


async def test_the_proxys_socket_leads_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [t for t in sandbox_probe.list_candidates() if t.level == 1]
    if not first or (await sandbox_probe.try_tier(first[0]))[1]:
        pytest.skip("bubblewrap does not work here")
    monkeypatch.setattr(sandbox_probe, "_known_tier", first[0])
    async with site() as (port, _), site() as (other, foreign):
        code = SOCKET.replace("PORT", str(other)).replace("HOST", HOST).replace("OK", str(port))
        steps = [
            call(command("touch sub/made; python3 look.py")),
            call(command("touch sub/x; find /tmp /run -name '*sock'", "c2")),
        ]
        steps.append(say("done"))
        async with session(tmp_path, steps, granted(port), look=code) as r:
            await answering(r, "session")
            found, _ = await results(r)
        count, *answers = found.splitlines()
        assert count == "1" and len(answers) == 6
        assert all(a.split()[1] in ("400", "403") for a in answers), answers
        assert foreign == []


async def test_nothing_of_it_is_there_without_a_grant(tmp_path: Path, tier: SandboxTier) -> None:
    steps = [
        call(command("mkdir -p sub; env | grep -i proxy; find /tmp /run -name '*sock'")),
        say("done"),
    ]
    env = {"HTTP_PROXY": ""}
    async with rig(tmp_path, steps, options=Options(), env=env) as r:
        await r.turn()
        (text,) = await results(r)
        assert ":3128" not in text and "egress" not in text


@pytest.mark.parametrize(
    "entry", ["http://example.org", "a b", "*.", "", "example.org/x", "a:0", "*x"]
)
def test_a_domain_that_is_none_is_refused_with_its_line(tmp_path: Path, entry: str) -> None:
    home = Home(tmp_path, sandbox={"network": {"allow": ["example.org", "*.a.b:8080", entry]}})
    with pytest.raises(ConfigError, match=r"line \d+: sandbox\.network\.allow takes name"):
        load_setup("", home.env)


async def test_a_pair_of_datagram_sockets_reaches_nobody(tmp_path: Path, tier: SandboxTier) -> None:
    path = tmp_path / "work" / "log.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.setblocking(False)
        code = (
            "import socket\n"
            "for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):\n"
            "    try: socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b'x', 'log.sock')\n"
            "    except OSError as e: print('failed')\n"
            "a, b = socket.socketpair(); a.sendall(b'fine'); print(b.recv(9))"
        )
        steps = [call(command("touch sub/x; python3 send.py")), say("done")]
        async with session(tmp_path, steps, {}, send=code) as r:
            await r.turn()
            assert (await results(r)) == ["failed\nfailed\nb'fine'"]
        with pytest.raises(BlockingIOError):
            server.recv(1)


async def test_weaker_walls_than_before_are_said_once(
    tmp_path: Path, tier: SandboxTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    weaker = structs.replace(tier, lowered=True, evidence=("commands are confined less", "x"))
    monkeypatch.setattr(sandbox_probe, "_known_tier", weaker)
    steps = [call(command("mkdir -p sub", "c1")), call(command("ls", "c2")), say("done")]
    async with rig(tmp_path, steps, options=Options()) as r:
        await r.turn()
        said = [n.text for n in r.notices if n.code == "sandbox_lowered"]
        assert said == ["Commands are confined less. `hermes doctor` says why."]

"""Sockets of a session: its commands reach each other, and nobody else, whatever confines them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import select
import shlex
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from hermes.exec.process.background import BackgroundProcesses, ProcessOwner
from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.sandbox import SandboxTier, build_policy
from tests.e2e.test_escapes_planted import PATH, tier

__all__ = ["tier"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes need Linux")

SERVER = """
import http.server, os, socket, sys, threading
at = sys.argv[1]
if at.startswith("/") or "." in at:
    server = socket.socket(socket.AF_UNIX)
    server.bind(at)
    server.listen()
    while True:
        with server.accept()[0] as client:
            client.sendall(b"hello")
handler = http.server.SimpleHTTPRequestHandler
server = http.server.ThreadingHTTPServer(("", int(at)), handler)
server.serve_forever()
"""
CLIENT = """
import socket, sys, time, urllib.request
at, patient = sys.argv[1], len(sys.argv) > 2
until = time.monotonic() + (90 if patient else 0)
while True:
    try:
        if at.isdigit():
            print(urllib.request.urlopen(f"http://127.0.0.1:{at}/").status)
        else:
            client = socket.socket(socket.AF_UNIX)
            client.connect(at)
            print(client.recv(9).decode())
        break
    except OSError as error:
        if time.monotonic() > until:
            sys.exit(f"refused: {error}")
    time.sleep(0.05)
"""
TOGETHER = """
import http.server, socket, threading, urllib.request
handler = http.server.SimpleHTTPRequestHandler
for host, family in (("127.0.0.1", socket.AF_INET), ("", socket.AF_INET)):
    http.server.ThreadingHTTPServer.address_family = family
    server = http.server.ThreadingHTTPServer((host, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(urllib.request.urlopen(f"http://localhost:{server.server_port}/").status)
with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
    socket.create_connection(server.getsockname()[:2]).close()
    print(server.accept()[1][0])
"""
PROCESSES = """
import multiprocessing, os
from multiprocessing import shared_memory

def square(number):
    return number * number

if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(pool.map(square, [1, 2, 3]))
    queue = multiprocessing.Queue()
    child = multiprocessing.Process(target=queue.put, args=(4,))
    child.start()
    print(queue.get())
    child.join()
    with multiprocessing.Manager() as manager:
        print(manager.list([5]))
    block = shared_memory.SharedMemory(create=True, size=100)
    block.buf[0] = 6
    same = shared_memory.SharedMemory(block.name)
    print(same.buf[0])
    same.close()
    block.close()
    block.unlink()
"""
SWAPS = """
import ctypes, os, socket, struct, sys, threading
theirs, outside = int(sys.argv[1]), sys.argv[2].encode()
server = socket.create_server(("127.0.0.1", 0), backlog=100)
local = socket.socket(socket.AF_UNIX)
local.bind("own.sock")
local.listen(100)

def take(listener):
    while True:
        listener.accept()[0].close()

for listener in (server, local):
    threading.Thread(target=take, args=(listener,), daemon=True).start()
own = server.getsockname()[1]
connect = ctypes.CDLL(None, use_errno=True).connect
loopback = socket.inet_aton("127.0.0.1")
forms = [
    struct.pack("=H", 2) + struct.pack("!H4s8x", port, loopback) for port in (own, theirs)
] + [struct.pack("=H108s", 1, path) for path in (b"own.sock", outside)]
address = ctypes.create_string_buffer(forms[0].ljust(110, b"\\0"), 110)
over = threading.Event()
FD = 200

def swap():
    while not over.is_set():
        for form in forms:
            ctypes.memmove(address, form, len(form))

def exchange():
    while not over.is_set():
        for family in (socket.AF_INET, socket.AF_UNIX):
            with socket.socket(family) as other:
                os.dup2(other.fileno(), FD)

threads = [threading.Thread(target=work) for work in (swap, exchange)]
for thread in threads:
    thread.start()
for n in range(ROUNDS):
    with socket.socket(socket.AF_UNIX if n % 2 else socket.AF_INET) as client:
        client.settimeout(2)
        os.dup2(client.fileno(), FD)
        connect(FD if n % 3 else client.fileno(), address, 110 if n % 2 else 16)
over.set()
for thread in threads:
    thread.join()
ctypes.memmove(address, forms[0], len(forms[0]))
with socket.socket() as client:
    print("reached" if not connect(client.fileno(), address, 16) else "never")
"""


class Place:
    def __init__(self, base: Path, tier: SandboxTier) -> None:
        self.base, self.tier = base, tier
        self.work, self.home, self.seen = base / "work", base / "home", base / "seen"
        for folder in (self.work / ".git", self.home, self.seen, base / "agent"):
            folder.mkdir(parents=True)
        scripts = {"server": SERVER, "client": CLIENT, "together": TOGETHER}
        for name, text in (
            scripts | {"processes": PROCESSES, "swaps": SWAPS.replace("ROUNDS", "200")}
        ).items():
            (self.work / f"{name}.py").write_text(text)
        self.processes = BackgroundProcesses(base / "processes")

    def spec(self, text: str, session: str) -> CommandSpec:
        policy = build_policy("workspace-write", self.work, self.base / "agent", self.home)
        policy = structs.replace(
            policy,
            visible=(*policy.visible, Path(sys.base_prefix)),
            readable=(*policy.readable, self.seen),
        )
        env = {"PATH": PATH, "HOME": str(self.home)}
        return CommandSpec(text, self.work, env, 150, policy, self.tier, session=session)

    async def py(self, *words: object, session: str = "one") -> str:
        out = OutputCapture(50_000, self.base / "spill")
        with contextlib.closing(out):
            await run_command(self.spec(_python(*words), session), out)
        return out.text().strip()

    async def serve(self, at: object, session: str = "one") -> None:
        """Returns when the server answers commands of its session."""
        await self.processes.start(self.spec(_python("server.py", at), session), _owner(session))
        answer = await self.py("client.py", at, "patient", session=session)
        assert answer in ("200", "hello"), answer


def _python(*words: object) -> str:
    return shlex.join([os.path.realpath(sys.executable), "-I", *map(str, words)])


def _owner(session: str) -> ProcessOwner:
    return ProcessOwner(session)


@pytest.fixture
async def place(
    tmp_path_factory: pytest.TempPathFactory, tier: SandboxTier
) -> AsyncIterator[Place]:
    base = tmp_path_factory.mktemp("s", numbered=True)  # a socket's path must be short
    found = Place(base, tier)
    yield found
    await found.processes.close()


@contextlib.contextmanager
def listening(address: str | int) -> Iterator[socket.socket]:
    """A program outside, on a port or a path."""
    if isinstance(address, int):
        found = socket.create_server(("127.0.0.1", address))
    else:
        found = socket.socket(socket.AF_UNIX)
        found.bind(address)
        found.listen()
    found.setblocking(False)
    with found:
        yield found


def was_reached(listener: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        listener.accept()[0].close()
        return True
    return False


async def test_a_server_and_its_test_in_one_command(place: Place) -> None:
    lines = (await place.py("together.py")).splitlines()
    assert [line for line in lines if "GET" not in line] == ["200", "200", "::1"]


async def test_the_next_command_reaches_a_server_in_the_background(place: Place) -> None:
    port = _free_port()
    await place.serve(port)
    await place.serve("own.sock")
    assert await place.py("client.py", port) == "200"
    assert await place.py("client.py", place.work / "own.sock") == "hello"
    for at in (port, "own.sock"):
        assert "refused" in await place.py("client.py", at, session="two"), at
    place.processes.move_to_child("one", "continued")
    assert await place.py("client.py", port, session="continued") == "200"


async def test_nobody_else_is_reached(place: Place) -> None:
    inside, outside = place.work / "x", place.seen / "y"
    with listening(0) as tcp, listening(str(inside)) as one, listening(str(outside)) as two:
        for at in (tcp.getsockname()[1], "x", "./x", inside, outside):
            assert "refused" in await place.py("client.py", at), at
        assert not any(map(was_reached, (tcp, one, two)))


async def test_who_comes_later_is_not_reached(place: Place) -> None:
    """Sockets and pipes that a program outside makes while a command runs."""
    script = place.work / "late.py"
    script.write_text(LATE)
    os.mkfifo(place.seen / "known")
    reader = os.open(place.seen / "known", os.O_RDONLY | os.O_NONBLOCK)
    process = await place.processes.start(
        place.spec(_python("late.py", place.seen), "one"), _owner("one")
    )
    while not (place.work / "ready").exists() and process.running:
        process = await place.processes.wait(process, 0.05)
    os.mkfifo(place.seen / "fifo")
    late = os.open(place.seen / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    with listening(str(place.work / "x")) as one, listening(str(place.seen / "y")) as two:
        (place.work / "go").touch()
        process = await place.processes.wait(process, 90)
        assert process.end and process.end.status == 0
        assert not was_reached(one) and not was_reached(two)
    ways = (place.work / "done").read_text().split()
    assert ways == []
    for fd in (reader, late):
        assert not select.select([fd], [], [], 0)[0] or os.read(fd, 9) == b""
        os.close(fd)


LATE = """
import os, socket, sys, time
seen = sys.argv[1]
open("ready", "w").close()
until = time.monotonic() + 90
while not os.path.exists("go") and time.monotonic() < until:
    time.sleep(0.02)
done = []
for path in ("x", os.path.abspath("x"), f"{seen}/y", f"{seen}/../seen/y"):
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        done.append(path)
    except OSError:
        pass
for path in (f"{seen}/known", f"{seen}/fifo"):
    try:
        os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), b"out")
        done.append(path)
    except OSError:
        pass
with open("done", "w") as file:
    file.write(" ".join(done))
"""


async def test_swapping_the_address_or_the_socket_gains_nothing(place: Place) -> None:
    with listening(0) as tcp, listening(str(place.seen / "y")) as unix:
        said = await place.py("swaps.py", tcp.getsockname()[1], place.seen / "y")
        assert said == "reached", said
        assert not was_reached(tcp) and not was_reached(unix)


async def test_a_port_shared_with_somebody_else_is_not_reached(place: Place) -> None:
    with socket.socket() as tcp:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        tcp.setblocking(False)
        script = place.work / "shared.py"
        script.write_text(SHARED)
        said = await place.py("shared.py", tcp.getsockname()[1])
        assert place.tier.level == 1 or said == "0"
        assert not was_reached(tcp)


SHARED = """
import socket, sys
address = ("127.0.0.1", int(sys.argv[1]))
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind(address)
server.listen(100)
print(sum(not socket.socket().connect_ex(address) for _ in range(50)))
"""


async def test_a_connection_that_waits_does_not_reach_whoever_comes_later(place: Place) -> None:
    if place.tier.level == 1:
        pytest.skip("the machine's ports are elsewhere")
    (place.work / "pending.py").write_text(PENDING)
    port = _free_port()
    text = _python("pending.py", port)
    process = await place.processes.start(place.spec(text, "one"), _owner("one"))
    while not (place.work / "closed").exists() and process.running:
        process = await place.processes.wait(process, 0.05)
    with listening(port) as tcp:
        (place.work / "go").touch()
        process = await place.processes.wait(process, 90)
        assert process.end and process.end.status == 0
        assert not was_reached(tcp)


PENDING = """
import os, socket, sys, time
address = ("127.0.0.1", int(sys.argv[1]))
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(address)
server.listen(0)
clients = [socket.socket() for _ in range(4)]
for option in (23, 30, 34):
    try:
        clients[0].setsockopt(6, option, 1)
        sys.exit("data may open a connection")
    except OSError:
        pass
for client in clients:
    client.setblocking(False)
    client.connect_ex(address)
server.close()
open("closed", "w").close()
until = time.monotonic() + 90
while not os.path.exists("go") and time.monotonic() < until:
    time.sleep(0.02)
begin = time.monotonic()
while time.monotonic() < begin + 2.5:
    for client in clients:
        try:
            client.send(b"x")
        except OSError:
            pass
    time.sleep(0.1)
"""


async def test_each_command_has_its_own_way_to_the_proxy(place: Place) -> None:
    if place.tier.level != 1:
        pytest.skip("without namespaces the proxy asks for credentials")
    lines: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append((await reader.readline()).strip())
        writer.write(b"granted\n")
        writer.close()

    def ask(word: str) -> str:
        return (
            f"exec 3<>/dev/tcp/127.0.0.1/${{PORT:-${{http_proxy##*:}}}}; echo {word} >&3; cat <&3"
        )

    address = place.base / "proxy"
    async with await asyncio.start_unix_server(answer, address):
        first = place.spec(f"echo ${{http_proxy##*:}} > port; {ask('a')}; sleep 60", "one")
        assert first.policy
        online = structs.replace(first.policy, network=str(address))
        first = structs.replace(first, policy=online)
        process = await place.processes.start(first, _owner("one"))
        while not lines and process.running:
            process = await place.processes.wait(process, 0.05)
        out = OutputCapture(50_000, place.base / "spill")
        second = structs.replace(place.spec(ask("b"), "one"), policy=online)
        await run_command(second, out)
        await run_command(place.spec(f"PORT=$(cat port); {ask('c')}", "one"), out)
        out.close()
        await place.processes.kill(process)
    assert out.text().count("granted") == 1 and lines == [b"a", b"b"]


async def test_processes_share_memory(place: Place) -> None:
    out = await place.py("processes.py")
    assert out == "[1, 4, 9]\n4\n[5]\n6", out


async def test_connections_that_no_process_holds_do_not_hide_their_server(place: Place) -> None:
    """Such as one that is being closed; here they are on their way from a process to itself."""
    (place.work / "passed_on.py").write_text(PASSED_ON)
    assert await place.py("passed_on.py") == "40 connected"


PASSED_ON = """
import socket
server = socket.socket(socket.AF_UNIX)
server.bind("server.sock")
server.listen(9)
ours, theirs = socket.socketpair()
clients = []
for _ in range(40):
    clients.append(socket.socket(socket.AF_UNIX))
    clients[-1].connect("server.sock")
    accepted, _ = server.accept()
    socket.send_fds(ours, [b"x"], [accepted.fileno()])
    accepted.close()
print(len(clients), "connected")
"""


async def test_an_address_of_another_family_is_an_error_and_no_more(place: Place) -> None:
    (place.work / "families.py").write_text(FAMILIES)
    assert (await place.py("families.py")).split() == ["-1", "-1", "-1", "on"]


FAMILIES = """
import ctypes, socket, struct
bind = ctypes.CDLL(None).bind
inet = struct.pack("=H", 2) + struct.pack("!H4s8x", 4444, socket.inet_aton("127.0.0.1"))
inet6 = struct.pack("=HH4x", 10, 0) + bytes(15) + bytes([1]) + bytes(4)
local = socket.socket(socket.AF_UNIX)
print(bind(local.fileno(), inet, len(inet)))
print(bind(local.fileno(), inet6, len(inet6)))
print(bind(socket.socket().fileno(), inet6, len(inet6)))
print("on")
"""


async def test_memory_of_other_programs_is_out_of_reach(place: Place) -> None:
    """System V segments, which everybody finds by number or key."""
    libc = ctypes.CDLL(None, use_errno=True)
    key = 0x48000000 | os.getpid()
    number = libc.shmget(key, 4096, 0o1600)
    assert number >= 0
    try:
        (place.work / "segments.py").write_text(SEGMENTS)
        assert await place.py("segments.py", key, number) == "own 7 none"
        assert libc.shmget(key, 4096, 0) == number
    finally:
        libc.shmctl(number, 0, None)


SEGMENTS = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
key, number = map(int, sys.argv[1:])
FAILED = ctypes.c_void_p(-1).value
theirs = [libc.shmget(key, 4096, 0) >= 0, libc.shmat(number, None, 0) != FAILED]
theirs.append(libc.shmctl(number, 0, None) == 0)
own = libc.shmget(key, 4096, 0o1600)
at = libc.shmat(own, None, 0)
ctypes.memset(at, 7, 1)
same = libc.shmat(libc.shmget(key, 4096, 0), None, 0)
print("own" if own >= 0 else own, ctypes.string_at(same, 1)[0], end=" ")
print(theirs if any(theirs) else "none")
"""


@pytest.mark.skipif(not os.geteuid(), reason="PostgreSQL does not run as root")
async def test_a_database_in_the_background(place: Place) -> None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        pytest.skip("PostgreSQL is not installed")
    port = _free_port()
    text = (
        f"{found[-1]}/initdb -D data -A trust && "
        f"{found[-1]}/postgres -D data -k $PWD -h 127.0.0.1 -p {port} || touch failed"
    )
    process = await place.processes.start(place.spec(text, "one"), _owner("one"))
    out = OutputCapture(50_000, place.base / "spill")
    for host in ("127.0.0.1", "$PWD"):
        query = f"psql -h {host} -p {port} -d postgres -tAc 'select 6 * 7'"
        wait = f"until {query} 2>/dev/null; do [ -e failed ] && break; sleep 0.1; done"
        await run_command(place.spec(wait, "one"), out)
    out.close()
    assert out.text().split() == ["42", "42"], process.folder
    await place.processes.kill(process)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])

"""A thousand streams at once on a real `hermes serve` process."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.kit.home import Home, start_hermes

STREAMS = 1000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORD = "word. "
KEY = "load-key-0123456789abcdef"


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = b"data: %b\n\n" % json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


MORE = _event({"content": WORD})
LAST = _event({}, "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Model(asyncio.Protocol):
    """A model that answers with one word, and another whenever `add_word` is called."""

    def __init__(self, talking: set[Model]) -> None:
        self._talking = talking
        self._seen = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, found, body = self._seen.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if found and len(body) >= int(length):
            self._seen = b""
            self._talking.add(self)
            self._transport.write(HEAD + MORE)

    def add_word(self) -> None:
        self._transport.write(MORE)

    def end(self) -> None:
        self._transport.write(LAST)


class Reader(asyncio.Protocol):
    """One client and its stream."""

    transport: asyncio.BaseTransport

    def __init__(self) -> None:
        self.seen = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.seen += data
        if self.seen.endswith(b"0\r\n\r\n") and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server hung up"))

    @property
    def words(self) -> int:
        return self.seen.count(WORD.encode())


@contextmanager
def limit_open_files(number: int) -> Iterator[None]:
    """Processes started in this block begin with this limit of open files, and must raise it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4 * STREAMS:
        pytest.skip(f"{hard} open files are too few for {STREAMS} streams")
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * STREAMS), hard))


@asynccontextmanager
async def serve(root: Path, model_port: int) -> AsyncIterator[tuple[int, int]]:
    """(port, process id) of `hermes serve`."""
    home = Home(root)
    home.configure(
        model={
            "default": "m",
            "provider": "custom",
            "base_url": f"http://127.0.0.1:{model_port}/v1",
            "api_key_env": "KIT_KEY",
        }
    )
    home.env["API_SERVER_KEY"] = KEY
    with limit_open_files(256):
        process = await start_hermes(["serve", "--port", "0"], home)
    try:
        assert process.stderr is not None
        async with asyncio.timeout(90):
            line = await process.stderr.readline()
        yield int(line.decode().rpartition(":")[2]), process.pid
    finally:
        process.terminate()
        async with asyncio.timeout(90):
            await process.wait()


def build_request(port: int, number: int) -> bytes:
    said = [{"role": "user", "content": f"talk to number {number}"}]
    body = json.dumps({"messages": said, "stream": True})
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


async def open_streams(port: int) -> list[Reader]:
    loop = asyncio.get_running_loop()
    readers = []
    for number in range(STREAMS):
        transport, reader = await loop.create_connection(Reader, "127.0.0.1", port)
        transport.write(build_request(port, number))
        readers.append(reader)
    return readers


async def check_health(port: int, times: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(times):
        writer.write(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
        await asyncio.sleep(0.01)
    writer.close()


async def let_models_talk(talking: set[Model], ending: asyncio.Event) -> None:
    """Let each model say a word twice a second, a tenth of them at a time."""
    while not ending.is_set():
        models = list(talking)
        for tenth in range(10):
            for model in models[tenth::10]:
                model.add_word()
            await asyncio.sleep(0.05)
    for model in talking:
        model.end()


def read_peak_memory(pid: int) -> float:
    """In megabytes; 0 where the system does not tell."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0.0
    return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024


@pytest.mark.timeout(180)
async def test_a_thousand_streams_and_health_is_still_answered(tmp_path: Path) -> None:
    ending: asyncio.Event = asyncio.Event()
    talking: set[Model] = set()
    loop = asyncio.get_running_loop()
    model = await loop.create_server(lambda: Model(talking), "127.0.0.1", 0, backlog=1024)
    async with serve(tmp_path, model.sockets[0].getsockname()[1]) as (port, pid):
        speaker = asyncio.ensure_future(let_models_talk(talking, ending))
        readers = await open_streams(port)
        async with asyncio.timeout(90):
            while not all(reader.words for reader in readers):
                await asyncio.sleep(0.05)
        before = [reader.words for reader in readers]
        async with asyncio.timeout(90):
            await check_health(port, 100)
            while any(r.words == was for r, was in zip(readers, before, strict=True)):
                await asyncio.sleep(0.05)
        size = read_peak_memory(pid)
        ending.set()
        await speaker
        async with asyncio.timeout(90):
            await asyncio.gather(*(reader.done for reader in readers))
        for reader in readers:
            reader.transport.close()
    model.close()
    assert size < 150, size
    for reader in readers:
        assert reader.seen.startswith(b"HTTP/1.1 200") and b"[DONE]" in reader.seen[-40:]

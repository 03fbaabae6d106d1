"""The scripted provider: a raw HTTP/1.1 server on loopback whose every byte is the script's."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from tests.kit.replies import Do, Reply, status

PREFIX = {
    "chat": "/v1",
    "responses": "/v1",
    "anthropic": "/anthropic",
    "gemini": "/v1beta",
    "bedrock": "",
}
_PATHS = {
    "chat": ("/chat/completions",),
    "responses": ("/responses",),
    "anthropic": ("/v1/messages",),
    "gemini": (":generateContent", ":streamGenerateContent"),
    "bedrock": ("/converse", "/converse-stream"),
}


@dataclass
class Received:
    """One request as it came: compare `body` for bytes, `json` for meaning."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    at: float
    """time.monotonic() when it was complete."""
    connection: int
    wire: str
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client closed the connection before the answer was complete."""
    answered: bool = False
    """The answer was written to its end."""
    sent: int = 0
    """Bytes of the answer's body written so far."""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @cached_property
    def json(self) -> Any:
        return json.loads(self.body or b"{}")

    @property
    def streams(self) -> bool:
        """Whether the client asked for a stream."""
        match self.wire:
            case "gemini":
                return ":streamGenerateContent" in self.target
            case "bedrock":
                return self.path.endswith("/converse-stream")
            case _:
                return self.body.startswith(b"{") and bool(self.json.get("stream"))

    @property
    def model(self) -> str:
        match self.wire:
            case "gemini":
                return unquote(self.path.rsplit("/", 1)[1].split(":")[0])
            case "bedrock":
                return unquote(self.path.split("/model/", 1)[1].rsplit("/", 1)[0])
            case _:
                return str(self.json.get("model", ""))


Step: TypeAlias = Reply | Callable[[Received], "Reply | Awaitable[Reply]"]


class _Lost(Exception):
    """The client is gone."""


class _Connection(asyncio.Protocol):
    def __init__(self, provider: Provider, number: int) -> None:
        self.provider = provider
        self.number = number
        self.buffer = bytearray()
        self.arrived = asyncio.Event()
        self.left = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.current: Received | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.provider._opened(self)
        self.task = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.arrived.set()

    def eof_received(self) -> bool:
        self._gone()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()
        self.provider._closed(self)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def _gone(self) -> None:
        self.lost = True
        self.left.set()
        self.arrived.set()
        self.writable.set()
        if self.current is not None and not self.current.answered:
            self.current.gone.set()

    # -- reading ---------------------------------------------------------------------------

    async def _more(self) -> None:
        if self.lost:
            raise _Lost
        self.arrived.clear()
        await self.arrived.wait()

    async def _until(self, mark: bytes) -> bytes:
        while (at := self.buffer.find(mark)) < 0:
            await self._more()
        out = bytes(self.buffer[:at])
        del self.buffer[: at + len(mark)]
        return out

    async def _exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            await self._more()
        out = bytes(self.buffer[:size])
        del self.buffer[:size]
        return out

    async def _request(self) -> Received:
        lines = (await self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        body = b""
        if headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in headers.get("transfer-encoding", ""):
            while size := int(await self._until(b"\r\n"), 16):
                body += await self._exactly(size)
                await self._until(b"\r\n")
            await self._until(b"\r\n")
        else:
            body = await self._exactly(int(headers.get("content-length", "0")))
        wire = self.provider.wire
        return Received(method, target, headers, body, time.monotonic(), self.number, wire)

    # -- answering -------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                request = await self._request()
                self.current = request
                reply = await self.provider._reply(request)
                if not await self._answer(request, reply):
                    break
        except _Lost:
            pass
        except Exception as error:  # a bug of the test's script: shown by Provider.close
            self.provider.errors.append(error)
        self.transport.close()

    async def _answer(self, request: Received, reply: Reply) -> bool:
        """Whether the connection may be used again."""
        match reply.socket:
            case "reset":
                return self._abort()
            case "close":
                return False
            case "stall":
                await self._silence()
            case "raw":
                assert isinstance(reply.body, bytes)
                await self._write(reply.body)
                return False
        asked = request.streams if request.method == "POST" else False
        head = reply.head(request.wire, asked)
        framing = reply.framing
        ops: Iterable[bytes | Do] = reply.ops(request.wire, asked)
        if framing == "length":
            ops = list(ops)
            head["Content-Length"] = str(sum(len(op) for op in ops if isinstance(op, bytes)))
        elif framing == "chunked":
            head["Transfer-Encoding"] = "chunked"
        else:
            head["Connection"] = "close"
        lines = [f"HTTP/1.1 {reply.code} Scripted", *(f"{k}: {v}" for k, v in head.items())]
        await self._write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        for op in ops:
            if isinstance(op, Do):
                if op.what == "reset":
                    return self._abort()
                if op.what == "cut":
                    return False
                await self._do(op, request, reply)
            else:
                await self._body(op, request, reply)
        if framing == "chunked":
            await self._write(b"0\r\n\r\n")
        request.answered = True
        return framing != "close"

    async def _do(self, op: Do, request: Received, reply: Reply) -> None:
        match op.what:
            case "stall":
                await self._silence()
            case "hold":
                assert op.gate is not None
                await self._race(op.gate.arrive())
            case "drip":
                count = 0
                while not op.times or count < op.times:
                    await self._race(asyncio.sleep(op.every))
                    await self._body(op.data, request, reply)
                    count += 1

    async def _body(self, data: bytes, request: Received, reply: Reply) -> None:
        size = reply.write or len(data)
        for i in range(0, len(data), size or 1):
            piece = data[i : i + size]
            if reply.framing == "chunked":
                await self._write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            else:
                await self._write(piece)
            request.sent += len(piece)
            await asyncio.sleep(0)
            if reply.pause:
                await self._race(asyncio.sleep(reply.pause))

    async def _write(self, data: bytes) -> None:
        await self.writable.wait()
        if self.lost:
            raise _Lost
        self.transport.write(data)

    async def _silence(self) -> None:
        while True:
            await self._more()

    async def _race(self, what: Awaitable[Any]) -> None:
        """Wait for `what`, but not longer than the client stays."""
        task = asyncio.ensure_future(what)
        gone = asyncio.ensure_future(self.left.wait())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if self.lost:
                raise _Lost
        finally:
            task.cancel()
            gone.cancel()

    def _abort(self) -> bool:
        sock = self.transport.get_extra_info("socket")
        if sock is not None and not self.lost:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
        return False


class Provider:
    """A provider on loopback that answers model requests from a script.

    `steps` are used in order, one per model request; then `then` for ever; without it a further
    request gets a 418 and is counted in `surprises`. A GET ending in /models lists `models` and
    uses no step. A request whose path ends in one of `paths` uses one too. `observe` is awaited
    with each request before a byte of the answer is sent.
    """

    def __init__(
        self,
        steps: Iterable[Step] = (),
        *,
        wire: str = "chat",
        then: Step | None = None,
        models: Iterable[str] = ("kit-model",),
        sizes: Mapping[str, int] | None = None,
        tls: ssl.SSLContext | None = None,
        observe: Callable[[Received], Awaitable[None]] | None = None,
        listening: bool = True,
        paths: tuple[str, ...] = (),
    ) -> None:
        self.wire = wire
        self._paths = paths
        self.steps: list[Step] = list(steps)
        self.then = then
        self.models = list(models)
        self.sizes = dict(sizes or {})
        self.observe = observe
        self.requests: list[Received] = []
        self.lookups: list[Received] = []
        """Requests that are no model requests: model lists, wrong paths."""
        self.surprises: list[Received] = []
        self.errors: list[Exception] = []
        """Exceptions of the test's own steps; raised when the provider is left."""
        self.connections = 0
        self.open = 0
        self._tls = tls
        self._listening = listening
        self._live: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it. asyncio does not set it on a socket it did not make, and each
        # chunk after the first would wait 40 ms for the client's acknowledgement.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    @property
    def origin(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """What a user would write in the configuration for this wire."""
        return self.origin + PREFIX[self.wire]

    @property
    def last(self) -> Received:
        return self.requests[-1]

    def add(self, *steps: Step) -> None:
        self.steps.extend(steps)

    async def listen(self) -> None:
        """Begin to accept. With `listening=False` connections are refused until then."""
        if self._server is None:
            self._server = await asyncio.get_running_loop().create_server(
                self._connect, sock=self._socket, ssl=self._tls
            )

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [c.task for c in self._live]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._live):
            connection.transport.abort()
        self._socket.close()
        await asyncio.sleep(0)

    async def __aenter__(self) -> Provider:
        if self._listening:
            await self.listen()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close()
        if self.errors and kind is None:
            raise self.errors[0]

    # A thread of its own, for tests that block (`with Provider(...) as p:`).

    def __enter__(self) -> Provider:
        ready = threading.Event()

        async def serve() -> None:
            self._stop = asyncio.Event()
            self._loop = asyncio.get_running_loop()
            async with self:
                ready.set()
                await self._stop.wait()

        self._thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        self._thread.start()
        if not ready.wait(10):
            raise TimeoutError("the scripted provider did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    # -- for connections -------------------------------------------------------------------

    def _connect(self) -> _Connection:
        self.connections += 1
        return _Connection(self, self.connections)

    def _opened(self, connection: _Connection) -> None:
        self.open += 1
        self._live.add(connection)

    def _closed(self, connection: _Connection) -> None:
        self.open -= 1
        self._live.discard(connection)

    async def _reply(self, request: Received) -> Reply:
        if request.method == "GET" and request.path.endswith("/models"):
            self.lookups.append(request)
            return self._list()
        is_model_request = request.method == "POST" and request.path.endswith(_PATHS[self.wire])
        if not is_model_request and not request.path.endswith(self._paths):
            self.lookups.append(request)
            return Reply(body=b"404 page not found", code=404, content_type="text/plain")
        self.requests.append(request)
        step: Step | None = self.steps.pop(0) if self.steps else self.then
        if self.observe is not None:
            await self.observe(request)
        if step is None:
            self.surprises.append(request)
            return status(418, "the script is over: nobody expected this request")
        if isinstance(step, Reply):
            return step
        made = step(request)
        return await made if inspect.isawaitable(made) else made

    def _list(self) -> Reply:
        data = [
            {"id": m, "object": "model", "name": f"models/{m}"}
            | ({"meta": {"n_params": self.sizes[m]}} if m in self.sizes else {})
            for m in self.models
        ]
        body = json.dumps({"object": "list", "data": data, "models": data}).encode()
        return Reply(body=body, content_type="application/json", framing="length")

"""Load on an OpenAI-compatible server: bare sockets, so that the client costs as little as can be.

    python -m bench.load requests URL CONCURRENCY COUNT SCRIPT [stream]
    python -m bench.load hold URL STREAMS CHUNKS MILLISECONDS
    python -m bench.load health URL                     until its standard input ends

The key comes in BENCH_SERVER_KEY. SCRIPT is what bench/provider.py is asked for. The result is one
line of JSON, times in milliseconds. Every text chunk of the provider is "wxyz": that is how tokens
are seen and counted, however the server puts them.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

RAMP = 4.0
"""Seconds over which streams to hold are begun."""
SLACK = 1.2
"""A stream is at full pace when it takes at most this many times what it should."""
GIVE_UP = 120.0
PATH = "/v1/chat/completions"


class Answer:
    """One response as it arrives."""

    def __init__(self, done: "asyncio.Future[None]") -> None:
        self.done = done
        self.asked = time.perf_counter()
        self.first = self.last = self.asked
        self.status = 0
        self.tokens = 0
        self.left = -1
        """Bytes of the body to come; -1: it is chunked."""
        self.tail = self.end = b""

    def take(self, data: bytes) -> bool:
        """True at the end."""
        if not self.status:
            data = self.tail + data
            head, found, data = data.partition(b"\r\n\r\n")
            if not found:
                self.tail = head
                return False
            self.tail = b""
            self.status = int(head.split(b" ", 2)[1])
            lines = head.lower().split(b"\r\n")
            length = next((x for x in lines if x.startswith(b"content-length:")), b"")
            self.left = int(length.partition(b":")[2]) if length else -1
        if count := (self.tail + data).count(b"wxyz"):
            self.last = time.perf_counter()
            if not self.tokens:
                self.first = self.last
            self.tokens += count
        self.tail = (self.tail + data)[-3:]
        if self.left >= 0:
            self.left -= len(data)
            return self.left <= 0
        self.end = (self.end + data)[-5:]
        return self.end == b"0\r\n\r\n"


class Connection(asyncio.Protocol):
    """Keep-alive, one request at a time."""

    transport: asyncio.Transport
    answer: Answer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        answer = self.answer
        if answer is not None and answer.take(data):
            self.answer = None
            if not answer.done.done():
                answer.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.answer is not None and not self.answer.done.done():
            self.answer.done.set_exception(ConnectionError("closed by the server"))

    async def ask(self, request: bytes) -> Answer:
        answer = self.answer = Answer(asyncio.get_running_loop().create_future())
        self.transport.write(request)
        async with asyncio.timeout(GIVE_UP):
            await answer.done
        return answer


class Client:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 80
        key = os.environ.get("BENCH_SERVER_KEY", "")
        self.head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {key}\r\n"
        self.unique = f"{os.getpid()} {time.time_ns()}"

    async def connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, self.host, self.port))[1]

    def chat(self, script: str, number: int, *, stream: bool) -> bytes:
        """A conversation of its own: no two have the same first message."""
        said = {"role": "user", "content": f"{script} {self.unique} {number}"}
        body = json.dumps({"model": "asked", "stream": stream, "messages": [said]})
        head = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return f"POST {PATH} HTTP/1.1\r\n{self.head}{head}{body}".encode()

    def health(self) -> bytes:
        return f"GET /health HTTP/1.1\r\n{self.head}\r\n".encode()


async def requests(url: str, concurrency: int, count: int, script: str, *, stream: bool) -> None:
    """A closed loop: whoever has an answer asks again."""
    client = Client(url)
    answers: list[tuple[float, float]] = []
    statuses: Counter[str] = Counter()
    numbers = iter(range(count))

    async def work(connection: Connection) -> None:
        for number in numbers:
            try:
                got = await connection.ask(client.chat(script, number, stream=stream))
            except (OSError, TimeoutError) as error:
                statuses[type(error).__name__] += 1
                connection = await client.connect()
                continue
            statuses[str(got.status)] += 1
            if got.status == 200 and got.tokens:
                answers.append((got.first - got.asked, time.perf_counter() - got.asked))

    connections = [await client.connect() for _ in range(concurrency)]
    begin = time.perf_counter()
    await asyncio.gather(*map(work, connections))
    wall = time.perf_counter() - begin
    result = {
        "rate": len(answers) / wall,
        "ok": len(answers),
        "statuses": statuses,
        "first": [first * 1e3 for first, _ in answers],
        "whole": [whole * 1e3 for _, whole in answers],
    }
    print(json.dumps(result), flush=True)


async def hold(url: str, streams: int, chunks: int, milliseconds: int) -> None:
    """Begun one after the other, then all open together."""
    client = Client(url)
    script = f"paced-{chunks}-{milliseconds}"
    wanted = (chunks - 1) * milliseconds / 1e3
    statuses: Counter[str] = Counter()
    took: list[float] = []
    spans: list[tuple[float, float]] = []

    async def one(connection: Connection, number: int) -> None:
        await asyncio.sleep(RAMP * number / streams)
        try:
            got = await connection.ask(client.chat(script, number, stream=True))
        except (OSError, TimeoutError) as error:
            statuses[type(error).__name__] += 1
            return
        statuses[str(got.status) if got.tokens == chunks else f"{got.tokens} chunks"] += 1
        if got.status == 200 and got.tokens == chunks:
            took.append(got.last - got.first)
            spans.append((got.first, got.last))

    connections = [await client.connect() for _ in range(streams)]
    await asyncio.gather(*(one(c, n) for n, c in enumerate(connections)))
    result = {
        "held": sum(seconds <= wanted * SLACK for seconds in took),
        "together": _together(spans),
        "slowest": max(took, default=0.0) * 1e3,
        "statuses": statuses,
    }
    print(json.dumps(result), flush=True)


def _together(spans: list[tuple[float, float]]) -> int:
    """The most that were open at the same time."""
    most = now = 0
    for _, step in sorted([(a, 1) for a, _ in spans] + [(b, -1) for _, b in spans]):
        now += step
        most = max(most, now)
    return most


async def health(url: str) -> None:
    client = Client(url)
    connection = await client.connect()
    took: list[float] = []
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        got = await connection.ask(client.health())
        took.append((time.perf_counter() - got.asked) * 1e3)
        await asyncio.sleep(0.05)
    print(json.dumps({"took": took}), flush=True)


def main() -> None:
    what, url, *rest = sys.argv[1:]
    if what == "requests":
        concurrency, count, script, *kind = rest
        asyncio.run(requests(url, int(concurrency), int(count), script, stream=bool(kind)))
    elif what == "hold":
        asyncio.run(hold(url, *map(int, rest)))
    else:
        asyncio.run(health(url))


if __name__ == "__main__":
    main()

"""A scripted OpenAI-compatible provider on loopback: the model's name says what it answers.

    python bench/provider.py        prints "ready PORT" and serves until its standard input ends

    text             one short text
    stream-N         N content chunks, written in large blocks
    stream-N-each    N content chunks, each in a write of its own and far enough apart that the
                     client reads them one by one
    tools-N          N tool calls, one per request, then a short text
    paced-N-MS       N content chunks, one every MS milliseconds
    lines-N          N lines of text, in large blocks
    command-sleep    a command that sleeps for ten minutes, then a short text
    refuse-S         status 429 for the first such request, for S seconds; then text
    asked            what the last user message names: one of the above, else text

It keeps no conversation: call ids carry the step's number, and the greatest one in a request says
how far the conversation is. GET /stats: arrival of the first chat request since POST /reset (on the
monotonic clock, which is comparable between processes), their number, the size of the last body,
the most that arrived within a second, and how long after the status 429 one still came before it
was allowed.
"""

import asyncio
import json
import re
import sys
import time
from typing import Any

ID = re.compile(rb"benchcall_(\d+)")
ASKED = re.compile(
    r"\b(stream-\d+(-each)?|tools-\d+|lines-\d+|paced-\d+-\d+|refuse-\d+|command-sleep)\b"
)
# Tools that cost nothing, best first; {i} changes with every step, so that no loop guard wakes.
CHEAP: dict[str, dict[str, Any]] = {
    "bench_noop": {"i": "{i}"},
    "todo": {"todos": [{"id": "1", "content": "step {i}", "status": "pending"}]},
    "read_file": {"path": "/etc/hostname", "offset": 1, "limit": 1},
}
EACH_GAP = 150e-6
WORD = "wxyz"
"""Every chunk of text."""
USAGE = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}


class Stats:
    first_ns = 0
    chats = 0
    body_bytes = 0
    refused_ns = allowed_ns = last_ns = 0

    def __init__(self) -> None:
        self.arrivals: list[int] = []

    def reset(self) -> None:
        self.first_ns = self.chats = self.body_bytes = 0
        self.refused_ns = self.allowed_ns = self.last_ns = 0
        self.arrivals = []

    def refuse(self, arrived: int, seconds: int) -> None:
        self.refused_ns = self.last_ns = arrived
        self.allowed_ns = arrived + seconds * 10**9

    def note_arrival(self, arrived: int) -> None:
        self.arrivals.append(arrived)
        if self.refused_ns < arrived < self.allowed_ns:
            self.last_ns = arrived

    def find_busiest(self) -> int:
        """The most requests within any second."""
        most = first = 0
        for last, arrived in enumerate(self.arrivals):
            while arrived - self.arrivals[first] >= 10**9:
                first += 1
            most = max(most, last - first + 1)
        return most


def event(delta: dict[str, Any], finish: str | None = None, **extra: Any) -> bytes:
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "bench",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **extra,
    }
    return b"data: %b\n\n" % json.dumps(chunk, separators=(",", ":")).encode()


END = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunked(events: list[bytes]) -> list[bytes]:
    return [b"%x\r\n%b\r\n" % (len(e), e) for e in events]


def scripted(wanted: dict[str, Any]) -> str:
    """The name of the answer a request gets."""
    model: str = wanted["model"].rpartition("/")[2]
    if model != "asked":
        return model
    said = next((m["content"] for m in reversed(wanted["messages"]) if m["role"] == "user"), "")
    if isinstance(said, list):
        said = "".join(part.get("text", "") for part in said)
    return found.group() if (found := ASKED.search(said)) else "text"


def script(model: str, body: bytes, wanted: dict[str, Any]) -> list[bytes]:
    """The answer as a list of server-sent events."""
    name, _, rest = model.partition("-")
    count = int(m.group()) if (m := re.match(r"\d+", rest)) else 1
    if name == "command" and b'"role":"tool"' not in body.replace(b'": "', b'":"'):
        return [*call_tool(1, "terminal", '{"command": "sleep 600"}'), END]
    if name == "tools":
        step = max((int(n) for n in ID.findall(body)), default=0) + 1
        if step <= count:
            return [*tool_call(step, wanted), END]
        count = 1
    first = event({"role": "assistant", "content": ""})
    text = [event({"content": WORD})] * count
    if name == "lines":
        text = [event({"content": f"line {i} of **many**, with `code`\n"}) for i in range(count)]
    return [first, *text, event({}, "stop", usage=USAGE), END]


def tool_call(step: int, wanted: dict[str, Any]) -> list[bytes]:
    offered = {t["function"]["name"] for t in wanted.get("tools") or ()}
    name = next((n for n in CHEAP if n in offered), "bench_noop")
    return call_tool(step, name, json.dumps(CHEAP[name]).replace("{i}", str(step)))


def call_tool(step: int, name: str, arguments: str) -> list[bytes]:
    call = {"index": 0, "id": f"benchcall_{step}", "type": "function"}
    return [
        event({"role": "assistant", "content": None}),
        event({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]}),
        event({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}),
        event({}, "tool_calls", usage=USAGE),
    ]


def whole(events: list[bytes]) -> dict[str, Any]:
    """The same answer for a request without `stream`."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    finish = "stop"
    for raw in events[:-1]:
        choice = json.loads(raw[6:])["choices"][0]
        message["content"] += choice["delta"].get("content") or ""
        finish = choice["finish_reason"] or finish
        for part in choice["delta"].get("tool_calls") or ():
            calls = message.setdefault("tool_calls", [])
            if "id" in part:
                calls.append({**part, "function": dict(part["function"])})
            else:
                calls[-1]["function"]["arguments"] += part["function"]["arguments"]
    return {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "bench",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": USAGE,
    }


class Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, no pipelining: clients wait for the answer."""

    transport: asyncio.Transport

    def __init__(self, stats: Stats) -> None:
        self.stats = stats
        self.buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        arrived = time.monotonic_ns()
        self.buffer += data
        head_end = self.buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(self.buffer[:head_end])
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        end = head_end + 4 + (int(length.group(1)) if length else 0)
        if len(self.buffer) < end:
            return
        body = bytes(self.buffer[head_end + 4 : end])
        del self.buffer[:end]
        self.answer(head.split(b" ", 2)[1].decode(), body, arrived)

    def answer(self, path: str, body: bytes, arrived: int) -> None:
        stats = self.stats
        if path == "/stats":
            return self.reply(
                {
                    "first_ns": stats.first_ns,
                    "chats": stats.chats,
                    "body_bytes": stats.body_bytes,
                    "busiest": stats.find_busiest(),
                    "silent_after_ms": (stats.last_ns - stats.refused_ns) / 1e6,
                }
            )
        if path == "/reset":
            stats.reset()
            return self.reply({})
        if path.endswith("/models"):
            return self.reply({"object": "list", "data": [{"id": "text", "object": "model"}]})
        if not path.endswith("/chat/completions"):
            return self.reply({"error": {"message": "not found"}}, b"404 Not Found")
        stats.first_ns = stats.first_ns or arrived
        stats.chats += 1
        stats.note_arrival(arrived)
        stats.body_bytes = len(body)
        wanted = json.loads(body)
        name = scripted(wanted)
        if name.startswith("refuse-") and not stats.refused_ns:
            seconds = int(name.rpartition("-")[2])
            stats.refuse(arrived, seconds)
            refusal = {"error": {"message": "slow down", "type": "rate_limit_exceeded"}}
            return self.reply(refusal, b"429 Too Many Requests\r\nRetry-After: %d" % seconds)
        events = script(name, body, wanted)
        if not wanted.get("stream"):
            return self.reply(whole(events))
        if name.startswith("paced-"):
            return self.pace(events, int(name.rpartition("-")[2]) / 1e3)
        return self.stream(events, each=name.endswith("-each"))

    def reply(self, value: Any, status: bytes = b"200 OK") -> None:
        body = json.dumps(value).encode()
        self.transport.write(
            b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (status, len(body), body)
        )

    def pace(self, events: list[bytes], gap: float) -> None:
        """Each at its time, however late the one before it was."""
        loop = asyncio.get_running_loop()
        transport = self.transport
        pieces = iter(chunked(events[:-2]))
        transport.write(HEAD)
        due = loop.time()

        def more() -> None:
            nonlocal due
            if transport.is_closing():
                return
            piece = next(pieces, None)
            if piece is None:
                transport.write(b"".join(chunked(events[-2:])) + LAST)
                return
            transport.write(piece)
            due += gap
            loop.call_at(due, more)

        more()

    def stream(self, events: list[bytes], *, each: bool) -> None:
        write = self.transport.write
        chunks = [*chunked(events), LAST]
        if not each:
            write(HEAD + b"".join(chunks))
            return
        write(HEAD)
        for chunk in chunks:
            # Busy waiting on purpose: timers of the event loop are too coarse.
            until = time.perf_counter() + EACH_GAP
            write(chunk)
            while time.perf_counter() < until:
                pass


async def main() -> None:
    stats = Stats()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(stats), "127.0.0.1", 0, backlog=4096)
    print("ready", server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())

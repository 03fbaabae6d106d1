"""The floor: the same work with nothing but aiohttp, orjson and SQLite's FTS5."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

CONTENT = "cccc" * 500
SCHEMA = """
create table session(id text primary key, created real);
create table message(id integer primary key, session text, role text, content text);
create index message_session on message(session, id);
create virtual table words using fts5(content, content=message, content_rowid=id);
create trigger message_words after insert on message begin
  insert into words(rowid, content) values (new.id, new.content);
end;
"""


class Client:
    """An agent loop with nothing in it: one kept connection, every message serialised once."""

    TOOL: ClassVar[dict[str, Any]] = {
        "type": "function",
        "function": {
            "name": "bench_noop",
            "description": "Does nothing.",
            "parameters": {"type": "object", "properties": {"i": {"type": "string"}}},
        },
    }

    def __init__(self, url: str, http: Any) -> None:
        import orjson

        self.url = url + "/chat/completions"
        self.http = http
        self.loads = orjson.loads
        self.dumps = orjson.dumps
        self.seen = 0

    async def post(self, body: bytes) -> tuple[str, dict[str, Any] | None]:
        text: list[str] = []
        call: dict[str, Any] | None = None
        rest = b""
        headers = {"Content-Type": "application/json", "Authorization": "Bearer bench"}
        async with self.http.post(self.url, data=body, headers=headers) as response:
            async for data in response.content.iter_any():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    if line[:7] != b"data: {":
                        continue
                    choice = self.loads(line[6:])["choices"][0]
                    delta = choice["delta"]
                    if words := delta.get("content"):
                        text.append(words)
                        self.consume(words)
                    for part in delta.get("tool_calls") or ():
                        if "id" in part:
                            call = part
                        elif call:
                            call["function"]["arguments"] += part["function"]["arguments"]
        return "".join(text), call

    def consume(self, words: str) -> None:
        self.seen += len(words)

    async def turn(self, model: str) -> str:
        head = b'{"model":%b,"stream":true,"tools":[%b],"messages":[' % (
            self.dumps(model),
            self.dumps(self.TOOL),
        )
        messages = [
            self.dumps({"role": "system", "content": CONTENT}),
            self.dumps({"role": "user", "content": "hi"}),
        ]
        while True:
            text, call = await self.post(head + b",".join(messages) + b"]}")
            if call is None:
                return text
            self.loads(call["function"]["arguments"])
            del call["index"]
            messages.append(
                self.dumps({"role": "assistant", "content": None, "tool_calls": [call]})
            )
            messages.append(
                self.dumps({"role": "tool", "tool_call_id": call["id"], "content": "done"})
            )


class Table:
    """A message table with an FTS5 index; one transaction per append, synchronous=FULL."""

    def __init__(self, path: Path) -> None:
        import apsw

        self.db = apsw.Connection(str(path))
        self.db.execute("pragma journal_mode=wal")
        self.db.execute("pragma synchronous=full")
        self.db.execute(SCHEMA)

    def append(self, session: str, messages: Iterable[tuple[str, str]]) -> None:
        with self.db:
            for role, content in messages:
                self.db.execute(
                    "insert into message(session, role, content) values (?, ?, ?)",
                    (session, role, content),
                )

    def load(self, session: str) -> list[dict[str, Any]]:
        rows = self.db.execute(
            "select role, content from message where session = ? order by id", (session,)
        )
        return [{"role": role, "content": content} for role, content in rows]

    def search(self, query: str) -> list[Any]:
        return self.db.execute(
            "select m.id, m.session, m.role, snippet(words, 0, '[', ']', '…', 16)"
            " from words join message m on m.id = words.rowid"
            " where words match ? order by rank limit 20",
            (query,),
        ).fetchall()


def one_shot(url: str) -> None:
    import asyncio

    import aiohttp

    async def run() -> None:
        async with aiohttp.ClientSession() as http:
            print(await Client(url, http).turn("text"))

    asyncio.run(run())


if __name__ == "__main__":
    one_shot(sys.argv[1])

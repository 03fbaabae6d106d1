"""What became of the items, as the database of a run knows it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from hermes.batch.dataset import BatchItem
from hermes.batch.run_folder import RunSettings
from hermes.batch.trajectories import (
    DeclaredTools,
    ToolCounts,
    Trajectory,
    count_calls,
    describe_tools,
)
from hermes.core.ledger import UsageRow
from hermes.core.message import Message
from hermes.core.provider import ToolSpec
from hermes.core.store import SessionMeta, Store

ItemState: TypeAlias = Literal["done", "partial", "failed", "filtered"]
RECORD_KIND = "batch_item"
_TOOLS_KIND = "batch_tools"
SOURCE = "batch"
_ALL = 1_000_000_000


class ItemError(Struct, frozen=True):
    code: str
    message: str


class ItemRecord(Struct, frozen=True, omit_defaults=True):
    """How an item ended. Written once, after its conversation is stored."""

    id: str
    state: ItemState
    session: str
    ended: str
    """ISO time."""
    seconds: float = 0.0
    model: str = ""
    tools: str = ""
    """The digest of the declared tools."""
    toolsets: tuple[str, ...] = ()
    error: ItemError | None = None
    patch: str = ""
    """The change to the item's repository."""


class ConversationCounts:
    """What was counted in the conversations of a run."""

    def __init__(self) -> None:
        self.tools: dict[str, ToolCounts] = {}
        self.reasoning = {"with": 0, "without": 0}

    def add_conversation(self, found: Trajectory) -> None:
        for name, row in count_calls(found.messages).items():
            total = self.tools.setdefault(name, ToolCounts())
            total.count += row.count
            total.success += row.success
            total.failure += row.failure
        for message in found.messages:
            if message.role == "assistant":
                self.reasoning["with" if message.thinking.strip() else "without"] += 1


class Results:
    """The items of a run that have ended, and the sessions in which they were answered."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._known_tools: set[str] = set()
        self._last_specs: Sequence[ToolSpec] = ()
        self._last_digest = ""

    def make_key(self, id: str) -> str:
        """The name of an item, or of something else of the run, among those of all runs."""
        return f"{self._name}/{id}"

    async def read_records(self) -> dict[str, ItemRecord]:
        found = await self._store.objects.list_all(RECORD_KIND, owner=self._name)
        decoder = msgspec.json.Decoder(ItemRecord)
        return {record.id: record for record in (decoder.decode(o.body) for o in found)}

    async def has_ended(self, item: BatchItem) -> bool:
        id = self.make_key(item.id)
        return await self._store.objects.get(RECORD_KIND, id, owner=self._name) is not None

    async def record_end(self, record: ItemRecord) -> None:
        body = msgspec.json.encode(record)
        id = self.make_key(record.id)
        await self._store.objects.put(RECORD_KIND, id, body, owner=self._name)

    async def forget_failures(self) -> None:
        """Have the items that failed done again; what was spent on them counts."""
        records = await self.read_records()
        failed = [self.make_key(r.id) for r in records.values() if r.state == "failed"]
        remove = self._store.objects.remove
        await asyncio.gather(*(remove(RECORD_KIND, key, owner=self._name) for key in failed))

    async def store_tools(self, specs: Sequence[ToolSpec]) -> str:
        """Store what a conversation declared; returns its digest. Conversations share most of the
        time one tuple of specs."""
        if self._last_digest and specs is self._last_specs:
            return self._last_digest
        body = msgspec.json.encode(describe_tools(specs))
        digest = hashlib.sha256(body).hexdigest()[:16]
        if digest not in self._known_tools:
            id = self.make_key(digest)
            await self._store.objects.add(_TOOLS_KIND, id, body, owner=self._name)
            self._known_tools.add(digest)
        self._last_specs, self._last_digest = specs, digest
        return digest

    async def list_trajectories(
        self, items: Mapping[str, BatchItem], records: Mapping[str, ItemRecord]
    ) -> AsyncIterator[Trajectory]:
        """Of the items that were answered, in their order."""
        tools: dict[str, DeclaredTools] = {}
        for item in items.values():
            record = records.get(item.id)
            if record is None or (record.state == "failed" and not record.session):
                continue
            if record.tools not in tools:
                tools[record.tools] = await self._load_tools(record.tools)
            meta, messages = await self._load_conversation(record.session)
            yield Trajectory(
                item.number,
                item.id,
                record.state,
                messages,
                meta.system if meta else "",
                record.model,
                record.ended,
                tools[record.tools],
                record.toolsets,
                item.metadata,
                record.session,
            )

    async def _load_tools(self, digest: str) -> DeclaredTools:
        id = self.make_key(digest)
        found = await self._store.objects.get(_TOOLS_KIND, id, owner=self._name)
        return DeclaredTools(msgspec.json.decode(found.body) if found else ())

    async def _load_conversation(
        self, session_id: str
    ) -> tuple[SessionMeta | None, tuple[Message, ...]]:
        """All messages, those before a compression included, without its summaries."""
        first = await self._store.sessions.get_meta(session_id)
        messages: list[Message] = []
        meta = first
        while meta is not None:
            found = await self._store.sessions.load_messages(meta.id)
            if messages:  # a child begins with a summary and copies of what was kept
                known = {msgspec.msgpack.encode(message) for message in messages}
                found = [
                    m
                    for m in found
                    if m.kind != "summary" and msgspec.msgpack.encode(m) not in known
                ]
            messages += found
            meta = await self._store.sessions.get_meta(meta.next) if meta.next else None
        return first, tuple(messages)

    async def count_conversations(
        self, items: Mapping[str, BatchItem], records: Mapping[str, ItemRecord]
    ) -> ConversationCounts:
        counts = ConversationCounts()
        async for found in self.list_trajectories(items, records):
            counts.add_conversation(found)
        return counts

    async def _list_attempts(self) -> list[tuple[str, float]]:
        """The item and the time of every conversation that was begun; it is stored before anything
        is spent on it."""
        key = self.make_key("")
        found = await self._store.sessions.list_recent(limit=_ALL, source=SOURCE)
        return [
            (meta.key.removeprefix(key), meta.created) for meta in found if meta.key.startswith(key)
        ]

    async def compute_statistics(
        self,
        settings: RunSettings,
        records: Mapping[str, ItemRecord],
        counts: ConversationCounts,
        running_since: float | None = None,
    ) -> dict[str, Any]:
        """Totals over all attempts; tools, reasoning and latency of those that count.
        `running_since`: when the process that works on the run began; None: there is none."""
        tools = counts.tools
        tries = await self._list_attempts()
        running = {
            id
            for id, began in tries
            if running_since is not None and began >= running_since and id not in records
        }
        abandoned = len(tries) - sum(bool(r.session) for r in records.values()) - len(running)
        rows = await self._store.ledger.sum_calls("job", 0.0)
        usage = next((row for row in rows if row.key == self._name), UsageRow(self._name))
        states: Counter[str] = Counter(record.state for record in records.values())
        states["running"] = len(running)
        states["todo"] = settings.items - len(records) - len(running)
        seconds = sorted(record.seconds for record in records.values())
        return {
            "items": settings.items,
            "states": {state: count for state, count in sorted(states.items()) if count},
            "abandoned": abandoned,
            "tools": {name: msgspec.to_builtins(tools[name]) for name in sorted(tools)},
            "errors": dict(Counter(r.error.code for r in records.values() if r.error is not None)),
            "reasoning": counts.reasoning,
            "tokens": {
                "input": usage.input,
                "output": usage.output,
            },
            "cost_usd": round(usage.cost, 6),
            "calls": {
                "made": usage.calls,
                "estimated": usage.estimated,
                "unpriced": usage.unpriced,
            },
            "latency": _describe_latency(seconds),
        }


def _describe_latency(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    last = len(seconds) - 1
    return {
        "p50": round(seconds[last // 2], 3),
        "p90": round(seconds[int(last * 0.9)], 3),
        "max": round(seconds[last], 3),
    }

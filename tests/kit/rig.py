"""The real Runtime against a scripted provider, on an instant clock, with the global invariants."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import structs

from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.config.load import load_setup
from hermes.core.events import (
    Notice,
    Recovering,
    TextDelta,
    ThinkingDelta,
    ToolStarted,
    TurnEnd,
    TurnEvent,
    TurnResult,
)
from hermes.core.message import Media, Message, ToolCall, ToolReturn, user_message
from hermes.core.tool import Tool
from tests.kit.bodies import check_legal, messages
from tests.kit.home import KEY, RECORDING, SPARE_KEY, Home
from tests.kit.replies import say
from tests.kit.server import Provider, Received, Step

PLAYED: set[Path] = set()
"""The homes whose sessions a rig has played again, or need not be played."""
CODES = frozenset(
    "auth billing rate_limited overloaded server_error network stalled tls context_overflow "
    "payload_too_large bad_request model_not_found content_policy output_truncated "
    "thinking_exhausted empty_response max_turns tool_loop unknown_tools budget interrupted "
    "config internal".split()
)
"""Every error code there is (loop.md)."""


class Rig:
    """One session of the real Runtime. `waits` are the seconds it wanted to sleep; nothing
    sleeps. `events` is everything the session emitted, `results` how its turns ended."""

    def __init__(self, provider: Provider, home: Home, runtime: Runtime) -> None:
        self.provider = provider
        self.home = home
        self.runtime = runtime
        self.waits: list[float] = []
        self.events: list[TurnEvent] = []
        self.prompts: list[str] = []
        self.session: Session
        self.breaks_prefix = False
        """Set by a test whose requests may begin differently from those before them."""
        self._undurable: list[str] = []
        self._illegal: list[str] = []
        self._observer: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._ended = asyncio.Condition()
        self._checked = False

    # -- driving ---------------------------------------------------------------------------

    async def open(self, options: Options, tools: Iterable[Tool[Any]], resume: str = "") -> Session:
        self.session = await self.runtime.open_session(
            resume=resume, cwd=self.home.work, options=options
        )
        extra = {t.name: t for t in tools}
        if extra:
            agent = self.session.agent
            mine = {**agent.tools, **extra}
            shown = {s.name: s for s in agent.specs}
            shown |= {t.name: t.spec for t in extra.values() if t.toolset == "core"}
            specs = tuple(shown.values())
            self.session.host.agent = structs.replace(agent, tools=mine, specs=specs)
        self._reader = asyncio.create_task(self._read(self.session.subscribe_events()))
        return self.session

    async def turn(self, text: str = "hi", *media: Media, timeout: float = 90) -> TurnResult:
        """Submit and wait for the end of that turn, and until its events have been read."""
        self.prompts.append(text)
        async with asyncio.timeout(timeout):
            result = await self.session.submit(user_message(text, *media))
            await self.until(lambda e: isinstance(e, TurnEnd) and e.result is result)
        self._check_result(result)
        return result

    def begin(self, text: str = "hi") -> asyncio.Task[TurnResult]:
        """The same in the background, for tests that act while it runs."""
        return asyncio.create_task(self.turn(text))

    async def wait_end(self, count: int) -> None:
        async with self._ended:
            await self._ended.wait_for(lambda: len(self.results) >= count)

    async def until(self, test: Callable[[TurnEvent], bool], timeout: float = 90) -> TurnEvent:
        """The first event, past or future, for which `test` is true."""
        async with asyncio.timeout(timeout):
            while True:
                for event in self.events:
                    if test(event):
                        return event
                async with self._ended:
                    await self._ended.wait()

    async def until_shown(self, text: str, timeout: float = 90) -> None:
        """Until this text has been streamed, in however many pieces."""
        await self.until(lambda _: text in self.shown, timeout)

    async def _read(self, events: AsyncIterator[TurnEvent]) -> None:
        async for event in events:
            async with self._ended:
                self.events.append(event)
                self._ended.notify_all()

    @property
    def results(self) -> list[TurnResult]:
        """How the turns ended, those of guidance that became a message included."""
        return [e.result for e in self.events if isinstance(e, TurnEnd)]

    async def idle(self, timeout: float = 90) -> None:
        """Until no turn runs and none is queued."""
        async with asyncio.timeout(timeout):
            while self.session.is_busy or len(self.results) < self._due:
                await asyncio.sleep(0.005)

    @property
    def _due(self) -> int:
        return len(self.prompts) + sum(bool(r.pending_steer) for r in self.results)

    # -- looking ---------------------------------------------------------------------------

    @property
    def shown(self) -> str:
        """All visible text that was streamed."""
        return "".join(e.text for e in self.events if isinstance(e, TextDelta))

    @property
    def thought(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, ThinkingDelta))

    @property
    def recoveries(self) -> list[Recovering]:
        return [e for e in self.events if isinstance(e, Recovering)]

    @property
    def notices(self) -> list[Notice]:
        return [e for e in self.events if isinstance(e, Notice)]

    @property
    def started(self) -> list[ToolCall]:
        return [e.call for e in self.events if isinstance(e, ToolStarted)]

    @property
    def requests(self) -> list[Received]:
        return self.provider.requests

    async def stored(self) -> list[Message]:
        """The session as another connection sees it on disk."""
        if self._observer is None:
            self._observer = type(self.runtime.store)(self.database)
        return list(await self._observer.sessions.load_messages(self.session.id))

    async def said(self) -> Counter[str]:
        """What users said in the whole conversation, also before it was compressed; what a child
        began with is its parent's."""
        texts: Counter[str] = Counter()
        await self.stored()
        id = self.session.id
        while id:
            meta = await self._observer.sessions.get_meta(id)
            part = [item async for item in self._observer.sessions.stream_messages(id)]
            id = meta.parent if meta is not None else ""
            copied = part[0].created if id else -1.0
            for item in part:
                if item.message.role == "user" and item.created != copied:
                    texts[item.message.text] += item.message.kind == "normal"
        return texts

    @property
    def database(self) -> Path:
        return next(self.home.path.glob("*.db"))

    async def state(self) -> str:
        await self.stored()
        meta = await self._observer.sessions.get_meta(self.session.id)
        return str(meta.state)

    # -- invariants ------------------------------------------------------------------------

    async def observe(self, request: Received) -> None:
        """Called before the first byte of each answer: what led to it must be on disk, and the
        request must be one that a real provider takes."""
        try:
            check_legal(request)
        except AssertionError as error:
            self._illegal.append(f"request {len(self.requests)}: {error}")
        stored = await self.said()
        sent = [m.text for m in messages(request) if m.role == "user"]
        for prompt in map(_clean, self.prompts):
            if prompt not in stored and any(prompt in text for text in sent):
                self._undurable.append(f"{prompt!r} not in {list(stored)}")

    def _check_result(self, result: TurnResult) -> None:
        flags = [
            result.status == "completed",
            result.status == "partial",
            result.status == "failed",
            result.status == "interrupted",
        ]
        assert sum(flags) == 1, f"not exactly one ending: {result}"
        assert bool(result.error) == bool(result.error_code) == (result.status != "completed"), (
            result
        )
        if result.status != "completed":
            assert result.error_code in CODES, result.error_code
            assert len(result.error) <= 300, f"{len(result.error)} characters: {result.error}"
            assert "Traceback" not in result.error and "\n" not in result.error.strip()
            told = result.status == "interrupted" or re.search(
                r"\b(lost|kept|saved)\b", result.error
            )
            assert told, f"it does not say whether anything was lost: {result.error}"
        for secret in (KEY, SPARE_KEY):
            assert secret not in repr(self.events), "a secret was shown"
            assert secret not in repr(result)

    async def invariants(self) -> None:
        """Everything faults.md wants to hold after every case, the next turn included."""
        self._checked = True
        await self.idle()
        assert not self._undurable, f"a request before the prompt was on disk: {self._undurable}"
        assert not self._illegal, f"illegal requests: {self._illegal}"
        assert not self.provider.surprises, "more requests than scripted"
        self._check_shown()
        self.provider.steps[:] = []
        self.provider.then = say("still here")  # for ever: a loaded machine may need a retry
        await self.provider.listen()
        result = await self.turn("and now something else")
        assert result.status == "completed" and result.text == "still here", (
            f"the next turn: {result}"
        )
        assert not self._illegal, f"the history is not valid any more: {self._illegal}"
        assert not self.provider.surprises
        self._check_history(await self.stored(), await self.said())
        assert not self.home.leaks(), f"a secret on disk: {self.home.leaks()}"
        broken = [n.text for n in self.notices if n.code == "prefix"]
        assert self.breaks_prefix or not broken, f"the cached prefix was lost: {broken}"

    def _check_shown(self) -> None:
        """What people saw is what was kept: nothing lost, nothing twice."""
        added = [m for r in self.results for m in r.messages]
        kept = "".join(m.text for m in added if m.role == "assistant")
        assert "".join(self.shown.split()) == "".join(kept.split()), f"{self.shown!r} != {kept!r}"

    def _check_history(self, stored: list[Message], texts: Counter[str]) -> None:
        asked = Counter(_clean(p) for p in self.prompts)
        early = {r.messages == () for r in self.results if r.status == "interrupted"}
        failed = any(r.status == "failed" for r in self.results)
        for text, count in asked.items():
            stopped = True in early and texts[text] < count  # before it was taken in
            repeated = failed and 1 <= texts[text] < count  # sent again, it is the same message
            shown = f"{text!r} is stored {texts[text]} times"
            assert texts[text] == count or stopped or repeated, shown
        calls = [p for m in stored for p in m.parts if isinstance(p, ToolCall)]
        ids = Counter(c.id for c in calls)
        assert all(n == 1 for n in ids.values()), f"call ids are not unique: {ids}"
        results = Counter(p.call_id for m in stored for p in m.parts if isinstance(p, ToolReturn))
        assert all(n == 1 for n in results.values()), f"several results: {results}"
        assert set(results) <= set(ids), "a result without its call"
        ran = Counter(c.id for c in self.started)
        assert all(n == 1 for n in ran.values()), f"run more than once: {ran}"
        if not self.session.transcript.meta.parent:
            assert set(ran) <= set(ids), f"run without being recorded: {set(ran) - set(ids)}"

    async def close(self) -> None:
        await self.session.close()
        if self._reader is not None:
            await asyncio.wait_for(self._reader, 90)
        if self._observer is not None:
            await self._observer.close()


def _clean(text: str) -> str:
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
    )


@asynccontextmanager
async def rig(
    root: Path,
    steps: Iterable[Step] | Provider,
    *,
    wire: str = "chat",
    then: Step | None = None,
    spare: Provider | None = None,
    config: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    options: Options | None = None,
    tools: Iterable[Tool[Any]] = (),
    resume: str = "",
    sleep: Callable[[float], Awaitable[None]] | None = None,
    check: bool = True,
    replay: bool = RECORDING,
) -> AsyncIterator[Rig]:
    """A Rig with one open session. `steps` is a script or a Provider that is already there;
    `spare` is configured as the fallback; `resume` opens a stored session of the same root. The
    invariants are checked at the end of the block
    (once; a test may call `rig.invariants()` earlier), unless `check` is off. `replay`: the session
    is recorded, and must replay identically when the block has ended."""
    provider = steps if isinstance(steps, Provider) else Provider(steps, wire=wire, then=then)
    async with provider:
        home = Home.of(root, provider)
        if spare is not None:
            home.fall_back(spare)
        PLAYED.add(home.path)
        if replay:
            home.configure(trace={"record": "wire"})
        home.configure(**(config or {}))
        home.env.update(env or {})
        waits: list[float] = []

        async def instant(seconds: float) -> None:
            waits.append(seconds)
            await asyncio.sleep(0)

        async with Runtime.open(load_setup("", home.env), sleep=sleep or instant) as runtime:
            r = Rig(provider, home, runtime)
            r.waits = waits
            provider.observe = r.observe
            await r.open(options or Options(yolo=True), tools, resume)
            try:
                yield r
                if check and not r._checked:
                    await r.invariants()
            finally:
                await r.close()
            if replay:
                from tests.kit.replay import check_other_replays, check_replay

                await check_replay(runtime.store, r.session.id, r.events)
                await check_other_replays(runtime.store, r.session.id)
        await _all_closed(provider)


async def _all_closed(provider: Provider) -> None:
    """Nothing of a closed runtime stays connected."""
    for _ in range(500):
        if not provider.open:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{provider.open} connections were left open")

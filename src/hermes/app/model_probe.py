"""One real call to a model, to see that it answers and what works there."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from hermes.agent.json_repair import BadArguments, parse
from hermes.agent.recovery import Attempt
from hermes.agent.step import Stopped, sample
from hermes.agent.turn import Agent, Learned, Limits, Turn
from hermes.app.metering import Meter
from hermes.app.side_turn import turn_aside
from hermes.core.events import Notice, TurnEvent
from hermes.core.ledger import Account
from hermes.core.message import Media, Message, Target, Thinking, ToolCall, Usage, user
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.provider_spec import overlay_quirks

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime

State: TypeAlias = Literal["yes", "no", "unknown"]
FEATURES = ("streaming", "tools", "images", "reasoning", "cache")
_ANSWERED = ("output_truncated", "thinking_exhausted", "empty_response")
"""Ends that are no fault of the connection: the model was reached and took the key."""
_REPORT = ToolSpec(
    "report",
    "Report what you were asked for.",
    {
        "type": "object",
        "properties": {"colour": {"type": "string", "description": "one English word"}},
        "required": ["colour"],
    },
)
_ASK = (
    "This tests a connection. Call the tool report once, with the colour that fills the picture "
    "(none if you see no picture). Write nothing else."
)
_SYSTEM = "You answer the tests of a connection, briefly."
"""Some endpoints take no request without one."""
_COLOURS = ("red", "crimson", "scarlet")
_LONG = "\n".join(f"Rule {n}: answer briefly and do only what is asked." for n in range(400))
"""Longer than the shortest prompt any provider caches."""


class Feature(Struct, frozen=True):
    name: str
    state: State
    note: str = ""


class Trial(Struct, frozen=True):
    """How it went. `error` is empty when the model answered."""

    target: Target
    base_url: str
    key: str
    """Where it came from."""
    error: str = ""
    code: str = ""
    text: str = ""
    seconds: float = 0.0
    first: float | None = None
    """Seconds until something arrived."""
    usage: Usage = Usage()
    features: tuple[Feature, ...] = ()
    notes: tuple[str, ...] = ()


class _Run:
    """One conversation of one prompt with one endpoint, and what could be seen of it."""

    def __init__(self, runtime: Runtime, endpoint: ModelEndpoint) -> None:
        self.client = runtime.client(endpoint)
        self.endpoint = endpoint
        self.learned: dict[Target, Learned] = {}
        self.first: float | None = None
        self.notes: list[str] = []
        self._runtime = runtime
        self._began = time.monotonic()

    async def ask(
        self, prompt: Message, settings: Settings, *, system: str = _SYSTEM, tools: bool = False
    ) -> tuple[Message | None, Turn, str, str]:
        """The answer or (code, sentence) of why there is none."""
        runtime = self._runtime
        account = Account(purpose="test")
        meter = Meter(runtime.store, runtime.setup.config.budget, account, self._emit, runtime.told)
        turn = turn_aside(
            runtime, prompt, system, learned=self.learned, meter=meter, emit=self._emit
        )
        turn.remember = runtime.remember
        agent = Agent((self.client,), specs=(_REPORT,) if tools else (), limits=Limits(tries=2))
        try:
            return await sample(agent, turn, Attempt(settings)), turn, "", ""
        except Stopped as stop:
            if stop.code in _ANSWERED:
                return stop.message or Message("assistant", ()), turn, stop.code, ""
            return None, turn, stop.code, stop.error

    def _emit(self, event: TurnEvent) -> None:
        if isinstance(event, Notice):
            self.notes.append(event.text)
        elif self.first is None:
            self.first = time.monotonic() - self._began

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def trial(self, turn: Turn, **more: Any) -> Trial:
        client = self.client
        return Trial(
            client.target,
            client.endpoint.base_url,
            client.credentials.key_source,
            seconds=self.seconds,
            first=self.first,
            usage=turn.usage,
            notes=tuple(self.notes),
            **more,
        )


async def ping(runtime: Runtime, endpoint: ModelEndpoint) -> Trial:
    """The cheapest call that shows whether the key is taken."""
    run = _Run(runtime, endpoint)
    prompt = user("Reply with the word OK.")
    answer, turn, code, error = await run.ask(prompt, Settings(max_output=64))
    return run.trial(turn, error=error, code=code, text=answer.text if answer else "")


async def examine(runtime: Runtime, endpoint: ModelEndpoint, *, cache: bool = False) -> Trial:
    """What works: one call that tries everything at once, in the way the agent makes its calls;
    with `cache` it is made twice, with a prompt long enough to be cached."""
    run = _Run(runtime, endpoint)
    quirks = endpoint.quirks
    pictured = quirks.media and endpoint.facts.images is not False
    prompt = user(_ASK, *((Media("image/png", red_square()),) if pictured else ()))
    settings = Settings(max_output=1024, effort="low" if quirks.effort != "omit" else None)
    system = _LONG if cache else _SYSTEM
    answer, turn, code, error = await run.ask(prompt, settings, system=system, tools=True)
    usage = turn.usage
    if answer is not None and cache:
        again, turn, code, error = await run.ask(prompt, settings, system=system, tools=True)
        answer, usage = again, usage + turn.usage
        turn.usage = usage
    if answer is None:
        return run.trial(turn, error=error, code=code)
    quirks = overlay_quirks(quirks, run.learned[endpoint.target].quirks if run.learned else {})
    features = (
        Feature("streaming", "yes" if quirks.stream else "no"),
        _tools(quirks.tools, answer),
        _images(quirks.media and pictured, endpoint, answer),
        _reasoning(quirks.effort, answer, usage),
        _cache(usage, asked=cache),
    )
    return run.trial(turn, code=code, text=answer.text, features=features)


def _tools(offered: bool, answer: Message) -> Feature:
    if not offered:
        return Feature("tools", "no", "the endpoint takes none")
    if answer.calls:
        return Feature("tools", "yes")
    return Feature("tools", "unknown", "offered, but the model called none")


def _images(sent: bool, endpoint: ModelEndpoint, answer: Message) -> Feature:
    if not sent:
        known = endpoint.facts.images is False
        return Feature("images", "no", "as known of the model" if known else "it takes none")
    told = " ".join([answer.text, *(str(v) for c in answer.calls for v in _values(c))]).lower()
    if any(colour in told for colour in _COLOURS):
        return Feature("images", "yes")
    return Feature("images", "unknown", "taken, but the model did not say what it saw")


def _values(call: ToolCall) -> Collection[Any]:
    try:
        return parse(call.args).values()
    except BadArguments:
        return (call.args,)


def _reasoning(effort: str, answer: Message, usage: Usage) -> Feature:
    if usage.reasoning or any(isinstance(part, Thinking) for part in answer.parts):
        return Feature("reasoning", "yes")
    if effort == "omit":
        return Feature("reasoning", "no", "not offered")
    return Feature("reasoning", "unknown", "asked for, none came")


def _cache(usage: Usage, *, asked: bool) -> Feature:
    if usage.cache_read or usage.cache_write:
        return Feature("cache", "yes", f"{usage.cache_read} tokens read, {usage.cache_write} kept")
    if asked:
        return Feature("cache", "no", "nothing was reported, for the same prompt twice")
    return Feature("cache", "unknown", "too short a prompt to tell; --cache tries a long one")


def red_square() -> bytes:
    """A PNG of 32 by 32 pixels."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = (b"\0" + b"\xe0\x10\x10" * 32) * 32
    head = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)

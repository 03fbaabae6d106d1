"""Real calls to a model, to see that it answers and what works there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs
from typing_extensions import override

from hermes.agent.json_repair import BadArguments, parse_arguments
from hermes.agent.recovery import Attempt
from hermes.agent.step import TurnStopped, sample_message
from hermes.agent.turn import Agent, EndpointLessons, ModelClient, Turn, TurnLimits
from hermes.app.agents import Options
from hermes.app.auxiliary import SideHost
from hermes.app.meter import Meter
from hermes.app.runtime import Runtime
from hermes.config.load import Setup
from hermes.core.errors import HermesError
from hermes.core.events import Notice, TurnEvent, TurnResult
from hermes.core.history import History
from hermes.core.ledger import Account
from hermes.core.message import Media, Message, Target, Thinking, ToolCall, Usage, user_message
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.http.transport import EMBEDDED, Transport
from hermes.llm.provider_spec import overlay_quirks

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
_HELLO = "Say hello in one short sentence."
_HELLO_CALLS = 3
"""Model calls: hello takes one, and a small model may try a tool first."""
_HELLO_SECONDS = 60.0

Prepare: TypeAlias = Callable[[str, Transport], Awaitable[None]]
"""Makes the endpoint at an address ready to be called."""


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


class Greeting(Struct, frozen=True):
    """How a first conversation went. `error` is empty when the model answered."""

    error: str = ""
    text: str = ""
    session: str = ""
    provider: str = ""
    model: str = ""
    seconds: float = 0.0


class _ProbeHost(SideHost):
    """One conversation of one prompt with one endpoint, and what could be seen of it."""

    def __init__(self, runtime: Runtime, endpoint: ModelEndpoint) -> None:
        super().__init__(runtime.sleep)
        self.client = runtime.agents.client(endpoint)
        self.endpoint = endpoint
        self.learned: dict[Target, EndpointLessons] = {}
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
        meter = Meter(runtime.store, runtime.setup.config.budget, account, self.emit, runtime.once)
        turn = Turn(
            system=system,
            history=History((prompt,)),
            host=self,
            learned=self.learned,
            meter=meter,
        )
        agent = Agent((self.client,), specs=(_REPORT,) if tools else (), limits=TurnLimits(tries=2))
        try:
            return await sample_message(agent, turn, Attempt(settings)), turn, "", ""
        except TurnStopped as stop:
            if stop.code in _ANSWERED:
                return stop.message or Message("assistant", ()), turn, stop.code, ""
            return None, turn, stop.code, stop.error

    @override
    def remember_limits(
        self, endpoint: ModelClient, context: int | None, output: int | None
    ) -> None:
        self._runtime.agents.remember_limits(endpoint, context, output)

    @override
    def emit(self, event: TurnEvent) -> None:
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
    run = _ProbeHost(runtime, endpoint)
    prompt = user_message("Reply with the word OK.")
    answer, turn, code, error = await run.ask(prompt, Settings(max_output=64))
    return run.trial(turn, error=error, code=code, text=answer.text if answer else "")


async def examine(runtime: Runtime, endpoint: ModelEndpoint, *, cache: bool = False) -> Trial:
    """What works: one call that tries everything at once, in the way the agent makes its calls;
    with `cache` it is made twice, with a prompt long enough to be cached."""
    run = _ProbeHost(runtime, endpoint)
    quirks = endpoint.quirks
    pictured = quirks.media and endpoint.facts.images is not False
    prompt = user_message(_ASK, *((Media("image/png", red_square()),) if pictured else ()))
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
        return parse_arguments(call.args).values()
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


async def greet(setup: Setup, choice: ModelChoice, prepare: Prepare) -> Greeting:
    """One real turn with exactly this model, through everything a conversation goes through; it is
    stored as a session when the model answered."""
    config = setup.config
    agent = structs.replace(config.agent, api_max_retries=1)
    config = structs.replace(config, fallback_providers=(), agent=agent)
    try:
        async with Runtime.open(structs.replace(setup, config=config)) as runtime:
            return await _greet(runtime, choice, prepare)
    except HermesError as error:
        return Greeting(str(error))


async def _greet(runtime: Runtime, choice: ModelChoice, prepare: Prepare) -> Greeting:
    options = Options(choice=choice, max_turns=_HELLO_CALLS)
    session = await runtime.session(cwd=runtime.folder, options=options)
    endpoint = session.agent.providers[0]
    await prepare(endpoint.endpoint.base_url, runtime.transport)
    limit = None if endpoint.endpoint.base_url.startswith(EMBEDDED) else _HELLO_SECONDS
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit):
            result = await session.submit(user_message(_HELLO))
    except TimeoutError:
        result = TurnResult(status="failed", error=f"No answer in {_HELLO_SECONDS:.0f} s.")
    seconds = time.monotonic() - began
    target, answered = endpoint.target, bool(result.text.strip())
    if answered and result.status in ("completed", "partial"):
        return Greeting("", result.text, session.id, target.provider, target.model, seconds)
    await session.close()
    await runtime.store.sessions.delete(session.id)  # a failed test is not a conversation
    error = result.error or "The answer was empty."
    return Greeting(f"{target.provider}:{target.model} does not work: {error}")

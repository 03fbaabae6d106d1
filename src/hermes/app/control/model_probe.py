"""Tests a model with real calls: whether it answers, and which features work."""

import asyncio
import time
from base64 import b64decode
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
from hermes.app.session_host import SharedServices
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

FeatureState: TypeAlias = Literal["yes", "no", "unknown"]
FEATURES = ("streaming", "tools", "images", "reasoning", "cache")
_ANSWERED = ("output_truncated", "thinking_exhausted", "empty_response")
"""Failures that still show that the model was reached and accepted the key."""
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
"""Some endpoints refuse a request without a system prompt."""
_RED_SQUARE = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAKklEQVR4nGN4ICBAU8QwasGoBaMWjFowasGoBaMWjFow"
    "asGoBaMWDBULALgcAD1rtB2cAAAAAElFTkSuQmCC"
)
"""A PNG of 32 by 32 pixels."""
_COLOURS = ("red", "crimson", "scarlet")
_LONG = "\n".join(f"Rule {n}: answer briefly and do only what is asked." for n in range(400))
"""Long enough for every provider to cache it."""
_HELLO = "Say hello in one short sentence."
_HELLO_CALLS = 3
"""A greeting takes one model call, but a small model may try a tool first."""
_HELLO_SECONDS = 60.0

PrepareEndpoint: TypeAlias = Callable[[str, Transport], Awaitable[None]]
"""Makes the endpoint at a base URL ready to be called."""


class Feature(Struct, frozen=True):
    name: str
    state: FeatureState
    note: str = ""


class ModelTrial(Struct, frozen=True):
    """The result of testing a model; `error` is empty when it answered."""

    target: Target
    base_url: str
    key: str
    """Where the key came from."""
    error: str = ""
    code: str = ""
    text: str = ""
    seconds: float = 0.0
    first: float | None = None
    """Seconds until the first event arrived."""
    usage: Usage = Usage()
    features: tuple[Feature, ...] = ()
    notes: tuple[str, ...] = ()


class Greeting(Struct, frozen=True):
    """The result of a first call; `error` is empty when the model answered."""

    error: str = ""
    text: str = ""
    provider: str = ""
    model: str = ""
    seconds: float = 0.0


class _ProbeHost(SideHost):
    """Asks one endpoint and observes its turns: what they used, said and failed with."""

    def __init__(self, services: SharedServices, endpoint: ModelEndpoint) -> None:
        super().__init__(services.sleep)
        self.learned: dict[Target, EndpointLessons] = {}
        self.usage = Usage()
        self._services = services
        self._client = services.agents.get_client(endpoint)
        self._code = self._error = ""
        self._notes: list[str] = []
        self._began = time.monotonic()
        self._first_seconds: float | None = None

    async def ask_model(
        self, prompt: Message, settings: Settings, *, system: str = _SYSTEM, tools: bool = False
    ) -> Message | None:
        """The answer; None when the model could not be reached or refused."""
        services, account = self._services, Account(purpose="test")
        turn = Turn(
            system=system,
            history=History((prompt,)),
            host=self,
            learned=self.learned,
            meter=Meter(services.store, services.budget, account, self.emit, services.say_once),
        )
        agent = Agent(
            (self._client,), specs=(_REPORT,) if tools else (), limits=TurnLimits(tries=2)
        )
        self._code = self._error = ""
        try:
            return await sample_message(agent, turn, Attempt(settings))
        except TurnStopped as stop:
            self._code = stop.code
            if stop.code in _ANSWERED:
                return stop.message or Message("assistant", ())
            self._error = stop.text.error
            return None
        finally:
            self.usage += turn.usage

    @override
    def remember_limits(self, client: ModelClient, context: int | None, output: int | None) -> None:
        self._services.agents.remember_limits(client, context, output)

    @override
    def remember_calling(self, client: ModelClient, calling: str) -> None:
        self._services.agents.remember_calling(client, calling)

    @override
    def emit(self, event: TurnEvent) -> None:
        if isinstance(event, Notice):
            self._notes.append(event.text)
        elif self._first_seconds is None:
            self._first_seconds = time.monotonic() - self._began

    def build_trial(self, answer: Message | None, features: tuple[Feature, ...] = ()) -> ModelTrial:
        return ModelTrial(
            self._client.target,
            self._client.endpoint.base_url,
            self._client.credentials.key_source,
            error=self._error,
            code=self._code,
            text=answer.text if answer else "",
            seconds=time.monotonic() - self._began,
            first=self._first_seconds,
            usage=self.usage,
            features=features,
            notes=tuple(self._notes),
        )


async def ping_model(services: SharedServices, endpoint: ModelEndpoint) -> ModelTrial:
    """Make the cheapest call that shows whether the key is accepted."""
    host = _ProbeHost(services, endpoint)
    prompt = user_message("Reply with the word OK.")
    return host.build_trial(await host.ask_model(prompt, Settings(max_output=64)))


async def examine_model(
    services: SharedServices, endpoint: ModelEndpoint, *, cache: bool = False
) -> ModelTrial:
    """Test every feature in one call, made the way the agent makes its calls; with `cache` it is
    made twice, with a prompt long enough to be cached."""
    host = _ProbeHost(services, endpoint)
    quirks = endpoint.quirks
    with_image = quirks.media and endpoint.facts.images is not False
    images = [Media("image/png", _RED_SQUARE)] if with_image else []
    prompt = user_message(_ASK, *images)
    settings = Settings(max_output=1024, effort="low" if quirks.effort != "omit" else None)
    system = _LONG if cache else _SYSTEM
    answer = await host.ask_model(prompt, settings, system=system, tools=True)
    if answer is not None and cache:
        answer = await host.ask_model(prompt, settings, system=system, tools=True)
    if answer is None:
        return host.build_trial(None)
    lessons = host.learned.get(endpoint.target, EndpointLessons())
    quirks = overlay_quirks(quirks, lessons.quirks)
    features = (
        Feature("streaming", "yes" if quirks.stream else "no"),
        _judge_tools(quirks.tools, answer),
        _judge_images(quirks.media and with_image, endpoint, answer),
        _judge_reasoning(quirks.effort, answer, host.usage),
        _judge_cache(host.usage, asked=cache),
    )
    return host.build_trial(answer, features)


def _judge_tools(offered: bool, answer: Message) -> Feature:
    if not offered:
        return Feature("tools", "no", "not supported by the endpoint")
    if answer.calls:
        return Feature("tools", "yes")
    return Feature("tools", "unknown", "offered, but the model called none")


def _judge_images(sent: bool, endpoint: ModelEndpoint, answer: Message) -> Feature:
    if not sent:
        refusing = "model" if endpoint.facts.images is False else "endpoint"
        return Feature("images", "no", f"not supported by the {refusing}")
    answered = " ".join(
        [answer.text, *(str(v) for c in answer.calls for v in _list_arguments(c))]
    ).lower()
    if any(colour in answered for colour in _COLOURS):
        return Feature("images", "yes")
    return Feature("images", "unknown", "accepted, but the model did not say what it saw")


def _list_arguments(call: ToolCall) -> Collection[Any]:
    try:
        return parse_arguments(call.args).values()
    except BadArguments:
        return (call.args,)


def _judge_reasoning(effort: str, answer: Message, usage: Usage) -> Feature:
    if usage.reasoning or any(isinstance(part, Thinking) for part in answer.parts):
        return Feature("reasoning", "yes")
    if effort == "omit":
        return Feature("reasoning", "no", "not offered")
    return Feature("reasoning", "unknown", "requested, but none came back")


def _judge_cache(usage: Usage, *, asked: bool) -> Feature:
    if usage.cache_read or usage.cache_write:
        return Feature(
            "cache", "yes", f"{usage.cache_read} tokens read, {usage.cache_write} written"
        )
    if asked:
        return Feature("cache", "no", "none reported for the same prompt sent twice")
    return Feature("cache", "unknown", "the prompt is too short to tell; --cache sends a long one")


async def greet_model(setup: Setup, choice: ModelChoice, prepare: PrepareEndpoint) -> Greeting:
    """Run one real turn with exactly this model, on the same path as any conversation; nothing of
    it is kept."""
    config = setup.config
    agent = structs.replace(config.agent, api_max_retries=1)
    config = structs.replace(config, fallback_providers=(), agent=agent)
    try:
        async with Runtime.open(structs.replace(setup, config=config)) as runtime:
            return await _run_greeting(runtime, choice, prepare)
    except HermesError as error:
        return Greeting(str(error))


async def _run_greeting(
    runtime: Runtime, choice: ModelChoice, prepare: PrepareEndpoint
) -> Greeting:
    options = Options(choice=choice, max_turns=_HELLO_CALLS)
    session = await runtime.open_session(cwd=runtime.working_folder, options=options)
    client = session.agent.providers[0]
    base_url = client.endpoint.base_url
    await prepare(base_url, runtime.transport)
    limit = None if base_url.startswith(EMBEDDED) else _HELLO_SECONDS
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit):
            result = await session.submit(user_message(_HELLO))
    except TimeoutError:
        result = TurnResult(status="failed", error=f"No answer within {_HELLO_SECONDS:.0f} s.")
    seconds = time.monotonic() - began
    target, answered = client.target, bool(result.text.strip())
    await session.close()
    await runtime.store.sessions.delete(session.id)  # a test is not a conversation
    if answered and result.status in ("completed", "partial"):
        return Greeting("", result.text, target.provider, target.model, seconds)
    error = result.error or "The answer was empty."
    return Greeting(f"{target.provider}:{target.model} does not work: {error}")

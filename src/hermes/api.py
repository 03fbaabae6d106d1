"""Hermes as a library: run turns, read events, bring tools, answer approvals, resume sessions."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar, cast, overload

from msgspec import Struct, structs
from typing_extensions import override

from hermes.agent.json_repair import BadArguments, parse_arguments
from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.app.session import Session as LiveSession
from hermes.app.structured_output import OutputError, PromptRun, build_format
from hermes.config.env import get_environment
from hermes.config.load import Setup, load_setup
from hermes.config.schema import Count, Dollars
from hermes.config.validate import field_types, find_wrong_option
from hermes.core import events, message
from hermes.core.errors import ConfigError, HermesError, StoreError, ToolError
from hermes.core.events import Notice, Question, TextDelta
from hermes.core.provider import Effort
from hermes.core.wire_names import WireName
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.tools._python_function import FunctionOptions, call_function, make_tool

__all__ = [
    "Agent", "ApprovalRequest", "ConfigError", "Decision", "ErrorInfo", "Event", "HermesError",
    "Notice", "OutputError", "Question", "ReasoningDelta", "Recovering", "Result", "Session",
    "StoreError", "TextDelta", "ToolCall", "ToolCompleted", "ToolError", "ToolStarted",
    "TurnError", "Usage", "run_sync", "tool",
]  # fmt: skip

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Folder: TypeAlias = str | PathLike[str]
ApprovalMode: TypeAlias = Literal["ask", "smart", "never-ask"]
Decision: TypeAlias = bool | Literal["once", "session", "deny"]
"""True and "once" allow a call, "session" also allows similar calls until the session is closed."""
_SOURCE = "library"
_FOLDER = (str, PathLike, "a path")
_FUNCTION = (Callable, "a function")
_OPTION_TYPES: dict[str, Any] = {
    **dict.fromkeys(("model", "provider", "base_url", "api_key_env", "api_mode", "profile"), str),
    "instructions": str,
    "toolsets": tuple[str, ...],
    "tools": (Iterable, "a list of functions"),
    "cwd": _FOLDER,
    "home": _FOLDER,
    "max_turns": Count,
    "effort": Effort,
    "budget_usd": Dollars,
    "approvals": ApprovalMode,
    "yolo": bool,
    "approve": _FUNCTION,
    "ask": _FUNCTION,
}
"""What each option of an Agent may be, besides None."""

log = logging.getLogger("hermes")
log.addHandler(logging.NullHandler())


class ReasoningDelta(Struct, frozen=True):
    """The next piece of what the model thinks, where the provider shows it."""

    text: str


class ToolStarted(Struct, frozen=True):
    """The model called a tool."""

    id: str
    name: str
    arguments: dict[str, Any]


class ToolCompleted(Struct, frozen=True):
    """A tool call ended; `result` is what the model sees of it."""

    id: str
    name: str
    result: str
    error: bool
    duration_ms: int


class ApprovalRequest(Struct, frozen=True):
    """A tool call needs approval: `Agent(approve=...)` answers it."""

    id: str
    tool: str
    arguments: dict[str, Any]
    reason: str
    """Why approval is needed."""
    command: str
    """The exact text a shell would run; empty when the call runs no command."""
    choices: tuple[str, ...]
    """What may be answered; "session" is not always among them."""


class Recovering(Struct, frozen=True):
    """A model call failed: what went wrong, and what is done about it after `wait_seconds`."""

    kind: str
    action: str
    wait_seconds: float


class ErrorInfo(Struct, frozen=True):
    """Why a turn did not complete: a stable code, and a sentence for people."""

    code: str
    message: str
    detail: str = ""
    """The provider's complete message, if there is one."""


class ToolCall(Struct, frozen=True):
    """A tool call of a turn; `result` is None when it has none."""

    id: str
    name: str
    arguments: dict[str, Any]
    result: str | None
    error: bool


class Usage(Struct, frozen=True):
    """Tokens of a turn. `input_tokens` counts whole prompts, cached parts included."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int


class Result(Struct, Generic[T], frozen=True, kw_only=True):
    """How a turn ended: what `run` returns, and the last event of `stream`."""

    session_id: str
    status: Literal["completed", "partial", "failed", "interrupted"]
    """`partial`: it had to end early, and `text` is what there is."""
    text: str
    reasoning: str
    error: ErrorInfo | None
    """None when the turn completed."""
    tool_calls: tuple[ToolCall, ...]
    model_calls: int
    usage: Usage
    cost_usd: float | None
    """None when the price is not known."""
    model: str
    provider: str
    _output: T | None

    @property
    def output(self) -> T:
        """The answer as the requested type, or its text; TurnError unless the turn completed."""
        self.raise_for_status()
        return cast("T", self._output)

    def raise_for_status(self) -> Self:
        """Raise TurnError unless the turn completed; return the result itself."""
        if self.error is not None:
            raise TurnError(self.error, self)
        return self


class TurnError(HermesError):
    """A turn did not complete: `code` says why, and `result` is what there is."""

    def __init__(self, error: ErrorInfo, result: Result[Any]) -> None:
        super().__init__(error.message)
        self.code = error.code
        self.result = result


Event: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolStarted
    | ToolCompleted
    | ApprovalRequest
    | Question
    | Notice
    | Recovering
    | Result[Any]
)
"""Everything a stream may yield; the last event is the Result."""
Approve: TypeAlias = Callable[[ApprovalRequest], Decision | Awaitable[Decision]]
Ask: TypeAlias = Callable[[Question], str | Awaitable[str | None] | None]


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    risk: Literal["read", "write", "network"] = "read",
    needs_approval: bool = False,
    timeout: float = 600.0,
) -> Callable[[F], F]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Say how a function is used as a tool; it can still be called as before.

    Args:
        name: The name of the tool; by default that of the function.
        description: What it does; by default the docstring says so.
        risk: "read" runs freely. "network" can send data out: it needs approval once the session
            has read private data and untrusted text. "write" changes something: it needs approval.
        needs_approval: Every call needs approval.
        timeout: Seconds until a call is given up.

    Raises:
        TypeError: An option cannot be used.
    """
    if wrong := find_wrong_option(field_types(FunctionOptions), options):
        raise TypeError(f"@hermes.tool: {wrong}")

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__hermes_tool__ = FunctionOptions(**options)  # type: ignore[attr-defined]
        return function

    return mark if function is None else mark(function)


class _Runner:
    def stream(self, prompt: str, *, output: Any = str) -> AsyncGenerator[Event, None]:
        """Run one turn and yield its events; the last one is the Result.

        Leaving the loop, closing the generator or cancelling the task stops the turn. What was
        said and done until then stays in the session.

        Args:
            prompt: What the user says.
            output: The type of the answer: a msgspec Struct, a dataclass, a TypedDict or any other
                type that msgspec reads from JSON. By default the answer is text.

        Raises:
            OutputError: The answer does not fit `output`, although the model was asked again.
        """
        raise NotImplementedError

    @overload
    async def run(self, prompt: str) -> Result[str]: ...
    @overload
    async def run(self, prompt: str, *, output: type[T]) -> Result[T]: ...
    @overload
    async def run(self, prompt: str, *, output: Any) -> Result[Any]: ...
    async def run(self, prompt: str, *, output: Any = str) -> Result[Any]:
        """Run one turn to its end, as `stream` does. A turn that fails returns a result, too: see
        `Result.status`, `Result.error` and `Result.raise_for_status`."""
        async with aclosing(self.stream(prompt, output=output)) as stream:
            async for event in stream:
                if isinstance(event, Result):
                    return event
        raise AssertionError("a stream ends with its result")


class Session(_Runner):
    """A conversation, made by `Agent.session`. Its turns run one after the other."""

    def __init__(self, live: LiveSession, approve: Approve | None, ask: Ask | None) -> None:
        self._live = live
        self._approve = approve
        self._ask = ask
        self._note = live.agent.note
        self._failure: BaseException | None = None
        live.interactions.user_present = approve is not None
        live.interactions.on_approval = self._answer_approval if approve else None
        live.interactions.on_question = self._answer_question if ask else None

    @property
    def id(self) -> str:
        """What `Agent.session(resume=...)` and `hermes --resume` take."""
        return self._live.id

    @override
    async def stream(self, prompt: str, *, output: Any = str) -> AsyncGenerator[Event, None]:
        _check_text("The prompt", prompt)
        run = PromptRun(self._live, message.user_message(prompt), build_format(output))
        if self._note:
            yield Notice("model", self._note)
            self._note = ""
        try:
            async with aclosing(run.stream_events()) as stream:
                async for event in stream:
                    if (public := _publish_event(event)) is not None:
                        yield public
        finally:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        yield _make_result(self._live, run)

    def steer(self, text: str) -> bool:
        """Guide the running turn: the model reads this after its current step, or as the next
        message if that was the last one. False, and nothing happens, when no turn is running."""
        _check_text("The text", text)
        if not self._live.is_steerable:
            return False
        self._live.submit(message.user_message(text), "steer")
        return True

    def interrupt(self) -> None:
        """Stop the running turn; its result says "interrupted". What it had not read of `steer`
        comes before the next prompt."""
        self._live.stop()

    async def _answer_approval(self, approval: events.Approval) -> events.Answer:
        parse = partial(_parse_decision, choices=approval.choices)
        return await self._call_back(self._approve, _publish_event(approval), parse) or "deny"

    async def _answer_question(self, question: Question) -> str | None:
        return await self._call_back(self._ask, question, lambda r: None if r is None else str(r))

    async def _call_back(
        self, answer: Callable[..., Any] | None, question: Any, parse: Callable[[Any], T]
    ) -> T | None:
        """Ask the program; what it raises ends the turn, and is raised where it waits for it."""
        assert answer is not None
        try:
            return parse(await call_function(answer, question))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised by `stream`
            self._failure = error
            self._live.interrupt()
            return None


class Agent(_Runner):
    """Hermes, set up as the user configured it except for the options given here.

    Open it with `async with hermes.Agent() as agent`. Its `run` and `stream` begin a new session
    for each prompt; `session` is for conversations.

    Args:
        model: The model, or "provider:model".
        provider: The provider; "custom" for a `base_url`.
        base_url: The address of the endpoint.
        api_key_env: The environment variable that holds the key.
        api_mode: The protocol of the endpoint.
        toolsets: Which built-in tools to use, by name or toolset; an empty list for none.
        tools: Functions that the model may call (see `tool`). Those that are not async run in
            threads. What they raise is shown to the model.
        instructions: Text added to the system prompt.
        cwd: The folder to work in.
        home: The folder of settings, keys and sessions, in place of HERMES_HOME.
        profile: The profile in that folder.
        max_turns: The most model calls a turn may make.
        effort: How much the model thinks.
        budget_usd: The most a session may cost, in place of budget.session_usd.
        approvals: Who decides what needs approval: "ask" calls `approve`, "smart" asks a model
            first, "never-ask" asks nobody and runs only what the sandbox confines.
        yolo: Turn approvals and the sandbox off.
        approve: A function that answers approvals. Without one the answer is no.
        ask: A function that answers the model's questions; it may return None.

    Raises:
        TypeError: A function cannot be used as a tool.
        ConfigError: An option has a wrong value. `async with` raises it, too, when the
            configuration cannot be used.
    """

    def __init__(  # noqa: PLR0913 - a keyword per option
        self,
        *,
        model: str | None = None,
        provider: str | None = None,
        base_url: str | None = None,
        api_key_env: str | None = None,
        api_mode: WireName | None = None,
        toolsets: Sequence[str] | None = None,
        tools: Sequence[Callable[..., Any]] = (),
        instructions: str = "",
        cwd: Folder | None = None,
        home: Folder | None = None,
        profile: str | None = None,
        max_turns: int | None = None,
        effort: Effort | None = None,
        budget_usd: float | None = None,
        approvals: ApprovalMode | None = None,
        yolo: bool = False,
        approve: Approve | None = None,
        ask: Ask | None = None,
    ) -> None:
        if wrong := find_wrong_option(_OPTION_TYPES, locals()):
            raise ConfigError(wrong)
        choice = (model, provider, base_url, api_key_env, api_mode)
        self._options = Options(
            choice=ModelChoice(*(value or "" for value in choice)),
            toolsets=None if toolsets is None else tuple(toolsets),
            max_turns=max_turns,
            yolo=yolo,
            effort=effort,
        )
        self._load_setup = partial(
            _load_setup,
            profile or "",
            home,
            api_key_env or "",
            terminal={"cwd": None if cwd is None else str(cwd)},
            approvals={"mode": approvals},
            budget={"session_usd": budget_usd},
        )
        default = FunctionOptions()
        self._tools = tuple(make_tool(f, getattr(f, "__hermes_tool__", default)) for f in tools)
        names = [tool.name for tool in self._tools]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise TypeError(
                f"Two tools are named {twice}. Set another with @hermes.tool(name=...)."
            )
        self._instructions = instructions
        self._approve = approve
        self._ask = ask
        self._runtime: Runtime | None = None
        self._folder = Path()
        self._sessions: set[LiveSession] = set()
        self._closer = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._runtime is not None:
            raise RuntimeError("The agent is open already.")
        async with AsyncExitStack() as stack:
            setup = self._load_setup()
            runtime = await stack.enter_async_context(Runtime.open(setup))
            for warning in setup.warnings:
                log.warning("%s", warning)
            runtime.agents.own_tools = self._tools
            # What cannot be used is said now, not by the first turn.
            self._folder = runtime.working_folder
            runtime.agents.get_agent(await runtime.agents.choose_model(self._options), _SOURCE)
            self._closer = stack.pop_all()
        self._runtime = runtime
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._runtime = None
        async with self._closer:
            for live in list(self._sessions):
                await live.close()

    @asynccontextmanager
    async def session(self, *, resume: str | None = None) -> AsyncIterator[Session]:
        """A new conversation, or the stored one with this id; ConfigError when there is none."""
        runtime = self._runtime
        if runtime is None:
            raise RuntimeError("Open the agent first: async with hermes.Agent() as agent")
        if resume is not None:
            _check_text("resume", resume)
        live = await runtime.open_session(
            resume=resume or "", source=_SOURCE, cwd=self._folder, options=self._options
        )
        live.host.instructions = self._instructions
        self._sessions.add(live)
        try:
            yield Session(live, self._approve, self._ask)
        finally:
            self._sessions.discard(live)
            await asyncio.shield(runtime.spawn_task(live.close(), f"close {live.id}"))

    @override
    async def stream(self, prompt: str, *, output: Any = str) -> AsyncGenerator[Event, None]:
        async with (
            self.session() as session,
            aclosing(session.stream(prompt, output=output)) as stream,
        ):
            async for event in stream:
                yield event


@overload
def run_sync(prompt: str, *, agent: Agent | None = None) -> Result[str]: ...
@overload
def run_sync(prompt: str, *, output: type[T], agent: Agent | None = None) -> Result[T]: ...
@overload
def run_sync(prompt: str, *, output: Any, agent: Agent | None = None) -> Result[Any]: ...
def run_sync(prompt: str, *, output: Any = str, agent: Agent | None = None) -> Result[Any]:
    """Run one turn in a new session, from code that is not async.

    Args:
        prompt: What the user says.
        output: The type of the answer (see `Agent.stream`).
        agent: An agent that is not open; by default the configured one.
    """

    async def run() -> Result[Any]:
        async with agent or Agent() as opened:
            return await opened.run(prompt, output=output)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    raise RuntimeError("run_sync cannot be used inside an event loop. Use: await agent.run(...)")


def _load_setup(profile: str, home: Folder | None, key: str, **changes: dict[str, Any]) -> Setup:
    """The user's configuration with other settings in some sections; None: as configured."""
    environ = get_environment() if home is None else {**get_environment(), "HERMES_HOME": str(home)}
    setup = load_setup(profile, environ, keys=[key] if key else [])
    for name, settings in changes.items():
        new = {key: value for key, value in settings.items() if value is not None}
        section = structs.replace(getattr(setup.config, name), **new)
        setup = structs.replace(setup, config=structs.replace(setup.config, **{name: section}))
    return setup


def _check_text(what: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {value!r}.")


def _parse_decision(decision: Any, *, choices: Sequence[str]) -> events.Answer:
    match decision:
        case bool():
            return "once" if decision else "deny"
        case "session":
            return "session" if "session" in choices else "once"
        case "once" | "deny":
            return cast("events.Answer", decision)
    raise TypeError(
        f'approve returned {decision!r}. It must return True, False, "once", "session" or "deny".'
    )


def _publish_event(event: events.TurnEvent) -> Event | None:
    """The public form of an event; None for one that is not shown."""
    match event:
        case TextDelta() | Question() | Notice():
            return event
        case events.ThinkingDelta(text=text):
            return ReasoningDelta(text)
        case events.ToolStarted(call=call):
            return ToolStarted(call.id, call.name, _parse_arguments(call))
        case events.ToolDone(result=done, duration=seconds):
            took = round(seconds * 1000)
            return ToolCompleted(done.call_id, done.name, done.text, done.error, took)
        case events.Approval(id=id, call=call, summary=reason, command=command):
            choices = tuple(choice for choice in event.choices if choice != "always")
            return ApprovalRequest(id, call.name, _parse_arguments(call), reason, command, choices)
        case events.Recovering(kind=kind, action=action, wait=wait):
            return Recovering(kind, action, wait)
        case _:
            return None


def _parse_arguments(call: message.ToolCall) -> dict[str, Any]:
    try:
        return parse_arguments(call.args)
    except BadArguments:
        return {}


def _describe_error(result: events.TurnResult) -> ErrorInfo:
    return ErrorInfo(result.error_code, result.error, result.error_detail)


def _make_result(live: LiveSession, run: PromptRun[T]) -> Result[T]:
    """The end of the last turn, with what all turns did and used."""
    last = run.results[-1]
    used = sum((result.usage for result in run.results), message.Usage())
    target = last.target or live.agent.providers[0].target
    messages = [each for result in run.results for each in result.messages]
    returns = [p for m in messages for p in m.parts if isinstance(p, message.ToolReturn)]
    done = {part.call_id: (part.text, part.error) for part in returns}
    return Result(
        session_id=live.id,
        status=last.status,
        text=last.text,
        reasoning=last.reasoning,
        error=None if last.status == "completed" else _describe_error(last),
        tool_calls=tuple(
            ToolCall(call.id, call.name, _parse_arguments(call), *done.get(call.id, (None, True)))
            for each in messages
            for call in each.calls
        ),
        model_calls=sum(result.model_calls for result in run.results),
        usage=Usage(used.input, used.output, used.cache_read, used.cache_write, used.reasoning),
        cost_usd=used.cost,
        model=target.model,
        provider=target.provider,
        _output=run.output,
    )

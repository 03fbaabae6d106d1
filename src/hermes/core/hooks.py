"""Hooks: functions of plugins and commands of the operator that see tools, calls and sessions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct, structs

from hermes.core.errors import HermesError
from hermes.core.message import Message, Text, ToolCall
from hermes.core.text import describe_exception, take_text

log = logging.getLogger(__name__)

HOOK_KEYWORDS: dict[str, tuple[str, ...]] = {
    "pre_tool_call": ("tool_name", "args", "tool_call_id"),
    "transform_terminal_output": ("command", "output", "returncode", "env_type"),
    "transform_tool_result": (
        *("tool_name", "args", "result", "status", "error_message", "duration_ms"),
        "tool_call_id",
    ),
    "post_tool_call": (
        *("tool_name", "args", "result", "status", "error_message", "duration_ms"),
        "tool_call_id",
    ),
    "pre_llm_call": ("user_message", "is_first_turn", "model"),
    "post_llm_call": ("user_message", "is_first_turn", "model", "assistant_response"),
    "pre_api_request": ("model", "provider"),
    "post_api_request": ("model", "provider", "usage", "duration_ms"),
    "pre_gateway_dispatch": ("chat_id", "user_id", "text", "message_id"),
    "on_session_start": ("model",),
    "on_session_end": ("completed", "interrupted"),
    "on_session_reset": ("new_session_id", "reason"),
    "subagent_start": ("child_session_id", "child_goal"),
    "subagent_stop": ("child_session_id", "child_goal", "child_status", "child_summary"),
    "pre_approval_request": ("command",),
    "post_approval_response": ("command", "choice"),
}
"""Every hook and its keywords, besides session_id and platform."""
UNCALLED_HOOKS = frozenset(
    "api_request_error kanban_task_blocked kanban_task_claimed kanban_task_completed "
    "on_session_finalize pre_verify transform_llm_output".split()
)
"""Hooks of the original that nothing calls here; its plugins may still name them."""
MAX_FAULTS = 3
MAX_CONTEXT = 4_000
"""Characters that one hook may add to a user's message."""
MAX_TEXT = 1_000_000
"""Characters of a text that a hook may put in place of another."""
T = TypeVar("T")
HookCall: TypeAlias = Callable[[dict[str, Any], Path], Awaitable[Any]]
Parse: TypeAlias = Callable[[Any], T]


class HookFailure(HermesError):
    """A hook that the operator requires has failed; what it watches over must not go on."""


class HookOwner:
    """A plugin or a command of the operator. After three faults its hooks are not called any
    more."""

    def __init__(self, label: str, *, required: bool = False) -> None:
        self.label = label
        """How messages call it, such as `Plugin notes`."""
        self.required = required
        self.faults = 0
        self.last_fault = ""

    @property
    def is_off(self) -> bool:
        return self.faults >= MAX_FAULTS

    def note_fault(self, reason: str) -> str:
        """Count a fault; what to tell people when it was the last one."""
        self.faults += 1
        self.last_fault = reason
        log.warning("%s: %s", self.label, reason)
        if self.faults != MAX_FAULTS:
            return ""
        return f"{self.label} was switched off after {MAX_FAULTS} faults: {reason}"

    def raise_if_required(self) -> None:
        """HookFailure if nothing may go on without it."""
        if self.required:
            raise HookFailure(f"{self.label} is required and failed: {self.last_fault}")


class Hook(Struct, frozen=True):
    owner: HookOwner
    call: HookCall
    """Gets the keywords and the session's folder; what it returns is checked by its caller."""
    seconds: float
    """How long it may take."""
    matches: Callable[[dict[str, Any]], bool] = lambda keywords: True
    """Whether it wants to see these keywords."""


class ToolDecision(Struct, frozen=True):
    """What a hook says about a call before it runs."""

    action: Literal["block", "approve"]
    message: str


class DispatchDecision(Struct, frozen=True):
    """What a hook says about a message of a chat."""

    action: Literal["skip", "rewrite"]
    text: str = ""


class HookTable:
    """The hooks of a process, each name's in the order in which they are called."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Hook]] = {}

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def add_hook(self, name: str, hook: Hook) -> None:
        self._hooks.setdefault(name, []).append(hook)

    def list_hooks(self, name: str) -> tuple[Hook, ...]:
        return tuple(self._hooks.get(name, ()))

    def list_names(self) -> tuple[str, ...]:
        return tuple(self._hooks)


class HookedSession(Struct, frozen=True):
    """What hooks are told about a session, and how its people are reached."""

    platform: str
    cwd: Path
    env_type: str
    """Where commands run: local, docker or ssh."""
    get_id: Callable[[], str]
    tell: Callable[[str, str], None]
    """Shows its people a notice: its code and its text."""
    confirm: Callable[[ToolCall, str, str], Awaitable[bool | None]]
    """A person's yes or no to a call; None when nobody can be asked or answers."""


class SessionHooks:
    """The hooks of a process as one session calls them."""

    def __init__(self, table: HookTable, session: HookedSession) -> None:
        self.session = session
        self._table = table

    def has_hooks(self, *names: str) -> bool:
        return any(self._table.list_hooks(name) for name in names)

    async def notify(self, name: str, **keywords: Any) -> None:
        """Call every hook of this name; none of them has anything to say. Never fails."""
        await self.ask_all(name, parse_nothing, **keywords)

    async def ask_first(self, name: str, parse: Parse[T], **keywords: Any) -> T | None:
        """What the first hook says that says anything. HookFailure when a required one fails."""
        for hook in self._table.list_hooks(name):
            answer = await self._call_hook(name, hook, parse, keywords)
            if answer is not None:
                return answer
        return None

    async def ask_all(self, name: str, parse: Parse[T], **keywords: Any) -> list[T]:
        """What all hooks say. Never fails."""
        answers = []
        for hook in self._table.list_hooks(name):
            with suppress(HookFailure):
                answer = await self._call_hook(name, hook, parse, keywords)
                if answer is not None:
                    answers.append(answer)
        return answers

    async def _call_hook(
        self, name: str, hook: Hook, parse: Parse[T], keywords: dict[str, Any]
    ) -> T | None:
        owner, session = hook.owner, self.session
        if owner.is_off:
            owner.raise_if_required()
            return None
        keywords = {"session_id": session.get_id(), "platform": session.platform, **keywords}
        if not hook.matches(keywords):
            return None
        try:
            async with asyncio.timeout(hook.seconds):
                value = await hook.call(keywords, session.cwd)
            return None if value is None else parse(value)
        except TimeoutError:
            reason = f"{name} took more than {hook.seconds:g} s"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the code of others
            reason = f"{name}: {describe_exception(error)}"
        if text := owner.note_fault(reason):
            session.tell("plugin", text)
        owner.raise_if_required()
        return None


def parse_nothing(value: Any) -> None:
    raise TypeError(f"it must return nothing, not {type(value).__name__}")


def parse_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"it must return a text or nothing, not {type(value).__name__}")
    text = take_text(value)
    if len(text) > MAX_TEXT:
        raise ValueError(f"it returned {len(text)} characters; at most {MAX_TEXT} are used")
    return text


def parse_decision(value: Any) -> ToolDecision | None:
    """What `pre_tool_call` returns."""
    match value:
        case {"action": "allow"}:
            return None
        case {"action": "block" | "approve" as action}:
            message = value.get("message") or f"a hook wants to {action} it"
            return ToolDecision(action, parse_text(message))
    raise TypeError('it must return {"action": "block" or "approve", "message": ...} or nothing')


def parse_context(value: Any) -> str:
    """What `pre_llm_call` returns."""
    match value:
        case {"context": str(text)}:
            return take_text(text)[:MAX_CONTEXT]
    raise TypeError('it must return {"context": text} or nothing')


def parse_dispatch(value: Any) -> DispatchDecision | None:
    """What `pre_gateway_dispatch` returns."""
    match value:
        case {"action": "allow"}:
            return None
        case {"action": "skip"}:
            return DispatchDecision("skip")
        case {"action": "rewrite", "text": str(text)}:
            return DispatchDecision("rewrite", take_text(text))
    raise TypeError('it must return {"action": "skip"}, {"action": "rewrite", "text": ...} or None')


def check_answer(event: str, value: Any) -> None:
    """TypeError or ValueError for an answer of a hook that would be a fault."""
    parsers: dict[str, Callable[[Any], object]] = {
        "pre_tool_call": parse_decision,
        "transform_terminal_output": parse_text,
        "transform_tool_result": parse_text,
        "pre_llm_call": parse_context,
        "pre_gateway_dispatch": parse_dispatch,
    }
    if value is not None:
        parsers.get(event, parse_nothing)(value)


def add_context(message: Message, contexts: list[str]) -> Message:
    """The message with what hooks add to it."""
    added = "".join(f"\n\n{text}" for text in contexts if text.strip())
    if not added:
        return message
    *parts, last = message.parts or (Text(""),)
    new = (Text(last.text + added),) if isinstance(last, Text) else (last, Text(added.lstrip()))
    return structs.replace(message, parts=(*parts, *new))

"""The host of a turn that is played again: compares messages, returns recorded tool results."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from hermes.agent.compression.compressor import Compressor
from hermes.agent.tool_executor import INTERRUPTED
from hermes.agent.turn import ModelClient, Summarizer
from hermes.app.live.session_tape import ToolTraits
from hermes.app.session_records import find_turn_starts
from hermes.batch.replay.played_tape import PlayedTape
from hermes.core.events import StepStart, ToolDone, TurnEnd, TurnEvent
from hermes.core.history import History
from hermes.core.message import Message, ToolCall, ToolReturn
from hermes.core.provider import ToolSpec
from hermes.core.redaction.redactor import Redactor
from hermes.core.services import Services
from hermes.core.store import SessionMeta, SessionState
from hermes.core.taint import Source
from hermes.core.tool import (
    RawArguments,
    RecordedResult,
    SchemaTool,
    Tool,
    Toolbox,
    ToolContext,
    ToolResult,
    Verdict,
    Workspace,
)
from hermes.core.untrusted_text import SKIPPED, wrapper_mark
from hermes.tools.registry import list_tool_names, load_tool

_MARK = re.compile(r"\[redacted(?::[\w-]+)?\]")


class StoredConversation:
    """A session and those it was compressed into, as the store has them."""

    def __init__(self, parts: Sequence[tuple[SessionMeta, list[Message]]]) -> None:
        self.metas = {meta.id: meta for meta, _ in parts}
        self.messages = {meta.id: messages for meta, messages in parts}


class ComparedHistory(History):
    """A history that holds the stored messages: where only secrets differ, the stored ones are what
    requests were made of."""

    __slots__ = ("_host",)

    def __init__(self, messages: Sequence[Message], *, mark: str, host: ReplayHost) -> None:
        super().__init__(messages, mark=mark)
        self._host = host

    def append(self, message: Message) -> None:
        super().append(self._host.take_stored(message))


class ReplayHost:
    """The TurnHost of a replay. Results of tools are returned in the order in which they were
    recorded, guidance is given and the turn interrupted where it was then."""

    hooks = None
    hands_over = False
    mark_call: Callable[[ToolCall], Awaitable[None]] | None = None

    def __init__(self, conversation: StoredConversation, workspace: Workspace) -> None:
        self.workspace = workspace
        self.events: list[TurnEvent] = []
        self.jitter: Callable[[float, float], float] = random.uniform
        self.is_strict = True
        """Whether usage and origin of messages are compared too."""
        self.tape = PlayedTape((), lambda: None)
        self.session_id = next(iter(conversation.metas))
        self.index = 0
        """Of the message that has to be recorded next."""
        self.end = 0
        """Of the first message behind the turn."""
        self.last_step: int | None = None
        """The step after which nothing more is played; None: all is played."""
        self._stored: dict[int, Message] = {}
        """The stored message for each that was just recorded, by its identity."""
        self.turn_end: Callable[[TurnEnd], TurnEnd] = lambda event: event
        self._conversation = conversation
        self._redactor = Redactor()
        self._moved = asyncio.Condition()
        self._running_interrupted: set[str] = set()
        """Calls that run and were interrupted then."""

    @property
    def messages(self) -> list[Message]:
        """All stored messages of the session that is played now."""
        return self._conversation.messages[self.session_id]

    @property
    def next_message(self) -> Message | None:
        return self.messages[self.index] if self.index < self.end else None

    def begin_turn(self, session_id: str, first: int, end: int, tape: PlayedTape) -> None:
        self.session_id, self.index, self.end, self.tape = session_id, first, end, tape
        self._running_interrupted.clear()

    def make_history(self, messages: Sequence[Message]) -> History:
        return ComparedHistory(messages, mark=wrapper_mark(self.session_id), host=self)

    async def record(
        self, message: Message | None, state: SessionState | None, error: str = ""
    ) -> None:
        if message is None or self.tape.difference is not None:
            return
        if self.tape.is_interrupted and self.tape.steps == self.last_step:
            return
        expected = self.next_message
        if not self._is_same(expected, message):
            recorded = msgspec.json.encode(expected) if expected is not None else b""
            self.tape.note_difference("message", recorded, msgspec.json.encode(message))
            return
        if expected is not None:
            self._stored[id(message)] = expected
        self.index += 1
        async with self._moved:
            self._moved.notify_all()
        if message.role != "tool" and self.tape.is_interrupt_next and self.index == self.end:
            self.tape.interrupt_turn()

    def take_stored(self, message: Message) -> Message:
        """The stored message that this one was compared with."""
        return self._stored.pop(id(message), message)

    def _is_same(self, expected: Message | None, message: Message) -> bool:
        if expected is None:
            return False
        if not self.is_strict:
            expected = structs.replace(expected, usage=None, origin=None, stop=None)
            message = structs.replace(message, usage=None, origin=None, stop=None)
        if expected == message:
            return True
        stored, played = (msgspec.json.encode(m).decode() for m in (expected, message))
        if _fits_redacted(stored, played):
            return True
        return self._redactor.redact(stored) == self._redactor.redact(played)

    def emit(self, event: TurnEvent) -> None:
        if isinstance(event, StepStart):
            if self.tape.steps == self.last_step:
                self.tape.interrupt_turn()
                return
            if not self.tape.begin_step():
                self.tape.is_interrupted = True
                raise asyncio.CancelledError  # at once: a step that began would count
        if isinstance(event, TurnEnd):
            event = self.turn_end(event)
        self.events.append(event)
        is_late = isinstance(event, ToolDone) and self.tape.is_interrupt_next
        if is_late and (self.index == self.end or self._is_batch_cut()):
            self.tape.interrupt_turn()

    def take_steer(self) -> str:
        expected = self.next_message
        if expected is None or expected.kind != "steer":
            return ""
        is_due = self.tape.take_choice("steer") is not None or not self.is_strict
        return expected.text if is_due else ""

    async def approve(
        self, call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...]
    ) -> Verdict:
        result = self._find_result(call.id)
        if result is not None and result.error and result.text == SKIPPED:
            self._check_interrupt()
            await self.tape.wait_stopped()
        return Verdict(True)

    def tool_context(
        self, call: ToolCall, verdict: Verdict, toolbox: Toolbox, progress: Callable[[str], None]
    ) -> ToolContext:
        return ToolContext(call, self.session_id, self.workspace, Services())

    async def run_tool(self, params: Any, ctx: ToolContext) -> ToolResult:
        """Return the recorded result of a call when it is its turn."""
        found = self._find_result(ctx.call.id)
        if found is None:
            text = f"{ctx.call.name} {ctx.call.args}"
            await self.tape.fail("calls", b"", text.encode())
        if found.error and found.text == INTERRUPTED:
            self._running_interrupted.add(found.call_id)
            self._check_interrupt()
            await self.tape.wait_stopped()
        async with self._moved:
            await self._moved.wait_for(lambda: self._is_next(found.call_id))
        return RecordedResult(found.content, error=found.error, unquoted=found.unquoted)

    def _is_next(self, call_id: str) -> bool:
        message = self.next_message
        return message is not None and any(r.call_id == call_id for r in _list_returns(message))

    def _check_interrupt(self) -> None:
        if self._is_batch_cut():
            self.tape.interrupt_turn()

    def _is_batch_cut(self) -> bool:
        """Whether the batch of calls has come as far as it came before the interruption."""
        message = self.next_message
        returns = _list_returns(message) if message is not None else []
        if not returns or not all(r.error and r.text in (INTERRUPTED, SKIPPED) for r in returns):
            return False
        running = {
            result.call_id
            for later in self.messages[self.index : self.end]
            for result in _list_returns(later)
            if result.error and result.text == INTERRUPTED
        }
        return running <= self._running_interrupted

    def _find_result(self, call_id: str) -> ToolReturn | None:
        for message in self.messages[self.index : self.end]:
            for result in _list_returns(message):
                if result.call_id == call_id:
                    return result
        return None

    def absorb_taint(self, sources: Collection[Source]) -> None:
        return None

    async def sleep(self, seconds: float) -> None:
        if self.tape.is_interrupt_next:
            self.tape.interrupt_turn()
            await self.tape.wait_stopped()

    def remember_limits(self, client: ModelClient, context: int | None, output: int | None) -> None:
        return None

    def remember_calling(self, client: ModelClient, calling: str) -> None:
        return None

    def make_compressor(self, new_summarizer: Callable[[], Summarizer]) -> Compressor:
        said: set[str] = set()

        def say_once(text: str) -> str:
            is_new = text not in said
            said.add(text)
            return text if is_new else ""

        return Compressor(new_summarizer, self._replace_history, lambda: self.session_id, say_once)

    async def _replace_history(self, messages: Sequence[Message]) -> History:
        """Continue in the session in which the conversation continued then."""
        child = self._conversation.metas[self.session_id].next
        stored = self._conversation.messages.get(child)
        if stored is None:
            self.tape.note_difference("calls", b"", b"a compression that was not recorded")
            return self.make_history(messages)
        if list(messages) != stored[: len(messages)]:
            begun = msgspec.json.encode(stored[: len(messages)])
            self.tape.note_difference("message", begun, msgspec.json.encode(list(messages)))
        self.session_id, self.index = child, len(messages)
        self.end = find_turn_end(stored, len(messages))
        return self.make_history(messages)


def _fits_redacted(stored: str, played: str) -> bool:
    """Whether the texts differ only where the played one has marks of removed secrets: which ones a
    configuration had is not known any more."""
    first, *others = _MARK.split(played)
    if not others or not stored.startswith(first):
        return False
    at = len(first)
    *between, last = others
    for text in between:
        found = stored.find(text, at + 1)
        if found < 0:
            return False
        at = found + len(text)
    return stored.endswith(last) and len(stored) - len(last) > at


def find_turn_end(messages: Sequence[Message], after: int) -> int:
    """Where the next turn begins, if there is one."""
    starts = [index for index in find_turn_starts(messages) if index >= after]
    return starts[0] if starts else len(messages)


def _list_returns(message: Message) -> list[ToolReturn]:
    return [part for part in message.parts if isinstance(part, ToolReturn)]


class PlayedTools(Mapping[str, Tool[Any]]):
    """The tools of a recorded session; none of them runs."""

    def __init__(self, host: ReplayHost, specs: Sequence[ToolSpec], names: Sequence[str]) -> None:
        self._host = host
        self._specs = {spec.name: spec for spec in specs}
        self._names = dict.fromkeys(names)
        self._made: dict[str, Tool[Any]] = {}
        self.traits: dict[str, ToolTraits] = {}

    def __getitem__(self, name: str) -> Tool[Any]:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make_tool(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def find_spec(self, spec: ToolSpec) -> ToolSpec:
        """The spec as this version declares it, if the tool is built in."""
        return load_tool(spec.name).spec if self._is_built_in(spec.name) else spec

    def _is_built_in(self, name: str) -> bool:
        """A tool made at run time may have the name of a built-in one that was left out."""
        return name in list_tool_names() and name not in self.traits

    def _make_tool(self, name: str) -> Tool[Any]:
        if self._is_built_in(name):
            return structs.replace(load_tool(name), run=self._host.run_tool, preview=None)
        spec = self._specs.get(name) or ToolSpec(name, "", {})
        traits = self.traits.get(name) or ToolTraits(name)
        return SchemaTool(
            name,
            spec.description,
            RawArguments,
            self._host.run_tool,
            risk=traits.risk,
            exclusive=traits.exclusive,
            lasting=traits.lasting,
            schema=spec.parameters,
        )


def make_workspace(folder: Path, scratch: Path) -> Workspace:
    """The workspace of a replay: nothing is read or written there."""
    return Workspace(folder, scratch, scratch / "outputs")

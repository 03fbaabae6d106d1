"""Any history made legal for any target, incrementally: each message is looked at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable

from hermes.core.history import History
from hermes.core.message import (
    Media,
    Message,
    Native,
    Part,
    Target,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from hermes.llm.profile import Quirks

NO_RESULT = "[no result: interrupted]"
NO_IMAGES = "[image omitted: this model cannot see images]"
STEER = "\n\nUser guidance: "
_WORD64 = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ALNUM9 = re.compile(r"[a-zA-Z0-9]{9}")


class View:
    """Turns canonical messages into groups: user and assistant strictly alternate, the first is
    a user's. A user group starts with the results of the assistant group before it, one
    ToolReturn per call, in the order of the calls; guidance is appended to the last of them.
    A group goes to `sink` when the next one begins; the open one can still grow."""

    def __init__(self, target: Target, quirks: Quirks, sink: Callable[[Message], None]) -> None:
        self._target = target
        self._quirks = quirks
        self._sink = sink
        self._seen = 0
        self._role = ""
        self._parts: list[Part] = []
        self._calls: list[ToolCall] = []
        """Calls of the last assistant group, to be answered by the next user group."""
        self._returns: dict[str, ToolReturn] = {}
        self._last: Message | None = None

    def advance(self, history: History) -> None:
        messages = history.messages
        for i in range(self._seen, len(messages)):
            self._add(messages[i])
        self._seen = len(messages)

    def pending(self, tail: Iterable[Message] = ()) -> list[Message]:
        """The open group and `tail`, closed for this request; the view itself stays open."""
        out: list[Message] = []
        fork = View(self._target, self._quirks, out.append)
        fork._role, fork._parts = self._role, list(self._parts)
        fork._calls, fork._returns = list(self._calls), dict(self._returns)
        for message in tail:
            fork._add(message)
        fork._close()
        if fork._calls:
            fork._role = "user"
            fork._close()
        return out

    # -- grouping --------------------------------------------------------------------------

    def _add(self, message: Message) -> None:
        match message.role:
            case "assistant":
                self._assistant(message)
            case "tool":
                self._results(message)
            case _ if message.kind == "steer" and self._steer(message):
                pass
            case _:
                self._begin("user")
                self._parts.extend(self._media(message.parts))

    def _assistant(self, message: Message) -> None:
        parts = self._own(message)
        if not any(isinstance(p, Text | ToolCall | Native) for p in parts):
            return
        if self._calls and self._role == "assistant":
            self._begin("user")
        self._begin("assistant")
        self._parts.extend(parts)
        self._calls.extend(p for p in parts if isinstance(p, ToolCall))

    def _results(self, message: Message) -> None:
        wanted = {c.id for c in self._calls}
        for part in message.parts:
            if not isinstance(part, ToolReturn):
                continue
            key = self._call_id(part.call_id)
            if key in wanted and key not in self._returns:
                self._begin("user")
                self._returns[key] = ToolReturn(key, part.name, part.content, part.error)

    def _steer(self, message: Message) -> bool:
        """Append guidance to the last result so far; False when there is none to carry it."""
        if not self._returns:
            return False
        key, last = list(self._returns.items())[-1]
        content = [*last.content, Text(STEER + message.text)]
        merged: list[Text | Media] = []
        for part in content:
            before = merged[-1] if merged else None
            if isinstance(part, Text) and isinstance(before, Text):
                merged[-1] = Text(before.text + part.text)
            else:
                merged.append(part)
        self._returns[key] = ToolReturn(key, last.name, tuple(merged), last.error)
        return True

    def _begin(self, role: str) -> None:
        if self._role == role:
            return
        if not self._role and role == "assistant":
            self._role = "user"
            self._parts.append(Text("[conversation continues]"))
        self._close()
        self._role = role

    def _close(self) -> None:
        parts: list[Part] = self._parts
        if self._role == "user":
            parts = [*self._answers(), *self._parts]
            self._calls, self._returns = [], {}
        if parts:
            self._sink(Message("assistant" if self._role == "assistant" else "user", tuple(parts)))
        self._parts = []

    def _answers(self) -> list[Part]:
        out: list[Part] = []
        moved: list[Part] = []
        for call in self._calls:
            done = self._returns.get(call.id)
            if done is None:
                done = ToolReturn(call.id, call.name, (Text(NO_RESULT),), True)
            content = self._media(done.content)
            if not self._quirks.media_in_tool_result:
                images = [p for p in content if isinstance(p, Media)]
                if images:
                    note = Text(f"[image of {call.name} is attached below]")
                    content = [p if isinstance(p, Text) else note for p in content]
                    moved.extend(images)
            kept = tuple(p for p in content if isinstance(p, Text | Media))
            out.append(ToolReturn(call.id, call.name, kept, done.error))
        return [*out, *moved]

    # -- one message -----------------------------------------------------------------------

    def _own(self, message: Message) -> list[Part]:
        """What of an assistant message this target may see."""
        origin = message.origin
        mine = origin is not None and (origin.provider, origin.wire) == (
            self._target.provider,
            self._target.wire,
        )
        replay = mine and self._quirks.thinking_replay == "keep"
        out: list[Part] = []
        for part in message.parts:
            match part:
                case Thinking():
                    if replay:
                        out.append(part)
                case Native():
                    if mine:
                        out.append(part)
                case Text(text=text, extra=extra):
                    if text or (mine and extra):
                        out.append(part if mine else Text(text))
                case ToolCall(id=id, name=name, args=args, extra=extra):
                    key = self._call_id(id)
                    out.append(part if mine and key == id else ToolCall(
                        key, name, args, extra if mine else None
                    ))
                case _:
                    out.append(part)
        return out

    def _media(self, parts: Iterable[Part]) -> list[Part]:
        if self._quirks.media:
            return list(parts)
        return [Text(NO_IMAGES) if isinstance(p, Media) else p for p in parts]

    def _call_id(self, id: str) -> str:
        match self._quirks.call_id:
            case "word64" if not _WORD64.fullmatch(id):
                return "call_" + hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:24]
            case "alnum9" if not _ALNUM9.fullmatch(id):
                return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:9]
            case _:
                return id

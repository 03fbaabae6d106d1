"""Converts any history into a legal one for any target; each message is processed once."""

import hashlib
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, MutableMapping

from msgspec import structs

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
from hermes.core.untrusted_text import SKIPPED, wrap_text
from hermes.llm.provider_spec import Quirks

NO_RESULT = (
    "[no result was recorded, so the outcome of this call is unknown: it may have taken effect, "
    "completely or in part. Check before you repeat it.]"
)
NO_IMAGES = "[image omitted: this model cannot see images]"
BAD_IMAGE = "[image left out: the provider refused it or one beside it]"
BEGINNING = "[conversation continues]"
REFUSED = "[left out: the provider refused this for its content policy]"
STEER = "\n\nUser guidance: "
_WORD64 = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_ID = 40
"""Longest foreign id that every endpoint accepts; an endpoint's own ids may carry data."""
_ALNUM9 = re.compile(r"[a-zA-Z0-9]{9}")


class HistoryView:
    """Turns canonical messages into groups: user and assistant strictly alternate, the first is
    a user's, none is empty. A user group starts with the results of the assistant group before
    it, one ToolReturn per call, in the order of the calls, each wrapped in the history's mark;
    guidance is appended to the last of them, outside the wrapper. What a target refused to read
    is not shown to it again. No two calls of the whole history share an id. A group goes to
    `sink` when the next one begins; the open one can still grow."""

    def __init__(self, target: Target, quirks: Quirks, sink: Callable[[Message], None]) -> None:
        self._target = target
        self._quirks = quirks
        self._sink = sink
        self._mark = ""
        self._seen = 0
        self._role = ""
        self._parts: list[Part] = []
        self._calls: list[ToolCall] = []
        """Calls of the last assistant group, whose results open the next user group."""
        self._waiting: dict[str, list[str]] = {}
        """Stored id -> the ids sent for calls that have no result yet, in order."""
        self._returns: dict[str, ToolReturn] = {}
        self._steers: list[Message] = []
        self._ids: MutableMapping[str, int] = {}
        """Sent id -> how many calls wanted it."""

    def add_new_messages(self, history: History) -> None:
        messages = history.messages
        self._mark = history.mark
        for i in range(self._seen, len(messages)):
            message = messages[i]
            if i < self._quirks.media_from:
                message = structs.replace(message, parts=tuple(map(_hide_images, message.parts)))
            self._add_message(message)
        self._seen = len(messages)

    def pending_groups(self, tail: Iterable[Message] = ()) -> list[Message]:
        """The open group and `tail` as groups of this request; the view itself stays open."""
        out: list[Message] = []
        fork = HistoryView(self._target, self._quirks, out.append)
        fork._mark, fork._role, fork._parts = self._mark, self._role, list(self._parts)
        fork._calls, fork._returns = list(self._calls), dict(self._returns)
        fork._waiting = {id: list(keys) for id, keys in self._waiting.items()}
        fork._steers = list(self._steers)
        fork._ids = ChainMap({}, self._ids)
        for message in tail:
            fork._add_message(message)
        fork._close_group()
        if fork._calls:
            fork._role = "user"
            fork._close_group()
        return out

    def _add_message(self, message: Message) -> None:
        match message.role:
            case "assistant":
                self._add_assistant(message)
            case "tool":
                self._add_results(message)
            case _ if message.kind == "steer" and self._calls:
                self._begin_group("user")
                if message.text:
                    self._steers.append(message)
                images = [p for p in message.parts if isinstance(p, Media)]
                self._parts += self._replace_media(images)
            case _:
                parts = [p for p in message.parts if isinstance(p, Media) or _has_text(p)]
                parts = self._replace_media(parts)
                if message.kind == "summary":  # it may contain untrusted text
                    parts = [*parts[:1], *self._wrap_content(parts[1:])]
                if parts:
                    self._begin_group("user")
                    self._parts.extend(parts)

    def _add_assistant(self, message: Message) -> None:
        if message.stop == "filtered" and not message.parts:
            if message.origin in (None, self._target):
                self._drop_refused_parts()
            return
        parts = self._visible_parts(message)
        if not any(_has_content(p) for p in parts):
            return
        more = any(isinstance(p, ToolCall) for p in parts)
        if self._calls and self._role == "assistant" and not more:
            # Only results may follow calls; further calls get their results together with them.
            self._begin_group("user")
        self._begin_group("assistant")
        own = self._is_own(message)
        for part in parts:
            if isinstance(part, ToolCall):
                part = self._rename_call(part, own=own)
                self._calls.append(part)
            self._parts.append(part)

    def _drop_refused_parts(self) -> None:
        """Replace everything since the last answer: the provider would refuse it again."""
        if self._role == "user":
            self._parts = [Text(REFUSED)] if self._parts else []
            self._returns = {
                key: ToolReturn(done.call_id, done.name, (Text(REFUSED),), done.error)
                for key, done in self._returns.items()
            }
            self._steers = []

    def _add_results(self, message: Message) -> None:
        for part in message.parts:
            if isinstance(part, ToolReturn) and (keys := self._waiting.get(part.call_id)):
                self._begin_group("user")
                self._returns[keys.pop(0)] = part

    def _begin_group(self, role: str) -> None:
        if self._role == role:
            return
        if not self._role and role == "assistant":
            self._role = "user"
            self._parts.append(Text(BEGINNING))
        self._close_group()
        self._role = role

    def _close_group(self) -> None:
        parts: list[Part] = self._parts
        if self._role == "user":
            parts = [*self._build_returns(), *parts]
            self._calls, self._waiting, self._returns, self._steers = [], {}, {}, []
        if parts:
            if self._quirks.flatten or not self._quirks.tools:
                parts = _flatten_calls(parts)
            self._sink(Message("assistant" if self._role == "assistant" else "user", tuple(parts)))
        self._parts = []

    def _build_returns(self) -> list[Part]:
        out: list[Part] = []
        moved: list[Part] = []
        last = len(self._calls) - 1
        for i, call in enumerate(self._calls):
            done = self._returns.get(call.id)
            if done is None:
                done = ToolReturn(call.id, call.name, (Text(NO_RESULT),), True)
                content: list[Part] = list(done.content)
            else:
                content = self._replace_media(done.content)
                content = content if done.unquoted else self._wrap_content(content)
            if not self._quirks.media_in_tool_result:
                note = Text(f"[image of {call.name} is attached below]")
                moved += [p for p in content if isinstance(p, Media)]
                content = [note if isinstance(p, Media) else p for p in content]
            if i == last and self._steers:
                content = self._append_guidance(content)
            kept = tuple([p for p in content if isinstance(p, Text | Media)])
            out.append(ToolReturn(call.id, call.name, kept, done.error))
        return [*out, *moved]

    def _wrap_content(self, content: list[Part]) -> list[Part]:
        """The content with the mark before its first text and after its last."""
        texts = [i for i, p in enumerate(content) if _has_text(p)]
        if self._mark and texts and not self._quirks.small and content != [Text(SKIPPED)]:
            for i in texts:
                begin, end = i == texts[0], i == texts[-1]
                text = content[i].text  # type: ignore[union-attr]
                content[i] = Text(wrap_text(text, self._mark, begin=begin, end=end))
        return content

    def _append_guidance(self, content: list[Part]) -> list[Part]:
        """The content with all guidance at its end: in its last text, or in a new one."""
        guidance = STEER + "\n".join([m.text for m in self._steers])
        if content and isinstance(last := content[-1], Text):
            return [*content[:-1], Text(last.text + guidance)]
        return [*content, Text(guidance)]

    def _is_own(self, message: Message) -> bool:
        origin, target = message.origin, self._target
        return origin is not None and structs.replace(origin, model=target.model) == target

    def _visible_parts(self, message: Message) -> list[Part]:
        """The parts of an assistant message that this target may see."""
        own = self._is_own(message)
        replay = own and self._quirks.thinking_replay == "keep"
        blank = not message.text.strip()  # some endpoints refuse blank text
        out: list[Part] = []
        for part in message.parts:
            match part:
                case Thinking() if replay:
                    out.append(part)
                case Native() if own:
                    out.append(part)
                case Text(text=text, extra=extra) if (text and not blank) or (own and extra):
                    out.append(part if own else Text(text))
                case ToolCall():
                    out.append(part if own else ToolCall(part.id, part.name, part.args))
        return out

    def _replace_media(self, parts: Iterable[Part]) -> list[Part]:
        if self._quirks.media:
            return list(parts)
        return [Text(NO_IMAGES) if isinstance(p, Media) else p for p in parts]

    def _rename_call(self, call: ToolCall, *, own: bool) -> ToolCall:
        """The call with an id that this target accepts and no earlier call has: some providers
        number their calls from zero in every answer."""
        key = self._legal_call_id(call.id, own=own)
        asked = self._ids.get(key, 0)
        self._ids[key] = asked + 1
        while asked:
            asked += 1
            other = self._legal_call_id(f"{call.id}_{asked}", own=own)
            if other not in self._ids:
                self._ids[key] = asked
                self._ids[other] = 1
                key = other
                break
        self._waiting.setdefault(call.id, []).append(key)
        return call if key == call.id else ToolCall(key, call.name, call.args, call.extra)

    def _legal_call_id(self, id: str, *, own: bool) -> str:
        digest = hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()
        match self._quirks.call_id:
            case "any" if own or len(id) <= _LONGEST_ID:
                return id or "call"
            case "word64" if _WORD64.fullmatch(id):
                return id
            case "alnum9":
                return id if _ALNUM9.fullmatch(id) else digest[:9]
            case _:
                return "call_" + digest[:24]


def _hide_images(part: Part) -> Part:
    match part:
        case Media():
            return Text(BAD_IMAGE)
        case ToolReturn(content=content):
            return structs.replace(part, content=tuple(map(_hide_images, content)))
        case _:
            return part


def _has_text(part: Part) -> bool:
    return isinstance(part, Text) and bool(part.text)


def _has_content(part: Part) -> bool:
    """Whether the part alone makes an assistant message worth sending; reasoning does not."""
    if isinstance(part, Text):
        return bool(part.extra or part.text.strip())
    return isinstance(part, ToolCall | Native)


def _flatten_calls(parts: list[Part]) -> list[Part]:
    """Calls and results as text, for a model without tools."""
    out: list[Part] = []
    for part in parts:
        match part:
            case ToolCall(name=name, args=args):
                out.append(Text(f"[called {name} with {args or '{}'}]"))
            case ToolReturn(name=name, content=content, error=error):
                out.append(Text(f"[{'error' if error else 'result'} of {name}]"))
                out.extend(content)
            case _:
                out.append(part)
    return out

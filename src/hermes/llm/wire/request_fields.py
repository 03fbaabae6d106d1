"""The fields of a request around its messages, as all wires build them."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct, structs

from hermes.core.message import Message, Target, Thinking, ToolReturn
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.convert import BUDGETS, parse_arguments
from hermes.llm.wire.lenient_json import encode_json, is_object
from hermes.llm.wire.message_buffer import MessageBuffer, MessageForms

MAX_TOKENS = 8192
"""The output limit where a wire needs one and none is set."""
MIN_BUDGET = 1024
LEVELS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh"}
"""Effort -> the level that adaptive thinking knows."""


class RequestHead(Struct, frozen=True):
    """What a request says besides its messages."""

    system: str
    tools: tuple[ToolSpec, ...]
    settings: Settings
    stream: bool


class BaseEncoder:
    """Keeps the encoded messages, and the bytes before them until their content changes."""

    def __init__(self, target: Target, quirks: Quirks, *, marks: bool = False) -> None:
        self._model = target.model
        self._quirks = quirks
        self.messages = MessageBuffer(marks=marks)
        self._before = Message("user", ())
        self._head: RequestHead | None = None
        self._head_bytes = b""

    def add_group(self, group: Message) -> None:
        self.messages.add_messages(self._encode_group(group, self._before))
        self._before = group

    def build_body(self, pending: Sequence[Message], head: RequestHead) -> bytes:
        pairs = pairwise((self._before, *pending))
        fresh = (forms for last, group in pairs for forms in self._encode_group(group, last))
        return self._join_body(head, fresh)

    def _encode_group(self, group: Message, before: Message) -> Iterable[MessageForms]:
        raise NotImplementedError

    def _join_body(self, head: RequestHead, pending: Iterable[MessageForms]) -> bytes:
        if self._head != head:
            self._head_bytes = self._encode_head(head)
            self._head = head
        return self.messages.join_body(self._head_bytes, pending)

    def _encode_head(self, head: RequestHead) -> bytes:
        raise NotImplementedError


class TurnOpening(Struct, frozen=True):
    """How the current turn began. With a thinking budget, an API refuses to continue a turn whose
    first answer calls tools without sealed reasoning, as that of another model does."""

    answered: bool = False
    is_bare: bool = False

    def after_group(self, group: Message) -> "TurnOpening":
        if group.role == "user":
            return self if any(isinstance(p, ToolReturn) for p in group.parts) else TurnOpening()
        if self.answered:
            return self
        extras = [p.extra or {} for p in group.parts if isinstance(p, Thinking)]
        sealed = any("signature" in extra or "redacted" in extra for extra in extras)
        return TurnOpening(True, bool(group.calls) and not sealed)

    def fit_head(self, head: RequestHead, quirks: Quirks) -> RequestHead:
        """The head without a thinking effort if the turn could not be continued with it."""
        if not self.is_bare or quirks.effort != "budget":
            return head
        return structs.replace(head, settings=structs.replace(head.settings, effort=None))


def thinking_fields(
    quirks: Quirks, settings: Settings, limit: int, display: str = ""
) -> dict[str, Any]:
    """The fields that ask for thinking by a token budget or by an adaptive level."""
    effort = settings.effort
    if effort is None or (settings.tool_choice == "required" and effort != "none"):
        return {}  # a model that must call a tool may not think first
    match quirks.effort:
        case "budget" if effort != "none":
            # A quarter of the output is left for the answer itself.
            budget = min(BUDGETS[effort], limit * 3 // 4)
            if budget < MIN_BUDGET:
                return {}
            return {"thinking": {"type": "enabled", "budget_tokens": budget}}
        case "adaptive" if effort == "none":
            return {"thinking": {"type": "disabled"}}
        case "adaptive":
            shown = {"display": display} if display else {}
            level = {"effort": LEVELS[effort]}
            return {"thinking": {"type": "adaptive", **shown}, "output_config": level}
        case _:
            return {}


def append_path(base_url: str, path: str) -> str:
    """The base URL with the path added, unless it ends in it; a query stays at the end."""
    base, mark, query = base_url.partition("?")
    base = base.rstrip("/")
    return (base if base.endswith(path) else base + path) + mark + query


def shape_fields(fields: dict[str, Any], quirks: Quirks) -> dict[str, Any]:
    """The fields, plus those the endpoint needs and without those it refuses. A dotted name in
    `drop` removes a part of a field."""
    out = {**fields, **quirks.body}
    for path in quirks.drop:
        name, _, inner = path.partition(".")
        if name == "model":
            continue
        if inner and isinstance(out.get(name), dict):
            out[name] = {k: v for k, v in out[name].items() if k != inner}
        else:
            out.pop(name, None)
    return out


def legal_arguments(args: str) -> str:
    """The arguments as a JSON object in a string, unchanged if they are one. Anything else is
    wrapped in an object, as endpoints require one; it is not dropped, because the model must see
    what it wrote next to the error it got for it."""
    return args if is_object(args) else encode_json(parse_arguments(args)).decode()

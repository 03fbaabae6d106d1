"""Conversation values: immutable, protocol-neutral, and their own storage format."""

# They cannot be part of a reference cycle, so `gc=False` saves the collector from walking long
# histories again and again.

from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from hermes.core.text import replace_invalid

Role: TypeAlias = Literal["user", "assistant", "tool"]
Stop: TypeAlias = Literal["end", "tool_use", "length", "filtered", "paused", "aborted", "died"]
"""Why an answer ended. `paused`: the provider wants it sent back to go on (Anthropic).
`aborted`: we stopped it. `died`: the stream broke off or was cut at our cap."""
Extra: TypeAlias = dict[str, Any] | None
"""Wire-level keys replayed verbatim, and only to the provider that made them."""


class Text(Struct, frozen=True, gc=False, tag="text", tag_field="t", omit_defaults=True):
    text: str
    extra: Extra = None


class Thinking(Struct, frozen=True, gc=False, tag="thinking", tag_field="t", omit_defaults=True):
    """Reasoning. `text` may be empty when only a signature or an encrypted blob came."""

    text: str = ""
    extra: Extra = None


class Media(Struct, frozen=True, gc=False, tag="media", tag_field="t", omit_defaults=True):
    """An image or file: the bytes, or a URL the provider fetches itself."""

    mime: str
    data: bytes = b""
    url: str = ""
    name: str = ""
    detail: str = ""
    """The requested level of detail of an image; empty: not specified."""


NO_ARGUMENTS = frozenset({"", "None", "null", '""'})
"""What models write for the arguments of a call that has none."""


class ToolCall(Struct, frozen=True, gc=False, tag="call", tag_field="t", omit_defaults=True):
    id: str
    name: str
    args: str = ""
    """Raw JSON as the model wrote it, replayed byte-identical; parsed once, by the executor."""
    extra: Extra = None


class ToolReturn(Struct, frozen=True, gc=False, tag="return", tag_field="t", omit_defaults=True):
    call_id: str
    name: str
    content: tuple[Text | Media, ...] = ()
    error: bool = False
    unquoted: bool = False
    """Whether it is the operator's own word, which the model is not shown as data."""

    @property
    def text(self) -> str:
        return "".join(p.text for p in self.content if isinstance(p, Text))


class Native(Struct, frozen=True, gc=False, tag="native", tag_field="t"):
    """Something the provider ran itself (search, code, MCP), kept as it came and never run here."""

    data: dict[str, Any]


Part: TypeAlias = Text | Thinking | Media | ToolCall | ToolReturn | Native


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    input: int = 0
    """The whole prompt, cached parts included."""
    output: int = 0
    """Everything generated, reasoning included."""
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float | None = None
    """Dollars: as the provider reports, else by its list price; None: unknown."""
    estimated: bool = False

    def __add__(self, more: "Usage") -> "Usage":
        """A sum with a part of unknown cost has an unknown cost."""
        costs = [c for c in (self.cost, more.cost) if c is not None]
        if any(u.cost is None and (u.input or u.output) for u in (self, more)):
            costs = []
        return Usage(
            self.input + more.input,
            self.output + more.output,
            self.cache_read + more.cache_read,
            self.cache_write + more.cache_write,
            self.reasoning + more.reasoning,
            sum(costs) if costs else None,
            self.estimated or more.estimated,
        )


class Target(Struct, frozen=True, gc=False):
    """One model of one provider over one wire protocol."""

    provider: str
    model: str
    wire: str


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    role: Role
    parts: tuple[Part, ...]
    kind: Literal["normal", "steer", "injected", "summary"] = "normal"
    """`steer`: mid-turn guidance, shown to the model as a suffix of the tool result before it."""
    origin: Target | None = None
    """The model that wrote it (assistant messages only)."""
    stop: Stop | None = None
    usage: Usage | None = None

    @property
    def text(self) -> str:
        return "".join([p.text for p in self.parts if isinstance(p, Text)])

    @property
    def thinking(self) -> str:
        return "\n".join([p.text for p in self.parts if isinstance(p, Thinking) and p.text])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([p for p in self.parts if isinstance(p, ToolCall)])


def user_message(text: str, *media: Media, kind: Literal["normal", "steer"] = "normal") -> Message:
    parts: tuple[Part, ...] = (*media, Text(text)) if text else media
    return Message("user", parts, kind=kind)


def clean_message(message: Message) -> Message:
    """The message with its text made acceptable to every wire and store."""
    parts = tuple(
        structs.replace(p, text=replace_invalid(p.text)) if isinstance(p, Text) else p
        for p in message.parts
    )
    return structs.replace(message, parts=parts)

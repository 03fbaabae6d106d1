"""What a model says, independent of the wire it is said on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Stop: TypeAlias = Literal["end", "tool_use", "length", "filtered"] | str


@dataclass(frozen=True)
class Say:
    """Visible text, in the fragments it is streamed in."""

    pieces: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class Think:
    """Reasoning. `signature` is what the provider wants back with it, where a wire has one."""

    pieces: tuple[str, ...]
    signature: str = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class Call:
    """One tool call. `args` is raw text: it may be broken JSON on purpose. `extra` is merged
    into the wire's call object (Gemini's thought signature, OpenRouter's extra_content)."""

    id: str
    name: str
    pieces: tuple[str, ...]
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def args(self) -> str:
        return "".join(self.pieces)


Part: TypeAlias = Say | Think | Call


@dataclass(frozen=True)
class Tokens:
    """Usage as the provider counts it: `input` is the whole prompt, cache included."""

    input: int = 11
    output: int = 7
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Answer:
    """One answer. `stop` None: derived from the parts; "": never sent; any other word that is
    none of the four is sent verbatim. `tokens` None: no usage at all."""

    parts: tuple[Part, ...] = ()
    stop: Stop | None = None
    tokens: Tokens | None = Tokens()
    model: str = "kit-model"

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(p for p in self.parts if isinstance(p, Call))

    @property
    def text(self) -> str:
        return "".join(p.text for p in self.parts if isinstance(p, Say))

    @property
    def ending(self) -> str:
        if self.stop is not None:
            return self.stop
        return "tool_use" if self.calls else "end"


def fragments(text: str, size: int) -> tuple[str, ...]:
    """Pieces of `size` characters; the empty text is one empty piece."""
    return tuple(text[i : i + size] for i in range(0, len(text), size)) or ("",)


def arguments(value: Any) -> str:
    """Raw text stays; anything else is written as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

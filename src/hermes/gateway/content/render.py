"""Turns the model's text into messages: what to show while it is written, and how to split it."""

import re
import unicodedata
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from hermes.core.redaction.redactor import Redactor

_TOKEN_TAIL = re.compile(r"[A-Za-z0-9_\-.+/=:~%$]+\Z")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)
_LONGEST_WHAT = 60
_FENCE_SHARE = 4
"""The first line of a code block is repeated in the next part when it takes at most this part of
one: otherwise little else would fit, and a text would become hundreds of messages."""


def count_units(text: str) -> int:
    """The length in UTF-16 units, as messengers count it."""
    return len(text) + sum(character > "\uffff" for character in text)


Measure: TypeAlias = Callable[[str], int]
"""Counts the units of a text as a messenger does. A character has at least one."""


def count_bytes(text: str) -> int:
    """The length in bytes of UTF-8."""
    return len(text.encode(errors="replace"))


def split_text(text: str, limit: int, measure: Measure = count_units) -> list[str]:
    """Parts of at most `limit` units. They end at a paragraph, else at a line, else at a
    word, never inside a character; white space at a cut goes; a cut code block is closed and
    opened again. The first parts do not change when the text grows at its end."""
    parts: list[str] = []
    rest = text.strip("\n").rstrip()
    while len(rest) > limit or measure(rest) > limit:
        head, rest = _cut_part(rest, limit, measure)
        parts.append(head)
    return [*parts, rest] if rest or not parts else parts


def _cut_part(text: str, limit: int, measure: Measure) -> tuple[str, str]:
    window = _take_units(text, limit, measure)
    cut = _find_cut(window, text)
    fence = _find_open_fence(text[:cut])
    if fence and measure(fence[1]) > limit // _FENCE_SHARE:
        fence = None
    if fence:
        mark, _, _ = fence
        window = _take_units(text, limit - len(mark) - 1, measure)
        cut = _find_cut(window, text)
        fence = _find_open_fence(text[:cut])
    head, rest = text[:cut].rstrip(), text[cut:]
    if not fence:
        return head, rest.lstrip()
    mark, opening, content_at = fence
    if cut <= content_at or not rest.strip():
        return head, rest.lstrip()  # nothing of the block is before the cut
    rest = rest.lstrip("\n")
    if rest.startswith(mark):  # it ends right here
        return f"{head}\n{mark}", rest[len(mark) :].lstrip()
    return f"{head}\n{mark}", f"{opening}\n{rest}"


def _take_units(text: str, limit: int, measure: Measure) -> str:
    window = text[: max(1, limit)]
    while len(window) > 1 and (excess := measure(window) - limit) > 0:
        window = window[: max(1, len(window) - max(1, excess // 4))]
    return window


def _find_cut(window: str, text: str) -> int:
    """Where to cut: at most the length of the window, at least one character."""
    least = len(window) // 4
    for mark in ("\n\n", "\n", " "):
        at = window.rfind(mark)
        if at > least:
            return at
    if text[len(window) : len(window) + 1].isspace():
        return len(window)
    at = len(window)
    while at > 1 and _joins_previous(text[at - 1], text[at]):
        at -= 1
    return at if at > 1 else len(window)


def _joins_previous(before: str, character: str) -> bool:
    """Whether the two are shown as one character."""
    return (
        before == "\u200d"
        or character in "\u200d\ufe0f\ufe0e\u20e3"
        or unicodedata.combining(character) != 0
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or ("\U0001f1e6" <= character <= "\U0001f1ff" and "\U0001f1e6" <= before <= "\U0001f1ff")
    )


def _find_open_fence(text: str) -> tuple[str, str, int] | None:
    """The mark, the opening line and the end of that line of a code block open at the end."""
    opened: tuple[str, str, int] | None = None
    for found in _FENCE.finditer(text):
        mark, info = found[1], found[2].strip()
        if opened is None:
            opened = (mark, f"{mark}{info}", found.end())
        elif mark[0] == opened[0][0] and len(mark) >= len(opened[0]) and not info:
            opened = None
    return opened


def fence_code(code: str, language: str = "") -> str:
    """A code block that nothing inside the code can end."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    mark = "`" * max(3, longest + 1)
    return f"{mark}{language}\n{code}\n{mark}"


def hold_back_secrets(text: str, redactor: Redactor) -> str:
    """What may be shown of a text that is still being written: without what may be the beginning
    of a secret at its end, a known one or any word, and with secrets redacted."""
    begun = redactor.find_beginning(text)
    return _TOKEN_TAIL.sub("", redactor.redact(text[:begun]))


def describe_call(arguments: str, redact: Callable[[str], str]) -> str:
    """What a tool call does, in one short line: its first text."""
    try:
        values = msgspec.json.decode(arguments, type=dict[str, Any]).values()
        arguments = next((value for value in values if isinstance(value, str)), "")
    except msgspec.DecodeError:
        pass
    plain = redact(" ".join(arguments.split()))
    return plain if len(plain) <= _LONGEST_WHAT else plain[: _LONGEST_WHAT - 1] + "…"

"""Finds tool calls that a model wrote into its text, and turns them into calls."""

import json
import re
from contextlib import suppress
from typing import Any

from hermes.core.provider import ResponseSink
from hermes.llm.wire.lenient_json import decode_json, encode_json

_TAG, _UNTAG = "<tool_call>", "</tool_call>"
_FENCE = "```"
_OPEN = re.compile(rf"{_TAG}|^[ \t]*{_FENCE}", re.M)
_SHUT = re.compile(rf"^[ \t]*{_FENCE}[ \t]*$", re.M)
_SHUT_LINE = re.compile(rf"^[ \t]*{_FENCE}", re.M)
_INFO = frozenset({"", "json", "tool_call", "tool", "tool_code", "function"})
_LONGEST_INFO = 40
_NAME_WITHIN = 400
"""A call names its tool within this many characters of a bare object."""
_MAX_HELD = 256 * 1024
_BEGUN = re.compile(
    r"""\{\s*["'](?:name|tool)["']\s*:\s*["']([\w.-]+)["']\s*,\s*"""
    r"""["'](?:arguments|parameters)["']\s*:\s*(?=\{)"""
)
_MARK = re.compile(r"""[][{}]|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'""", re.S)
_FUNCTION = re.compile(r"<function=([\w.-]+)>\s*((?:<parameter=[\w.-]+>.*)?)\s*</function>\Z", re.S)
_PARAMETER = re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>", re.S)
"""The form that some models for code were trained on."""
_KEYS = frozenset({"name", "arguments", "parameters", "id", "type", "tool", "function"})


class TextCallDecoder:
    """Fills a sink from text. It holds back only what can still become a call: from a `<tool_call>`
    tag, a fence of JSON at the start of a line, or a brace that opens the answer. It is a call if
    it names an offered tool; anything else is passed on unchanged. The result does not depend on
    how the text is cut."""

    def __init__(self, sink: ResponseSink, slot: str) -> None:
        self._sink = sink
        self._slot = slot
        self._names = sink.offered_tools
        self._text = ""
        """Text that is not decided yet."""
        self._state = self._at_start
        self._line_start = True
        self.calls = 0
        self.is_cut = False
        """Always off: a call that is cut off stays text."""

    def feed(self, text: str) -> None:
        if not self._names:
            self._sink.add_text(self._slot, text)
            return
        self._text += text
        self._run_states(last=False)

    def close(self) -> None:
        if self._names:
            self._run_states(last=True)
            self._pass_text(len(self._text))

    def _run_states(self, *, last: bool) -> None:
        """A state returns True when it changed and there may be more to do."""
        while self._text and self._state(last):
            pass

    def _at_start(self, last: bool) -> bool:
        start = self._text.lstrip()
        if not start:
            return False
        self._state = self._in_object if start[0] == "{" else self._in_text
        return True

    def _in_object(self, last: bool) -> bool:
        text = self._text
        if last:
            if self._lift_calls(text):
                self._text = ""
                return False
        elif len(text) <= _MAX_HELD and (
            '"name"' in text[:_NAME_WITHIN] or len(text) < _NAME_WITHIN
        ):
            return False
        self._state = self._in_text
        return True

    def _in_text(self, last: bool) -> bool:
        for match in _OPEN.finditer(self._text):
            position = match.start()
            if position == 0 and match[0] != _TAG and not self._line_start:
                continue
            self._pass_text(position)
            self._state = self._in_tag if match[0] == _TAG else self._in_fence
            return True
        return self._pass_decided_text(last)

    def _in_tag(self, last: bool) -> bool:
        end = self._text.find(_UNTAG)
        if end < 0 and not last and len(self._text) <= _MAX_HELD:
            return False
        inner = self._text[len(_TAG) : end if end >= 0 else None]
        rest = self._text[end + len(_UNTAG) :] if end >= 0 else ""
        if self._lift_calls(inner):
            self._text = rest
        else:
            self._pass_text(len(_TAG))
        self._state = self._in_text
        return True

    def _in_fence(self, last: bool) -> bool:
        """A fence of JSON is held until it closes; any other is passed on, with the tags in it."""
        info, newline, body = self._text.partition("\n")
        word = info.strip().removeprefix(_FENCE).strip().lower()
        if not newline and not last and len(info) <= _LONGEST_INFO:
            return False
        start = body.lstrip()
        if word in _INFO and newline and (start[:1] in ("{", "[") or (not start and not last)):
            shut = _SHUT.search(body)
            complete = shut is not None and (last or shut.end() < len(body))
            if not complete and not last and len(body) <= _MAX_HELD:
                return False
            if self._lift_calls(body[: shut.start()] if shut else body):
                self._text = body[shut.end() :].removeprefix("\n") if shut else ""
                self._state = self._in_text
                return True
        self._pass_text(len(info) + len(newline))
        self._state = self._in_code
        return True

    def _in_code(self, last: bool) -> bool:
        """Inside an ordinary code block, up to the line that closes it."""
        for match in _SHUT_LINE.finditer(self._text):
            if match.start() == 0 and not self._line_start:
                continue
            self._pass_text(match.end())
            self._state = self._in_text
            return True
        return self._pass_decided_text(last)

    def _pass_decided_text(self, last: bool) -> bool:
        """Pass on all but the end that the next piece could make the start of a call."""
        keep = 0 if last else _count_open_chars(self._text, self._line_start)
        self._pass_text(len(self._text) - keep)
        return False

    def _pass_text(self, length: int) -> None:
        self._add_text(self._text[:length])
        self._text = self._text[length:]

    def _add_text(self, text: str) -> None:
        if text:
            _, newline, line = text.rpartition("\n")
            self._line_start = not line.strip(" \t") and (bool(newline) or self._line_start)
            self._sink.add_text(self._slot, text)

    def _lift_calls(self, text: str) -> bool:
        """Add the calls in the text to the answer; False if it has none of offered tools."""
        found = _find_calls(text.strip())
        if not found or any(name not in self._names for name, _ in found):
            return False
        for name, args in found:
            self.calls += 1
            slot = f"spoken{self.calls}"
            self._sink.add_call(slot, id=f"call_{self.calls}", name=name, args=args)
        return True


def _find_calls(text: str) -> list[tuple[str, str]]:
    """(name, arguments) of each call in a text that contains nothing else."""
    if written := _FUNCTION.match(text):
        return [(written[1], encode_json(dict(_PARAMETER.findall(written[2]))).decode())]
    values = _parse_values(text)
    if not values:
        begun = _BEGUN.match(text)
        broken = begun is not None and _is_one_object(text, begun.end())
        return [(begun[1], text[begun.end() :])] if begun and broken else []
    found = [_read_call(value) for value in values]
    return [call for call in found if call is not None] if None not in found else []


def _parse_values(text: str) -> list[Any]:
    """JSON values in sequence or in a list; empty if the text contains anything else."""
    with suppress(ValueError):
        value = decode_json(text)
        return value if isinstance(value, list) else [value]
    found, position = [], 0
    decoder = json.JSONDecoder(strict=False)
    while position < len(text):
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return []
        found.append(value)
        while text[position : position + 1].isspace():
            position += 1
    return found


def _is_one_object(text: str, start: int) -> bool:
    """Whether one object with a JSON error begins here, ends, and only brackets follow; it is
    repaired later."""
    depth = 0
    for mark in _MARK.finditer(text, start):
        if mark[0] in "{[":
            depth += 1
        elif mark[0] in "}]":
            depth -= 1
            if depth == 0:
                return not text[mark.end() :].strip(" \t\r\n}]")
    return False


def _read_call(value: Any) -> tuple[str, str] | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    value = inner if isinstance(inner, dict) else value
    name = value.get("name") or value.get("tool")
    args: Any = value.get("arguments", value.get("parameters"))
    if not isinstance(name, str) or not set(value) <= _KEYS:
        return None
    if isinstance(args, str):
        return name, args
    return (name, encode_json(args).decode()) if isinstance(args, dict) else None


def _count_open_chars(text: str, line_start: bool) -> int:
    """How many characters at the end could become the start of a call with the next piece."""
    position = text.rfind("<", max(0, len(text) - len(_TAG)))
    if position >= 0 and _TAG.startswith(text[position:]):
        return len(text) - position
    _, newline, line = text.rpartition("\n")
    begins = bool(newline) or line_start
    return len(line) if begins and _FENCE.startswith(line.strip(" \t")) else 0

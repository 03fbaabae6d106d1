"""Parses the raw arguments of a tool call, repairing JSON where only one reading is possible."""

import re
from typing import Any

import orjson

from hermes.core.errors import ToolError
from hermes.core.message import NO_ARGUMENTS
from hermes.core.text import compile_pattern

_WORDS = {"True": "true", "False": "false", "None": "null"}
_OPENER = {"}": "{", "]": "["}
_CLOSER = {"{": "}", "[": "]"}
_TYPES = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
_FLAGS = re.VERBOSE | re.DOTALL
_MAX_LENGTH = 2_000_000
_MAX_TOKENS = 200_000
_MAX_DEPTH = 512
_MAX_REPAIRS = 32
"""Brackets added or dropped; a text that needs more is not repaired."""

_TOKEN = r"""[ \t\r\n]++ | [][{},:] | "(?:[^"\\]++|\\.)*+" | '(?:[^'\\]++|\\.)*+'
         | [^]["'{},:\s][^]["{},:\s]*+ | [^"'] """
_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x20)}
_ESCAPED_CONTROL = r"(?<!\\)(?:\\\\)*+\\[\x00-\x1f]"
_PAIR_OR_LONE = r"""\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
                | \\u[dD][89a-fA-F][0-9a-fA-F]{2}"""
_IN_JSON = rf"{_PAIR_OR_LONE} | \\."
_IN_PYTHON = rf'{_PAIR_OR_LONE} | \\x[0-9a-fA-F]{{2}} | \\U[0-9a-fA-F]{{8}} | \\. | "'

_CUT = "they end before the object is closed (cut off?)"
_TOO_LONG = "they are not valid JSON and too long to repair"


class BadArguments(ToolError):
    """The arguments are not JSON and cannot be repaired in one way only; nothing was executed."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"Invalid tool arguments: {why}. Nothing was executed. "
            "Call again with one complete, valid JSON object."
        )


def parse_arguments(raw: str) -> dict[str, Any]:
    """The arguments object; raises only BadArguments."""
    text = raw.strip()
    if text in NO_ARGUMENTS:
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        value = _repair_json(text, error)
    if isinstance(value, dict):
        return value
    raise BadArguments(f"expected an object, got {_TYPES.get(type(value), 'null')}")


def is_truncated(raw: str) -> bool:
    """Whether the text ends inside its outermost object or array; such a call must not run."""
    text = raw.strip()
    if text[:1] not in ("{", "["):
        return False
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return _RepairScan(text).fault == _CUT
    return False


def _repair_json(text: str, error: orjson.JSONDecodeError) -> Any:
    scan = _RepairScan(_join_surrogates(text))
    if scan.fault:
        raise BadArguments(scan.fault)
    try:
        return orjson.loads("".join(scan.out))
    except orjson.JSONDecodeError:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        raise BadArguments(f"{error.msg} at character {error.pos}, near {near!r}") from None


def _join_surrogates(text: str) -> str:
    """Joins paired surrogates and replaces lone ones."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _Frame:
    __slots__ = ("doubtful", "opener", "wide")

    def __init__(self, opener: str) -> None:
        self.opener = opener
        self.wide = False
        """It has more than one element."""
        self.doubtful = False
        """It has a wide child of its own kind, so a missing bracket could belong to either."""


class _RepairScan:
    """One pass over the text. `out` is JSON for the strict parser; `fault` says why it is
    unusable."""

    def __init__(self, text: str) -> None:
        self.out: list[str] = []
        self.fault = ""
        self._stack: list[_Frame] = []
        self._closed = False
        self._repairs = 0
        if len(text) > _MAX_LENGTH:
            self.fault = _TOO_LONG
            return
        match = compile_pattern(_TOKEN, _FLAGS).match
        at = 0
        for _ in range(_MAX_TOKENS):
            token = match(text, at)
            if token is None:  # the end, or a string without an end
                self.fault = self.fault or ("" if self._closed else _CUT)
                return
            self._take_token(token[0])
            if self.fault:
                return
            at = token.end()
        self.fault = _TOO_LONG

    def _take_token(self, token: str) -> None:
        first = token[0]
        if first in " \t\r\n":
            return
        if self._closed:
            self._check_trailing(first)
        elif first in "{[":
            self._open_bracket(first)
        elif not self._stack:
            self.fault = "they are not a JSON object"
        elif first in "}]":
            self._close_bracket(first)
        elif first in "\"'":
            self.out.append(_quote_string(token))
        else:
            if first == ",":
                self._stack[-1].wide = True
            self.out.append(_WORDS.get(token, token))

    def _open_bracket(self, bracket: str) -> None:
        self._stack.append(_Frame(bracket))
        self.out.append(bracket)
        if len(self._stack) > _MAX_DEPTH:
            self.fault = "they are nested too deeply"

    def _close_bracket(self, bracket: str) -> None:
        if not any(frame.opener == _OPENER[bracket] for frame in self._stack):
            self.fault = f"a {bracket!r} closes nothing"
            return
        while self._stack[-1].opener != _OPENER[bracket]:
            if self._stack[-1].doubtful:
                self.fault = f"it is unclear where a {self._stack[-1].opener!r} should be closed"
                return
            self._count_repair()
            self._close_frame()
        self._close_frame()
        self._closed = not self._stack

    def _close_frame(self) -> None:
        frame = self._stack.pop()
        if self.out[-1] == ",":
            self.out.pop()
            if self.out[-1] in "{[,:":
                self.fault = "a comma follows nothing"
        self.out.append(_CLOSER[frame.opener])
        if self._stack and self._stack[-1].opener == frame.opener and frame.wide:
            self._stack[-1].doubtful = True

    def _check_trailing(self, first: str) -> None:
        """Check what follows the object: only a few extra closing brackets may."""
        if first in "}]":
            self._count_repair()
        elif first in "{[":
            self.fault = "they hold more than one object; make one call for each"
        else:
            self.fault = "there is text after the object"

    def _count_repair(self) -> None:
        self._repairs += 1
        if self._repairs > _MAX_REPAIRS:
            self.fault = "their brackets do not match"


def _quote_string(token: str) -> str:
    """A JSON string for a JSON or Python string literal. An escape neither knows is left as it is,
    for the strict parser to refuse: who writes `\\$` may mean one character or two."""
    inner = token[1:-1]
    if not compile_pattern(_ESCAPED_CONTROL, _FLAGS).search(inner):
        inner = inner.translate(_CONTROLS)
    if token[0] == "'":
        inner = compile_pattern(_IN_PYTHON, _FLAGS).sub(_replace_python_escape, inner)
    elif r"\ud" in inner or r"\uD" in inner:
        inner = compile_pattern(_IN_JSON, _FLAGS).sub(_replace_json_escape, inner)
    return f'"{inner}"'


def _replace_json_escape(found: re.Match[str]) -> str:
    part = found[0]
    return r"\ufffd" if len(part) == 6 else part


def _replace_python_escape(found: re.Match[str]) -> str:
    part = found[0]
    if part == '"':
        return r"\""
    if part == r"\'":
        return "'"
    if part[1] in "xU" and len(part) > 2 and (code := int(part[2:], 16)) < 0x110000:
        return orjson.dumps(_join_surrogates(chr(code))).decode()[1:-1]
    return _replace_json_escape(found)

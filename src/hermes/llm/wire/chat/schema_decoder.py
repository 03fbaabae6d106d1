"""Decodes the steps of a model forced into a schema: text as it streams, calls at the end."""

import json
import re
from string import hexdigits

from hermes.core.provider import ResponseSink
from hermes.core.text import replace_invalid
from hermes.llm.wire.chat.schema_tools import ABOUT, ANSWER, TOOL
from hermes.llm.wire.lenient_json import decode_json, encode_json

_BEGIN = rf'\s*\{{\s*(?:"{ABOUT}"\s*:\s*"[a-z]*"\s*,\s*)?'
_ANSWERING = re.compile(rf'{_BEGIN}"{ANSWER}"\s*:\s*"')
_CALLING = re.compile(rf'{_BEGIN}"{TOOL}"\s*:\s*"([^"\\]+)"')
_RUN = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_HIGH = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})$")
_ENOUGH = 64
"""Characters after which an object with an answer would have begun it."""


class SchemaDecoder:
    """Fills a sink from text that should be one step. Other text is passed on unchanged, because
    not every endpoint enforces the schema."""

    def __init__(self, sink: ResponseSink, slot: str) -> None:
        self._sink = sink
        self._slot = slot
        self._feed = self._feed_start
        self._head = ""
        self._held: list[str] = []
        self._tail = ""
        self.calls = 0
        self.is_cut = False
        """Whether the last call is incomplete."""
        self.form = ""
        """"schema" once the text has turned out to be a step."""

    def feed(self, text: str) -> None:
        if text:
            self._feed(text)

    def close(self) -> None:
        """End the text: what was held back is a call, or text after all."""
        if self._feed == self._feed_answer:
            self._add_escaped_text(self._tail)
        elif self._feed in (self._feed_start, self._feed_held):
            self._settle_held("".join((self._head, *self._held)))
        self._feed, self._head, self._held, self._tail = self._drop_text, "", [], ""

    def _feed_start(self, text: str) -> None:
        self._head += text
        if match := _ANSWERING.match(self._head):
            self._feed = self._feed_answer
            self.form = "schema"
            self._feed_answer(self._head[match.end() :])
        elif self._head.strip() and not self._head.lstrip().startswith("{"):
            self._feed = self._pass_text
            self._pass_text(self._head)
        elif len(self._head) > _ENOUGH:
            self._feed = self._feed_held

    def _feed_held(self, text: str) -> None:
        self._held.append(text)

    def _pass_text(self, text: str) -> None:
        self._sink.add_text(self._slot, text)

    def _drop_text(self, text: str) -> None:
        """Ignore what follows the answer: it can only be the end of the object."""

    def _feed_answer(self, text: str) -> None:
        """Pass on the string up to its closing quote, without an escape that is cut off."""
        text = self._tail + text
        while True:
            end = match.end() if (match := _RUN.match(text)) else 0
            ready, self._tail = text[:end], text[end:]
            if not self._tail.startswith('"') and (half := _HIGH.search(ready)):
                ready, self._tail = ready[: half.start(1)], half[1] + self._tail
            self._add_escaped_text(ready)
            if self._tail.startswith('"'):
                self._tail, self._feed = "", self._drop_text
                return
            if not _is_broken_escape(self._tail):
                return
            self._pass_text(self._tail[0])  # no escape in JSON: the backslash is meant literally
            text = self._tail[1:]

    def _add_escaped_text(self, escaped: str) -> None:
        if not escaped:
            return
        try:
            plain = json.loads(f'"{escaped}"', strict=False)
        except ValueError:  # cut off inside an escape
            plain = escaped
        self._pass_text(replace_invalid(plain))

    def _settle_held(self, said: str) -> None:
        try:
            value = decode_json(said)
        except ValueError:
            value = None
        if isinstance(value, dict):
            about = value.pop(ABOUT, None)
            name = value.pop(TOOL, None)
            if isinstance(name, str) and name:
                self._add_call(name, encode_json(value).decode())
                if isinstance(about, str):
                    self._sink.add_extra(f"step{self.calls}", "call", about=about)
                return
            answer = value.get(ANSWER)
            self.form = "schema" if isinstance(answer, str) else ""
            self._pass_text(answer if isinstance(answer, str) else said)
        elif begun := _CALLING.match(said):
            self.is_cut = True
            self._add_call(begun[1], "{" + said[begun.end() :].lstrip(", "))
        else:
            self._pass_text(said)

    def _add_call(self, name: str, args: str) -> None:
        self.calls += 1
        self.form = "schema"
        self._sink.add_call(f"step{self.calls}", id=f"call_{self.calls}", name=name, args=args)


def _is_broken_escape(tail: str) -> bool:
    """Whether this starts with an escape that no further text can complete."""
    if len(tail) < 2 or tail[0] != "\\":
        return False
    return tail[1] != "u" or not set(tail[2:6]) <= set(hexdigits)

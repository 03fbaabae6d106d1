"""Finds tool calls that a model wrote into its text, and turns them into calls."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from hermes.core.provider import ResponseSink
from hermes.core.text import compile_pattern

if TYPE_CHECKING:
    from hermes.llm.wire.chat.call_syntax import FoundCall

_ENDS = {
    **{
        f"<{name}>": f"</{name}>"
        for name in (
            *("tool_call", "tool_calls", "tools", "tool", "tool-call", "tool_use", "tool_code"),
            *("tool-result", "tool_result", "tool_request", "function_call", "function_calls"),
            *("functioncall", "TOOLCALL", "｜DSML｜function_calls", "｜DSML｜tool_calls"),
        )
    },
    "<|tool_call|>": "<|/tool_call|>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<|python_tag|>": "<|eom_id|>",
    "[TOOL_CALLS]": "</s>",
    "[TOOL_REQUEST]": "[END_TOOL_REQUEST]",
    "<｜tool▁calls▁begin｜>": "<｜tool▁calls▁end｜>",
    "<|tools_prefix|>": "<|tools_suffix|>",
    "<|action_start|><|plugin|>": "<|action_end|>",
    "<|tool_calls_section_begin|>": "<|tool_calls_section_end|>",
    "<start_function_call>": "<end_function_call>",
    "<function=": "</function>",
    "<function name=": "</function>",
    "<tool name=": "</tool>",
    "<tool_call name=": "</tool_call>",
    "<invoke name=": "</invoke>",
    "<|start|>assistant<|channel|>commentary to=": "<|call|>",
    "<|start|>assistant to=": "<|call|>",
    "<|channel|>commentary to=": "<|call|>",
    "<|from|>assistant\n<|recipient|>": "<|stop|>",
    "<|recipient|>": "<|stop|>",
}
"""How calls begin in the formats that models were trained on, and how they end."""
_ELEMENTS = tuple(tag for tag in _ENDS if tag.endswith(("=", "<|recipient|>")))
"""Beginnings that belong to the call."""
_MARKS = frozenset("<[{`(:>")
"""One of them is in every beginning of a call."""
_FENCE = "```"
_SHUT = rf"^[ \t]*{_FENCE}[ \t]*$"
_SHUT_LINE = rf"^[ \t]*{_FENCE}"
_CALL_INFO = frozenset({"tool_call", "tool_calls", "tool", "tool_code", "function", "tool_use"})
_JSON_INFO = _CALL_INFO | {"", "json", "jsonc"}
_PYTHON_INFO = frozenset({"python", "py"})
_LONGEST_INFO = 40
_NAME_WITHIN = 400
"""A call names its tool within this many characters of a bare object."""
_MAX_HELD = 256 * 1024
_EXAMPLE = (
    r"\b(?:examples?|e\.g\.|for instance|such as|looks? like|would (?:be|look)|format|syntax|"
    r"schema|sample)\b"
)
"""Words right before JSON that is shown, not meant as a call."""
_ATTEMPT = r"""[\[{\s]*["']?(?:name|tool|function|tool_name|action)["']?\s*:|Action:"""
"""The beginning of what can only have been meant as a call."""
_REMEMBERED = 160
"""Characters before a call in which such words are searched."""


class TextCallDecoder:
    """Fills a sink from text. It holds back only what can still become a call: from a tag of the
    formats that models were trained on, a fence of JSON or a bare object at the start of a line, or
    a call in Python's syntax that opens the answer. It is a call if it names an offered tool, its
    form leaves no other reading, and the text before does not present it as an example; anything
    else is passed on unchanged. The result does not depend on how the text is cut."""

    def __init__(self, sink: ResponseSink, slot: str) -> None:
        self._sink = sink
        self._slot = slot
        self._tools = sink.offered_tools
        self._tags = _list_tags(tuple(self._tools))
        self._longest_tag = max(map(len, self._tags))
        self._line_starts = (_FENCE, "Action:", *(f">>>{name}" for name in self._tools))
        """How calls begin that have no tag."""
        self._text = ""
        """Text that is not decided yet."""
        self._state = self._in_text
        self._line_start = True
        self._before = ""
        """The end of the text that was passed on."""
        self.calls = 0
        self.is_cut = False
        """Always off: a call that is cut off stays text."""

    @property
    def form(self) -> str:
        """How the calls were written; empty if there are none."""
        return "text" if self.calls else ""

    def feed(self, text: str) -> None:
        if not self._tools:
            self._sink.add_text(self._slot, text)
            return
        self._text += text
        self._run_states(last=False)

    def close(self) -> None:
        if self._tools:
            self._run_states(last=True)
            self._pass_text(len(self._text))

    def _run_states(self, *, last: bool) -> None:
        """A state returns True when it changed and there may be more to do."""
        while self._text and self._state(last):
            pass

    def _in_text(self, last: bool) -> bool:
        openings = () if _MARKS.isdisjoint(self._text) else self._find_openings()
        for match in openings:
            opening = match[0].lstrip(" \t\r\n")
            is_tag = opening in self._tags
            if match.start() == 0 and not is_tag and not self._line_start:
                continue
            before = self._before + self._text[: match.start()]
            if before.strip() and opening[-1] in "([":
                continue  # only a whole answer can be in Python's syntax
            if opening == "{" and _is_code_block(before, match[0]):
                continue
            self._pass_text(match.end() - len(opening))
            if not last and any(
                tag != opening and tag.startswith(self._text) for tag in self._tags
            ):
                return False
            if is_tag:
                self._state = self._in_tag
            else:
                self._state = self._in_fence if opening == _FENCE else self._in_bare_call
            return True
        return self._pass_decided_text(last)

    def _find_openings(self) -> Iterator[re.Match[str]]:
        return _compile_openings(tuple(self._tools)).finditer(self._text)

    def _in_bare_call(self, last: bool) -> bool:
        """An object or a call at the start of a line: it is held to the end of the answer if it may
        name a tool."""
        text = self._text
        if last:
            from hermes.llm.wire.chat.call_syntax import split_leading_calls

            found, rest = split_leading_calls(text, self._tools)
            if self._add_calls(found):
                self._text = rest
                self._state = self._in_text
                return True
            self._sink.has_unread_call |= bool(
                compile_pattern(_ATTEMPT).match(text)
            ) and self._names_tool(text)
        elif len(text) <= _MAX_HELD and (len(text) < _NAME_WITHIN or self._names_tool(text)):
            return False
        self._pass_text(1)
        self._state = self._in_text
        return True

    def _names_tool(self, text: str) -> bool:
        start = text[:_NAME_WITHIN]
        return any(name in start for name in self._tools)

    def _in_tag(self, last: bool) -> bool:
        opening = next(tag for tag in self._tags if self._text.startswith(tag))
        ending = self._tags[opening]
        end = self._text.find(ending, len(opening))
        if end < 0 and not last and len(self._text) <= _MAX_HELD:
            return False
        is_empty = self._is_empty_element(opening, ending)
        if is_empty and not last:
            return False
        from hermes.llm.wire.chat.call_syntax import find_calls, split_leading_calls

        is_element = opening in _ELEMENTS or opening[1:-1] in self._tools
        start = 0 if is_element else len(opening)
        after = end + len(ending)
        if end >= 0:
            found = find_calls(self._text[start : after if is_element else end], self._tools)
            rest = self._text[after:]
        else:
            found, rest = split_leading_calls(self._text[start:], self._tools)
        is_quoted = end >= 0 and self._is_quoted(rest, last)
        if is_quoted is None:
            return False
        if not is_quoted and self._add_calls(found, explicit=True):
            self._text = rest
        else:
            is_meant = not is_quoted and self._names_tool(self._text)
            self._sink.has_unread_call |= is_empty or is_meant
            self._pass_text(len(opening))
        self._state = self._in_text
        return True

    def _is_empty_element(self, opening: str, ending: str) -> bool:
        """Whether the answer so far is the beginning and the end of a call, and nothing else."""
        inner = self._text.strip().removeprefix(opening).removesuffix(ending)
        return not inner.strip() and not self._before.strip()

    def _is_quoted(self, rest: str, last: bool) -> bool | None:
        """Whether words stand before and behind a call on its line, which is then spoken about;
        None if the words behind it are still to come."""
        if not self._before.rpartition("\n")[2].strip():
            return False
        behind = rest.lstrip(" \t")
        return None if not behind and not last else behind[:1] not in ("", "\r", "\n", "<", "[")

    def _in_fence(self, last: bool) -> bool:
        """A fence that may be a call is held until it closes; any other is passed on."""
        info, newline, body = self._text.partition("\n")
        word = info.strip().removeprefix(_FENCE).strip().lower()
        if not newline and not last and len(info) <= _LONGEST_INFO:
            return False
        if newline and self._may_hold_call(word, body.lstrip(), last):
            shut = compile_pattern(_SHUT, re.M).search(body)
            is_complete = shut is not None and (last or shut.end() < len(body))
            must_end = word in _PYTHON_INFO
            if not last and len(body) <= _MAX_HELD and (must_end or not is_complete):
                return False
            from hermes.llm.wire.chat.call_syntax import find_calls, read_python_calls

            inner, rest = (body[: shut.start()], body[shut.end() :]) if shut else (body, "")
            read = read_python_calls if must_end else find_calls
            if not (must_end and rest.strip()) and self._add_calls(read(inner, self._tools)):
                self._text = rest.removeprefix("\n")
                self._state = self._in_text
                return True
        self._pass_text(len(info) + len(newline))
        self._state = self._in_code
        return True

    def _may_hold_call(self, word: str, start: str, last: bool) -> bool:
        if word in _PYTHON_INFO:
            if self._before.strip():
                return False  # code in an explanation
        elif word not in _JSON_INFO:
            return False
        elif start[:1] in ("{", "[") or word in _CALL_INFO:
            return True
        else:
            return not start and not last
        names = [f"{name}(" for name in self._tools] + ["print("]
        return any(
            start.startswith(name) or (not last and name.startswith(start)) for name in names
        )

    def _in_code(self, last: bool) -> bool:
        """Inside an ordinary code block, up to the line that closes it."""
        for match in compile_pattern(_SHUT_LINE, re.M).finditer(self._text):
            if match.start() == 0 and not self._line_start:
                continue
            self._pass_text(match.end())
            self._state = self._in_text
            return True
        keep = 0 if last else _count_fence_chars(self._text, self._line_start)
        self._pass_text(len(self._text) - keep)
        return False

    def _pass_decided_text(self, last: bool) -> bool:
        """Pass on all but the end that the next piece could make the start of a call."""
        keep = 0 if last else self._count_open_chars()
        self._pass_text(len(self._text) - keep)
        return False

    def _count_open_chars(self) -> int:
        """How many characters at the end could become the start of a call with the next piece."""
        text = self._text
        tail = max(0, len(text) - self._longest_tag)
        for mark in compile_pattern(r"[<\[]").finditer(text, tail):
            if self._may_be_tag(text[mark.start() :]):
                return len(text) - mark.start()
        _, newline, line = text.rpartition("\n")
        if not newline and not self._line_start:
            return 0
        start = line.strip(" \t")
        words = self._line_starts
        if not (self._before + text[: len(text) - len(line)]).strip():
            words = (*words, *(f"{name}(" for name in self._tools))
        return len(line) if any(word.startswith(start) for word in words) else 0

    def _may_be_tag(self, start: str) -> bool:
        return any(tag.startswith(start) for tag in self._tags)

    def _pass_text(self, length: int) -> None:
        text, self._text = self._text[:length], self._text[length:]
        if text:
            _, newline, line = text.rpartition("\n")
            self._line_start = not line.strip(" \t") and (bool(newline) or self._line_start)
            self._before = (self._before + text)[-_REMEMBERED:]
            self._sink.add_text(self._slot, text)

    def _add_calls(self, found: "list[FoundCall]", *, explicit: bool = False) -> bool:
        """Add the calls to the answer; False if there are none, or they are an example."""
        if not found or (not explicit and compile_pattern(_EXAMPLE, re.I).search(self._before)):
            return False
        for name, args in found:
            self.calls += 1
            slot = f"spoken{self.calls}"
            self._sink.add_call(slot, id=f"call_{self.calls}", name=name, args=args)
        return True


@lru_cache(maxsize=16)
def _list_tags(names: tuple[str, ...]) -> dict[str, str]:
    """Beginning of each format -> its end. Some models write an element named like the tool."""
    return _ENDS | {f"<{name}>": f"</{name}>" for name in names}


@lru_cache(maxsize=16)
def _compile_openings(names: tuple[str, ...]) -> re.Pattern[str]:
    either = "|".join(map(re.escape, _list_tags(names)))
    words = "|".join(re.escape(word) for name in names for word in (f"{name}(", f">>>{name}"))
    return re.compile(rf"{either}|^[ \t]*(?:{_FENCE}|\{{|\[|Action:|{words})", re.M)


def _is_code_block(before: str, line: str) -> bool:
    """Whether a line behind these words is code in Markdown: indented, after an empty line."""
    is_apart = bool(before.strip()) and before.endswith("\n\n")
    return is_apart and line.expandtabs(4).startswith("    ")


def _count_fence_chars(text: str, line_start: bool) -> int:
    _, newline, line = text.rpartition("\n")
    begins = bool(newline) or line_start
    return len(line) if begins and _FENCE.startswith(line.strip(" \t")) else 0

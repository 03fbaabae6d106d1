"""The URLs that a conversation has shown: in the user's words, in search results, on pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hermes.agent.json_repair import BadArguments, parse_arguments
from hermes.core.history import History
from hermes.core.message import Message, ToolCall, ToolReturn

_PAGE_TOOLS = frozenset(
    "web_search web_extract browser_navigate browser_snapshot browser_back browser_scroll".split()
)
"""Tools whose results hold nothing that the model wrote itself."""
_URL = re.compile(
    r"""(?:https?://[^\s<>"'`\\^{|}\[\]/]+|(?<![\w.@-])(?:[\w-]+\.)+[\w-]+(?::\d+)?)"""
    r"""(?:[/?\#][^\s<>"'`\\^{|}\[\]]*)?""",
    re.IGNORECASE,
)
_PUNCTUATION = ").,;:!?*_~"
_MAX_PUNCTUATION = 8
_MAX_LENGTH = 8192


class SeenUrls:
    """Grows with the histories it reads, each message once; what a model wrote adds nothing, the
    task of a subagent included."""

    def __init__(self, *, trusts_prompts: bool = True) -> None:
        self._trusts_prompts = trusts_prompts
        self._keys: set[str] = set()
        self._tool_names: dict[str, str] = {}
        """By the id of a call: the tool it ran. A later call may have the same id."""
        self._history: History | None = None
        self._read = 0

    def __contains__(self, url: str) -> bool:
        return _make_key(url.strip()) in self._keys

    def read_history(self, history: History) -> None:
        if history is not self._history:
            self._history, self._read = history, 0
        new = history.messages[self._read :]
        self._read += len(new)
        for text in self._list_texts(new):
            for match in _URL.finditer(text):
                self._keys.update(map(_make_key, _list_endings(match[0])))

    def _list_texts(self, messages: Iterable[Message]) -> Iterator[str]:
        for message in messages:
            is_prompt = message.role == "user" and message.kind in ("normal", "steer")
            if is_prompt and self._trusts_prompts:
                yield message.text
            for part in message.parts:
                if isinstance(part, ToolCall):
                    self._tool_names[part.id] = _find_tool_name(part)
                elif isinstance(part, ToolReturn) and not part.error:
                    is_page = self._tool_names.get(part.call_id) in _PAGE_TOOLS
                    yield part.text if is_page else ""


def _find_tool_name(call: ToolCall) -> str:
    """The tool that runs, also if the call forwards to it."""
    if call.name != "tool_search":
        return call.name
    try:
        return str(parse_arguments(call.args).get("name"))
    except BadArguments:
        return ""


def _list_endings(url: str) -> Iterator[str]:
    """The URL with and without the punctuation after it, which may belong to the sentence."""
    for _ in range(_MAX_PUNCTUATION if len(url) <= _MAX_LENGTH else 0):
        yield url
        if not url.endswith(tuple(_PUNCTUATION)):
            return
        url = url[:-1]


def _make_key(url: str) -> str:
    """The URL without what carries no data: its scheme, the case of its host, a final slash."""
    scheme, separator, rest = url.partition("://")
    rest = rest if separator and scheme.lower() in ("http", "https") else url
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return host.lower() + rest[len(host) :].removesuffix("/")

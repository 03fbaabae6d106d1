"""The picker of stored sessions: a list with a preview, searched while the user types."""

import time
from collections.abc import Callable

from hermes.cli.repl.markdown.styled_text import Line, Style, cell_width, fit_text, paint_line
from hermes.cli.terminal.tables import shorten_path
from hermes.cli.terminal.text import one_line
from hermes.core.message import Message
from hermes.core.store import SessionMeta

_PREVIEW_LINES = 4
_MIN_ROWS_WITH_HEAD = 3
_SEARCH_LETTERS = 2
"""Letters typed before messages are searched too."""


class SessionPicker:
    """One choice; `done` is called once, with a session or None."""

    def __init__(
        self,
        sessions: list[SessionMeta],
        done: Callable[[SessionMeta | None], None],
        load_preview: Callable[[SessionMeta], object],
        search_messages: Callable[[str], object],
        folder: str,
    ) -> None:
        self._folder = folder
        self._all = sessions
        self._found = sessions
        self.done = done
        self._load_preview = load_preview
        self._search_messages = search_messages
        self._text = ""
        self._index = 0
        self.previews: dict[str, list[Message]] = {}
        """Session id -> its last messages, for those that were selected once."""
        self._request_preview()

    @property
    def selected_session(self) -> SessionMeta | None:
        return self._found[self._index] if self._found else None

    def search(self, text: str) -> None:
        """Filters by words of title, model and id at once; messages are searched meanwhile."""
        self._text = text
        self._filter_sessions(frozenset())
        if len(text.strip()) >= _SEARCH_LETTERS:
            self._search_messages(text)

    def add_matches(self, text: str, sessions: frozenset[str]) -> None:
        """Sessions whose messages match, unless the search has changed since."""
        if text == self._text and sessions:
            self._filter_sessions(sessions)

    def _filter_sessions(self, matches: frozenset[str]) -> None:
        words, before = self._text.casefold().split(), self.selected_session
        self._found = [
            meta
            for meta in self._all
            if meta.id in matches
            or all(w in f"{meta.title} {meta.model} {meta.id}".casefold() for w in words)
        ]
        self._index = self._found.index(before) if matches and before in self._found else 0
        self._request_preview()

    def move(self, by: int) -> None:
        if self._found:
            self._index = (self._index + by) % len(self._found)
            self._request_preview()

    def _request_preview(self) -> None:
        meta = self.selected_session
        if meta is not None and meta.id not in self.previews:
            self._load_preview(meta)

    def render(self, columns: int, rows: int, *, colour: bool) -> list[str]:
        """At most so many rows: what is previewed gives way first, then the head."""
        has_preview, has_head = rows >= _PREVIEW_LINES + 6, rows >= _MIN_ROWS_WITH_HEAD
        room = max(1, min(10, rows - has_head - (_PREVIEW_LINES + 2) * has_preview))
        first = max(0, min(self._index - room // 2, len(self._found) - room))
        head: Line = [(Style.BOLD, f"Sessions ({len(self._found)} of {len(self._all)})")]
        lines = [head] if has_head else []
        for number, meta in enumerate(self._found[first : first + room], first):
            lines.append(self._format_row(meta, columns, selected=number == self._index))
        if not self._found:
            lines.append([(Style.DIM, "  no match")])
        selected = self.selected_session
        if selected is not None and has_preview:
            lines.append([(Style.DIM, "─" * min(40, columns - 1))])
            for message in self.previews.get(selected.id, [])[-_PREVIEW_LINES:]:
                who = {"user": "❯ ", "assistant": "  "}.get(message.role, "· ")
                text = fit_text(who + one_line(message.text, columns), columns - 1)
                lines.append([("" if message.role == "user" else Style.DIM, text)])
        return [paint_line(line, colour=colour) for line in lines]

    def _format_row(self, meta: SessionMeta, columns: int, *, selected: bool) -> Line:
        """A session on one line; its folder where it is not the present one."""
        used = time.strftime("%m-%d %H:%M", time.localtime(meta.updated))
        state = "" if meta.state == "idle" else f" ({meta.state})"
        title = one_line(meta.title or "(no title)", columns)
        other = meta.cwd != self._folder
        where = fit_text(f" · {one_line(shorten_path(meta.cwd))}", columns // 3) if other else ""
        room = columns - 3 - cell_width(where)
        text = fit_text(f"{used}  {meta.messages:>4}  {title}{state}", room)
        style = Style.BOLD if selected else ""
        return [(Style.MARK, "❯ " if selected else "  "), (style, text), (Style.DIM, where)]

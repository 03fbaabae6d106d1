"""Choosing a stored session: a list that is searched while typing, with a preview."""

from __future__ import annotations

import time
from collections.abc import Callable

from hermes.cli.repl.markdown.styled_text import BOLD, DIM, MARK, Piece, fit, painted
from hermes.cli.terminal.text import one_line
from hermes.core.message import Message
from hermes.core.store import SessionMeta

_PREVIEW = 4
_SOUGHT = 2
"""Letters before messages are searched, too."""


class Picking:
    """One choice; `done` is called once, with a session or with None."""

    def __init__(
        self,
        sessions: list[SessionMeta],
        done: Callable[[SessionMeta | None], None],
        look: Callable[[SessionMeta], None],
        seek: Callable[[str], None],
    ) -> None:
        self._all = sessions
        self._found = sessions
        self.done = done
        self._look = look
        self._seek = seek
        self._text = ""
        self._at = 0
        self.previews: dict[str, list[Message]] = {}
        """The last messages of those that were looked at."""
        self._chosen()

    @property
    def chosen(self) -> SessionMeta | None:
        return self._found[self._at] if self._found else None

    def search(self, text: str) -> None:
        """By words of title, model and id at once; what was said is sought meanwhile."""
        self._text = text
        self._sort(frozenset())
        if len(text.strip()) >= _SOUGHT:
            self._seek(text)

    def inside(self, text: str, sessions: frozenset[str]) -> None:
        """Those whose messages have the words, if they are still what is looked for."""
        if text == self._text and sessions:
            self._sort(sessions)

    def _sort(self, inside: frozenset[str]) -> None:
        words, before = self._text.casefold().split(), self.chosen
        self._found = [
            meta
            for meta in self._all
            if meta.id in inside
            or all(w in f"{meta.title} {meta.model} {meta.id}".casefold() for w in words)
        ]
        self._at = self._found.index(before) if inside and before in self._found else 0
        self._chosen()

    def move(self, by: int) -> None:
        if self._found:
            self._at = (self._at + by) % len(self._found)
            self._chosen()

    def _chosen(self) -> None:
        meta = self.chosen
        if meta is not None and meta.id not in self.previews:
            self._look(meta)

    def shown(self, columns: int, rows: int, *, colour: bool) -> list[str]:
        room = max(3, min(10, rows - _PREVIEW - 3))
        first = max(0, min(self._at - room // 2, len(self._found) - room))
        lines: list[list[Piece]] = [[(BOLD, f"Sessions ({len(self._found)} of {len(self._all)})")]]
        for number, meta in enumerate(self._found[first : first + room], first):
            lines.append(_row(meta, columns, here=number == self._at))
        if not self._found:
            lines.append([(DIM, "  none fits")])
        chosen = self.chosen
        if chosen is not None:
            lines.append([(DIM, "─" * min(40, columns - 1))])
            for message in self.previews.get(chosen.id, [])[-_PREVIEW:]:
                who = {"user": "❯ ", "assistant": "  "}.get(message.role, "· ")
                text = fit(who + one_line(message.text, columns), columns - 1)
                lines.append([("" if message.role == "user" else DIM, text)])
        return [painted(line, colour=colour) for line in lines]


def _row(meta: SessionMeta, columns: int, *, here: bool) -> list[Piece]:
    used = time.strftime("%m-%d %H:%M", time.localtime(meta.updated))
    state = "" if meta.state == "idle" else f" ({meta.state})"
    title = one_line(meta.title or "(no title)", columns)
    text = fit(f"{used}  {meta.messages:>4}  {title}{state}", columns - 3)
    return [(MARK, "❯ " if here else "  "), (BOLD if here else "", text)]

"""Searches the contents or the names of files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._files.boundary import require_readable
from hermes.tools._files.paths import (
    check_listed_file,
    describe_missing,
    display_path,
    open_file,
    resolve_path,
)

if TYPE_CHECKING:
    from hermes.tools._files.ripgrep import FoundLine, SearchQuery

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_CONTEXT = 10
MAX_CHARS = 40_000
_MAX_LINE_CHARS = 300
"""Longer lines are cut around the match."""
_LINE_BREAK = re.compile(r"(?<!\\)(?:\\\\)*\\n|\n")


class Params(Struct, frozen=True):
    pattern: str
    path: str | None = None
    glob: str | None = None
    kind: Literal["content", "names"] | None = None
    limit: int | None = None
    context: int | None = None


@tool("Search file contents by regex or, with kind=names, names by glob. Skips what git ignores.")
async def search_files(p: Params, ctx: ToolContext) -> ToolResult:
    from hermes.tools._files.ripgrep import TIMEOUT, SearchQuery

    if not p.pattern:
        raise ToolError("The pattern is empty.")
    root = resolve_path(p.path or ".", ctx.workspace.cwd)
    await require_readable(root, ctx)
    if not os.path.exists(root):  # noqa: ASYNC240, PTH110 - Path's fails on long names
        raise ToolError(describe_missing(root))
    query = SearchQuery(
        root,
        p.pattern,
        p.glob or "",
        min(max(p.context or 0, 0), MAX_CONTEXT),
        min(max(p.limit or DEFAULT_LIMIT, 1), MAX_LIMIT),
    )
    _require_searchable(query)
    found = _MatchList(query, ctx)
    try:
        async with asyncio.timeout(TIMEOUT):
            await (_search_names if p.kind == "names" else _search_contents)(query, ctx, found)
    except TimeoutError:
        found.notes.append(f"stopped after {TIMEOUT:g} s or too much output; narrow the search")
    except OSError as error:
        raise ToolError(f"Cannot search {root}: {error.strerror}.") from None
    return found.build_result(p)


def _require_searchable(query: SearchQuery) -> None:
    from hermes.tools._files.ripgrep import MAX_FILE_BYTES
    from hermes.tools._files.walk import KERNEL_FOLDERS

    if any(str(folder) in KERNEL_FOLDERS for folder in (query.root, *query.root.parents)):
        raise ToolError(f"{query.root} has no ordinary files; use terminal.")
    if query.single_file and query.root.stat().st_size > MAX_FILE_BYTES:
        raise ToolError(
            f"{query.root} is larger than {MAX_FILE_BYTES >> 20} MB; use terminal (grep)."
        )


async def _search_contents(query: SearchQuery, ctx: ToolContext, found: _MatchList) -> None:
    from hermes.tools._files.ripgrep import BadPattern, search_lines

    if _LINE_BREAK.search(query.pattern):
        raise ToolError("The pattern contains a line break, but lines are searched one by one.")
    try:
        async with contextlib.aclosing(search_lines(query, ctx.workspace)) as stream:
            async for line in stream:
                if not found.add_line(line):
                    break
    except BadPattern as error:
        literal = re.sub(r"[\\.^$*+?{}\[\]|()]", r"\\\g<0>", query.pattern)
        raise ToolError(
            f"Not a valid regex: {error}. To search for the text itself use the pattern {literal}"
        ) from None


async def _search_names(query: SearchQuery, ctx: ToolContext, found: _MatchList) -> None:
    from hermes.tools._files.ripgrep import list_names

    fits = _make_name_filter(query.pattern)
    async with contextlib.aclosing(list_names(query, ctx.workspace)) as stream:
        async for name in stream:
            if fits(name) and not found.add_name(name):
                break


def _make_name_filter(pattern: str) -> Callable[[str], bool]:
    """A test for names: by glob or, without wildcards, by a part of the name, ignoring case."""
    from hermes.tools._files.globs import WILDCARDS, compile_glob

    if WILDCARDS & set(pattern):
        return compile_glob(pattern)
    wanted = pattern.casefold()
    if "/" in pattern:
        return lambda path: wanted in path.casefold()
    return lambda path: wanted in path.rpartition("/")[2].casefold()


class _MatchList:
    """The matches to show and notes about the rest; files that may not be read are left out."""

    def __init__(self, query: SearchQuery, ctx: ToolContext) -> None:
        from hermes.tools._files.globs import compile_glob

        self._query = query
        self._workspace = ctx.workspace
        self._matches_glob = (
            compile_glob(query.glob) if query.glob and not query.single_file else None
        )
        self._current_file = ""
        self._current_rows: list[bytes] = []
        """The lines of that file, read by us; none when it may not be shown."""
        self._last_number = 0
        self._room = MAX_CHARS
        self._cwd = Path(os.path.realpath(ctx.workspace.cwd))
        self.rows: list[str] = []
        self.notes: list[str] = []
        self.matches = 0

    def add_line(self, line: FoundLine) -> bool:
        """Add a line; False when no more are needed."""
        if line.path != self._current_file:
            self._current_file = line.path
            self._current_rows = self._read_rows(line.path)
            self._last_number = -1
        if not self._is_confirmed(line):
            return True
        if line.match_start is not None and self._stop_at_limit():
            return False
        if self._query.context and self.rows and line.number != self._last_number + 1:
            self.rows.append("--")
        self._last_number = line.number
        sign = "-" if line.match_start is None else ":"
        self._add_row(
            f"{self._format_name(line.path)}{sign}{line.number}{sign} {_shorten_line(line)}"
        )
        self.matches += line.match_start is not None
        return self._room > 0

    def add_name(self, name: str) -> bool:
        if not self._may_list(name):
            return True
        if self._stop_at_limit():
            return False
        self._add_row(self._format_name(name))
        self.matches += 1
        return self._room > 0

    def build_result(self, p: Params) -> ToolResult:
        if self._room <= 0:
            self.notes.append("more than can be shown; narrow the search")
        if not self.rows:
            what = f"No {'file name' if p.kind == 'names' else 'line'} matches {p.pattern!r}"
            where = f"{self._query.root}{f' ({p.glob})' if p.glob else ''}"
            self.notes.insert(
                0, f"{what} in {where}. Files ignored by git, binary or very large are left out"
            )
            if p.kind != "names" and "\\|" in p.pattern:
                self.notes.append("\\| is the character | here; alternatives are written a|b")
        notes = [f"[{note}]" for note in self.notes]
        return ToolResult("\n".join([*self.rows, *notes]), data={"matches": self.matches})

    def _stop_at_limit(self) -> bool:
        if self.matches < self._query.max_matches:
            return False
        if self.rows[-1] == "--":
            self.rows.pop()
        self.notes.append(
            f"the first {self.matches} matches; narrow pattern, path or glob, or raise limit"
        )
        return True

    def _add_row(self, row: str) -> None:
        self._room -= len(row) + 1
        self.rows.append(row)

    def _read_rows(self, name: str) -> list[bytes]:
        """The lines of a file that may be shown. The engine opened it by its path: a folder on the
        way may have been a link to elsewhere at that moment."""
        from hermes.tools._files.ripgrep import MAX_FILE_BYTES, split_lines

        if self._matches_glob and not self._matches_glob(name):
            return []
        try:
            with open_file(self._query.folder / name, self._workspace) as (file, _):
                return split_lines(file.read(MAX_FILE_BYTES))
        except (OSError, ToolError):
            return []

    def _is_confirmed(self, line: FoundLine) -> bool:
        """Whether the line is in the file as we read it."""
        if not 0 < line.number <= len(self._current_rows):
            return False
        row = self._current_rows[line.number - 1].rstrip(b"\r")
        return any(row.decode(name, "replace") == line.text for name in ("utf-8", "latin-1"))

    def _may_list(self, name: str) -> bool:
        if self._matches_glob and not self._matches_glob(name):
            return False
        try:
            check_listed_file(self._query.folder / name, self._workspace)
        except (OSError, ToolError):
            return False
        return True

    def _format_name(self, name: str) -> str:
        return display_path(self._query.folder / name, self._cwd)


def _shorten_line(line: FoundLine) -> str:
    """The part of a long line around the match, or its start."""
    text = line.text
    if len(text) <= _MAX_LINE_CHARS:
        return text
    start = max(0, min((line.match_start or 0) - _MAX_LINE_CHARS // 3, len(text) - _MAX_LINE_CHARS))
    return f"{'…' * bool(start)}{text[start : start + _MAX_LINE_CHARS]}…"

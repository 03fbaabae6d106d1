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
from hermes.tools._files.paths import check, check_unopened, describe_missing, resolve

if TYPE_CHECKING:
    from hermes.tools._files.ripgrep import Line, Query

LIMIT = 100
MAX_LIMIT = 1000
MAX_CONTEXT = 10
MAX_CHARS = 40_000
_WIDTH = 300
"""Characters of a line that are shown."""
_MULTILINE = re.compile(r"(?<!\\)(?:\\\\)*\\n|\n")


class Params(Struct, frozen=True):
    pattern: str
    path: str | None = None
    glob: str | None = None
    kind: Literal["content", "names"] | None = None
    limit: int | None = None
    context: int | None = None


@tool("Search file contents by regex or, with kind=names, names by glob. Skips what git ignores.")
async def search_files(p: Params, ctx: ToolContext) -> ToolResult:
    from hermes.tools._files.ripgrep import SECONDS, Query

    if not p.pattern:
        raise ToolError("The pattern is empty.")
    root = resolve(p.path or ".", ctx.workspace.cwd)
    check(root, ctx.workspace, write=False)
    if not root.exists():
        raise ToolError(describe_missing(root))
    query = Query(
        root,
        p.pattern,
        p.glob or "",
        min(max(p.context or 0, 0), MAX_CONTEXT),
        min(max(p.limit or LIMIT, 1), MAX_LIMIT),
    )
    _readable(query)
    found = _Found(query, ctx)
    try:
        async with asyncio.timeout(SECONDS):
            await (_names if p.kind == "names" else _contents)(query, ctx, found)
    except TimeoutError:
        found.notes.append(f"stopped after {SECONDS:g} s or too much output; narrow the search")
    except OSError as error:
        raise ToolError(f"Cannot search {root}: {error.strerror}.") from None
    return found.result(p)


def _readable(query: Query) -> None:
    from hermes.tools._files.ripgrep import LARGEST
    from hermes.tools._files.walk import KERNEL

    if any(str(folder) in KERNEL for folder in (query.root, *query.root.parents)):
        raise ToolError(f"{query.root} holds no ordinary files; use terminal.")
    if query.only and query.root.stat().st_size > LARGEST:
        raise ToolError(f"{query.root} is larger than {LARGEST >> 20} MB; use terminal (grep).")


async def _contents(query: Query, ctx: ToolContext, found: _Found) -> None:
    from hermes.tools._files.ripgrep import BadPattern, lines

    if _MULTILINE.search(query.pattern):
        raise ToolError("Lines are searched one by one: the pattern may not contain a line break.")
    try:
        async with contextlib.aclosing(lines(query, ctx.workspace)) as stream:
            async for line in stream:
                if not found.take(line):
                    break
    except BadPattern as error:
        literal = re.sub(r"[\\.^$*+?{}\[\]|()]", r"\\\g<0>", query.pattern)
        raise ToolError(
            f"Not a valid regex: {error}. To search for that very text use the pattern {literal}"
        ) from None


async def _names(query: Query, ctx: ToolContext, found: _Found) -> None:
    from hermes.tools._files.ripgrep import names

    fits = _name_test(query.pattern)
    async with contextlib.aclosing(names(query, ctx.workspace)) as stream:
        async for name in stream:
            if fits(name) and not found.take_name(name):
                break


def _name_test(pattern: str) -> Callable[[str], bool]:
    """A glob; without any sign of one, a part of the name (or path), whatever its case."""
    from hermes.tools._files.globs import WILD, matcher

    if WILD & set(pattern):
        return matcher(pattern)
    wanted = pattern.casefold()
    if "/" in pattern:
        return lambda path: wanted in path.casefold()
    return lambda path: wanted in path.rpartition("/")[2].casefold()


class _Found:
    """What is shown, and how much more there is. A file that may not be read is not in it."""

    def __init__(self, query: Query, ctx: ToolContext) -> None:
        from hermes.tools._files.globs import matcher

        self._query = query
        self._workspace = ctx.workspace
        self._fits = matcher(query.glob) if query.glob and not query.only else None
        self._file = ""
        self._shown = False
        self._last = 0
        self._room = MAX_CHARS
        self._cwd = Path(os.path.realpath(ctx.workspace.cwd))
        self.rows: list[str] = []
        self.notes: list[str] = []
        self.matches = 0

    def take(self, line: Line) -> bool:
        """False when there is no need for more."""
        if line.path != self._file:
            self._file = line.path
            self._shown = self._may_show(line.path)
            self._last = -1
        if not self._shown:
            return True
        if line.at is not None and self._full():
            return False
        if self._query.context and self.rows and line.number != self._last + 1:
            self.rows.append("--")
        self._last = line.number
        sign = "-" if line.at is None else ":"
        self._add(f"{self._name(line.path)}{sign}{line.number}{sign} {_cut(line)}")
        self.matches += line.at is not None
        return self._room > 0

    def take_name(self, name: str) -> bool:
        if not self._may_show(name):
            return True
        if self._full():
            return False
        self._add(self._name(name))
        self.matches += 1
        return self._room > 0

    def result(self, p: Params) -> ToolResult:
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

    def _full(self) -> bool:
        if self.matches < self._query.most:
            return False
        if self.rows[-1] == "--":
            self.rows.pop()
        self.notes.append(
            f"the first {self.matches} matches; for others narrow pattern, path or glob, or raise "
            "limit"
        )
        return True

    def _add(self, row: str) -> None:
        self._room -= len(row) + 1
        self.rows.append(row)

    def _may_show(self, name: str) -> bool:
        if self._fits and not self._fits(name):
            return False
        path = self._query.folder / name
        try:
            check(Path(os.path.realpath(path)), self._workspace, write=False)
            check_unopened(path, self._workspace)
        except (OSError, ToolError):
            return False
        return True

    def _name(self, name: str) -> str:
        path = self._query.folder / name
        return str(path.relative_to(self._cwd) if path.is_relative_to(self._cwd) else path)


def _cut(line: Line) -> str:
    """The part of a long line that matches, or its start."""
    text = line.text
    if len(text) <= _WIDTH:
        return text
    start = max(0, min((line.at or 0) - _WIDTH // 3, len(text) - _WIDTH))
    return f"{'…' * bool(start)}{text[start : start + _WIDTH]}…"

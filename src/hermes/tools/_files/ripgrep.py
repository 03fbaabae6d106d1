"""Runs ripgrep, or what stands in for it, and reads what it finds until there is enough."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import Workspace
from hermes.tools._files.paths import SECRET
from hermes.tools._files.walk import KERNEL, files

LARGEST = 10 * 1024 * 1024
"""Bytes of a file that is searched."""
SECONDS = 30.0
OUTPUT = 32 * 1024 * 1024
"""Bytes a search may print before it is stopped."""
_CHUNK = 64 * 1024
_FILES = 500
_SIMPLE = re.compile(r"[\w.*?+\-]+")
"""Globs that ripgrep surely reads as we do; all of them are tried again on what it finds."""
_LITERAL = re.compile(r"[\w \-/,:;=<>@!#%&~'\"`]+", re.ASCII)


class Query(Struct, frozen=True):
    root: Path
    """A folder, or one file."""
    pattern: str = ""
    glob: str = ""
    context: int = 0
    most: int = 100
    """Matches wanted."""

    @property
    def folder(self) -> Path:
        return self.root.parent if self.only else self.root

    @property
    def only(self) -> str:
        """The one file to search, or nothing."""
        return self.root.name if self.root.is_file() else ""


class Line(Struct, frozen=True):
    """A line that matches, or one near it. `at` is the character the match begins with."""

    path: str
    number: int
    text: str
    at: int | None


class BadPattern(ToolError):
    """An expression the engine does not understand."""


def ripgrep(workspace: Workspace) -> str:
    """Where it is, or nothing. Only absolute folders count: the working folder is not trusted."""
    for folder in workspace.child_env.get("PATH", "").split(os.pathsep):
        program = Path(folder) / "rg"
        if program.is_absolute() and program.is_file() and os.access(program, os.X_OK):
            return str(program)
    return ""


# -- lines ---------------------------------------------------------------------------------


async def lines(query: Query, workspace: Workspace) -> AsyncGenerator[Line, None]:
    """Matching lines by file and number. Raises BadPattern, or TimeoutError after too many."""
    program = ripgrep(workspace)
    try:
        if program:
            async with contextlib.aclosing(_ripgrep_lines(program, query, workspace)) as found:
                async for line in found:
                    yield line
            return
    except BadPattern as error:
        # Look-around and back references are beyond ripgrep, not beyond us.
        if "look" not in str(error) and "backref" not in str(error):
            raise
    async with contextlib.aclosing(_own_lines(query, workspace)) as found:
        async for line in found:
            yield line


async def _ripgrep_lines(
    program: str, query: Query, workspace: Workspace
) -> AsyncGenerator[Line, None]:
    argv = [
        program,
        *_options(query, workspace),
        "--json",
        "--crlf",
        f"--max-count={query.most + 1}",
    ]
    argv += [f"--context={query.context}", f"--regexp={query.pattern}"]
    if _SIMPLE.fullmatch(query.glob):
        argv += ["--type-add", f"wanted:{query.glob}", "--type", "wanted"]
    argv += ["--", f"./{query.only}"]
    async with contextlib.aclosing(_output(argv, query.folder, workspace)) as output:
        async for line in _unless_binary(output):
            yield line


async def _own_lines(query: Query, workspace: Workspace) -> AsyncGenerator[Line, None]:
    argv = [sys.executable, "-I", "-S", str(Path(__file__).with_name("grep_fallback.py"))]
    order = msgspec.json.encode(
        {
            "pattern": query.pattern,
            "literal": bool(_LITERAL.fullmatch(query.pattern)),
            "context": query.context,
            "most": query.most + 1,
            "largest": LARGEST,
        }
    )
    names = iter([query.only]) if query.only else files(query.folder, workspace)
    if query.glob and not query.only:
        from hermes.tools._files.globs import matcher

        names = filter(matcher(query.glob), names)
    async with contextlib.aclosing(
        _output(argv, query.folder, workspace, (order, names))
    ) as output:
        async for raw in output:
            found = msgspec.json.decode(raw)
            yield _line(found["data"], matches=found["type"] == "match")


async def _unless_binary(output: AsyncIterator[bytes]) -> AsyncGenerator[Line, None]:
    """Of ripgrep, which may say only after its matches that a file is binary."""
    held: list[Line] = []
    async for raw in output:
        found = msgspec.json.decode(raw)
        if found["type"] in ("match", "context"):
            held.append(_line(found["data"], matches=found["type"] == "match"))
        elif found["type"] == "end":
            for line in held if found["data"]["binary_offset"] is None else ():
                yield line
            held.clear()


def _line(data: dict[str, Any], *, matches: bool) -> Line:
    raw = _bytes(data["lines"])
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    hits = data["submatches"]  # none for `\A`, even where it matches
    start = hits[0]["start"] if hits else 0
    at = len(raw[:start].decode("utf-8", "replace")) if matches else None
    path = os.fsdecode(_bytes(data["path"])).removeprefix("./")
    return Line(path, data["line_number"], text.rstrip("\r\n"), at)


def _bytes(value: dict[str, str]) -> bytes:
    return value["text"].encode() if "text" in value else base64.b64decode(value["bytes"])


# -- names ---------------------------------------------------------------------------------


async def names(query: Query, workspace: Workspace) -> AsyncGenerator[str, None]:
    """All files below a folder, relative to it, in order."""
    program = ripgrep(workspace)
    if not program:
        below = files(query.folder, workspace)
        while chunk := await asyncio.to_thread(_take, below):
            for name in chunk:
                yield name
        return
    argv = [program, *_options(query, workspace), "--files", "--null", "--", "./"]
    async with contextlib.aclosing(_output(argv, query.folder, workspace, end=b"\0")) as output:
        async for raw in output:
            yield os.fsdecode(raw).removeprefix("./")


def _take(below: Iterator[str]) -> list[str]:
    return list(islice(below, _FILES))


# -- processes -----------------------------------------------------------------------------


def _options(query: Query, workspace: Workspace) -> list[str]:
    """The same files, in the same order, as our own walk."""
    hidden = ["!.git", "!**/.hermes", *(f"!**/{'/'.join(rule)}" for rule in SECRET)]
    if query.folder == Path("/"):
        hidden += [f"!{name}" for name in sorted(KERNEL)]
    if workspace.home.is_relative_to(query.folder) and workspace.home != query.folder:
        inside = re.sub(r"[*?\[\]{}\\!]", r"\\\g<0>", str(workspace.home.relative_to(query.folder)))
        hidden.append(f"!/{inside}")
    return [
        "--no-config",
        "--no-messages",
        "--color=never",
        "--sort=path",
        "--hidden",
        "--no-require-git",
        "--no-ignore-dot",
        "--no-ignore-exclude",
        "--no-ignore-global",
        f"--max-filesize={LARGEST}",
        *(f"--iglob={glob}" for glob in hidden),
    ]


async def _output(
    argv: Sequence[str],
    folder: Path,
    workspace: Workspace,
    feed: tuple[bytes, Iterator[str]] | None = None,
    *,
    end: bytes = b"\n",
) -> AsyncGenerator[bytes, None]:
    """What a program prints, record by record; it is dead when this is over."""
    from asyncio import subprocess

    process = await subprocess.create_subprocess_exec(
        *argv,
        cwd=folder,
        env=workspace.child_env,
        stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout and process.stderr
    complaint = asyncio.ensure_future(process.stderr.read(4096))
    tasks: list[asyncio.Future[Any]] = [complaint]
    if feed and process.stdin:
        tasks.append(asyncio.ensure_future(_feed(process.stdin, *feed)))
    try:
        async for record in _records(process.stdout, end):
            yield record
        said = (await complaint).decode("utf-8", "replace")
        if await process.wait() == 2 and "error:" in said:
            raise BadPattern(said.rpartition("error:")[2].strip().partition("\n")[0])
    finally:
        await asyncio.shield(_end(process, tasks))


async def _records(stdout: asyncio.StreamReader, end: bytes) -> AsyncGenerator[bytes, None]:
    size = 0
    rest: list[bytes] = []
    while block := await stdout.read(_CHUNK):
        size += len(block)
        if size > OUTPUT:
            raise TimeoutError
        if end not in block:
            rest.append(block)
            continue
        first, *whole, last = block.split(end)
        yield b"".join([*rest, first])
        for record in whole:
            yield record
        rest = [last] if last else []


async def _feed(stdin: asyncio.StreamWriter, order: bytes, below: Iterator[str]) -> None:
    with contextlib.suppress(ConnectionError):
        stdin.write(order + b"\0")
        while chunk := await asyncio.to_thread(_take, below):
            stdin.write(b"".join([os.fsencode(name) + b"\0" for name in chunk]))
            await stdin.drain()
        stdin.close()


async def _end(process: asyncio.subprocess.Process, tasks: list[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    for stream in (process.stdout, process.stderr):
        while stream and await stream.read(_CHUNK):  # it is over when its pipes are empty
            pass
    await process.wait()

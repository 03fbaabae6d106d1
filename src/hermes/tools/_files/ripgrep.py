"""Searches with ripgrep, or with the fallback, and reads the output until there is enough."""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextlib
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import Workspace
from hermes.exec.path_rules import list_names as list_rule_names
from hermes.tools._files.paths import find_interpreter, find_program
from hermes.tools._files.walk import KERNEL_FOLDERS, walk_files

MAX_FILE_BYTES = 10 * 1024 * 1024
"""Larger files are not searched."""
TIMEOUT = 30.0
MAX_OUTPUT_BYTES = 32 * 1024 * 1024
"""A search that prints more is stopped."""
_BLOCK_SIZE = 64 * 1024
_NAMES_PER_CHUNK = 500
_SIMPLE_GLOB = re.compile(r"[\w.*?+\-]+")
"""Globs that ripgrep reads as we do; every glob is applied again to what it finds."""
_LITERAL_PATTERN = re.compile(r"[\w \-/,:;=<>@!#%&~'\"`]+", re.ASCII)


class SearchQuery(Struct, frozen=True):
    root: Path
    """A folder, or one file."""
    pattern: str = ""
    glob: str = ""
    context: int = 0
    max_matches: int = 100

    @property
    def folder(self) -> Path:
        return self.root.parent if self.single_file else self.root

    @property
    def single_file(self) -> str:
        """The name of the only file to search; empty: a folder is searched."""
        return self.root.name if self.root.is_file() else ""


class FoundLine(Struct, frozen=True):
    """A matching line, or a line of context: `match_start` is then None."""

    path: str
    number: int
    text: str
    match_start: int | None


class BadPattern(ToolError):
    """An expression that the engine does not understand."""


def find_ripgrep(workspace: Workspace) -> str:
    return find_program("rg", workspace)


async def search_lines(query: SearchQuery, workspace: Workspace) -> AsyncGenerator[FoundLine, None]:
    """Matching lines by file and number. Raises BadPattern, or TimeoutError for too much output."""
    program = find_ripgrep(workspace)
    try:
        if program:
            async with contextlib.aclosing(_run_ripgrep(program, query, workspace)) as found:
                async for line in found:
                    yield line
            return
    except BadPattern as error:
        # The fallback knows look-around and back references.
        if "look" not in str(error) and "backref" not in str(error):
            raise
    async with contextlib.aclosing(_run_fallback(query, workspace)) as found:
        async for line in found:
            yield line


async def _run_ripgrep(
    program: str, query: SearchQuery, workspace: Workspace
) -> AsyncGenerator[FoundLine, None]:
    argv = [
        program,
        *_build_options(query, workspace),
        "--json",
        "--crlf",
        f"--max-count={query.max_matches + 1}",
    ]
    argv += [f"--context={query.context}", f"--regexp={query.pattern}"]
    if _SIMPLE_GLOB.fullmatch(query.glob):
        argv += ["--type-add", f"wanted:{query.glob}", "--type", "wanted"]
    argv += ["--", f"./{query.single_file}"]
    async with contextlib.aclosing(_run_program(argv, query.folder, workspace)) as output:
        async for line in _drop_binary_matches(output):
            yield line


async def _run_fallback(
    query: SearchQuery, workspace: Workspace
) -> AsyncGenerator[FoundLine, None]:
    script = str(Path(__file__).with_name("grep_fallback.py"))
    argv = [find_interpreter(workspace), "-I", "-S", script]
    order = msgspec.json.encode(
        {
            "pattern": query.pattern,
            "literal": bool(_LITERAL_PATTERN.fullmatch(query.pattern)),
            "context": query.context,
            "most": query.max_matches + 1,
            "largest": MAX_FILE_BYTES,
        }
    )
    names = iter([query.single_file]) if query.single_file else walk_files(query.folder, workspace)
    if query.glob and not query.single_file:
        from hermes.tools._files.globs import compile_glob

        names = filter(compile_glob(query.glob), names)
    async with contextlib.aclosing(
        _run_program(argv, query.folder, workspace, (order, names))
    ) as output:
        async for raw in output:
            found = msgspec.json.decode(raw)
            yield _parse_line(found["data"], matches=found["type"] == "match")


async def _drop_binary_matches(output: AsyncIterator[bytes]) -> AsyncGenerator[FoundLine, None]:
    """Lines of text files: ripgrep may report only after its matches that a file is binary."""
    pending: list[FoundLine] = []
    async for raw in output:
        found = msgspec.json.decode(raw)
        if found["type"] in ("match", "context"):
            pending.append(_parse_line(found["data"], matches=found["type"] == "match"))
        elif found["type"] == "end":
            for line in pending if found["data"]["binary_offset"] is None else ():
                yield line
            pending.clear()


def _parse_line(data: dict[str, Any], *, matches: bool) -> FoundLine:
    raw = _decode_field(data["lines"])
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    hits = data["submatches"]  # none for `\A`, even where it matches
    start = hits[0]["start"] if hits else 0
    at = len(raw[:start].decode("utf-8", "replace")) if matches else None
    path = os.fsdecode(_decode_field(data["path"])).removeprefix("./")
    return FoundLine(path, data["line_number"], text.rstrip("\r\n").removeprefix("\ufeff"), at)


def split_lines(data: bytes) -> list[bytes]:
    """The lines of a file as the engines count them, in UTF-8 where the file says what it is."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", "replace").encode("utf-8", "replace")
    return data.removeprefix(codecs.BOM_UTF8).split(b"\n")


def _decode_field(value: dict[str, str]) -> bytes:
    return value["text"].encode() if "text" in value else base64.b64decode(value["bytes"])


async def list_names(query: SearchQuery, workspace: Workspace) -> AsyncGenerator[str, None]:
    """All files below a folder, relative to it, sorted."""
    program = find_ripgrep(workspace)
    if not program:
        below = walk_files(query.folder, workspace)
        while chunk := await asyncio.to_thread(_take_names, below):
            for name in chunk:
                yield name
        return
    argv = [program, *_build_options(query, workspace), "--files", "--null", "--", "./"]
    async with contextlib.aclosing(
        _run_program(argv, query.folder, workspace, end=b"\0")
    ) as output:
        async for raw in output:
            yield os.fsdecode(raw).removeprefix("./")


def _take_names(below: Iterator[str]) -> list[str]:
    return list(islice(below, _NAMES_PER_CHUNK))


def _build_options(query: SearchQuery, workspace: Workspace) -> list[str]:
    """Options that select the same files, in the same order, as `walk_files`."""
    hidden = [
        "!.git",
        "!**/.hermes",
        *(f"!**/{name}" for name in list_rule_names("hide", scope="anywhere")),
    ]
    if query.folder == Path("/"):
        hidden += [f"!{name}" for name in sorted(KERNEL_FOLDERS)]
    for path in (workspace.home, *workspace.hidden):
        if path.is_relative_to(query.folder) and path != query.folder:
            inside = re.sub(r"[*?\[\]{}\\!]", r"\\\g<0>", str(path.relative_to(query.folder)))
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
        f"--max-filesize={MAX_FILE_BYTES}",
        *(f"--iglob={glob}" for glob in hidden),
    ]


async def _run_program(
    argv: Sequence[str],
    folder: Path,
    workspace: Workspace,
    feed: tuple[bytes, Iterator[str]] | None = None,
    *,
    end: bytes = b"\n",
) -> AsyncGenerator[bytes, None]:
    """The output of a program, record by record; the program has ended when this returns."""
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
        tasks.append(asyncio.ensure_future(_feed_input(process.stdin, *feed)))
    try:
        async for record in _split_records(process.stdout, end):
            yield record
        error_text = (await complaint).decode("utf-8", "replace")
        if await process.wait() == 2 and "error:" in error_text:
            raise BadPattern(error_text.rpartition("error:")[2].strip().partition("\n")[0])
    finally:
        await asyncio.shield(_end_process(process, tasks))


async def _split_records(stdout: asyncio.StreamReader, end: bytes) -> AsyncGenerator[bytes, None]:
    size = 0
    partial: list[bytes] = []
    while block := await stdout.read(_BLOCK_SIZE):
        size += len(block)
        if size > MAX_OUTPUT_BYTES:
            raise TimeoutError
        if end not in block:
            partial.append(block)
            continue
        first, *complete, last = block.split(end)
        yield b"".join([*partial, first])
        for record in complete:
            yield record
        partial = [last] if last else []


async def _feed_input(stdin: asyncio.StreamWriter, order: bytes, below: Iterator[str]) -> None:
    with contextlib.suppress(ConnectionError):
        stdin.write(order + b"\0")
        while chunk := await asyncio.to_thread(_take_names, below):
            stdin.write(b"".join([os.fsencode(name) + b"\0" for name in chunk]))
            await stdin.drain()
        stdin.close()


async def _end_process(
    process: asyncio.subprocess.Process, tasks: list[asyncio.Future[Any]]
) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    for stream in (process.stdout, process.stderr):
        while stream and await stream.read(_BLOCK_SIZE):
            pass  # the process ends once its pipes are empty
    await process.wait()

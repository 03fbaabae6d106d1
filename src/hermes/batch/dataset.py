"""Reads datasets: JSON Lines with a prompt each. Every bad line is named before anything runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from hermes.batch.image_files import is_image_name
from hermes.core.errors import ConfigError
from hermes.core.message import Message, Text, user_message

CheckToolsets: TypeAlias = Callable[[Sequence[str]], object]
"""Raises ConfigError for toolsets that there are not."""
CheckFolder: TypeAlias = Callable[[Path], object]
"""Raises ConfigError for folders that items may not begin with."""
_MAX_SHOWN = 20
_TEXT_ROLES = ("system", "user", "assistant")


class BatchItem(Struct, frozen=True):
    """One prompt of a dataset and how it is to be answered."""

    number: int
    """Its place among the items, from 0."""
    id: str
    prompt: str
    past: tuple[Message, ...] = ()
    """What was said before the prompt."""
    image: str = ""
    """The container image its commands run in."""
    cwd: str = ""
    """A folder inside the workspace."""
    files: dict[str, str] = {}
    workspace: str = ""
    """A folder whose content the workspace begins with."""
    toolsets: tuple[str, ...] | None = None
    model: str = ""
    system: str = ""
    metadata: dict[str, Any] = {}
    repository: str = ""
    """A local repository to check out as the workspace."""
    commit: str = ""
    """Where the repository begins; without `repository` it is that of the image."""


class Dataset(Struct, frozen=True):
    items: tuple[BatchItem, ...]
    skipped: int = 0
    """Bad lines that were left out."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.encode_items()).hexdigest()

    def encode_items(self) -> bytes:
        """JSON Lines that `decode_items` reads."""
        return b"".join(msgspec.json.encode(item) + b"\n" for item in self.items)


def decode_items(data: bytes) -> Dataset:
    decoder = msgspec.json.Decoder(BatchItem)
    return Dataset(tuple(decoder.decode(line) for line in data.splitlines()))


class _Row(Struct, forbid_unknown_fields=False):
    """A line. Tables that are written as JSON have null where a row has no value."""

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    id: str | int | None = None
    image: str | None = None
    docker_image: str | None = None
    cwd: str | None = None
    files: dict[str, str | None] | None = None
    workspace: str | None = None
    toolsets: list[str] | str | None = None
    model: str | None = None
    system: str | None = None
    metadata: dict[str, Any] | None = None


class _BadLine(Exception):
    """What is wrong with a line."""


def read_dataset(
    file: Path,
    *,
    limit: int | None = None,
    skip_bad: bool = False,
    check_toolsets: CheckToolsets | None = None,
    check_folder: CheckFolder | None = None,
) -> Dataset:
    """The items of a file. ConfigError names each bad line, unless `skip_bad` leaves them out."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror}. Nothing was started."
        ) from None
    items: list[BatchItem] = []
    problems: list[str] = []
    seen: dict[str, int] = {}
    decoder = msgspec.json.Decoder(_Row)
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        if limit is not None and len(items) >= limit:
            break
        if not line.strip():
            continue
        try:
            item = _build_item(decoder.decode(line), len(items), number, file.parent)
            if item.id in seen:
                raise _BadLine(f'the id "{item.id}" is that of line {seen[item.id]} too')
            if item.toolsets is not None and check_toolsets is not None:
                check_toolsets(item.toolsets)
            if item.workspace and check_folder is not None:
                check_folder(Path(item.workspace))
        except RecursionError:
            problems.append(f"line {number}: it is nested too deeply")
            continue
        except (msgspec.DecodeError, UnicodeDecodeError, _BadLine, ConfigError) as error:
            problems.append(f"line {number}: {str(error).rstrip('.?')}")
            continue
        seen[item.id] = number
        items.append(item)
    if problems and not skip_bad:
        more = len(problems) - _MAX_SHOWN
        shown = "; ".join(problems[:_MAX_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise ConfigError(f"{file}: {shown}. Nothing was started; --skip-bad leaves them out.")
    if not items:
        raise ConfigError(f"{file} has no items. Nothing was started.")
    return Dataset(tuple(items), len(problems))


def _build_item(row: _Row, number: int, line: int, folder: Path) -> BatchItem:
    system, prompt = row.system or "", row.prompt
    past: tuple[Message, ...] = ()
    if (prompt is None) == (row.messages is None):
        raise _BadLine("it needs either `prompt` or `messages`")
    if row.messages is not None:
        heads, past, prompt = _read_messages(row.messages)
        system = "\n\n".join(text for text in (*heads, system) if text)
    assert prompt is not None
    if not prompt.strip():
        raise _BadLine("the prompt is empty")
    image = row.image or row.docker_image or ""
    if image and not is_image_name(image):
        raise _BadLine(f"{image!r} is not the name of an image")
    cwd = "" if PurePosixPath(row.cwd or "") == PurePosixPath() else row.cwd or ""
    files = {path: text for path, text in (row.files or {}).items() if text is not None}
    for path in (*files, *([cwd] if cwd else ())):
        if not is_inside(path):
            raise _BadLine(f"the path {path!r} is outside the workspace")
    above = {str(folder) for path in files for folder in PurePosixPath(path).parents}
    if both := above.intersection(str(PurePosixPath(path)) for path in files):
        raise _BadLine(f"{min(both)!r} is both a file and a folder")
    if "\0" in str(row.id):
        raise _BadLine("the id has a NUL character")
    if row.workspace and not (folder / row.workspace).is_dir():
        raise _BadLine(f"the workspace {row.workspace} is no folder")
    toolsets = row.toolsets.split(",") if isinstance(row.toolsets, str) else row.toolsets
    return BatchItem(
        number,
        str(line) if row.id is None else str(row.id),
        prompt,
        past,
        image,
        cwd,
        files,
        str((folder / row.workspace).resolve()) if row.workspace else "",
        None if toolsets is None else tuple(toolsets),
        row.model or "",
        system,
        row.metadata or {},
    )


def is_inside(path: str) -> bool:
    """Whether the path of a file, as somebody wrote it, is inside the folder that it belongs to."""
    pure = PurePosixPath(path)
    return not (pure.is_absolute() or ".." in pure.parts or "\0" in path or not pure.name)


def _read_messages(rows: list[dict[str, Any]]) -> tuple[list[str], tuple[Message, ...], str]:
    """The system texts, the messages before the last one, and the last one."""
    system: list[str] = []
    messages: list[Message] = []
    for row in rows:
        role, text = row.get("role"), _read_content(row.get("content"))
        if role not in _TEXT_ROLES or row.get("tool_calls"):
            raise _BadLine("`messages` may have texts of system, user and assistant only")
        if role == "system":
            system.append(text)
        elif role == "user":
            messages.append(user_message(text))
        else:
            messages.append(Message("assistant", (Text(text),), stop="end"))
    if not messages or messages[-1].role != "user":
        raise _BadLine("the last of `messages` must be the user's")
    return system, tuple(messages[:-1]), messages[-1].text


def _read_content(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" for part in content
    ):
        return "".join(str(part.get("text", "")) for part in content)
    raise _BadLine("`content` must be text")


def read_prefill(file: Path) -> tuple[Message, ...]:
    """Messages that every conversation begins with: a JSON array of user and assistant texts."""
    try:
        rows = msgspec.json.decode(file.read_bytes(), type=list[dict[str, Any]])
        _, past, last = _read_messages([*rows, {"role": "user", "content": ""}])
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror}. Nothing was started."
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, _BadLine) as error:
        raise ConfigError(f"{file}: {error}. Nothing was started.") from None
    assert not last
    return past

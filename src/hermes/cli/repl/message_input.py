"""From what stands in the prompt to a message: pasted text, images, and @references."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes.core.message import Media, Message

PASTE_LINES = 10
PASTE_CHARS = 2000
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_FILE_BYTES = 100_000
_ALL_BYTES = 400_000
_ENTRIES = 200
_REFERENCE = re.compile(r'(?<![\w@])@(?:"([^"\n]+)"|([^\s"]+))')
_ENDS = ".,;:!?)]}'"
_LIKE_A_FILE = re.compile(r"[^./]\.[A-Za-z0-9]{1,5}\Z")


class Chips:
    """Pasted things that stand in the prompt as one word each."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._images: dict[str, Path] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._texts, *self._images)

    def paste(self, data: str, cwd: Path) -> str:
        """What is put into the prompt for it."""
        text = data.replace("\r\n", "\n").replace("\r", "\n")
        if (image := dropped(text, cwd)) is not None:
            return self._image(image)
        lines = text.rstrip("\n").count("\n") + 1
        if lines <= PASTE_LINES and len(text) <= PASTE_CHARS:
            return text
        what = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        name = self._unused(f"pasted {what}")
        self._texts[name] = text
        return name

    def image(self, path: Path) -> str:
        return self._image(path)

    def _image(self, path: Path) -> str:
        name = self._unused(f"image {path.name}")
        self._images[name] = path
        return name

    def _unused(self, what: str) -> str:
        name, number = f"[{what}]", 1
        while name in self._texts or name in self._images:
            number += 1
            name = f"[{what} #{number}]"
        return name

    def expanded(self, text: str) -> tuple[str, list[Path]]:
        """With every chip replaced by what it stands for; and the images."""
        images = [path for name, path in self._images.items() if name in text]
        for name, pasted in self._texts.items():
            text = text.replace(name, pasted, 1)
        return text, images


def dropped(text: str, cwd: Path) -> Path | None:
    """The image whose path this is, as terminals paste what is dropped on them."""
    line = text.strip()
    if "\n" in line or len(line) > 4096 or not line:
        return None
    if line.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        line = unquote(urlsplit(line).path)
    elif line[0] in "'\"" and line[-1] == line[0]:
        line = line[1:-1]
    else:
        line = re.sub(r"\\(.)", r"\1", line)
    if not line.lower().endswith(_IMAGES):
        return None
    try:
        path = cwd / Path(line).expanduser()
        return path if path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None


def compose(
    text: str, images: list[Path], cwd: Path, *, typed: str | None = None
) -> tuple[Message, list[str]]:
    """The message, and what could not be attached. Reads files: not for the event loop. Only what
    was `typed` refers to files: a pasted text by somebody else must not fetch any."""
    from hermes.cli.prompt_input import read_image
    from hermes.core.errors import ConfigError
    from hermes.core.message import user

    media: list[Media] = []
    blocks: list[str] = []
    problems: list[str] = []
    room = _ALL_BYTES
    for path in images:
        try:
            media.append(read_image(path))
        except ConfigError as error:
            problems.append(str(error))
    named = text if typed is None else typed
    problems += [f"@{name} is not there; nothing was attached for it." for name in lost(named, cwd)]
    for name, path in references(named, cwd):
        try:
            if path.suffix.lower() in _IMAGES:
                media.append(read_image(path))
                continue
            block = _folder(name, path) if path.is_dir() else _file(name, path, room)
        except (OSError, ConfigError) as error:
            problems.append(f"{name} was not attached: {error}")
            continue
        room -= len(block)
        blocks.append(block)
    return user("\n\n".join([text, *blocks]), *media), problems


def references(text: str, cwd: Path) -> list[tuple[str, Path]]:
    """Every @path of the text that is there, once."""
    found: dict[str, Path] = {}
    for match in _REFERENCE.finditer(text):
        name = match[1] or match[2]
        for wanted in (name, name.rstrip(_ENDS)):
            try:
                path = cwd / Path(wanted).expanduser()
                there = bool(wanted) and (path.is_file() or path.is_dir())
            except (OSError, RuntimeError, ValueError):
                continue
            if there:
                found[wanted] = path
                break
    return list(found.items())


def lost(text: str, cwd: Path) -> list[str]:
    """Every @name that looks like a file's, and is none."""
    names = [(match[1] or match[2]).rstrip(_ENDS) for match in _REFERENCE.finditer(text)]
    there = {name for name, _ in references(text, cwd)}
    return [n for n in dict.fromkeys(names) if _LIKE_A_FILE.search(n) and n not in there]


def _file(name: str, path: Path, room: int) -> str:
    from hermes.core.errors import ConfigError

    limit = min(_FILE_BYTES, room)
    if limit <= 0:
        raise ConfigError("the files before it are all that fits; ask to read it.")
    with path.open("rb") as stream:
        data = stream.read(limit + 1)
    if b"\0" in data[:8192]:
        raise ConfigError("it is not text.")
    size = path.stat().st_size
    cut = f" (the first {limit:,} of {size:,} bytes)" if len(data) > limit else ""
    return f"[{name}{cut}]\n{quoted(data[:limit].decode('utf-8', 'replace'))}"


def _folder(name: str, path: Path) -> str:
    from hermes.core.text import counted

    entries = sorted(path.iterdir(), key=lambda entry: entry.name)
    rows = [entry.name + "/" * entry.is_dir() for entry in entries[:_ENTRIES]]
    more = f"\n[and {len(entries) - _ENTRIES} more]" if len(entries) > _ENTRIES else ""
    count = counted(len(entries), "entry", "entries")
    return f"[{name.rstrip('/')}/, {count}]\n{quoted(chr(10).join(rows))}{more}"


def quoted(text: str) -> str:
    """What files say is a quotation: nothing in it is hidden, and none of it is the user's word."""
    from hermes.cli.terminal.transcript import fenced
    from hermes.core.untrusted_text import inert

    return fenced(inert(text))

"""From the text in the prompt to a message: pasted text, images and @references."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.app.commands import parse_command

if TYPE_CHECKING:
    from hermes.core.message import Media, Message


PASTE_LINES = 10
PASTE_CHARS = 2000
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_FILE_BYTES = 100_000
_TOTAL_BYTES = 400_000
_MAX_ENTRIES = 200
_REFERENCE = re.compile(r'(?<![\w@])@(?:"([^"\n]+)"|([^\s"]+))')
_END_PUNCTUATION = ".,;:!?)]}'"
_FILE_LIKE = re.compile(r"[^./]\.[A-Za-z0-9]{1,5}\Z")


def parse_entry(text: str) -> tuple[str, str] | None:
    """The command that was entered, and its arguments; None for a message. `# text` adds to the
    memory; where lines follow, it is a heading."""
    if text.startswith("# ") and "\n" not in text.strip() and text[2:].strip():
        return "memory", f"add {text[2:].strip()}"
    return parse_command(text)


class PasteChips:
    """Pasted text and images, each shown in the prompt as one word in brackets."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._images: dict[str, Path] = {}
        self._outputs: set[str] = set()
        """Chips whose text no person wrote."""

    @property
    def chip_names(self) -> tuple[str, ...]:
        return (*self._texts, *self._images)

    def paste(self, data: str, cwd: Path) -> str:
        """What appears in the prompt for pasted data."""
        text = data.replace("\r\n", "\n").replace("\r", "\n")
        if (image := find_dropped_image(text, cwd)) is not None:
            name = self._unique_name(f"image {image.name}")
            self._images[name] = image
            return name
        lines = text.rstrip("\n").count("\n") + 1
        if lines <= PASTE_LINES and len(text) <= PASTE_CHARS:
            return text
        what = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        name = self._unique_name(f"pasted {what}")
        self._texts[name] = text
        return name

    def add_output(self, what: str, text: str) -> str:
        """The chip that stands for the output of a command."""
        name = self._unique_name(what)
        self._texts[name] = text
        self._outputs.add(name)
        return name

    def has_output(self, text: str) -> bool:
        """Whether the text refers to the output of a command."""
        return any(name in text for name in self._outputs)

    def _unique_name(self, what: str) -> str:
        name, number = f"[{what}]", 1
        while name in self._texts or name in self._images:
            number += 1
            name = f"[{what} #{number}]"
        return name

    def expand(self, text: str) -> tuple[str, list[Path]]:
        """The text with every chip replaced by what it stands for, and the images."""
        images = [path for name, path in self._images.items() if name in text]
        for name, pasted in self._texts.items():
            text = text.replace(name, pasted, 1)
        return text, images


def find_dropped_image(text: str, cwd: Path) -> Path | None:
    """The image whose path the text is: terminals paste that when a file is dropped on them."""
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
    if not line.lower().endswith(_IMAGE_SUFFIXES):
        return None
    try:
        path = cwd / Path(line).expanduser()
        return path if path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None


def compose_message(
    text: str, images: list[Path], cwd: Path, *, typed: str | None = None
) -> "tuple[Message, list[str]]":
    """The message, and a sentence for each thing that could not be attached.

    Reads files, so it does not belong on the event loop. Only `typed` text refers to files: text
    that was pasted, perhaps written by somebody else, must not fetch any.
    """
    from hermes.cli.prompt_input import read_image
    from hermes.core.errors import ConfigError
    from hermes.core.message import user_message

    media: list[Media] = []
    blocks: list[str] = []
    problems: list[str] = []
    room = _TOTAL_BYTES
    for path in images:
        try:
            media.append(read_image(path))
        except ConfigError as error:
            problems.append(str(error))
    source = text if typed is None else typed
    for name in find_missing_references(source, cwd):
        problems.append(f"@{name} does not exist; nothing was attached for it.")
    for name, path in find_references(source, cwd):
        try:
            if path.suffix.lower() in _IMAGE_SUFFIXES:
                media.append(read_image(path))
                continue
            block = _folder_block(name, path) if path.is_dir() else _file_block(name, path, room)
        except (OSError, ConfigError) as error:
            problems.append(f"{name} was not attached: {error}")
            continue
        room -= len(block)
        blocks.append(block)
    return user_message("\n\n".join([text, *blocks]), *media), problems


def find_references(text: str, cwd: Path) -> list[tuple[str, Path]]:
    """Every @path of the text that exists, once."""
    found: dict[str, Path] = {}
    for match in _REFERENCE.finditer(text):
        name = match[1] or match[2]
        for candidate in (name, name.rstrip(_END_PUNCTUATION)):
            try:
                path = cwd / Path(candidate).expanduser()
                exists = bool(candidate) and (path.is_file() or path.is_dir())
            except (OSError, RuntimeError, ValueError):
                continue
            if exists:
                found[candidate] = path
                break
    return list(found.items())


def find_missing_references(text: str, cwd: Path) -> list[str]:
    """Every @name that looks like a file but does not exist."""
    names = [(match[1] or match[2]).rstrip(_END_PUNCTUATION) for match in _REFERENCE.finditer(text)]
    existing = {name for name, _ in find_references(text, cwd)}
    return [n for n in dict.fromkeys(names) if _FILE_LIKE.search(n) and n not in existing]


def _file_block(name: str, path: Path, room: int) -> str:
    from hermes.core.errors import ConfigError

    limit = min(_FILE_BYTES, room)
    if limit <= 0:
        raise ConfigError("the other files leave no room for it; ask the agent to read it.")
    with path.open("rb") as stream:
        data = stream.read(limit + 1)
    if b"\0" in data[:8192]:
        raise ConfigError("it is not text.")
    size = path.stat().st_size
    cut = f" (the first {limit:,} of {size:,} bytes)" if len(data) > limit else ""
    return f"[{name}{cut}]\n{quote_untrusted_text(data[:limit].decode('utf-8', 'replace'))}"


def _folder_block(name: str, path: Path) -> str:
    from hermes.core.text import format_plural

    entries = sorted(path.iterdir(), key=lambda entry: entry.name)
    rows = [entry.name + "/" * entry.is_dir() for entry in entries[:_MAX_ENTRIES]]
    more = f"\n[and {len(entries) - _MAX_ENTRIES} more]" if len(entries) > _MAX_ENTRIES else ""
    count = format_plural(len(entries), "entry", "entries")
    return f"[{name.rstrip('/')}/, {count}]\n{quote_untrusted_text(chr(10).join(rows))}{more}"


def quote_untrusted_text(text: str) -> str:
    """A file as a quotation: nothing in it is hidden or passes for words of the user."""
    from hermes.app.live.session_export import fence_text
    from hermes.core.untrusted_text import make_inert

    return fence_text(make_inert(text))

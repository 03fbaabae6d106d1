"""The entries of a memory file: read, counted, compared and written."""

import codecs
import errno
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from hermes.config.paths import make_private_folder
from hermes.config.private_files import replace_file
from hermes.core.text import replace_invalid

SEPARATOR = "§"
MAX_ENTRY_CHARS = 1000
_SEPARATOR_CHARS = 3
_LINE_CHARS = len("- ") + len(" (2026-11-03)") + len(r"\n")
"""What a line of a prompt has beside its entry, as it is sent."""
_MAX_GROWTH = 1.4
"""How much longer than the limit the lines of a prompt may be: tiny entries are mostly lines."""
_SHARED_WORDS = 0.8
_AS_LATIN_1 = "hermes-latin-1"
"""How bytes are read that are no UTF-8."""


def read_entries(file: Path) -> list[str]:
    """The entries, each once; none where there is no file. OSError when it cannot be read."""
    try:
        text = _decode_text(_read_plain_file(file))
    except FileNotFoundError:
        return []
    parts: list[list[str]] = [[]]
    for line in _split_lines(text):
        if line.strip() == SEPARATOR:
            parts.append([])
        else:
            parts[-1].append(line)
    entries = ("\n".join(lines).strip() for lines in parts)
    return list(dict.fromkeys(entry for entry in entries if entry))


def _read_plain_file(file: Path) -> bytes:
    """The content; a pipe is not waited for."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a plain file")
    with os.fdopen(handle, "rb") as source:
        return source.read()


def _decode_text(data: bytes) -> str:
    """The text of a file that any editor may have written; nothing of it is lost when it is written
    again, as UTF-8."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return replace_invalid(data.decode("utf-16", "replace"))
    return replace_invalid(data.decode("utf-8-sig", _AS_LATIN_1))


def _read_latin_1(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error(_AS_LATIN_1, _read_latin_1)


def write_entries(file: Path, entries: Sequence[str], scope: str) -> None:
    """Replace the file; folders of other scopes than the profile's name theirs in `SCOPE`."""
    make_private_folder(file.parent)
    label = file.parent / "SCOPE"
    if file.parent.parent.name == "scopes" and not label.exists():
        make_private_folder(file.parent.parent)
        replace_file(label, f"{scope}\n".encode("utf-8", "replace"))
    text = f"\n{SEPARATOR}\n".join(entries)
    replace_file(file, f"{text}\n".encode("utf-8", "replace") if text else b"")


def clean_entry(text: str) -> str:
    """The text as an entry: no line of it can be taken for a separator."""
    lines = _split_lines(replace_invalid(text).strip())
    return "\n".join(SEPARATOR * 2 if line.strip() == SEPARATOR else line for line in lines)


def count_chars(entries: Sequence[str]) -> int:
    return sum(map(len, entries)) + _SEPARATOR_CHARS * max(0, len(entries) - 1)


def take_shown(entries: Sequence[str], limit: int) -> list[str]:
    """The entries from the top that fit into the limit, and whose lines fit into a prompt."""
    shown: list[str] = []
    chars, room = -_SEPARATOR_CHARS, _MAX_GROWTH * limit
    for entry in entries:
        chars += len(entry) + _SEPARATOR_CHARS
        room -= len(entry) + _LINE_CHARS + sum(map(entry.count, '\n\\"'))
        if chars > limit or room < 0:
            break
        shown.append(entry)
    return shown


def normalize_entry(text: str) -> str:
    """What two entries have in common that say the same."""
    return " ".join(text.casefold().split()).rstrip(".!?;:,…。！？；：， ")


def find_similar(text: str, others: Iterable[str]) -> list[str]:
    """The other texts that share most of their words with this one."""
    mine = _split_words(text)
    if not mine:
        return []
    return [
        other
        for other in others
        if (theirs := _split_words(other))
        and len(mine & theirs) >= _SHARED_WORDS * max(len(mine), len(theirs))
    ]


def _split_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _split_words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))

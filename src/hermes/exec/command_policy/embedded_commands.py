"""Finds denied commands in the arguments of programs that run text or are unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain, islice, pairwise

from hermes.exec.command_policy.hard_denials import (
    HARD_PROGRAMS,
    find_hard_program,
    locate_hard_programs,
)
from hermes.exec.command_policy.shell.simple_command import SimpleCommand
from hermes.exec.command_policy.shell.static_output import predict_output
from hermes.exec.command_policy.shell.words import decode_escapes, literal_text

_MAX_TEXT = 20_000
_MAX_WORDS = 60
_MAX_COMMANDS = 4
_MAX_DECODED = 8
_MESSAGES = frozenset("-m --message -t --title -b --body -n --notes --description".split())
_MAX_SUSPECTS = 40
_MAX_SUSPECT = 1500
_MAX_TAIL = 120
_MAX_PLACES = 1000
_SEPARATOR = re.compile(r"[;\n&|]")
_HARD = frozenset(HARD_PROGRAMS)
_BLANKS = re.compile(r"\$\{?IFS\b\}?(?:\$\d)?")
_APART = str.maketrans(dict.fromkeys("\"'`(){}!=", "\n"))
_UNQUOTED = str.maketrans({**dict.fromkeys("\"'\\", ""), **dict.fromkeys("()`!", "\n")})
_TOGETHER = str.maketrans({**dict.fromkeys("\"'`,[]", " "), **dict.fromkeys("()!", "\n")})
_BOMB = re.compile(r"\(\s*\)\s*\{\s*([^\s|&;{}()]+)\s*[|&]\s*\1(?![\w.-])")
_NOTHING = re.compile(r"(?<=\w)(?:\$\(\s*\)|``|\$[@*]|\$\{[A-Za-z_]\w*\})(?=\w)")
_ARGUMENT = re.compile(r"[ \t]+(?:[-/~$+*.\d]|now\b|\w+=|(?:poweroff|reboot|halt|kexec)\b)")
_PLANNED = re.compile(r"\s*(?:[\d*/@,-]+\s+)+|.*(?:\b(?:shell|\de)\s|<<<)\s*")
"""The times of a crontab, `$(shell …)` of make, `1e …` of sed, `<<< …`."""
_BASE64 = re.compile(r"[A-Za-z0-9+/]{6,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){4,}")
_ROT13 = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "nopqrstuvwxyzabcdefghijklmNOPQRSTUVWXYZABCDEFGHIJKLM",
)


def find_hard_commands(argv: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The commands an unknown wrapper may run: the words from each hard-denied program on."""
    found = 0
    for at in range(1, min(len(argv), _MAX_WORDS)):
        if found < _MAX_COMMANDS and literal_text(argv[at]).rpartition("/")[2] in _HARD:
            found += 1
            yield argv[at : at + _MAX_WORDS]


def candidate_programs(name: str) -> tuple[str, ...]:
    """Programs that a name with wildcards, or an unknown name, may stand for; only those that their
    arguments give away."""
    pattern = name.rpartition("/")[2]
    if any(mark in pattern for mark in "*?["):
        return tuple(known for known in HARD_PROGRAMS if fnmatchcase(known, pattern))
    return ("rm", "dd", "shred", "chmod", "kill")


def mentions_hard_denial(text: str) -> bool:
    """Whether a text names a hard-denied program, or writes to a device."""
    return bool(find_hard_program(text)) or _device_write_pattern().search(text) is not None


@cache
def _device_write_pattern() -> re.Pattern[str]:
    return re.compile(r">\s*/(?:dev/(?!null|std|tty|fd/|pts/|zero)|proc/|sys/|etc/|boot/)")


def find_suspects(text: str) -> list[str]:
    """The commands around names of hard-denied programs, as far as separators show them; also from
    the name on, if what follows could be its arguments."""
    pieces: dict[str, None] = {}
    written = ((found.start(), found[0]) for found in _device_write_pattern().finditer(text))
    done, seen = 0, set[str]()
    for begin, name in islice(chain(locate_hard_programs(text), written), _MAX_PLACES):
        around = text[max(0, begin - 20) : begin + _MAX_TAIL]
        if around in seen:
            continue
        seen.add(around)
        first = max(done if done <= begin else 0, begin - _MAX_SUSPECT)
        start = 1 + max(
            text.rfind(";", first, begin), text.rfind("\n", first, begin),
            text.rfind("&", first, begin), text.rfind("|", first, begin),
        )  # fmt: skip
        end = begin + len(name)
        after = _SEPARATOR.search(text, end, end + _MAX_SUSPECT)
        done = after.start() if after else end
        before = text[start or first : begin]
        if after and after.start() - begin + len(before) <= _MAX_SUSPECT:
            pieces[f"{before}{text[begin:done]}".strip()] = None
        if before and (_ARGUMENT.match(text, end) or _PLANNED.fullmatch(before[-_MAX_TAIL:])):
            pieces[text[begin : min(done if after else len(text), begin + _MAX_TAIL)]] = None
        if len(pieces) >= _MAX_SUSPECTS:
            break
    return list(pieces)[:_MAX_SUSPECTS]


def contains_fork_bomb(text: str) -> bool:
    """Whether a text in any language contains a function that calls itself twice at once."""
    return "{" in text and _BOMB.search(text) is not None


def find_quoted_commands(text: str) -> list[str]:
    """Hard-denied commands in a text of any language, written as one string or as a list of
    strings."""
    text = _BLANKS.sub(" ", text[:_MAX_TEXT])
    if not mentions_hard_denial(text):
        return []
    found: dict[str, None] = {}
    for reading in (_APART, _TOGETHER, _UNQUOTED):
        found |= dict.fromkeys(find_suspects(text.translate(reading) + "\n"))
    return list(found)


def drop_empty_expansions(text: str) -> str:
    """The text without expansions inside words that are probably empty: `sh$()utdown`."""
    return _NOTHING.sub("", text) if "$" in text or "``" in text else text


def drop_messages(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments without messages to people: a title may well mention denied commands."""
    if argv[0] not in ("git", "gh", "glab", "hub"):
        return argv[1:]
    return tuple(word for before, word in pairwise(argv) if before not in _MESSAGES)


def collect_texts(commands: Iterable[SimpleCommand]) -> list[str]:
    """Texts that these commands contain or print: something unknown may run them."""
    texts: dict[str, None] = {}
    for simple in commands:
        texts |= dict.fromkeys(value for _, value in simple.assigned)
        texts |= dict.fromkeys(word for word in simple.argv[1:] if len(word) > 3)
        texts |= dict.fromkeys(text for text in (simple.feed, *simple.offered) if text)
        if simple.argv and (printed := predict_output(simple.argv, simple.feed)):
            texts[printed] = None
    return [text for text in texts if text and text[0] != "\x02"]


def decode_suspects(texts: Iterable[str]) -> list[str]:
    """Those of the texts, as they are or decoded, that contain hard-denied commands."""
    found: dict[str, None] = {}
    budget = _MAX_TEXT
    for text in texts:
        budget -= len(text)
        if budget < 0:
            break
        for reading in _decode_variants(text):
            if mentions_hard_denial(reading) or contains_fork_bomb(reading):
                found[reading] = None
    return list(found)


def _decode_variants(text: str) -> Iterator[str]:
    yield text
    if "\\" in text:
        yield decode_escapes(text)
    if "," in text and " " not in text:
        yield text.replace(",", " ")
    if len(text) > 4:
        yield text[::-1]
        yield text.translate(_ROT13)
    for code in _BASE64.findall(text)[:_MAX_DECODED]:
        yield _decode_base64(code)
    for code in _HEX.findall(text)[:_MAX_DECODED]:
        yield bytes.fromhex(code).decode("utf-8", "replace")


def _decode_base64(code: str) -> str:
    import binascii
    import zlib

    try:
        data = binascii.a2b_base64(code + "=" * (-len(code) % 4))
        if data[:2] == b"\x1f\x8b":
            data = zlib.decompressobj(31).decompress(data, _MAX_TEXT)
    except (ValueError, zlib.error):
        return ""
    return data.decode("utf-8", "replace")

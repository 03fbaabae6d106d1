"""The line protocol of IRC: lines with tags, names, masks and formatting codes."""

import re
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

LONGEST_TEXT = 400
"""Bytes of a message, so that a line with its source stays below the protocol's 512."""
_FORMATTING = re.compile(r"\x03(\d{1,2}(,\d{1,2})?)?|\x04([0-9a-fA-F]{6})?|[\x00-\x1f\x7f]")
_TAG_ESCAPES = {":": ";", "s": " ", "r": "\r", "n": "\n", "\\": "\\"}
_ASCII = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_RFC1459 = {**_ASCII, **str.maketrans("[]\\~", "{}|^")}


class IrcLine(Struct, frozen=True):
    command: str
    params: tuple[str, ...] = ()
    source: str = ""
    """`nick!user@host`, or the name of a server."""
    tags: Mapping[str, str] = {}

    @property
    def nick(self) -> str:
        return self.source.partition("!")[0]

    def get_param(self, index: int) -> str:
        return self.params[index] if index < len(self.params) else ""

    @property
    def text(self) -> str:
        """The last parameter."""
        return self.params[-1] if self.params else ""


def parse_line(raw: bytes) -> IrcLine:
    try:
        rest = raw.decode()
    except UnicodeDecodeError:
        rest = raw.decode("latin-1")
    rest = rest.strip("\r\n ")
    tags: dict[str, str] = {}
    source = ""
    if rest.startswith("@"):
        head, _, rest = rest[1:].partition(" ")
        for tag in filter(None, head.split(";")):
            name, _, value = tag.partition("=")
            tags[name] = _unescape_tag(value)
    rest = rest.lstrip(" ")
    if rest.startswith(":"):
        source, _, rest = rest[1:].partition(" ")
    head, colon, text = f" {rest}".partition(" :")
    words = [word for word in head.split(" ") if word]
    params = (*words[1:], text) if colon else tuple(words[1:])
    return IrcLine(words[0].upper() if words else "", params, source, tags)


def _unescape_tag(value: str) -> str:
    def replace_escape(found: re.Match[str]) -> str:
        return _TAG_ESCAPES.get(found[1], found[1])

    return re.sub(r"\\(.?)", replace_escape, value)


def format_line(command: str, *params: str, text: str | None = None) -> bytes:
    """A line to send. `text` is its last parameter and may have spaces. Nothing in it can end the
    line; ValueError when a parameter would become two."""
    for param in params:
        if not param or param.startswith(":") or not param.isprintable() or " " in param:
            raise ValueError(f"{param!r} cannot be a parameter")
    words = [command, *params]
    if text is not None:
        words.append(f":{strip_formatting(text)}")
    return " ".join(words).encode(errors="replace") + b"\r\n"


def strip_formatting(text: str) -> str:
    """The text without colours, client requests and other control characters."""
    return _FORMATTING.sub(lambda found: " " if found[0] in "\t\r\n" else "", text)


def fold_name(name: str, mapping: str = "rfc1459") -> str:
    """A nickname, channel or mask in lower case, as the server compares it."""
    return name.translate(_ASCII if mapping == "ascii" else _RFC1459)


def is_mask(entry: str) -> bool:
    return "!" in entry or "@" in entry


def is_bare_mask(mask: str) -> bool:
    """Whether a mask says nothing but a nickname, which anybody can take."""
    _, _, rest = mask.partition("!") if "!" in mask else ("", "", mask)
    return not rest.strip("*?@")


def matches_mask(mask: str, source: str, mapping: str) -> bool:
    """Whether `nick!user@host` matches a mask with `*` and `?`."""
    if is_bare_mask(mask):
        return False
    whole = mask if "!" in mask else f"*!{mask}"
    pattern = re.escape(fold_name(whole, mapping)).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(pattern, fold_name(source, mapping)) is not None


def read_time(tags: Mapping[str, str]) -> float:
    """The Unix time of the tag `time`; 0.0 without one."""
    try:
        return datetime.fromisoformat(tags["time"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return 0.0


def read_message(text: str, nickname: str, mapping: str) -> tuple[str, bool] | None:
    """What a message says, without `nickname:` at its beginning, and whether that was there. None:
    a request to the client."""
    if text.startswith("\x01"):
        if not text.upper().startswith("\x01ACTION "):
            return None
        text = text[len("\x01ACTION ") :]
    text = strip_formatting(text).strip()
    start = text[1:] if text.startswith("@") else text
    name, rest = start[: len(nickname)], start[len(nickname) :]
    if fold_name(name, mapping) == fold_name(nickname, mapping) and rest[:1] in (":", ","):
        return rest[1:].strip(), True
    return text, False

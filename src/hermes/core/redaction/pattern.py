"""Describes families of secrets, and the checks that tell them from ordinary text."""

import re
from collections.abc import Callable
from itertools import pairwise

from msgspec import Struct

_UNBROKEN = re.compile(r"[A-Za-z0-9]{16,}")
_ENDLESS = re.compile(r"[A-Za-z0-9]{24,}")
"""No word is that long."""
_PLACEHOLDER = re.compile(
    r"[$%{<\[*(]|\\[{(]|(?:x+|\.+|pass(?:w(?:or)?d)?|pwd|secret|token)$", re.I
)
_STAND_IN = re.compile(
    r"(?:your|my|the|some|example|sample|dummy|fake|test|change|changeme|replace|insert|enter|todo|none|null|"
    r"nil|undefined|redacted|placeholder|password|passwd|secret|token|key|value|string|str|bytes|int|"
    r"bool|optional|true|false|yes|no|on|off)(?![a-z])|[a-z]+(?:[_.-][a-z]+)+$|\d+$|[/.~-]|\w+://",
    re.I,
)
_NO_SETTING = re.compile(r"[(){}\[\]<>$`]|^[A-Z_]+$|^[A-Za-z_]\w*\.[A-Za-z_]")
_CODE_NAME = re.compile(r"[a-z_][a-z0-9_]*|[a-z]\w*[A-Z]\w*|[A-Z][a-z]\w*")
_PIECE = re.compile(r"[A-Za-z0-9]+")
_ODD = re.compile(r"[!@#^*?~+%]")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:/")


class SecretFamily(Struct, frozen=True):
    """A kind of secret. What `pattern` matches (its group, if it has one) is the secret."""

    name: str
    hints: tuple[str, ...]
    """A text has such a secret only if it contains one of these; empty: always try."""
    pattern: str
    """Bounded wherever more must follow, so that hostile text cannot make the search quadratic."""
    check: Callable[[str], bool] | None = None
    apart: bool = False
    """Whether the hint may be apart from the token: it is searched in the whole text."""


def is_dense(secret: str) -> bool:
    """Neither a word, nor a placeholder, nor a name made of words."""
    if len(set(secret)) < 8:
        return False
    if any(c.isdigit() for c in secret) or _ENDLESS.search(secret):
        return True
    return sum(a.islower() and b.isupper() for a, b in pairwise(secret)) >= 3


def is_unbroken(secret: str) -> bool:
    """Dense, with a part too long to be a word; class names consist of many short ones."""
    return is_dense(secret) and _UNBROKEN.search(secret) is not None


def is_mixed(secret: str) -> bool:
    """Dense, with digits, lower and upper case: for patterns that say little else."""
    kinds = (str.isdigit, str.islower, str.isupper)
    return is_dense(secret) and (
        all(any(map(k, secret)) for k in kinds) or has_scattered_capitals(secret)
    )


def is_basic_auth(secret: str) -> bool:
    """Base64 of `user:password`."""
    from base64 import b64decode
    from binascii import Error

    try:
        text = b64decode(secret + "=" * (-len(secret) % 4), validate=True).decode()
    except (Error, ValueError):
        return False
    return ":" in text and text.isprintable()


def is_bot_token(secret: str) -> bool:
    """Whether the first part is the base64 of a bot id."""
    from base64 import urlsafe_b64decode

    head = secret.partition(".")[0]
    number = urlsafe_b64decode(head + "=" * (-len(head) % 4))
    return number.isdigit() and len(number) >= 15


def is_password(secret: str) -> bool:
    return not _PLACEHOLDER.match(secret)


def is_random_value(secret: str) -> bool:
    """Whether the value of a name like `password` looks random: no reference, path or name.
    Letters, digits and signs must alternate more often than in `test1234`."""
    if not is_password(secret) or _SCHEME.match(secret) or secret[0] in "/.-_":
        return False
    if _UUID.fullmatch(secret):
        return True
    if len(set(secret)) < 6:
        return False
    pieces = _PIECE.findall(secret)
    turns = max((_count_turns(piece) for piece in pieces), default=0)
    odd = len(_ODD.findall(secret))
    if turns and odd and turns + odd >= 3 and len(pieces) <= 2 + odd:
        return True
    return turns >= 4 or (turns == 3 and len(secret) <= 12)


def is_setting(secret: str) -> bool:
    """Whether the value of a variable or option named `…PASSWORD` is written out: whatever it looks
    like, unless it is a reference, a path, a number, code or a word that stands for a secret."""
    return is_password(secret) and not (_STAND_IN.match(secret) or _NO_SETTING.search(secret))


def is_written_out(secret: str) -> bool:
    """Whether the value of a name like `password` in code or data is the password itself: it has
    letters and digits, and is neither a reference nor a name in code."""
    if not re.search(r"\d", secret) or not re.search(r"[A-Za-z]", secret):
        return False
    return is_setting(secret) and not _CODE_NAME.fullmatch(secret)


def is_quoted_password(secret: str) -> bool:
    """The same in quotation marks, where no name of code stands."""
    return bool(re.search(r"\d", secret) and re.search(r"[A-Za-z]", secret)) and is_setting(secret)


def _count_turns(piece: str) -> int:
    """How often a part changes between digits, lower and upper case; a capital that begins a word
    does not count. Nine: it cannot be a name."""
    if len(piece) < 6 or piece.isdigit():
        return 0
    if has_scattered_capitals(piece):
        return 9
    if piece.isalpha():
        return 0
    if len(piece) >= 24 and piece in (piece.upper(), piece.lower()):
        return 9
    kinds = ["d" if c.isdigit() else "u" if c.isupper() else "l" for c in piece]
    return sum(a != b and (a, b) != ("u", "l") for a, b in pairwise(kinds))


def has_scattered_capitals(piece: str) -> bool:
    """Whether capitals stand where no word begins: split before each, the parts are too short."""
    if len(piece) < 10 or piece in (piece.upper(), piece.lower()):
        return False
    words = sum(not c.islower() for c in piece[1:]) + 1
    return len(piece) < 3 * words


W = "[A-Za-z0-9_-]"
A = "[A-Za-z0-9]"
HEX = "[0-9a-f]"
UUID = rf"{HEX}{{8}}(?:-{HEX}{{4}}){{3}}-{HEX}{{12}}"
QUOTE = r"(?:\\{0,3}[\"'`])?"
"""A quotation mark, perhaps escaped."""
BEGIN = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[abfnrtv0])|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})"
    r"|(?<=%[0-9A-Fa-f]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m)|(?<=;[0-9]m)|(?<=;[0-9]{2}m)"
    r"|(?<=\[[mK]))"
)
"""A token begins where a word does, or after an escape sequence of a string, URL or terminal."""
LINE = r"(?m)^(?:[^\n:]{1,200}[:-]\d{1,7}[:-]|[ \t]*\d+[:|\t→]|[+-])?[ \t]*"
"""The beginning of a line, after what tools print there: file and number, the sign of a diff."""
IS = rf"{QUOTE}\s{{0,8}}(?:=>|:=|[=:])\s{{0,8}}{QUOTE}"


def token_family(
    name: str, hints: str, pattern: str, check: Callable[[str], bool] | None = is_dense
) -> SecretFamily:
    return SecretFamily(name, tuple(hints.split()), pattern, check)


def context_family(
    name: str, hints: str, pattern: str, check: Callable[[str], bool] | None = is_dense
) -> SecretFamily:
    return SecretFamily(name, tuple(hints.split()), pattern, check, apart=True)

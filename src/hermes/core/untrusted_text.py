"""Makes untrusted text inert: shows hidden characters, breaks markers, wraps results."""

import re
import unicodedata

from hermes.core.text import compile_pattern

_HIDDEN = (
    "\x00-\x08\x0b\x0e-\x1f\x7f-\x9f"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Controls, zero-width and filler characters, directions, variation selectors, tags."""
_CONTROLS = bytes({*range(32), 127} - {9, 10, 12, 13})
_FLAG = "\U0001f3f4[\U000e0061-\U000e007a]{5}\U000e007f"
_SUSPECT = f"[{_HIDDEN}]"
_NOT_PLAIN = re.compile(r"[^\t\n -~]")
_MIXED = re.compile(r"[A-Za-z0-9_./-]*(?:[A-Za-z][Ͱ-ϿЀ-ԯ]|[Ͱ-ϿЀ-ԯ][A-Za-z])[A-Za-z0-9_./-]*")
_FLAGS = frozenset({"gbeng", "gbsct", "gbwls"})
"""The regions whose flags are written in tags."""
_JOINING = (
    ("\u0600", "\u08ff"),  # Arabic, Syriac, N'Ko and their neighbours
    ("\u0900", "\u0dff"),  # the scripts of India and Sri Lanka
    ("\u1000", "\u109f"),
    ("\u1780", "\u18af"),  # Khmer, Mongolian
    ("\ufb50", "\ufdff"),
    ("\ufe70", "\ufefc"),
)
_IDEOGRAPHS = (("\u3400", "\u9fff"), ("\uf900", "\ufaff"), ("\U00020000", "\U0003ffff"))

_MARKERS = r"""(?x)
    <(?= (?i: [\s/]*data[-_\u2010-\u2015\u2212]\s*[0-9a-f]{6}(?![0-9a-z_-])  # the wrapper's
            | [|｜][^|｜<>\s]{1,40}[|｜]>                # <|im_start|> and its relatives
            | \s?[|｜]\s?(?:im|start|end|eot|eom|system|user|assistant)[_a-z]*\s?[|｜]\s?>
            | [\s/]*(?:start|end)_of_(?:turn|utterance|image)\s*>
            | [\s/]*(?:tool_(?:calls?|responses?|results?)|function_(?:calls?|results?)
                   |system-reminder)\s*>
            | <[\s/]*SYS\s*>> ))
  | \[(?= (?i: [\s/]*(?:INST|SYSTEM_PROMPT|(?:TOOL_(?:RESULTS|CALLS|CONTENT))|AVAILABLE_TOOLS)\s*\]
            | \s*no\s+result\s*:\s*interrupted\s*\] ))"""
_WIDE = "[\uff01-\uff5e\ufe50-\ufe6b\U0001d400-\U0001d7ff\u2100-\u214f\u24b6-\u24e9]"
_GUIDANCE = r"(?i)(User[\s_-]*guidance)([\s*_`\"']{0,8}[:\uff1a\ufe55\ua789\u2236])"
"""The words that mark the user's guidance during a turn; in tool output they are marked as
quoted."""


def wrapper_mark(session_id: str) -> str:
    """The name of the wrapper in one conversation: the same after a restart, and unknown to authors
    of pages and files."""
    from hashlib import sha256

    return "data-" + sha256(b"mark " + session_id.encode("utf-8", "replace")).hexdigest()[:6]


SKIPPED = "skipped: interrupted by the user"
"""The result of a call that was never run: our own words, nothing to quote."""


def wrap_text(text: str, mark: str, *, begin: bool, end: bool) -> str:
    """The text between delimiters, which cannot occur inside it. `begin` and `end`: which of them
    this part of a result carries."""
    if mark in text:
        text = text.replace(f"<{mark}", f"<\\{mark}").replace(f"</{mark}", f"<\\/{mark}")
    return f"<{mark}>\n" * begin + text + f"\n</{mark}>" * end


def break_tags(text: str, name: str) -> str:
    """The text with all tags of this name broken: it can neither begin nor end such a block."""
    return re.sub(rf"(?i)<(?=[\s/]*{name}\s*>)", r"<\\", text)


def make_inert(text: str) -> str:
    """Tool output that can neither hide characters nor imitate our markers."""
    text = _insert_after(_MARKERS, "\\", reveal_hidden(text))
    if not text.isascii() or "guidance" in text.lower():
        text = _insert_after(_GUIDANCE, " (quoted)", text)
    return text


def _insert_after(pattern: str, what: str, text: str) -> str:
    """Insert `what` after each match or its first group; look-alikes match like ASCII."""
    read = text if text.isascii() else _fold_wide(text)
    pieces, at = [], 0
    for found in compile_pattern(pattern).finditer(read):
        end = found.end(1) if found.re.groups else found.end()
        pieces += [text[at:end], what]
        at = end
    return "".join([*pieces, text[at:]]) if pieces else text


def _fold_wide(text: str) -> str:
    """Replace wide and mathematical letters by ASCII, one for one."""
    if not compile_pattern(_WIDE).search(text):
        return text
    from unicodedata import normalize

    def plain(found: re.Match[str]) -> str:
        folded = normalize("NFKC", found[0])
        return folded if len(folded) == 1 else found[0]

    return compile_pattern(_WIDE).sub(plain, text)


def reveal_hidden(text: str) -> str:
    """Show hidden characters as `<U+200B>`. Those that scripts need stay: joiners in emoji and
    between letters of joining scripts, a selector after its symbol, a direction mark beside
    right-to-left letters."""
    if text.isascii():
        raw = text.encode()
        clean = len(raw.translate(None, _CONTROLS)) == len(raw)
    else:
        clean = compile_pattern(_SUSPECT).search(text) is None
    return text if clean else compile_pattern(f"{_FLAG}|{_SUSPECT}").sub(_reveal_match, text)


def _reveal_match(found: re.Match[str]) -> str:
    char, text = found[0], found.string
    if len(char) > 1:
        region = "".join(chr(ord(c) - 0xE0000) for c in char[1:-1])
        return char if region in _FLAGS else char[0] + "".join(map(_escape_character, char[1:]))
    before = text[found.start() - 1] if found.start() else ""
    after = text[found.end()] if found.end() < len(text) else ""
    return char if _belongs_to_script(char, before, after) else _escape_character(char)


def _belongs_to_script(char: str, before: str, after: str) -> bool:
    from unicodedata import bidirectional, category

    match char:
        case "\u200d" if _is_emoji_part(before) and after and category(after) == "So":
            return True
        case "\u200c" | "\u200d":
            return _is_in_ranges(before, _JOINING) and _is_in_ranges(after, _JOINING)
        case "\u200e" | "\u200f" | "\u061c":
            return any(c and bidirectional(c) in ("R", "AL") for c in (before, after))
        case "\ufe0e" | "\ufe0f":
            return (before != "\ufe0f" and _is_emoji_part(before)) or before in tuple(
                "#*0123456789©®‼⁉〰〽㊗㊙"
            )
        case _ if "\ufe00" <= char <= "\ufe0d" and before and category(before) == "Sm":
            return True
        case _ if "\ufe00" <= char <= "\ufe0d" or "\U000e0100" <= char <= "\U000e01ef":
            return _is_in_ranges(before, _IDEOGRAPHS)
        case _ if "\u180b" <= char <= "\u180f":
            return "\u1820" <= before <= "\u18aa"
    return False


def _is_emoji_part(char: str) -> bool:
    """Whether it is a symbol or may follow one in an emoji, such as a skin tone."""
    from unicodedata import category

    return char == "\ufe0f" or (char != "" and category(char) in ("So", "Sm", "Sk"))


def _is_in_ranges(char: str, ranges: tuple[tuple[str, str], ...]) -> bool:
    return any(low <= char <= high for low, high in ranges)


def _escape_character(char: str) -> str:
    return f"<U+{ord(char):04X}>"


def explain_misleading(text: str) -> str:
    """Why a person could mistake this text for another one; empty when not."""
    if text.isascii() and not _NOT_PLAIN.search(text):
        return ""
    for char in dict.fromkeys(text):
        if char in "\t\n" or " " <= char <= "~":
            continue
        category = unicodedata.category(char)
        if category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"):
            return f"contains the invisible or control character U+{ord(char):04X}"
        if category[0] in "LN" and unicodedata.normalize("NFKC", char).isascii():
            return f"contains the look-alike {char!r} (U+{ord(char):04X})"
    mixed = _MIXED.search(text)
    return f"mixes alphabets in {mixed[0][:40]!r}" if mixed else ""

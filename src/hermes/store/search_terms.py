"""The words of queries and of messages, and the line that shows where they meet."""

import re
from collections.abc import Sequence

from hermes.core.errors import StoreError
from hermes.core.message import Text, ToolReturn
from hermes.core.text import compile_pattern, replace_invalid
from hermes.store import codec

MAX_TERMS = 32
MAX_QUERY_LENGTH = 2000
SEARCHABLE_LENGTH = 64 * 1024
"""Characters of one message that are indexed."""
_TERM = r'"([^"]*)"?|([^\s"]+)'
# Scripts written without spaces: the tokenizer would take a whole sentence for one word.
_UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
)


def parse_terms(query: str) -> list[str]:
    """The words and quoted phrases of what a person typed."""
    pairs = compile_pattern(_TERM).findall(replace_invalid(query[:MAX_QUERY_LENGTH]))
    texts = (quoted or plain for quoted, plain in pairs)
    return [text for text in texts if any(c.isalnum() for c in text)][:MAX_TERMS]


def compile_terms(terms: Sequence[str]) -> re.Pattern[str]:
    """A pattern that finds any of the terms in a text."""
    options = []
    for term in terms:
        words = re.findall(r"\w+", term)
        options.append(r"[\W_]+".join(map(re.escape, words)))
    return re.compile("|".join(options), re.IGNORECASE)


def make_snippet(text: str, pattern: re.Pattern[str], width: int = 160) -> str:
    """One line around the first match. The index ignores accents, the pattern does not: where
    only the index matches, the line is the beginning of the text."""
    hit = pattern.search(text)
    at = hit.start() if hit else 0
    start = max(0, at - width // 3)
    if start:
        space = text.find(" ", start, at)
        start = space + 1 if space >= 0 else start
    end = start + width
    line = " ".join(text[start:end].split())
    return ("…" if start else "") + line + ("…" if end < len(text) else "")


def read_text(body: bytes) -> str:
    """What a person would search for in a message: the words of both sides, and the output of
    tools. Nothing of one that cannot be read, which must not keep
    the others from being found."""
    try:
        message = codec.decode_message(body, 0)
    except StoreError:
        return ""
    pieces = [p.text for p in message.parts if isinstance(p, Text | ToolReturn)]
    return "\n".join(pieces)[:SEARCHABLE_LENGTH]


def split_unspaced_scripts(text: str) -> str:
    """Make each character of an unspaced script a word of its own: phrases then match inside."""
    return text if text.isascii() else compile_pattern(_UNSPACED).sub(r" \g<0> ", text)

"""Reads the words of a command line as the shell would expand them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from hermes.exec.command_policy.shell.obfuscation import find_subscript_commands
from hermes.exec.command_policy.shell.scope import ShellScope
from hermes.exec.command_policy.shell.words import (
    FIELDS,
    MAX_BRACES,
    UNKNOWN,
    decode_escapes,
    expand_words,
    is_vague,
    mark_double_quoted,
    mark_quoted,
    mark_unquoted,
    split_fields,
)
from hermes.exec.command_policy.types import TooComplexError

if TYPE_CHECKING:
    from tree_sitter import Node

_HIDDEN_CODE = re.compile(r"(?<!\\)(?:`|\$\()")
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,-]+")
_BARE_SPACE = re.compile(r"(?<!\\)[ \t\n]")
_NUMBERS = frozenset("? # $ !".split())


class ExpandedWords(Struct, frozen=True):
    """The words one piece of source becomes."""

    words: list[str]
    likely: list[str]
    certain: bool = True


_FOUND = ExpandedWords(["{}"], ["{}"])
"""What find and xargs replace."""


class _WordPieces:
    def __init__(self) -> None:
        self.certain: list[str] = []
        self.likely: list[str] = []
        self.quoted = False

    def add_piece(self, certain: str, likely: str | None = None) -> None:
        self.certain.append(certain)
        self.likely.append(certain if likely is None else likely)


class WordReader:
    """Expands words; `substitute` reads a command substitution and may return its output."""

    def __init__(
        self,
        source: bytes,
        scope: ShellScope,
        substitute: Callable[[Node], str | None],
        doubt: Callable[..., None],
    ) -> None:
        self._source = source
        self._scope = scope
        self._substitute = substitute
        self.add_doubt = doubt
        self._offered: list[str] = []
        self._known: dict[tuple[str, bool], ExpandedWords] = {}

    def take_substituted_outputs(self) -> tuple[str, ...]:
        """What the process substitutions read since the last call print."""
        offered, self._offered = tuple(self._offered), []
        return offered

    def read_words(self, node: Node, *, as_value: bool = False) -> ExpandedWords:
        """`as_value`: on the right of an assignment nothing is split."""
        if node.type == "word":
            text = self._node_text(node)
            known = self._known.get((text, as_value))
            return known or self._read_plain_word(node, text, as_value)
        if node.type == "concatenation":
            source = self.node_bytes(node)
            if source == b"{}":
                return _FOUND
            if source.count(b"{") > MAX_BRACES * 2:
                raise TooComplexError("a word has too many braces")
        pieces = _WordPieces()
        self._read_piece(node, pieces, as_value)
        certain, likely = "".join(pieces.certain), "".join(pieces.likely)
        keep = pieces.quoted or as_value
        if as_value:
            certain, likely = certain.replace("{", "\ue07b"), likely.replace("{", "\ue07b")
        words = self._expand_text(certain, keep)
        probably = words if likely == certain else self._expand_text(likely, keep)
        return ExpandedWords(words, probably, not is_vague(certain))

    def _read_plain_word(self, node: Node, text: str, as_value: bool) -> ExpandedWords:
        if _PLAIN.fullmatch(text):
            words = [text]
        else:
            self._check_hidden(node)
            value = mark_unquoted(text)
            words = [value] if as_value and "~" not in value else self._expand_text(value, False)
        phrase = self._known[text, as_value] = ExpandedWords(words, words)
        return phrase

    def read_assignment(self, node: Node) -> tuple[str, str, str]:
        """The name, what is certain of the value, and what it probably is."""
        named, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        name = self._node_text(named) if named is not None else "?"
        if named is not None and named.type == "subscript":
            self.look_inside(named)
        if value is None:
            return name, "", ""
        if value.type == "array":
            self.look_inside(value)
            items = [self.read_words(child) for child in value.named_children]
            return name, UNKNOWN, " ".join(word for item in items for word in item.likely)
        phrase = self.read_words(value, as_value=True)
        return name, "".join(phrase.words), "".join(phrase.likely)

    def ends_document(self, node: Node, delimiter: bytes) -> bool:
        """To the shell, only the delimiter alone on its line ends a here-document."""
        line = self._source.rfind(b"\n", 0, node.start_byte) + 1
        end = self._source.find(b"\n", node.start_byte)
        return self._source[line : end if end >= 0 else None].lstrip(b"\t") == delimiter

    def classify_gap(self, first: Node, second: Node) -> Literal["blank", "line", "none", "odd"]:
        """What is between two parts of one command. The parser sometimes reads on where a line,
        and to the shell the command, has ended; or takes one word for two."""
        text = self._source[first.end_byte : second.start_byte]
        if text == b" ":
            return "blank"
        rest = text.replace(b"\\\n", b"").strip(b" \t")
        if not text:
            return "none"
        if rest.strip():
            return "odd"
        return "line" if rest else "blank"

    def look_inside(self, node: Node) -> None:
        """Search a node for hidden commands only."""
        todo = [node]
        while todo:
            inner = todo.pop()
            if inner.type in ("command_substitution", "process_substitution"):
                self._substitute(inner)
            elif inner.type in ("expansion", "ansi_c_string"):
                self._read_piece(inner, _WordPieces(), True)
            else:
                if inner.is_named and not inner.child_count:
                    self._check_hidden(inner)
                todo += inner.children

    def read_heredoc(self, node: Node, *, as_it_is: bool) -> str:
        """The text of a here-document, after reading what it substitutes."""
        text = self._node_text(node)
        if as_it_is:
            return text
        plain = [text] if not node.named_child_count else []
        for child in node.named_children:
            if child.type == "heredoc_content":
                plain.append(self._node_text(child))
            else:
                self.look_inside(child)
        for piece in plain:
            if _HIDDEN_CODE.search(piece):  # the parser sees neither `…` nor all of $(…)
                found = re.findall(r"`([^`]*)`|\$\((.*?)\)", piece, re.DOTALL)
                inner = "\n".join(first or second for first, second in found)
                self.add_doubt("a here-document runs commands", inner)
        return text

    def _expand_text(self, text: str, keep: bool) -> list[str]:
        return expand_words(text, self._scope.home, keep_empty=keep)

    def _read_piece(self, node: Node, out: _WordPieces, in_quotes: bool) -> None:
        kind = node.type
        if kind in ("word", "number", "extglob_pattern", "regex", "variable_name"):
            self._check_hidden(node)
            out.add_piece(mark_unquoted(self._node_text(node)))
        elif kind == "brace_expression":
            out.add_piece(self._node_text(node))
        elif kind == "raw_string":
            out.quoted = True
            out.add_piece(mark_quoted(self._node_text(node)[1:-1]))
        elif kind == "ansi_c_string":
            out.quoted = True
            out.add_piece(mark_quoted(decode_escapes(self._node_text(node)[2:-1])))
        elif kind == "string":
            self._read_string(node, out)
        elif kind in ("concatenation", "translated_string"):
            self._read_concatenation(node, out, in_quotes)
        elif kind in ("simple_expansion", "expansion"):
            self._read_expansion(node, out, in_quotes)
        elif kind == "command_substitution":
            self._read_command_substitution(node, out, in_quotes)
        elif kind == "process_substitution":
            self._read_process_substitution(node)
            out.add_piece("/dev/fd/" + UNKNOWN)
        elif kind == "arithmetic_expansion":
            self._read_arithmetic(node)
            out.add_piece(UNKNOWN)
        elif kind == "$":
            out.add_piece("$")
        else:
            self.add_doubt(f"it contains a construct that is not understood ({kind})")
            self.look_inside(node)
            out.add_piece(UNKNOWN)

    def _read_arithmetic(self, node: Node) -> None:
        self.look_inside(node)
        for text in find_subscript_commands(node, self._source):
            self.add_doubt("arithmetic would run a command hidden in a variable name", text)

    def _read_process_substitution(self, node: Node) -> None:
        text = self._substitute(node)
        if text is not None:
            self._offered.append(text)

    def _read_string(self, node: Node, out: _WordPieces) -> None:
        """The parser skips some white space between the parts; it belongs to the string."""
        out.quoted = True
        at = node.start_byte + 1
        for child in node.children[1:-1]:
            if child.start_byte > at:
                out.add_piece(mark_quoted(self._source_text(at, child.start_byte)))
            if child.type == "string_content":
                out.add_piece(mark_double_quoted(self._node_text(child)))
            elif child.is_named:
                self._read_piece(child, out, True)
            else:
                out.add_piece(mark_quoted(self._node_text(child)))
            at = child.end_byte
        if node.end_byte - 1 > at:
            out.add_piece(mark_quoted(self._source_text(at, node.end_byte - 1)))

    def _read_concatenation(self, node: Node, out: _WordPieces, in_quotes: bool) -> None:
        end = node.start_byte
        children = node.children
        for at, child in enumerate(children):
            if child.start_byte != end:
                self.add_doubt("its words could not be separated reliably")
            end = child.end_byte
            following = children[at + 1].type if at + 1 < len(children) else ""
            if child.type == "$" and following == "string":
                continue  # $"…" is a translated string
            self._read_piece(child, out, in_quotes)

    def _read_expansion(self, node: Node, out: _WordPieces, in_quotes: bool) -> None:
        source = self._node_text(node)
        plain = re.fullmatch(r"\$\{?(\w+|[@*#?$!-])\}?", source)
        unknown = UNKNOWN if in_quotes else FIELDS
        if plain:
            if plain[1] == "IFS":
                self.add_doubt("it uses IFS to split words")
            if plain[1] in _NUMBERS:
                out.add_piece(UNKNOWN)
            else:
                out.add_piece(*self._scope.variable_value(plain[1], in_quotes=in_quotes))
            return
        trimmed = re.fullmatch(r"\$\{(\w+)%([\w.-]+)\}", source)
        if trimmed:
            values = self._scope.variable_value(trimmed[1], in_quotes=in_quotes)
            out.add_piece(*(value.removesuffix(trimmed[2]) for value in values))
            return
        for child in node.named_children:
            self.look_inside(child)
        if re.search(r"@[PEA]\}$|^\$\{!", source):
            self.add_doubt("it expands a variable indirectly")
        out.add_piece(unknown, self._guess_value(source, in_quotes) or unknown)

    def _guess_value(self, source: str, in_quotes: bool) -> str:
        """The probable value of the usual operators."""
        found = re.fullmatch(
            r"\$\{(\w+)(?:\[[@*\d]\])?(?:(:?[-=+?])(.*)|(%%?|##?|/|:|\^|,).*)?\}", source, re.DOTALL
        )
        if not found:
            return ""
        name, operator, default, trim = found.groups()
        value = self._scope.variable_value(name, in_quotes=in_quotes)[1]
        if operator and "?" not in operator and (is_vague(value) or "+" in operator):
            return (
                str(default).strip("'\"") if in_quotes else split_fields(str(default).strip("'\""))
            )
        if trim and trim != "%":
            return _apply_operator(value, source.partition(name)[2][:-1])
        if trim:
            suffix = source.rpartition("%")[2][:-1]
            return value.removesuffix(suffix) if suffix else value
        return value

    def _read_command_substitution(self, node: Node, out: _WordPieces, in_quotes: bool) -> None:
        text = self._substitute(node)
        unknown = UNKNOWN if in_quotes else FIELDS
        if text is None:
            out.add_piece(unknown)
        else:
            text = text.rstrip("\n")
            out.add_piece(unknown, mark_quoted(text) if in_quotes else split_fields(text))

    def _check_hidden(self, node: Node) -> None:
        """The parser overlooks some substitutions and shows them as plain text."""
        text = self._node_text(node)
        quiet = ("raw_string", "ansi_c_string", "comment", "`", "$(")
        if node.type not in quiet and _HIDDEN_CODE.search(text):
            self.add_doubt("a command is hidden in one of its words")
        replaced = node.parent is not None and node.parent.type == "expansion"
        if node.type == "word" and not replaced and _BARE_SPACE.search(text):
            self.add_doubt("its words could not be separated reliably")

    def node_bytes(self, node: Node) -> bytes:
        return self._source[node.start_byte : node.end_byte]

    def _node_text(self, node: Node) -> str:
        return self._source_text(node.start_byte, node.end_byte)

    def _source_text(self, start: int, end: int) -> str:
        return self._source[start:end].decode("utf-8", "replace")


def _apply_operator(value: str, how: str) -> str:
    """A value after `:2:3`, `#x`, `/a/b`, `,,` and the like; empty when that takes patterns."""
    if found := re.fullmatch(r":\s*(\d{1,4})(?::\s*(\d{1,4}))?", how):
        start = int(found[1])
        return value[start : start + int(found[2])] if found[2] else value[start:]
    if how[:1] == "#" and not re.search(r"[*?\[$]", how):
        return value.removeprefix(how.lstrip("#"))
    if how in (",,", ",", "^^", "^"):
        return value.lower() if how[0] == "," else value.upper()
    if found := re.fullmatch(r"//?([^/*?\[]+)(?:/([^/$`]*))?", how):
        return value.replace(found[1], found[2] or "")
    return ""

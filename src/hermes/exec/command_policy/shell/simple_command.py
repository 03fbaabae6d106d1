"""Simple commands of a command line, and their redirections."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from hermes.exec.command_policy.shell.expansion import ExpandedWords, WordReader
from hermes.exec.command_policy.shell.static_output import predict_output
from hermes.exec.command_policy.shell.words import UNKNOWN

if TYPE_CHECKING:
    from tree_sitter import Node

PIPE: Final = "\x02pipe"
"""Standard input is what another program wrote."""
FILE: Final = "\x02file"
REDIRECTS = frozenset(("file_redirect", "herestring_redirect", "heredoc_redirect"))
WORDS = frozenset(
    "word string raw_string ansi_c_string translated_string concatenation simple_expansion "
    "expansion command_substitution process_substitution arithmetic_expansion number "
    "brace_expression extglob_pattern regex variable_name".split()
)
SEQUENCES = frozenset(
    "program compound_statement do_group elif_clause else_clause negated_command".split()
)
EXPRESSIONS = frozenset(
    "binary_expression unary_expression postfix_expression parenthesized_expression number "
    "ternary_expression".split()
)
RESERVED = frozenset(
    "if then else elif fi for while until do done case esac select function { } ! [[ ]] (".split()
)


def split_lines(phrases: list[ExpandedWords | None]) -> list[list[ExpandedWords]]:
    """Split where a line ends."""
    lines: list[list[ExpandedWords]] = [[]]
    for phrase in phrases:
        if phrase is None:
            lines.append([])
        else:
            lines[-1].append(phrase)
    return lines


def take_assignments(line: list[ExpandedWords]) -> tuple[tuple[str, str], ...]:
    """Take the assignments off the front of a line that was read as plain words."""
    found: list[tuple[str, str]] = []
    while line and len(line[0].words) == 1 and re.match(r"[A-Za-z_]\w*=", line[0].words[0]):
        name, _, value = line.pop(0).words[0].partition("=")
        found.append((name, value))
    return tuple(found)


class SimpleCommand(Struct, frozen=True):
    """One command without operators. Words are as in `words`."""

    argv: tuple[str, ...]
    likely: tuple[str, ...] = ()
    """The argv with the likely values of variables, when that differs."""
    assigned: tuple[tuple[str, str], ...] = ()
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    feed: str | None = None
    """Standard input: nothing, PIPE, FILE, or its text."""
    folders: tuple[str | None, ...] = ()
    sources: tuple[str, ...] = ()
    """The programs before it in its pipeline."""
    offered: tuple[str, ...] = ()
    """The texts it finds in its process substitutions, as far as they are known."""
    function: bool = False
    """Its name is a function's, whose body was read as well."""


def group_output(commands: list[SimpleCommand], kind: str) -> str:
    """What a pipeline or a group of commands writes, as a feed."""
    last = commands[-1:] if kind == "pipeline" else commands
    texts = [predict_output(command.argv, command.feed) for command in last]
    if not texts or kind not in ("pipeline", "compound_statement", "subshell"):
        return PIPE
    return PIPE if None in texts else "\n".join(filter(None, texts))


class Redirections:
    """Gathers the redirections of one statement."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.reads: list[str] = []
        self.feed: str | None = None
        self.extra: list[ExpandedWords | None] = []
        """Words the parser took for targets; None where a line, and so a command, ends."""
        self.piped: list[Node] = []
        self.after: list[Node] = []

    def read_all(self, statement: Node, body: Node | None, reader: WordReader) -> None:
        before = body
        for child in statement.children:
            if child.type in REDIRECTS:
                gap = reader.classify_gap(before, child) if before is not None else "none"
                if gap == "odd":
                    reader.add_doubt("its words could not be separated reliably")
                self.extra += [None] if gap == "line" else []
                self.read_one(child, reader)
                before = child

    def read_one(self, node: Node, reader: WordReader) -> None:
        if node.type == "herestring_redirect":
            phrase = reader.read_words(node.named_children[-1])
            self.feed = " ".join(phrase.words if phrase.certain else phrase.likely)
        elif node.type == "heredoc_redirect":
            self._read_heredoc(node, reader)
        else:
            self._read_file(node, reader)

    def _read_file(self, node: Node, reader: WordReader) -> None:
        operator = next((c.type for c in node.children if not c.is_named), "")
        targets = node.children_by_field_name("destination")
        number = node.child_by_field_name("descriptor")
        if number is not None and not reader.node_bytes(number).strip(b"{}").isalnum():
            reader.add_doubt("a redirection could not be read")
        if not targets:
            return
        phrase = reader.read_words(targets[0])
        words = phrase.words if phrase.certain else [*phrase.words, *phrase.likely]
        if operator in (">&", "<&") and targets[0].type == "number":
            pass
        elif operator in ("<", "<&", "<&-"):
            self.reads += words
            self.feed = FILE
            if targets[0].type == "process_substitution":
                self.feed = PIPE
        else:
            self.writes += words or [UNKNOWN]
        # The parser takes `> file more words` for several targets; the rest are arguments.
        for before, target in pairwise(targets):
            gap = reader.classify_gap(before, target)
            if gap in ("none", "odd"):
                reader.add_doubt("its words could not be separated reliably")
            self.extra += [None] if gap == "line" else []
            self.extra.append(reader.read_words(target))

    def _read_heredoc(self, node: Node, reader: WordReader) -> None:
        body, as_it_is, delimiter = "", False, b""
        for child in node.children:
            kind = child.type
            if kind == "heredoc_body":
                body = reader.read_heredoc(child, as_it_is=as_it_is)
            elif kind == "heredoc_end" and not reader.ends_document(child, delimiter):
                reader.add_doubt("the end of a here-document is unclear")
            elif kind == "heredoc_start":
                text = reader.node_bytes(child)
                delimiter = re.sub(rb"['\"\\]", b"", text)
                as_it_is = any(mark in text for mark in (b"'", b'"', b"\\"))
            elif kind == "pipeline":
                self.piped += [c for c in child.named_children if c.type != "comment"]
            elif kind in REDIRECTS:
                self.read_one(child, reader)
            elif child.is_named and kind not in ("heredoc_start", "heredoc_end", "file_descriptor"):
                if kind in WORDS:
                    self.extra.append(reader.read_words(child))
                else:
                    self.after.append(child)
        self.feed = body

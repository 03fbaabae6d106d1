"""Splits a command line into simple commands with the bash grammar of tree-sitter."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from hermes.exec.command_policy.paths import change_folder
from hermes.exec.command_policy.prescan import MAX_BYTES, check_shape
from hermes.exec.command_policy.types import Argv, SimpleCommand, TooComplexError
from hermes.exec.command_policy.words import UNKNOWN, expand_value, unquote_word

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_NODES = 5000
_ASCII = bytes(byte if byte < 128 else ord(".") for byte in range(256))
_SUBSHELLS = frozenset(("subshell", "command_substitution", "process_substitution"))
_EXPANSIONS = _SUBSHELLS | {"simple_expansion", "expansion", "arithmetic_expansion"}
_REDIRECTS = frozenset(("file_redirect", "herestring_redirect", "heredoc_redirect"))
_STATEMENTS = frozenset("pipeline list command redirected_statement subshell".split())
_LEAVES = frozenset("comment raw_string ansi_c_string heredoc_start heredoc_end".split())


def _find_output(simple: SimpleCommand) -> str:
    """What a command prints, where that stands in the command line."""
    between = {"echo": " ", "printf": "\n"}.get("".join(simple.argv[:1]), "")
    if not between or simple.writes:
        return simple.feed if simple.argv == ("cat",) or simple.argv[:1] == ("tee",) else ""
    return re.sub(r"\A(?:-\w+\s)+", "", between.join(simple.argv[1:])).replace("\\n", "\n")


@cache
def _load_parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse_text(text: str) -> tuple[Node, bytes]:
    """The tree of a command, which may contain errors, and the bytes its offsets refer to. The
    grammar may crash the process on letters that are not ASCII, so it sees full stops instead."""
    text = text.replace(UNKNOWN, "?")
    source = text.encode("utf-8", "replace")
    if len(source) > MAX_BYTES:
        raise TooComplexError("it is longer than 128 KB")
    check_shape(text)
    root = _load_parser().parse(source.translate(_ASCII)).root_node
    if root.descendant_count > MAX_NODES:
        raise TooComplexError("it has too many parts")
    return root, source


class CommandReader:
    """Reads the simple commands of one text, in their order. `~` and `$HOME` stand for the home, a
    literal `cd` changes the folder, and all else that the shell would expand is `UNKNOWN`."""

    def __init__(self, text: str, folder: str | None, user_home: str) -> None:
        self.commands: list[SimpleCommand] = []
        self.fork_bomb = False
        self._home = user_home
        self._folder = folder
        self._echoed = ""
        """What the command before prints, in case it is piped into a shell."""
        self._substituted: list[str] = []
        """What is printed in the command's process substitutions."""
        root, self._source = parse_text(text)
        self.complete = not root.has_error
        self._pending: list[Node] = []
        self._read_tree(root)

    def _read_tree(self, root: Node) -> None:
        """Visit every node once. A string or None on the stack is a folder to go back to."""
        stack: list[Node | str | None] = [root]
        while stack:
            item = stack.pop()
            if item is None or isinstance(item, str):
                self._folder = item
                continue
            if item.type in _LEAVES:
                continue
            if item.type == "command":
                self._add_command(item, [])
            elif item.type == "redirected_statement":
                self._read_redirected(item)
            elif item.type == "pipeline":
                for child in reversed(item.named_children):
                    stack += (self._folder, child)
            else:
                if item.type in _SUBSHELLS:
                    stack.append(self._folder)
                elif item.type == "function_definition" and self._is_fork_bomb(item):
                    self.fork_bomb = True
                stack += reversed(item.named_children)
            stack += reversed(self._pending)
            self._pending.clear()

    def _read_redirected(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        words = any(len(child.children_by_field_name("destination")) > 1 for child in redirects)
        while words and body is not None and body.type in ("list", "pipeline"):  # the last one's
            self._pending += body.named_children[:-1]
            body = body.named_children[-1]
        simple = body is not None and body.type == "command"
        self._pending += [] if body is None or simple else [body]
        self._add_command(body if simple else None, redirects)

    def _add_command(self, node: Node | None, redirects: list[Node]) -> None:
        """Add a command and its redirections: several where the parser missed the end of a line."""
        lines: list[list[str]] = [[]]
        targets: dict[str, list[str]] = {"writes": [], "reads": [], "feed": []}
        before: Node | None = None
        for child in [*(node.children if node is not None else []), *redirects]:
            if before is not None and self._ends_line(before, child):
                lines.append([])
            before = child
            if child.type in _REDIRECTS:
                self._read_redirect(child, targets, lines)
            elif child.type == "variable_assignment":
                self._read_word(child)
            else:
                inner = child.children[0] if child.type == "command_name" else child
                lines[-1].append(self._read_word(inner))
        for argv in map(tuple, lines):
            if argv or targets["writes"] or targets["reads"]:
                self._append_command(argv, targets)

    def _append_command(self, argv: Argv, targets: dict[str, list[str]]) -> None:
        writes, reads, feed = (tuple(targets[kind]) for kind in ("writes", "reads", "feed"))
        fed = "\n".join((*feed, *self._substituted)) or self._echoed
        self._substituted.clear()
        simple = SimpleCommand(argv, self._folder, writes, reads, fed)
        self.commands.append(simple)
        self._echoed = _find_output(simple)
        self._folder = change_folder(argv, self._folder, self._home)

    def _read_redirect(
        self, node: Node, targets: dict[str, list[str]], lines: list[list[str]]
    ) -> None:
        if node.type == "herestring_redirect":
            targets["feed"].append(self._read_word(node.named_children[-1]))
        elif node.type == "heredoc_redirect":
            self._read_heredoc(node, targets, lines)
        else:
            operator = next((c.type for c in node.children if not c.is_named), "")
            found = node.children_by_field_name("destination")
            words = [self._read_word(child) for child in found]
            if words and operator in ("<", "<&", "<&-"):
                targets["reads"] += words[:1]
            elif words and not (operator == ">&" and words[0].isdigit()):
                targets["writes"] += words[:1]
            for before, child, word in zip(found, found[1:], words[1:], strict=False):
                if self._ends_line(before, child):  # the parser takes `> f word` for two targets
                    lines.append([])
                lines[-1].append(word)

    def _read_heredoc(
        self, node: Node, targets: dict[str, list[str]], lines: list[list[str]]
    ) -> None:
        start = node.start_byte
        for child in node.named_children:
            if child.type == "heredoc_start":
                start = self._source.find(b"\n", child.end_byte) + 1
            elif child.type == "heredoc_end":
                body = self._source[start : child.start_byte]
                targets["feed"].append(body.decode("utf-8", "replace"))
            elif child.type == "heredoc_body":
                self._pending += child.named_children
            elif child.type in _REDIRECTS:
                self._read_redirect(child, targets, lines)
            elif child.type in _STATEMENTS:
                self._pending.append(child)
            elif child.type != "file_descriptor" and child.end_byte <= start:
                lines[-1].append(self._read_word(child))  # words behind that are the text

    # Words

    def _read_word(self, node: Node) -> str:
        """The literal text of a word; commands inside it are read later."""
        parts, at, todo = [], node.start_byte, [node]
        while todo:
            child = todo.pop()
            if child.type not in _EXPANSIONS:
                todo += reversed(child.named_children)
                continue
            text = self._source[child.start_byte : child.end_byte].decode("utf-8", "replace")
            parts += [self._source[at : child.start_byte].decode("utf-8", "replace")]
            parts += [expand_value(text, self._home)]
            if text.startswith("<("):
                inner = CommandReader(text[2:-1], self._folder, self._home)
                self._substituted.append(inner._echoed)
            at = child.end_byte
            self._pending += [child] if child.type in _SUBSHELLS else child.named_children
        parts += [self._source[at : node.end_byte].decode("utf-8", "replace")]
        return unquote_word("".join(parts).lstrip("\n"), self._home)

    def _ends_line(self, before: Node, after: Node) -> bool:
        gap = self._source[before.end_byte : after.start_byte + 1]  # a word may begin with it
        return b"\n" in gap and b"\n" in gap.replace(b"\\\n", b"")

    def _is_fork_bomb(self, function: Node) -> bool:
        """Whether a function calls itself in the background, or as the first part of a pipeline."""
        name, body = function.child_by_field_name("name"), function.child_by_field_name("body")
        if name is None or body is None:
            return False
        called = re.escape(self._source[name.start_byte : name.end_byte])
        first = rb"(?:[{(;|&\n!]|\b(?:then|do|else|time))\s*"
        call = first + called + rb"(?=[\s|&])[^;&|\n]*(?:\|(?!\|)|&(?!&))"
        return bool(re.search(call, self._source[body.start_byte : body.end_byte]))

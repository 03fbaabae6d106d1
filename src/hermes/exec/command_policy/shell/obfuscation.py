"""Recognises suspicious syntax: disguised names, fork bombs, blanks the parser dropped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_COMPUTED = frozenset(
    "simple_expansion expansion command_substitution process_substitution arithmetic_expansion "
    "brace_expression".split()
)


_SUBSCRIPT = re.compile(r"(?:\[[^\]]*?|\A.)(?:\$\(|`)(.*?)(?:\)\]|`|\Z)", re.DOTALL)


def explain_disguise(name: Node) -> str:
    """Why the name of a program is suspicious; empty when it is plain text."""
    if name.type == "ansi_c_string":
        return "the name of a program is disguised"
    kinds = {child.type for child in name.children}
    if kinds & _COMPUTED or name.type in _COMPUTED:
        return "the name of a program is computed"
    if name.type == "concatenation" and kinds - {"word", "number"}:
        return "the name of a program is disguised"
    return ""


def calls_itself(function: Node, source: bytes) -> tuple[bool, bool]:
    """Whether a function calls itself, and whether it starts several processes."""
    name, body = function.child_by_field_name("name"), function.child_by_field_name("body")
    if name is None or body is None:
        return False, False
    called = source[name.start_byte : name.end_byte]
    calls, spreads, todo = False, False, [body]
    while todo:
        node = todo.pop()
        spreads = spreads or node.type in ("&", "pipeline")
        if node.type == "command_name":
            calls = calls or source[node.start_byte : node.end_byte] == called
        else:
            todo += node.children
    return calls, spreads


def spawns_endlessly(loop: Node) -> bool:
    """An endless loop that starts something in the background every time."""
    condition, body = loop.child_by_field_name("condition"), loop.child_by_field_name("body")
    if condition is None or body is None:
        return False
    endless = condition.text in (b"true", b":", b"[ 1 ]", b"((1))")
    return endless and any(child.type == "&" for child in body.children)


def find_subscript_commands(test: Node, source: bytes) -> list[str]:
    """The commands in quoted words of `[[ … ]]` that arithmetic would run: `'a[$(…)]'`."""
    found: list[str] = []
    todo = [test]
    while todo:
        node = todo.pop()
        todo += node.children
        if node.type in ("raw_string", "ansi_c_string", "string_content"):
            text = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
            if hidden := _SUBSCRIPT.search(text):
                found.append(hidden[1])
    return found


def skips_blanks(root: Node, source: bytes) -> bool:
    """The parser drops a quoted blank between words; to the shell it is part of a word."""
    for found in re.finditer(rb"\\[ \t]", source):
        node = root.descendant_for_byte_range(found.start(), found.start() + 1)
        if node is not None and node.child_count and node.type != "string":
            return True
    return False


def flatten_chain(node: Node) -> tuple[Node, list[Node]]:
    """The first command of `a && b || c`, and the operators and commands after it. The tree leans
    to the left: a long chain must not become deep."""
    rest: list[Node] = []
    while node.type == "list":
        inner = [child for child in node.children if child.type != "comment"]
        rest += reversed(inner[1:])
        node = inner[0]
    return node, rest[::-1]

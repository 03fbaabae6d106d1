"""The bash grammar, loaded with the first command, and its limits."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from hermes.exec.command_policy.shell.prescan import MAX_BYTES, check_shape
from hermes.exec.command_policy.types import TooComplexError

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_NODES = 8000
_ASCII = bytes(byte if byte < 128 else ord(".") for byte in range(256))


@cache
def _load_parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse_command(text: str) -> tuple[Node, bytes]:
    """The tree of a command, which may contain errors, and the bytes its offsets refer to.

    The grammar reads beyond its tables, and may crash the process, on letters that are not ASCII.
    To the shell they are nothing special, so the parser sees a full stop for each of their bytes;
    text is taken from the bytes returned here, never from the nodes.
    """
    source = text.encode("utf-8", "replace")
    if len(source) > MAX_BYTES:
        raise TooComplexError("it is longer than 128 KB")
    check_shape(text)
    root = _load_parser().parse(source.translate(_ASCII)).root_node
    if root.descendant_count > MAX_NODES:
        raise TooComplexError("it has too many parts")
    return root, source

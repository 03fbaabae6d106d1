"""Reads assignments and declarations into the scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.exec.command_policy.shell.expansion import WordReader
from hermes.exec.command_policy.shell.scope import ShellScope
from hermes.exec.command_policy.shell.simple_command import SimpleCommand
from hermes.exec.command_policy.shell.words import UNKNOWN, is_vague

if TYPE_CHECKING:
    from tree_sitter import Node


class AssignmentReader:
    """A value with an unknown part is only probable in the scope."""

    def __init__(self, word_reader: WordReader, scope: ShellScope) -> None:
        self._word_reader = word_reader
        self._scope = scope

    def read_assignment(self, node: Node, *, lasting: bool = True) -> tuple[str, str]:
        """The name and the value; `lasting`: not only for one command."""
        name, certain, likely = self._word_reader.read_assignment(node)
        if any(child.type == "+=" for child in node.children):
            before = self._scope.values.get(name, ("", False))[0]
            certain, likely = UNKNOWN, before + likely
        if lasting:
            self._scope.assign_variable(name, None if is_vague(certain) else certain, likely)
        return name, certain

    def read_statement(self, node: Node) -> SimpleCommand:
        """`A=b C=d`"""
        nodes = [node] if node.type == "variable_assignment" else node.named_children
        assigned = tuple(self.read_assignment(child) for child in nodes)
        return SimpleCommand((), assigned=assigned, folders=self._scope.folders)

    def read_declaration(self, node: Node) -> SimpleCommand:
        """`export A=b`, `declare -x A`"""
        assigned: list[tuple[str, str]] = []
        argv = [node.children[0].type]
        for child in node.named_children:
            if child.type == "variable_assignment":
                assigned.append(self.read_assignment(child))
            elif child.type == "variable_name":
                argv.append(self._word_reader.node_bytes(child).decode("utf-8", "replace"))
            elif child.type != "comment":
                argv += self._word_reader.read_words(child).words
        return SimpleCommand(tuple(argv), assigned=tuple(assigned), folders=self._scope.folders)

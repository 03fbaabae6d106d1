"""Reads assignments and declarations, and tells the scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.exec.command_policy.shell.expansion import Phrases
from hermes.exec.command_policy.shell.scope import Scope
from hermes.exec.command_policy.shell.simple_command import Simple
from hermes.exec.command_policy.shell.words import UNKNOWN, vague

if TYPE_CHECKING:
    from tree_sitter import Node


class Assigning:
    """A value of which some part is not known is only likely in the scope."""

    def __init__(self, phrases: Phrases, scope: Scope) -> None:
        self._phrases = phrases
        self._scope = scope

    def one(self, node: Node, *, lasting: bool = True) -> tuple[str, str]:
        """The name and the value; `lasting`: not only for one command."""
        name, certain, likely = self._phrases.assignment(node)
        if any(child.type == "+=" for child in node.children):
            before = self._scope.values.get(name, ("", False))[0]
            certain, likely = UNKNOWN, before + likely
        if lasting:
            self._scope.assign(name, None if vague(certain) else certain, likely)
        return name, certain

    def alone(self, node: Node) -> Simple:
        """`A=b C=d`"""
        nodes = [node] if node.type == "variable_assignment" else node.named_children
        assigned = tuple(self.one(child) for child in nodes)
        return Simple((), assigned=assigned, folders=self._scope.folders)

    def declared(self, node: Node) -> Simple:
        """`export A=b`, `declare -x A`"""
        assigned: list[tuple[str, str]] = []
        argv = [node.children[0].type]
        for child in node.named_children:
            if child.type == "variable_assignment":
                assigned.append(self.one(child))
            elif child.type == "variable_name":
                argv.append(self._phrases.raw(child).decode("utf-8", "replace"))
            elif child.type != "comment":
                argv += self._phrases.read(child).words
        return Simple(tuple(argv), assigned=tuple(assigned), folders=self._scope.folders)

"""Turns the syntax tree of a command line into simple commands, in the order they may run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.exec.command_policy.shell.assignments import AssignmentReader
from hermes.exec.command_policy.shell.expansion import ExpandedWords, WordReader
from hermes.exec.command_policy.shell.obfuscation import (
    calls_itself,
    explain_disguise,
    find_subscript_commands,
    flatten_chain,
    skips_blanks,
    spawns_endlessly,
)
from hermes.exec.command_policy.shell.scope import ShellScope
from hermes.exec.command_policy.shell.simple_command import (
    EXPRESSIONS,
    PIPE,
    REDIRECTS,
    RESERVED,
    SEQUENCES,
    WORDS,
    Redirections,
    SimpleCommand,
    group_output,
    split_lines,
    take_assignments,
)
from hermes.exec.command_policy.shell.static_output import predict_output
from hermes.exec.command_policy.shell.words import UNKNOWN, split_plain_words
from hermes.exec.command_policy.types import TooComplexError

if TYPE_CHECKING:
    from tree_sitter import Node

_MAX_DEPTH = 40
_MAX_COMMANDS = 1000
_MAX_CALLS = 8


class CommandReader:
    """Collects `commands`, and `doubts`: why the shell may behave differently."""

    def __init__(self, root: Node, source: bytes, scope: ShellScope, depth: int = 0) -> None:
        self.commands: list[SimpleCommand] = []
        self.doubts: list[str] = []
        self.bombs: list[str] = []
        self.hidden: list[tuple[str, str]] = []  # texts the parser overlooked, and their folder
        self._source = source
        self._scope = scope
        self._depth = depth
        self._feed: str | None = scope.feed
        self._line_feed: str | None = scope.feed  # of a new line, whatever pipeline it was put into
        self._sources: tuple[str, ...] = ()
        self._functions: dict[str, Node] = {}
        self._calling: list[str] = []
        self._calls = 0
        self._loops = 0
        self._word_reader = WordReader(source, scope, self._read_substitution, self._add_hidden)
        self._assignment_reader = AssignmentReader(self._word_reader, scope)
        self._visits = {
            "command": self._visit_command,
            "redirected_statement": self._visit_redirected,
            "pipeline": lambda node: self._visit_pipeline(node.named_children),
            "list": self._visit_list,
            "subshell": self._visit_subshell,
            "if_statement": self._visit_branches,
            "case_statement": self._visit_branches,
            "while_statement": self._visit_while,
            "for_statement": self._visit_for,
            "c_style_for_statement": self._visit_branches,
            "case_item": self._visit_branches,
            "function_definition": self._visit_function,
            "variable_assignment": self._visit_assignments,
            "variable_assignments": self._visit_assignments,
            "declaration_command": self._visit_declaration,
            "unset_command": self._visit_declaration,
            "test_command": self._visit_test,
        }
        self.complete = not root.has_error
        if root.has_error:
            self.add_doubt("it could not be parsed completely")
        if skips_blanks(root, source):
            self.add_doubt("its words could not be separated reliably")
        self._visit_statements(root)

    def add_doubt(self, reason: str) -> None:
        if reason not in self.doubts:
            self.doubts.append(reason)

    def _add_hidden(self, reason: str, text: str = "") -> None:
        self.add_doubt(reason)
        if text:
            self.hidden.append((text, self._scope.folders[0] or "/"))

    # Statements

    def _visit_node(self, node: Node) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH or len(self.commands) > _MAX_COMMANDS:
            raise TooComplexError("it is nested too deeply or too long")
        try:
            visit = self._visits.get(node.type)
            if visit:
                visit(node)
            elif node.type in SEQUENCES:
                self._visit_statements(node)
            elif node.type in EXPRESSIONS:
                self._word_reader.look_inside(node)
            elif node.type != "comment":
                self.add_doubt(f"it contains a construct that is not understood ({node.type})")
                self._word_reader.look_inside(node)
        finally:
            self._depth -= 1

    def _visit_statements(self, node: Node) -> None:
        outer, self._line_feed = self._line_feed, self._feed
        for child in node.named_children:
            self._visit_node(child)
        self._line_feed = outer

    def _visit_list(self, node: Node) -> None:
        """`a && b || c`"""
        first, rest = flatten_chain(node)
        seen = self._scope.folders
        self._visit_node(first)
        succeeded = False
        for child in rest:
            if not child.is_named:
                succeeded = child.type == "&&"
                continue
            if succeeded:
                self._scope.confirm_change()
            seen = (*seen, *self._scope.folders)
            with self._scope.uncertain_branch():
                self._visit_node(child)
                inside = self._scope.folders
            self._scope.folders = inside
        self._scope.add_folders(seen)

    def _visit_subshell(self, node: Node) -> None:
        with self._scope.subshell_scope():
            self._visit_statements(node)

    def _read_substitution(self, node: Node) -> str | None:
        """Read a command substitution; returns its output if that is known."""
        first = len(self.commands)
        feed, line_feed = self._feed, self._line_feed
        if self._source[node.start_byte : node.start_byte + 2] == b">(":
            self._feed = self._line_feed = PIPE
        with self._scope.subshell_scope(), self._scope.uncertain_branch():
            for child in node.named_children:
                if child.type == "file_redirect":  # $(< file)
                    redirects = Redirections()
                    redirects.read_one(child, self._word_reader)
                    self._add_phrases([], (), redirects)
                else:
                    self._visit_node(child)
        self._feed, self._line_feed = feed, line_feed
        inside = [child.type for child in node.named_children if child.type != "comment"]
        added = self.commands[first:]
        if not added or (len(added) > 1 and inside != ["pipeline"]) or added[-1].writes:
            return None
        return predict_output(added[-1].argv, added[-1].feed)

    def _visit_branches(self, node: Node) -> None:
        with self._scope.uncertain_branch():
            for child in node.named_children:
                if child.type in WORDS:
                    self._word_reader.read_words(child)
                else:
                    self._visit_node(child)

    def _visit_while(self, node: Node) -> None:
        if spawns_endlessly(node):
            self.add_doubt("it starts processes endlessly")
        self._visit_branches(node)

    def _visit_for(self, node: Node) -> None:
        variable = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        name = self._node_text(variable) if variable else ""
        phrases = [
            self._word_reader.read_words(child) for child in node.children_by_field_name("value")
        ]
        values = [word for p in phrases for word in (p.words if p.certain else p.likely)]
        certain = all(p.certain for p in phrases) and node.children[0].type != "select"
        if body is None or not values:
            self._scope.assign_variable(name, None, UNKNOWN)
            self._visit_branches(node)
            return
        self.commands.append(SimpleCommand((), assigned=((name, values[0]),)))
        self._loops += 1
        rounds = values[:1] if self._loops > 1 else values[:6]
        known = certain and (len(values) <= 6 if self._loops == 1 else len(values) == 1)
        for value in rounds if known else values[:1]:
            with self._scope.uncertain_branch():
                self._scope.values[name] = (value, known)
                self._visit_node(body)
        self._scope.assign_variable(name, None, values[0])
        self._loops -= 1

    def _visit_function(self, node: Node) -> None:
        named, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if named is None or body is None:
            self.add_doubt("a function could not be read")
            return
        name = self._node_text(named)
        recursive, spreads = calls_itself(node, self._source)
        if recursive and spreads:
            self.bombs.append("a fork bomb")
        elif recursive:
            self.add_doubt("a function calls itself")
        with self._scope.uncertain_branch():
            self._visit_node(body)
        self._functions[name] = body

    def _visit_test(self, node: Node) -> None:
        self._word_reader.look_inside(node)
        for text in find_subscript_commands(node, self._source):
            self._add_hidden("a test would run a command hidden in a variable name", text)
        self.commands.append(SimpleCommand(("test",), folders=self._scope.folders))

    def _visit_declaration(self, node: Node) -> None:
        self.commands.append(self._assignment_reader.read_declaration(node))

    def _visit_assignments(self, node: Node) -> None:
        self.commands.append(self._assignment_reader.read_statement(node))

    # Commands

    def _visit_command(self, node: Node, given: Redirections | None = None) -> None:
        redirects = given or Redirections()
        words = split_plain_words(self._node_text(node)) if not redirects.extra else None
        if words is not None:
            self._add_command(words, (), (), redirects)
            return
        assigned: list[tuple[str, str]] = []
        phrases: list[ExpandedWords | None] = []
        before: Node | None = None
        for child in node.children:
            kind = child.type
            if before is not None:
                gap = self._word_reader.classify_gap(before, child)
                if gap == "odd" or (gap == "none" and kind not in REDIRECTS):
                    self.add_doubt("its words could not be separated reliably")
                phrases += [None] if gap == "line" else []
            before = child
            if kind == "variable_assignment":
                assigned.append(self._assignment_reader.read_assignment(child, lasting=False))
            elif kind in REDIRECTS:
                redirects.read_one(child, self._word_reader)
            else:
                inner = child.children[0] if kind == "command_name" else child
                first = kind == "command_name" or phrases[-1:] == [None]
                if first and (reason := explain_disguise(inner)):
                    self.add_doubt(reason)
                phrases.append(self._word_reader.read_words(inner))
        self._add_lines(phrases + redirects.extra, tuple(assigned), redirects)

    def _add_lines(
        self,
        phrases: list[ExpandedWords | None],
        assigned: tuple[tuple[str, str], ...],
        redirects: Redirections,
    ) -> None:
        """One command, or several where the parser missed the ends of lines."""
        feed = self._feed
        for number, line in enumerate(split_lines(phrases)):
            if number:
                assigned = take_assignments(line)
            self._add_phrases(line, assigned, redirects)
            self._feed = self._line_feed
            if number and line and RESERVED.intersection(line[0].words[:1]):
                self.add_doubt("it could not be parsed completely")
        self._feed = feed

    def _add_phrases(
        self,
        phrases: list[ExpandedWords],
        assigned: tuple[tuple[str, str], ...],
        redirects: Redirections,
    ) -> None:
        argv = tuple(word for phrase in phrases for word in phrase.words)
        certain = all(phrase.certain for phrase in phrases)
        likely = () if certain else tuple(w for phrase in phrases for w in phrase.likely)
        self._add_command(argv, likely if likely != argv else (), assigned, redirects)

    def _add_command(
        self,
        argv: tuple[str, ...],
        likely: tuple[str, ...],
        assigned: tuple[tuple[str, str], ...],
        redirects: Redirections,
    ) -> None:
        command = SimpleCommand(
            argv,
            likely,
            assigned,
            tuple(redirects.writes),
            tuple(redirects.reads),
            self._feed if redirects.feed is None else redirects.feed,
            self._scope.folders,
            self._sources,
            self._word_reader.take_substituted_outputs(),
            bool(argv) and argv[0] in self._functions,
        )
        self.commands.append(command)
        if command.function:
            self._visit_function_call(command)
            return
        argv = argv[1:] if argv[:1] in (("command",), ("builtin",)) else argv
        if argv[:2] == ("set", "--"):
            self._scope.set_arguments(("", *argv[2:]))
        elif argv[:1] in (("cd",), ("pushd",), ("popd",)):
            self._scope.apply_cd(argv)

    def _visit_function_call(self, command: SimpleCommand) -> None:
        """Read the function's body again, with the arguments of this call."""
        name, self._calls = command.argv[0], self._calls + 1
        plain = len(command.argv) < 2 and command.feed is None  # read where it was written
        if name in self._calling or self._calls > _MAX_CALLS or plain:
            return
        self._calling.append(name)
        feed, line_feed = self._feed, self._line_feed
        self._feed = self._line_feed = command.feed
        with self._scope.subshell_scope(), self._scope.uncertain_branch():
            given = command.likely or command.argv
            self._scope.set_arguments(given)
            self._visit_node(self._functions[name])
        self._feed, self._line_feed = feed, line_feed
        self._calling.pop()

    def _visit_pipeline(
        self, parts: list[Node], first: tuple[Node, Redirections] | None = None
    ) -> None:
        feed, sources = self._feed, self._sources
        start = len(self.commands)
        parts = [part for part in parts if part.type != "comment"]
        nodes: list[Node | tuple[Node, Redirections]] = [*([first] if first else []), *parts]
        for part in nodes:
            before = len(self.commands)
            with self._scope.subshell_scope(), self._scope.uncertain_branch():
                if isinstance(part, tuple):
                    self._visit_command(*part)
                else:
                    self._visit_node(part)
            added = self.commands[before:]
            text = None
            if len(added) == 1 and not added[0].writes:
                text = predict_output(added[0].argv, added[0].feed)
            self._feed = PIPE if text is None else text
            self._sources = (*sources, *self._list_programs(start))
        self._feed, self._sources = feed, sources

    def _list_programs(self, start: int) -> list[str]:
        return [command.argv[0] for command in self.commands[start:] if command.argv]

    # Redirections

    def _visit_redirected(self, node: Node) -> None:
        redirects = Redirections()
        body = node.child_by_field_name("body")
        redirects.read_all(node, body, self._word_reader)
        if body is not None and body.type == "command" and redirects.piped:
            self._visit_pipeline(redirects.piped, (body, redirects))
        elif body is not None and body.type == "command":
            self._visit_command(body, redirects)
        else:
            self._visit_compound(body, redirects)
        for child in redirects.after:
            with self._scope.uncertain_branch():
                self._visit_node(child)

    def _visit_compound(self, body: Node | None, redirects: Redirections) -> None:
        if any(redirects.extra) or redirects.piped:
            self.add_doubt("its redirections could not be read")
            self._add_lines(redirects.extra, (), Redirections())
        for child in redirects.piped:
            self._visit_node(child)
        start, feed, sources = len(self.commands), self._feed, self._sources
        if body is not None:
            self._feed = feed if redirects.feed is None else redirects.feed
            self._visit_node(body)
            self._feed = feed
        self._sources = (*sources, *self._list_programs(start))
        self._feed = group_output(self.commands[start:], body.type if body is not None else "")
        self._add_phrases([], (), redirects)
        self._sources, self._feed = sources, feed

    def _node_text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")

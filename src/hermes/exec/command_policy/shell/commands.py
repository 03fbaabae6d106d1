"""From the tree of a command line to the simple commands in it, in the order they may run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.exec.command_policy.shell.assignments import Assigning
from hermes.exec.command_policy.shell.expansion import Phrase, Phrases
from hermes.exec.command_policy.shell.obfuscation import (
    calls_itself,
    chain,
    disguised,
    floods,
    skips_blanks,
    subscripts,
)
from hermes.exec.command_policy.shell.scope import Scope
from hermes.exec.command_policy.shell.simple_command import (
    EXPRESSIONS,
    PIPE,
    REDIRECTS,
    RESERVED,
    SEQUENCES,
    WORDS,
    Redirects,
    Simple,
    lines_of,
    printed,
    settings_of,
)
from hermes.exec.command_policy.shell.static_output import output_of
from hermes.exec.command_policy.shell.words import UNKNOWN, plain_words
from hermes.exec.command_policy.types import TooComplex

if TYPE_CHECKING:
    from tree_sitter import Node

_MAX_DEPTH = 40
_MAX_COMMANDS = 1000
_MAX_CALLS = 8


class Reader:
    """Collects `commands`, and `doubts`: why the reading may not be what the shell does."""

    def __init__(self, root: Node, source: bytes, scope: Scope, depth: int = 0) -> None:
        self.commands: list[Simple] = []
        self.doubts: list[str] = []
        self.bombs: list[str] = []
        self.hidden: list[tuple[str, str]] = []  # texts overlooked by the parser, and their folder
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
        self._phrases = Phrases(source, scope, self._substituted, self._hide)
        self._assigning = Assigning(self._phrases, scope)
        self._visits = {
            "command": self._command,
            "redirected_statement": self._redirected,
            "pipeline": lambda node: self._pipe(node.named_children),
            "list": self._list,
            "subshell": self._subshell,
            "if_statement": self._branches,
            "case_statement": self._branches,
            "while_statement": self._while,
            "for_statement": self._for,
            "c_style_for_statement": self._branches,
            "case_item": self._branches,
            "function_definition": self._function,
            "variable_assignment": self._assignments,
            "variable_assignments": self._assignments,
            "declaration_command": self._declaration,
            "unset_command": self._declaration,
            "test_command": self._test,
        }
        self.whole = not root.has_error
        if root.has_error:
            self.doubt("it could not be parsed completely")
        if skips_blanks(root, source):
            self.doubt("its words could not be told apart")
        self._statements(root)

    def doubt(self, reason: str) -> None:
        if reason not in self.doubts:
            self.doubts.append(reason)

    def _hide(self, reason: str, text: str = "") -> None:
        self.doubt(reason)
        if text:
            self.hidden.append((text, self._scope.folders[0] or "/"))

    # Statements

    def _visit(self, node: Node) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH or len(self.commands) > _MAX_COMMANDS:
            raise TooComplex("it is nested too deeply or too long")
        try:
            visit = self._visits.get(node.type)
            if visit:
                visit(node)
            elif node.type in SEQUENCES:
                self._statements(node)
            elif node.type in EXPRESSIONS:
                self._phrases.look_inside(node)
            elif node.type != "comment":
                self.doubt(f"it contains a construct that is not understood ({node.type})")
                self._phrases.look_inside(node)
        finally:
            self._depth -= 1

    def _statements(self, node: Node) -> None:
        outer, self._line_feed = self._line_feed, self._feed
        for child in node.named_children:
            self._visit(child)
        self._line_feed = outer

    def _list(self, node: Node) -> None:
        """`a && b || c`"""
        first, rest = chain(node)
        seen = self._scope.folders
        self._visit(first)
        succeeded = False
        for child in rest:
            if not child.is_named:
                succeeded = child.type == "&&"
                continue
            if succeeded:
                self._scope.arrived()
            seen = (*seen, *self._scope.folders)
            with self._scope.branch():
                self._visit(child)
                inside = self._scope.folders
            self._scope.folders = inside
        self._scope.also(seen)

    def _subshell(self, node: Node) -> None:
        with self._scope.apart():
            self._statements(node)

    def _substituted(self, node: Node) -> str | None:
        """Read a command substitution; its output if that can be told."""
        first = len(self.commands)
        feed, line_feed = self._feed, self._line_feed
        if self._source[node.start_byte : node.start_byte + 2] == b">(":
            self._feed = self._line_feed = PIPE
        with self._scope.apart(), self._scope.branch():
            for child in node.named_children:
                if child.type == "file_redirect":  # $(< file)
                    redirects = Redirects()
                    redirects.read(child, self._phrases)
                    self._finish([], (), redirects)
                else:
                    self._visit(child)
        self._feed, self._line_feed = feed, line_feed
        inside = [child.type for child in node.named_children if child.type != "comment"]
        added = self.commands[first:]
        if not added or (len(added) > 1 and inside != ["pipeline"]) or added[-1].writes:
            return None
        return output_of(added[-1].argv, added[-1].feed)

    def _branches(self, node: Node) -> None:
        with self._scope.branch():
            for child in node.named_children:
                if child.type in WORDS:
                    self._phrases.read(child)
                else:
                    self._visit(child)

    def _while(self, node: Node) -> None:
        if floods(node):
            self.doubt("it starts processes without end")
        self._branches(node)

    def _for(self, node: Node) -> None:
        variable = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        name = self._text(variable) if variable else ""
        phrases = [self._phrases.read(child) for child in node.children_by_field_name("value")]
        values = [word for p in phrases for word in (p.words if p.certain else p.likely)]
        certain = all(p.certain for p in phrases) and node.children[0].type != "select"
        if body is None or not values:
            self._scope.assign(name, None, UNKNOWN)
            self._branches(node)
            return
        self.commands.append(Simple((), assigned=((name, values[0]),)))
        self._loops += 1
        rounds = values[:1] if self._loops > 1 else values[:6]
        known = certain and (len(values) <= 6 if self._loops == 1 else len(values) == 1)
        for value in rounds if known else values[:1]:
            with self._scope.branch():
                self._scope.values[name] = (value, known)
                self._visit(body)
        self._scope.assign(name, None, values[0])
        self._loops -= 1

    def _function(self, node: Node) -> None:
        named, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if named is None or body is None:
            self.doubt("a function could not be read")
            return
        name = self._text(named)
        recursive, spreads = calls_itself(node, self._source)
        if recursive and spreads:
            self.bombs.append("a fork bomb")
        elif recursive:
            self.doubt("a function calls itself")
        with self._scope.branch():
            self._visit(body)
        self._functions[name] = body

    def _test(self, node: Node) -> None:
        self._phrases.look_inside(node)
        for text in subscripts(node, self._source):
            self._hide("a test would evaluate a command hidden in a name", text)
        self.commands.append(Simple(("test",), folders=self._scope.folders))

    def _declaration(self, node: Node) -> None:
        self.commands.append(self._assigning.declared(node))

    def _assignments(self, node: Node) -> None:
        self.commands.append(self._assigning.alone(node))

    # Commands

    def _command(self, node: Node, given: Redirects | None = None) -> None:
        redirects = given or Redirects()
        words = plain_words(self._text(node)) if not redirects.extra else None
        if words is not None:
            self._add(words, (), (), redirects)
            return
        assigned: list[tuple[str, str]] = []
        phrases: list[Phrase | None] = []
        before: Node | None = None
        for child in node.children:
            kind = child.type
            if before is not None:
                gap = self._phrases.gap(before, child)
                if gap == "odd" or (gap == "none" and kind not in REDIRECTS):
                    self.doubt("its words could not be told apart")
                phrases += [None] if gap == "line" else []
            before = child
            if kind == "variable_assignment":
                assigned.append(self._assigning.one(child, lasting=False))
            elif kind in REDIRECTS:
                redirects.read(child, self._phrases)
            else:
                inner = child.children[0] if kind == "command_name" else child
                first = kind == "command_name" or phrases[-1:] == [None]
                if first and (reason := disguised(inner)):
                    self.doubt(reason)
                phrases.append(self._phrases.read(inner))
        self._lines(phrases + redirects.extra, tuple(assigned), redirects)

    def _lines(
        self,
        phrases: list[Phrase | None],
        assigned: tuple[tuple[str, str], ...],
        redirects: Redirects,
    ) -> None:
        """One command, or several where the parser missed the ends of lines."""
        feed = self._feed
        for number, line in enumerate(lines_of(phrases)):
            if number:
                assigned = settings_of(line)
            self._finish(line, assigned, redirects)
            self._feed = self._line_feed
            if number and line and RESERVED.intersection(line[0].words[:1]):
                self.doubt("it could not be parsed completely")
        self._feed = feed

    def _finish(
        self, phrases: list[Phrase], assigned: tuple[tuple[str, str], ...], redirects: Redirects
    ) -> None:
        argv = tuple(word for phrase in phrases for word in phrase.words)
        certain = all(phrase.certain for phrase in phrases)
        likely = () if certain else tuple(w for phrase in phrases for w in phrase.likely)
        self._add(argv, likely if likely != argv else (), assigned, redirects)

    def _add(
        self,
        argv: tuple[str, ...],
        likely: tuple[str, ...],
        assigned: tuple[tuple[str, str], ...],
        redirects: Redirects,
    ) -> None:
        command = Simple(
            argv,
            likely,
            assigned,
            tuple(redirects.writes),
            tuple(redirects.reads),
            self._feed if redirects.feed is None else redirects.feed,
            self._scope.folders,
            self._sources,
            self._phrases.take_offered(),
            bool(argv) and argv[0] in self._functions,
        )
        self.commands.append(command)
        if command.function:
            self._call(command)
            return
        argv = argv[1:] if argv[:1] in (("command",), ("builtin",)) else argv
        if argv[:2] == ("set", "--"):
            self._scope.set_arguments(("", *argv[2:]))
        elif argv[:1] in (("cd",), ("pushd",), ("popd",)):
            self._scope.cd(argv)

    def _call(self, command: Simple) -> None:
        """Read the function's body again, with the arguments of this call."""
        name, self._calls = command.argv[0], self._calls + 1
        plain = len(command.argv) < 2 and command.feed is None  # read where it was written
        if name in self._calling or self._calls > _MAX_CALLS or plain:
            return
        self._calling.append(name)
        feed, line_feed = self._feed, self._line_feed
        self._feed = self._line_feed = command.feed
        with self._scope.apart(), self._scope.branch():
            given = command.likely or command.argv
            self._scope.set_arguments(given)
            self._visit(self._functions[name])
        self._feed, self._line_feed = feed, line_feed
        self._calling.pop()

    def _pipe(self, parts: list[Node], first: tuple[Node, Redirects] | None = None) -> None:
        feed, sources = self._feed, self._sources
        start = len(self.commands)
        parts = [part for part in parts if part.type != "comment"]
        nodes: list[Node | tuple[Node, Redirects]] = [*([first] if first else []), *parts]
        for part in nodes:
            before = len(self.commands)
            with self._scope.apart(), self._scope.branch():
                if isinstance(part, tuple):
                    self._command(*part)
                else:
                    self._visit(part)
            added = self.commands[before:]
            text = None
            if len(added) == 1 and not added[0].writes:
                text = output_of(added[0].argv, added[0].feed)
            self._feed = PIPE if text is None else text
            self._sources = (*sources, *self._programs(start))
        self._feed, self._sources = feed, sources

    def _programs(self, start: int) -> list[str]:
        return [command.argv[0] for command in self.commands[start:] if command.argv]

    # Redirections

    def _redirected(self, node: Node) -> None:
        redirects = Redirects()
        body = node.child_by_field_name("body")
        redirects.read_all(node, body, self._phrases)
        if body is not None and body.type == "command" and redirects.piped:
            self._pipe(redirects.piped, (body, redirects))
        elif body is not None and body.type == "command":
            self._command(body, redirects)
        else:
            self._compound(body, redirects)
        for child in redirects.after:
            with self._scope.branch():
                self._visit(child)

    def _compound(self, body: Node | None, redirects: Redirects) -> None:
        if any(redirects.extra) or redirects.piped:
            self.doubt("its redirections could not be read")
            self._lines(redirects.extra, (), Redirects())
        for child in redirects.piped:
            self._visit(child)
        start, feed, sources = len(self.commands), self._feed, self._sources
        if body is not None:
            self._feed = feed if redirects.feed is None else redirects.feed
            self._visit(body)
            self._feed = feed
        self._sources = (*sources, *self._programs(start))
        self._feed = printed(self.commands[start:], body.type if body is not None else "")
        self._finish([], (), redirects)
        self._sources, self._feed = sources, feed

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")

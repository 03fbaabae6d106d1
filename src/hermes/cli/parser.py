"""Argument parsing for commands: argparse, with one-sentence errors and near names."""

from __future__ import annotations

import sys
from argparse import Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from hermes.cli.main import EXIT_USAGE, fail


class _Formatter(RawDescriptionHelpFormatter):
    """Wide enough for our longest option to stand beside its explanation."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)


class Outlined(Exception):
    """Instead of parsing: the parser itself, for whoever only wants to know what it takes."""

    def __init__(self, parser: Parser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


class Parser(ArgumentParser):
    """Errors are one sentence and exit 2; options are never guessed from a prefix."""

    outlining = False
    """Set on the class while a command is asked what it takes."""

    def __init__(self, prog: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        self._words: list[str] = []

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        if Parser.outlining:
            raise Outlined(self)
        self._words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: Action, value: Any) -> None:
        """argparse's own words list all choices; the nearest one says more."""
        choices = list(action.choices or ())
        if not choices or value in choices:
            return
        name = "/".join(action.option_strings) or action.metavar or action.dest
        self.error(f"{name}: invalid choice {value!r}, {_meant(str(value), choices)}")

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):
            # A slip in an option is likelier than a word left out.
            known = {name for action in self._actions for name in action.option_strings}
            for word in self._words:
                if word.startswith("--") and len(word) > 2 and word.partition("=")[0] not in known:
                    self._words = []
                    self.complain([word])
            message = self._missing() or message
        command = self.prog.removeprefix("hermes ")
        fail(f"{command}: {message}; see {self.prog} --help")
        sys.exit(EXIT_USAGE)

    def _missing(self) -> str:
        """What to do was not said: then nothing behind it is missing yet."""
        first = next((action for action in self._actions if not action.option_strings), None)
        if first is None or not first.choices or any(w in first.choices for w in self._words):
            return ""
        word = "an action" if first.dest == "action" else f"a {first.metavar or first.dest}"
        return f"{word} is required, one of {', '.join(map(str, first.choices))}"

    def arguments(self) -> list[Action]:
        """What it takes, in the order it was declared."""
        return list(self._actions)

    def complain(self, unknown: list[str]) -> NoReturn:
        """About arguments nobody asked for."""
        first = unknown[0]
        options = [name for action in self._actions for name in action.option_strings]
        close = _near(first.partition("=")[0], options)
        if close and first.startswith("-"):
            self.error(f"unknown option {first}, did you mean {close}?")
        self.error(f"unexpected argument {first!r}")


def _near(word: str, words: Iterable[str]) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(words), 1, 0.6)), "")


def _meant(word: str, choices: list[Any]) -> str:
    names = [str(choice) for choice in choices]
    close = _near(word, names)
    return f"did you mean {close}?" if close else f"use one of {', '.join(names)}"


def outline(name: str) -> Parser:
    """The parser of a command, which is not run."""
    from hermes.cli.main import module_of

    Parser.outlining = True
    try:
        module_of(name).run([], "")
    except Outlined as found:
        return found.parser
    finally:
        Parser.outlining = False
    raise AssertionError(f"{name} parsed nothing")


def profile_option(parser: ArgumentParser, profile: str) -> None:
    parser.add_argument(
        "-p", "--profile", metavar="NAME", default=profile, help="use another profile"
    )


def variable_name(text: str) -> str:
    """For `type=`: what is not a name is likely the key itself, and is not repeated."""
    from argparse import ArgumentTypeError

    if not text.isidentifier() or not text.isascii():
        raise ArgumentTypeError("give the name of an environment variable, not the key itself")
    return text


def positive(text: str) -> int:
    """For `type=`: a whole number of at least 1."""
    from argparse import ArgumentTypeError

    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)

"""Argument parsing for commands: argparse, with one-sentence errors and suggestions."""

import sys
from argparse import (
    Action,
    ArgumentParser,
    ArgumentTypeError,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from hermes.cli.main import EXIT_USAGE, load_command, print_stderr

_MOST_SHOWN = 6
"""Actions that a usage line names."""


class ParserCaptured(Exception):
    """Raised instead of parsing, to get hold of the parser itself."""

    def __init__(self, parser: "CommandParser") -> None:
        super().__init__(parser.prog)
        self.parser = parser


class CommandParser(ArgumentParser):
    """Errors are one sentence and exit 2; options cannot be abbreviated."""

    capturing = False
    """Set on the class while `get_command_parser` runs."""

    def __init__(self, command: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=f"hermes {command}",
            description=description,
            epilog=epilog,
            # Leaves room for the longest option to stand beside its explanation.
            formatter_class=partial(RawDescriptionHelpFormatter, max_help_position=30),
            allow_abbrev=False,
        )
        self._words: list[str] = []

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        if CommandParser.capturing:
            raise ParserCaptured(self)
        self._words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: Action, value: Any) -> None:
        """Suggests the nearest choice instead of listing all of them, as argparse does."""
        choices = list(action.choices or ())
        if not choices or value in choices:
            return
        name = "/".join(action.option_strings) or action.metavar or action.dest
        close = _closest_match(str(value), map(str, choices))
        hint = f"did you mean {close}?" if close else f"use one of {', '.join(map(str, choices))}"
        self.error(f"{name}: invalid choice {value!r}, {hint}")

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):
            # A misspelt option is likelier than a missing word.
            known = {name for action in self._actions for name in action.option_strings}
            for word in self._words:
                if word.startswith("--") and len(word) > 2 and word.partition("=")[0] not in known:
                    self._words = []
                    self.reject_unknown([word])
            message = self._describe_missing() or message
        command = self.prog.removeprefix("hermes ")
        print_stderr(f"{command}: {message}; see {self.prog} --help")
        sys.exit(EXIT_USAGE)

    def _describe_missing(self) -> str:
        """Asks for the action first; until that is given, nothing after it is missing."""
        first = next((action for action in self._actions if not action.option_strings), None)
        if first is None or not first.choices or any(w in first.choices for w in self._words):
            return ""
        word = "an action" if first.dest == "action" else f"a {first.metavar or first.dest}"
        return f"{word} is required, one of {', '.join(map(str, first.choices))}"

    def add_action(self, choices: Iterable[str], default: str) -> None:
        """The action of a command, with the one that is meant when none is given."""
        about = f"see below (default: {default})"
        known = list(choices)
        self.add_argument(
            "action",
            nargs="?",
            choices=known,
            default=default,
            metavar="ACTION" if len(known) > _MOST_SHOWN else None,
            help=about,
        )

    def add_flag(self, *names: str, **settings: Any) -> None:
        self.add_argument(*names, action="store_true", **settings)

    def add_count_option(self, *names: str, **settings: Any) -> None:
        """An option whose value is a whole number of at least 1."""
        self.add_argument(*names, type=_parse_positive, **settings)

    def add_key_option(self, name: str, metavar: str, help: str) -> None:
        """An option that names the environment variable with a key."""
        self.add_argument(name, metavar=metavar, type=_parse_variable_name, help=help)

    def add_profile_option(self, default: str) -> None:
        about = "use another profile"
        self.add_argument("-p", "--profile", metavar="NAME", default=default, help=about)

    def parse_command(self, argv: list[str], profile: str | None = None) -> Namespace:
        """The arguments, options and words in any order; unknown ones are an error. With `profile`,
        the default, another one can be chosen."""
        if profile is not None:
            self.add_profile_option(profile)
        args, unknown = self.parse_known_intermixed_args(argv)
        if unknown:
            self.reject_unknown(unknown)
        return args

    def list_arguments(self) -> list[Action]:
        """What the command takes, in the order of declaration."""
        return list(self._actions)

    def reject_unknown(self, unknown: list[str]) -> NoReturn:
        """Exits with an error about arguments that the command does not take."""
        first = unknown[0]
        options = [name for action in self._actions for name in action.option_strings]
        close = _closest_match(first.partition("=")[0], options)
        if close and first.startswith("-"):
            self.error(f"unknown option {first}, did you mean {close}?")
        self.error(f"unexpected argument {first!r}")


def _closest_match(word: str, words: Iterable[str]) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(words), 1, 0.6)), "")


def get_command_parser(name: str) -> CommandParser:
    """The parser of a command, without running it."""
    CommandParser.capturing = True
    try:
        load_command(name).run([], "")
    except ParserCaptured as captured:
        return captured.parser
    finally:
        CommandParser.capturing = False
    raise AssertionError(f"{name} parsed nothing")


def _parse_variable_name(text: str) -> str:
    """What is not a name may be the key itself, and is not repeated."""
    if not text.isidentifier() or not text.isascii():
        raise ArgumentTypeError("give the name of an environment variable, not the key itself")
    return text


def _parse_positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)

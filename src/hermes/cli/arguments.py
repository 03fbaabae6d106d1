"""Argument parsing for commands: argparse, with one-sentence errors and near names."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import NoReturn

from hermes.cli.main import EXIT_USAGE, fail


class _Formatter(RawDescriptionHelpFormatter):
    """Wide enough for our longest option to stand beside its explanation."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)


class Parser(ArgumentParser):
    """Errors are one sentence and exit 2; options are never guessed from a prefix."""

    def __init__(self, prog: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=_Formatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("hermes ")
        fail(f"{command}: {message}; see {self.prog} --help")
        sys.exit(EXIT_USAGE)

    def complain(self, unknown: list[str]) -> NoReturn:
        """About arguments nobody asked for."""
        from difflib import get_close_matches

        first = unknown[0]
        options = [name for action in self._actions for name in action.option_strings]
        close = get_close_matches(first.partition("=")[0], options, 1, 0.6)
        if close and first.startswith("-"):
            self.error(f"unknown option {first}, did you mean {close[0]}?")
        self.error(f"unexpected argument {first!r}")


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

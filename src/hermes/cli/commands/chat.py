"""`hermes chat`: one prompt, one answer, in three output forms."""

from __future__ import annotations

import gc
from argparse import Namespace
from typing import TYPE_CHECKING

from hermes.cli.main import EXIT_FAILED, EXIT_USAGE, fail
from hermes.cli.parser import Parser, positive, profile_option, variable_name

if TYPE_CHECKING:
    from hermes.cli.process import Signals
    from hermes.core.message import Message

_API_MODES = ("chat", "responses", "anthropic", "bedrock", "gemini")
_EPILOG = """\
Text piped in is added to the prompt; without -q it is the prompt, -q - waits for it.
text puts the answer on stdout and everything else on stderr; json prints one object,
stream-json one event per line with the result last.

exit status: 0 completed, 1 failed, 2 usage or configuration, 3 partial (truncated,
out of steps, stopped by a guard), 129, 130, 143 interrupted by SIGHUP, SIGINT, SIGTERM,
141 the reader of the output went away

examples:
  hermes chat -q "why is the build red?"
  git diff | hermes chat -q "review this"
  hermes chat -q "go on" --continue
  hermes chat -q "what is this?" --image photo.png
  hermes chat -q hi --base-url http://127.0.0.1:8000/v1 --model my-model
  hermes chat -q hi --output json | jq .usage
  hermes chat -q /undo --continue          slash commands: -q /help lists them
"""


def run(argv: list[str], profile: str) -> int:
    args = _arguments(argv, profile)
    gc.disable()  # until the first answer: looking for garbage among fresh imports costs 20 ms
    from hermes.cli.process import Signals

    signals = Signals()
    signals.early()
    if _interactive(args):
        from hermes.cli.project_trust import welcome
        from hermes.cli.repl.main import run as converse

        welcome(args)
        return converse(args)
    from hermes.core.errors import ConfigError, HermesError

    try:
        return _answer(args, signals)
    except HermesError as error:
        usage = isinstance(error, ConfigError)
        if args.output != "text":
            _print_error(str(error), "config" if usage else "internal", args.output)
        fail(str(error))
        return EXIT_USAGE if usage else EXIT_FAILED


def _interactive(args: Namespace) -> bool:
    """Nothing was asked, and somebody is there to ask it."""
    import os

    asked = args.query is not None or args.image or args.output != "text"
    return not asked and os.isatty(0) and os.isatty(1)


def _answer(args: Namespace, signals: Signals) -> int:
    """What can be wrong with the question is found before anything large is imported."""
    import os

    from hermes.cli import log_file as logs
    from hermes.cli.project_trust import settle
    from hermes.cli.prompt_input import read_prompt
    from hermes.config import env, paths
    from hermes.config.load import load_setup
    from hermes.core.redaction.redactor import Redactor

    setup = load_setup(args.profile, keys=[args.api_key_env] if args.api_key_env else [])
    logs.install(paths.log_file(setup.home), Redactor(setup.secrets.redactable_values()).clean)
    for warning in setup.warnings:
        fail(warning)
    folder = paths.find_working_folder(setup.config.terminal.cwd)
    query = None if args.query is None else env.decode_argument(args.query)
    message, remark = read_prompt(query, args.image)
    if remark:
        fail(remark)
    command, message = _command_or_message(query, message)
    if args.resume is None and not args.latest:
        for sentence in settle(setup.home, folder, attended=os.isatty(0) and os.isatty(2)):
            fail(sentence)
    import asyncio

    from hermes.cli.oneshot import OneShot, make_options

    one = OneShot(setup, args, signals)
    return asyncio.run(one.run(message, folder, make_options(args), command))


def _command_or_message(
    query: str | None, message: Message
) -> tuple[tuple[str, str] | None, Message]:
    """A prompt that begins with a slash and names a command is one; unknown names are refused."""
    if query is None or not query.startswith("/"):
        return None, message
    from hermes.app.commands import MEANT, known, message_text, parse
    from hermes.core.message import Media, user

    command = parse(query)
    if command is not None:
        known(command[0], MEANT.format(command[0]))
        return command, message
    media = [part for part in message.parts if isinstance(part, Media)]
    return None, user(message_text(message.text), *media)


def _print_error(sentence: str, code: str, form: str) -> None:
    """For programs that read the output: the same object a failed turn would give."""
    from hermes.cli.terminal.render import result_object
    from hermes.cli.terminal.text import dump
    from hermes.core.events import TurnResult

    result = TurnResult("failed", error=sentence, error_code=code)
    line = result_object("", result, None)
    print(dump({"type": "result", **line} if form == "stream-json" else line))


def _arguments(argv: list[str], profile: str) -> Namespace:
    about = "Answer one prompt and exit; without -q, a conversation in this terminal."
    parser = Parser("hermes chat", about, _EPILOG)
    add = parser.add_argument
    add("-q", "--query", metavar="TEXT", help="the prompt; - reads it from standard input")
    add("-m", "--model", metavar="M", default="", help="model, or provider:model")
    add("--provider", metavar="P", default="", help="a provider name, or custom")
    add("--base-url", metavar="U", default="", help="address of a custom endpoint")
    add(
        "--api-key-env",
        metavar="VAR",
        type=variable_name,
        help="name of the variable with the key",
    )
    add("--api-mode", choices=_API_MODES, default="", help="protocol; derived when absent")
    add("--toolsets", metavar="A,B|none", help="tools to offer; none: no tools at all")
    add("--max-turns", metavar="N", type=positive, help="model calls in this turn")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--resume", metavar="ID", help="go on with this session (a prefix will do)")
    which.add_argument(
        "-c",
        "--continue",
        dest="latest",
        action="store_true",
        help="go on with the latest session of this folder",
    )
    add("--image", metavar="FILE", action="append", default=[], help="attach an image; repeatable")
    add("--yolo", action="store_true", help="run tools without asking")
    add("--plain", action="store_true", help="a conversation line by line, nothing redrawn")
    add(
        "--output",
        choices=("text", "json", "stream-json"),
        default="text",
        help="form of the output (default: text)",
    )
    profile_option(parser, profile)
    args, unknown = parser.parse_known_args(argv)
    if unknown and args.query is None and not unknown[0].startswith("-"):
        parser.error('give the prompt with -q "..."')
    if unknown:
        parser.complain(unknown)
    return args

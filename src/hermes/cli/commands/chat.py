"""`hermes chat`: a conversation in this terminal, or one answer in one of three formats."""

from __future__ import annotations

import gc
import os
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING

from hermes.cli.main import EXIT_FAILED, EXIT_USAGE, print_stderr
from hermes.cli.parser import CommandParser

if TYPE_CHECKING:
    from pathlib import Path

    from hermes.cli.process import SignalHandler
    from hermes.config.load import Setup
    from hermes.core.message import Message

_API_MODES = ("chat", "responses", "anthropic", "bedrock", "gemini")
_EPILOG = """\
Piped text is added to the prompt; without -q it is the prompt; -q - waits for it.
With --output text the answer goes to stdout and everything else to stderr; json prints
one object; stream-json prints one event per line, the result last.

exit status: 0 completed, 1 failed, 2 usage or configuration, 3 partial (truncated,
out of steps, stopped by the loop guard), 129, 130, 143 interrupted by SIGHUP, SIGINT,
SIGTERM, 141 the reader of the output has gone

examples:
  hermes chat -q "why is the build red?"
  git diff | hermes chat -q "review this"
  hermes chat -q "now fix it" --continue
  hermes chat -q "what is this?" --image photo.png
  hermes chat -q hi --base-url http://127.0.0.1:8000/v1 --model my-model
  hermes chat -q hi --output json | jq .usage
  hermes chat -q /undo --continue          run a slash command (list: -q /help)
"""


def run(argv: list[str], profile: str) -> int:
    args = _parse_arguments(argv, profile)
    gc.disable()  # until the first answer: collecting among fresh imports costs 20 ms
    from hermes.cli.process import SignalHandler, harden_process

    harden_process()
    signals = SignalHandler()
    has_prompt = _is_interactive(args)
    signals.exit_on_signal(has_prompt=has_prompt)
    if args.worktree is not None:
        from hermes.cli.session.worktree import enter_worktree

        enter_worktree(args.worktree)
    if has_prompt:
        from hermes.cli.repl.main import run_interactive

        _prepare_conversation(args)
        return run_interactive(args)
    from hermes.core.errors import ConfigError, HermesError

    try:
        return _answer_once(args, signals)
    except HermesError as error:
        usage = isinstance(error, ConfigError)
        if args.output != "text":
            _print_error(str(error), "config" if usage else "internal", args.output)
        print_stderr(str(error))
        return EXIT_USAGE if usage else EXIT_FAILED


def _is_interactive(args: Namespace) -> bool:
    """Whether nothing was asked and somebody sits at the terminal."""
    has_prompt = args.query is not None or args.image or args.output != "text"
    has_prompt = has_prompt or args.output_schema
    return not has_prompt and os.isatty(0) and os.isatty(1)


def _prepare_conversation(args: Namespace) -> None:
    """Before the prompt appears: on the very first start finds a model, and asks about the
    project's instruction files if the model is given them."""
    if args.resume is not None or args.latest:
        return
    from pathlib import Path

    from hermes.cli.session.project_trust import check_context_files, has_context_files
    from hermes.cli.startup import load_checked_setup, locate_home
    from hermes.config import paths

    home, folder = locate_home(args.profile), Path.cwd()
    if args.profile and not home.is_dir():
        load_checked_setup(args.profile)  # says that it creates the profile
    if not paths.database_file(home).exists() and not paths.config_file(home).exists():
        _find_first_model(args)
    if has_context_files(folder):
        paths.make_home(home)
        loads = partial(_loads_context_files, args)
        for sentence in check_context_files(home, folder, attended=True, are_loaded=loads):
            print_stderr(sentence)


def _loads_context_files(args: Namespace) -> bool:
    """Whether the model is given instruction files: a small one has no room for them."""
    from hermes.cli.session.start import make_choice
    from hermes.config.load import load_setup
    from hermes.core.errors import ConfigError
    from hermes.llm.endpoints.resolver import resolve_chain

    setup = load_setup(args.profile, keys=[args.api_key_env] if args.api_key_env else [])
    try:
        chain = resolve_chain(setup.config, setup.secrets, make_choice(args))
    except ConfigError:  # said when the conversation begins
        return True
    return not chain[0].quirks.small


def _find_first_model(args: Namespace) -> None:
    """Sets up a model when nothing says which one to call."""
    if args.model or args.provider or args.base_url:
        return
    from hermes.config.env import is_inside_agent
    from hermes.config.load import load_setup
    from hermes.llm.endpoints.endpoint import ModelChoice
    from hermes.llm.endpoints.resolver import is_undecided

    setup = load_setup(args.profile)
    if is_inside_agent() or not (
        setup.secrets.get("OPENAI_BASE_URL")  # set, but not with which model
        or is_undecided(setup.config, setup.secrets, ModelChoice())
    ):
        return
    from hermes.cli.model.setup import SetupRequest, set_up_model

    print("No model is configured yet. Looking for one (run `hermes setup` to repeat this).")
    set_up_model(SetupRequest(args.profile), attended=True)


def _answer_once(args: Namespace, signals: SignalHandler) -> int:
    """Checks the prompt before anything large is imported."""
    from hermes.cli.log_file import start_logging
    from hermes.cli.prompt_input import read_prompt
    from hermes.cli.session.project_trust import check_context_files
    from hermes.cli.startup import load_checked_setup, run_async
    from hermes.config import env, paths
    from hermes.core.message import user_message

    setup = load_checked_setup(args.profile, keys=[args.api_key_env] if args.api_key_env else [])
    start_logging(setup.home, setup.secrets.redactable_values())
    folder = paths.find_working_folder(setup.config.terminal.cwd)
    query = None if args.query is None else env.decode_argument(args.query)
    message, remark = read_prompt(query, args.image)
    # Without -q, and with -q -, what is piped in is the prompt itself.
    attached = query not in (None, "-") and message != user_message((query or "").strip("\n"))
    if remark:
        print_stderr(remark)
    command, message = _parse_command(query, message, setup, folder)
    if args.resume is None and not args.latest:
        attended = os.isatty(0) and os.isatty(2)
        for sentence in check_context_files(setup.home, folder, attended=attended):
            print_stderr(sentence)
    from hermes.cli.oneshot import OneShot

    return run_async(OneShot(setup, args, signals).run(message, folder, command, attached=attached))


def _parse_command(
    query: str | None, message: Message, setup: Setup, folder: Path
) -> tuple[tuple[str, str] | None, Message]:
    """The slash command that the prompt is, if any, and the message; unknown names are refused."""
    if query is None or not query.startswith("/"):
        return None, message
    from hermes.app.commands import (
        ESCAPE_HINT,
        MCP_PREFIX,
        find_command,
        parse_command,
        require_command,
        unescape_message,
    )
    from hermes.app.commands._own import list_own_commands
    from hermes.app.knowledge.skill_access import has_skill
    from hermes.core.message import Media, user_message

    command = parse_command(query)
    if command is not None:
        is_own = command[0].startswith(MCP_PREFIX)
        is_own = is_own or command[0] in list_own_commands(setup.home, folder)
        if not is_own and find_command(command[0]) is None:
            is_own = has_skill(setup, folder, command[0])
        if not is_own and not setup.config.plugins.enabled:  # else it may be a plugin's
            require_command(command[0], ESCAPE_HINT)
        return command, message
    media = [part for part in message.parts if isinstance(part, Media)]
    return None, user_message(unescape_message(message.text), *media)


def _print_error(sentence: str, code: str, output: str) -> None:
    """The JSON object that a failed turn would print, for programs that read the output."""
    from hermes.cli.terminal.render import result_object
    from hermes.cli.terminal.text import to_json
    from hermes.core.events import TurnResult

    result = TurnResult("failed", error=sentence, error_code=code)
    line = result_object("", result, None)
    print(to_json({"type": "result", **line} if output == "stream-json" else line))


def _parse_arguments(argv: list[str], profile: str) -> Namespace:
    about = "Start a conversation in this terminal or, with -q, answer one prompt and exit."
    parser = CommandParser("chat", about, _EPILOG)
    add = parser.add_argument
    add("-q", "--query", metavar="TEXT", help="the prompt; - reads it from standard input")
    add("-m", "--model", metavar="M", default="", help="model, or provider:model")
    add("--provider", metavar="P", default="", help="a provider name, or custom")
    add("--base-url", metavar="U", default="", help="address of a custom endpoint")
    parser.add_key_option("--api-key-env", "VAR", "name of the environment variable with the key")
    add("--api-mode", choices=_API_MODES, default="", help="protocol (default: detected)")
    add("--toolsets", metavar="A,B|none", help="toolsets to offer, or none")
    allowed = 'do not ask about these: write_file, "terminal:git push"'
    add("--allowed-tools", metavar="T,...", default="", help=allowed)
    parser.add_count_option("--max-turns", metavar="N", help="limit of model calls in this turn")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--resume", metavar="ID", help="resume this session (a prefix is enough)")
    latest = "resume the latest session of this folder"
    which.add_argument("-c", "--continue", dest="latest", action="store_true", help=latest)
    add("--image", metavar="FILE", action="append", default=[], help="attach an image; repeatable")
    add("--worktree", metavar="NAME", help="work in a git worktree of this name")
    parser.add_flag("--yolo", help="turn off approvals and the sandbox")
    parser.add_flag("--record", help="keep what hermes replay needs")
    parser.add_flag("--plain", help="line by line, without a screen")
    formats = ("text", "json", "stream-json")
    add("--output", choices=formats, default="text", help="output format (default: text)")
    schema = "answer with JSON that fits this JSON Schema"
    add("--output-schema", metavar="FILE", default="", help=schema)
    parser.add_profile_option(profile)
    add("prompt", nargs="*", metavar="PROMPT", help="the first message of the conversation")
    args = parser.parse_command(argv)
    args.prompt = " ".join(args.prompt)
    if args.prompt and args.query is not None:
        parser.error("give the prompt once: with -q or without it")
    if args.prompt and not _is_interactive(args):
        args.query = args.prompt
    return args

"""The `hermes` program: finds the command, runs it, and turns every failure into a sentence."""

from __future__ import annotations

import os
import sys

from hermes.version import VERSION

TYPE_CHECKING = False  # importing typing for it would cost a third of `hermes --version`
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

GROUPS = {
    "talk": {
        "chat": "the same; with -q TEXT one answer, and exit",
        "demo": "a short conversation by itself, with the embedded model",
        "serve": "serve the agent over HTTP, OpenAI-compatible",
    },
    "set up": {
        "setup": "find a model that works and use it",
        "model": "show, choose, test the model; models of this machine",
        "auth": "keys and logins of providers",
        "config": "show, get, set or check the configuration",
        "tools": "list tools, turn them on and off",
        "trust": "folders whose AGENTS.md and the like are read",
        "profile": "homes of their own: list, create, use, delete",
    },
    "look": {
        "status": "what is running, what went wrong, what today cost",
        "sessions": "list, show, search, export, branch or delete sessions",
        "checkpoints": "go back to earlier states of a folder",
        "insights": "what model calls used and cost",
        "logs": "what was logged",
    },
    "keep it well": {
        "doctor": "check this installation, and mend it",
        "backup": "everything in one file",
        "import": "a backup put back",
        "update": "how to get a newer version",
        "completion": "completion for bash, zsh or fish",
        "version": "print the version",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}
"""Name -> one line of help; each is a module of hermes.cli.commands, imported when it is run."""
_MODULES = {"import": "import_"}

_HELP = """\
usage: hermes [-p NAME] [COMMAND ...]

An AI agent you run yourself, with any model. Without a command: a conversation
in this terminal.

{commands}options:
  -p, --profile NAME  use another profile: a home of its own below HERMES_HOME
  -h, --help          this help; hermes COMMAND --help explains a command
  --version           print the version

examples:
  hermes                                a conversation in this folder
  hermes chat -q "why is the build red?"
  git diff | hermes chat -q "review this"
  hermes chat -q "go on" --continue
  hermes sessions list
  hermes setup                          finds a model and tries it

State lives under HERMES_HOME (~/.hermes by default). Keys: in the environment
(OPENAI_API_KEY, ANTHROPIC_API_KEY, OPENROUTER_API_KEY, ...) or from .env there.
"""

_CONVERSING = frozenset(
    (
        "-m --model --provider --plain -c --continue --resume --yolo --toolsets -q --query "
        "--base-url --api-key-env --api-mode --max-turns --image --output"
    ).split()
)
"""Options of `hermes chat` that need no word before them."""
_OPTIONS = [*sorted(o for o in _CONVERSING if o[:2] == "--"), "--profile", "--help", "--version"]

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_SIGINT = 130
EXIT_SIGPIPE = 141


def main(argv: list[str] | None = None) -> int:
    """The exit status. As the program itself (without `argv`) it does not return."""
    sys.excepthook = _unexpected
    _own_standard_files()
    code = _guarded(sys.argv[1:] if argv is None else argv)
    if argv is None:
        # Everything is closed and flushed; taking the interpreter apart would cost 30 ms.
        os._exit(code)
    return code


def _guarded(argv: list[str]) -> int:
    try:
        code = _exit_code(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_SIGINT
    except BrokenPipeError:
        return EXIT_SIGPIPE
    except _failures() as error:
        fail(str(error))
        return EXIT_USAGE if type(error).__name__ == "ConfigError" else EXIT_FAILED
    except OSError as error:
        # Only writing the output is left: commands report their own files themselves.
        fail(f"cannot write the output: {error.strerror}")
        return EXIT_FAILED


def fail(sentence: str) -> None:
    """One sentence on stderr; a closed stderr is no reason to fail differently."""
    try:
        print(f"hermes: {sentence}", file=sys.stderr, flush=True)
    except OSError:
        return


def _exit_code(argv: list[str]) -> int:
    try:
        return _run(argv)
    except SystemExit as stop:  # argparse, after --help or an error
        return stop.code if isinstance(stop.code, int) else 0


def _run(argv: list[str]) -> int:
    profile = ""
    rest = list(argv)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        name, equals, value = option.partition("=")
        if option in ("-h", "--help"):
            return _print_help()
        if option in ("-V", "--version"):
            print(f"hermes {VERSION}")
            return 0
        if name in ("-p", "--profile") and (equals or rest):
            profile = value if equals else rest.pop(0)
        elif name in ("-p", "--profile"):
            fail(f"{name} needs the name of a profile")
            return EXIT_USAGE
        elif name in _CONVERSING:
            return _command("chat", [option, *rest], profile)
        else:
            fail(f"unknown option {option}; {_near(name, _OPTIONS)}")
            return EXIT_USAGE
    if not rest:
        return _command("chat", [], profile) if _asked() else _print_help()
    return _command(rest[0], rest[1:], profile)


def _asked() -> bool:
    """A person at a terminal, or text that was piped in."""
    import stat

    if os.isatty(0):
        return os.isatty(1)
    mode = os.fstat(0).st_mode
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


def _command(name: str, rest: list[str], profile: str) -> int:
    if name == "version" and not rest:
        print(f"hermes {VERSION}")
        return 0
    if name == "help":
        return _command(rest[0], ["--help"], profile) if rest else _print_help()
    if name not in COMMANDS:
        fail(f"unknown command {name}; {_near(name, COMMANDS)}")
        return EXIT_USAGE
    code: int = module_of(name).run(rest, profile)
    return code


def module_of(command: str) -> ModuleType:
    from importlib import import_module

    return import_module(f"hermes.cli.commands.{_MODULES.get(command, command)}")


def _near(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), known, 1, 0.5)
    return f"did you mean {close[0]}?" if close else "see hermes --help"


def _print_help() -> int:
    text = ""
    for title, group in GROUPS.items():
        lines = [f"  {name:<13}{line}\n" for name, line in group.items()]
        text += f"{title}:\n{''.join(lines)}\n"
    print(_HELP.format(commands=text), end="")
    return 0


def _failures() -> type[Exception]:
    """Evaluated only when something was raised: the errors' module is not needed before."""
    from hermes.core.errors import HermesError

    return HermesError


def _own_standard_files() -> None:
    """Standard files that are open, and speak UTF-8 whatever the locale says.

    A closed one is opened on /dev/null first: else the next file opened, say the database, would
    get its number, and a stray write would go there.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")


def _unexpected(kind: type[BaseException], error: BaseException, trace: object) -> None:
    """A bug: the traceback goes to the log, a sentence to the user."""
    import logging

    told = " ".join(str(error).split())[:200]
    for handler in logging.getLogger().handlers:
        if where := getattr(handler, "where", None):
            detail = (kind, error, error.__traceback__)
            logging.getLogger("hermes").critical("unexpected error", exc_info=detail)
            told = f"the details are in {where}"
    fail(f"internal error ({kind.__name__}); this is a bug, nothing stored was lost; {told}")

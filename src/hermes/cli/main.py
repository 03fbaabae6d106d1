"""The `hermes` program: finds the command, runs it, and turns every failure into a sentence."""

import errno
import os
import stat
import sys

from hermes.version import VERSION

TYPE_CHECKING = False  # importing typing for it would cost a third of `hermes --version`
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

GROUPS = {
    "talk": {
        "chat": "start a conversation, or -q TEXT for a single answer",
        "demo": "run a short sample conversation with the embedded model",
        "serve": "serve the agent over HTTP (OpenAI-compatible)",
        "worker": "run what waits in the queues of a cluster",
        "dashboard": "use the agent in a browser",
        "gateway": "run the agent in messengers",
        "acp": "run the agent in a code editor",
        "cron": "run prompts and scripts on a schedule",
        "batch": "answer the prompts of a file, each exactly once",
        "swe": "solve issues of repositories and write patches",
        "eval": "measure how well models do what is expected",
    },
    "set up": {
        "setup": "find a model that works and use it",
        "model": "show, choose or test the model; manage embedded models",
        "auth": "manage keys and logins of providers",
        "config": "show, get, set or check the configuration",
        "tools": "list tools, turn them on and off",
        "memory": "show and change what the agent remembers",
        "skills": "list, install and check skills",
        "mcp": "add, test and review MCP servers; serve the agent as one",
        "plugins": "list, install and enable plugins",
        "hooks": "list and test hooks",
        "trust": "choose the folders whose AGENTS.md is loaded",
        "profile": "separate sets of settings, keys and sessions",
        "pairing": "let people into the messengers",
    },
    "inspect": {
        "status": "show what is running, recent errors and today's cost",
        "sessions": "list, show, search, export, branch or delete sessions",
        "checkpoints": "restore earlier states of a folder",
        "replay": "play a recorded session again and compare",
        "insights": "show what model calls used and cost",
        "logs": "show the log",
    },
    "maintenance": {
        "doctor": "check this installation and repair it",
        "cluster": "run the agent on several machines",
        "tenants": "manage the tenants of a cluster and their limits",
        "keys": "manage the API keys of tenants",
        "backup": "save everything to a file",
        "import": "restore a backup",
        "update": "show the update command",
        "completion": "print a completion script for bash, zsh or fish",
        "version": "print the version",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}
"""Name -> one line of help; each is a module of hermes.cli.commands, imported when it is run."""
_MODULE_NAMES = {"import": "import_", "pairing": "pairings"}

_HELP = """\
usage: hermes [-p NAME] [OPTIONS] ["PROMPT"] | hermes [-p NAME] COMMAND ...

An AI agent you run yourself, with any model. Without a command, it starts a
conversation in this terminal, with the prompt as its first message.

{commands}options:
  -p, --profile NAME  use another profile, with its own settings and sessions
  -h, --help          show this help; hermes COMMAND --help explains a command
  --version           print the version

options of a conversation:
  -c, --continue      resume the latest session of this folder
  --resume ID         resume this session (a prefix is enough)
  -m, --model M       use this model, or provider:model
  --provider P        use this provider, or custom
  --base-url U        use the endpoint at this address
  --api-key-env VAR   take its key from this variable
  --api-mode MODE     speak chat, responses, anthropic, bedrock or gemini
  --toolsets A,B      offer these toolsets; none: no tools
  --allowed-tools T   do not ask about these (write_file, "terminal:git push")
  --max-turns N       limit the model calls of a turn
  --worktree NAME     work in a git worktree of this name
  --yolo              turn off approvals and the sandbox
  --plain             line by line, without a screen
  --record            keep what hermes replay needs
  -q, --query TEXT    answer this one prompt and exit; with it also:
  --image FILE        attach an image; repeatable
  --output FORMAT     text, json or stream-json
  --output-schema FILE   answer with JSON that fits this JSON Schema

examples:
  hermes                                start a conversation in this folder
  hermes "fix the build"                start it with this message
  hermes chat -q "why is the build red?"
  git diff | hermes chat -q "review this"
  hermes chat -q "now fix it" --continue
  hermes sessions list
  hermes setup                          find a model and test it

Data is stored in HERMES_HOME (default: ~/.hermes). API keys come from the
environment (OPENAI_API_KEY, ANTHROPIC_API_KEY, OPENROUTER_API_KEY, ...) or from
the file .env there.
"""

_CHAT_OPTIONS = frozenset(
    (
        "-m --model --provider --plain -c --continue --resume --yolo --toolsets -q --query "
        "--base-url --api-key-env --api-mode --max-turns --image --output --output-schema "
        "--allowed-tools --worktree --record"
    ).split()
)
"""Options of `hermes chat` that work without the word chat."""
_LONG_OPTIONS = sorted(option for option in _CHAT_OPTIONS if option[:2] == "--")
_ALL_OPTIONS = [*_LONG_OPTIONS, "--profile", "--help", "--version"]

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_SIGINT = 130
EXIT_SIGPIPE = 141


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status; as the program itself, without `argv`, it exits instead."""
    sys.excepthook = _report_bug
    _prepare_standard_files()
    code = _guard_run(sys.argv[1:] if argv is None else argv)
    if argv is None:
        # Everything is closed and flushed; shutting down the interpreter would cost 30 ms.
        os._exit(code)
    return code


def _guard_run(argv: list[str]) -> int:
    try:
        code = _run_arguments(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_SIGINT
    except BrokenPipeError:
        return EXIT_SIGPIPE
    except _hermes_error() as error:
        from hermes.core.untrusted_text import reveal_hidden

        # It may quote a file that somebody else wrote.
        print_stderr(reveal_hidden(str(error)).replace("\r", " "))
        return EXIT_USAGE if type(error).__name__ == "ConfigError" else EXIT_FAILED
    except (OSError, ImportError) as error:
        if os.strerror(errno.EMFILE) in str(error):
            advice = "End other work, or raise the limit (ulimit -n), and try again."
            print_stderr(f"Too many files are open. Nothing that was saved is lost. {advice}")
        elif isinstance(error, ImportError):
            raise
        elif error.filename is not None:
            print_stderr(f"{str(error.filename)[:200]}: {error.strerror}")
        else:  # it can only be the output
            print_stderr(f"cannot write the output: {error.strerror}")
        return EXIT_FAILED
    except UnicodeEncodeError:
        if all(word.encode(errors="replace").decode() == word for word in argv):
            raise
        print_stderr("an argument is not valid UTF-8; nothing was changed")
        return EXIT_USAGE


def print_stderr(sentence: str) -> None:
    """One sentence on stderr, which may be closed."""
    try:
        print(f"hermes: {sentence}", file=sys.stderr, flush=True)
    except OSError:
        return


def _run_arguments(argv: list[str]) -> int:
    try:
        return _dispatch_arguments(argv)
    except SystemExit as stop:  # argparse, after --help or an error
        return stop.code if isinstance(stop.code, int) else 0


def _dispatch_arguments(argv: list[str]) -> int:
    profile = ""
    words = list(argv)
    while words and words[0].startswith("-") and not _is_text(words[0]):
        option = words.pop(0)
        name, equals, value = option.partition("=")
        if option in ("-h", "--help"):
            return _print_help()
        if option in ("-V", "--version"):
            print(f"hermes {VERSION}")
            return 0
        if name in ("-p", "--profile"):
            profile = value if equals else words.pop(0) if words else ""
            if profile:
                continue
            print_stderr(f"{name} needs the name of a profile")
            return EXIT_USAGE
        elif name in _CHAT_OPTIONS:
            return _run_command("chat", [option, *words], profile)
        else:
            print_stderr(f"unknown option {option}; {_suggest_name(name, _ALL_OPTIONS)}")
            return EXIT_USAGE
    if not words:
        return _run_command("chat", [], profile) if _expects_chat() else _print_help()
    return _run_command(words[0], words[1:], profile)


def _is_text(word: str) -> bool:
    """Whether it is no command and no option but a prompt."""
    return any(letter.isspace() for letter in word.strip())


def _expects_chat() -> bool:
    """Whether a person sits at a terminal, or text was piped in."""
    if os.isatty(0):
        return os.isatty(1)
    mode = os.fstat(0).st_mode
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


def _run_command(name: str, words: list[str], profile: str) -> int:
    if name == "version" and not words:
        print(f"hermes {VERSION}")
        return 0
    if name == "help":
        return _run_command(words[0], ["--help"], profile) if words else _print_help()
    if _is_text(name):
        return _run_command("chat", [name, *words], profile)
    if name not in COMMANDS:
        print_stderr(f"unknown command {name}; {_suggest_way(name, words)}")
        return EXIT_USAGE
    code: int = load_command(name).run(words, profile)
    return code


def load_command(command: str) -> "ModuleType":
    """The module of a command; its `run(argv, profile)` returns the exit status."""
    from importlib import import_module

    return import_module(f"hermes.cli.commands.{_MODULE_NAMES.get(command, command)}")


def _suggest_way(name: str, words: list[str]) -> str:
    suggestion = _suggest_name(name, COMMANDS)
    if "?" in suggestion or not words or any(word.startswith("-") for word in words):
        return suggestion
    from shlex import quote

    text = " ".join((name, *words))
    return f"to send a message, quote it: hermes {quote(text if len(text) < 60 else '...')}"


def _suggest_name(name: str, known: "Iterable[str]") -> str:
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), known, 1, 0.6)
    return f"did you mean {close[0]}?" if close else "see hermes --help"


def _print_help() -> int:
    text = ""
    for title, group in GROUPS.items():
        lines = [f"  {name:<13}{line}\n" for name, line in group.items()]
        text += f"{title}:\n{''.join(lines)}\n"
    print(_HELP.format(commands=text), end="")
    return 0


def _hermes_error() -> type[Exception]:
    """Called only when something was raised, so that the module is not imported before."""
    from hermes.core.errors import HermesError

    return HermesError


def _prepare_standard_files() -> None:
    """Makes sure that the standard files are open and use UTF-8, whatever the locale is.

    A closed one is opened on /dev/null: otherwise the next file opened, say the database, would
    get its number, and a stray write would end up there.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")


def _report_bug(kind: type[BaseException], error: BaseException, trace: object) -> None:
    """The traceback goes to the log, a sentence to the user."""
    import logging

    about = " ".join(str(error).split())[:200]
    for handler in logging.getLogger().handlers:
        if path := getattr(handler, "path", None):
            detail = (kind, error, error.__traceback__)
            logging.getLogger("hermes").critical("unexpected error", exc_info=detail)
            about = f"details: {path}"
    what = f"internal error ({kind.__name__}); this is a bug, nothing stored was lost"
    print_stderr(f"{what}; {about}")

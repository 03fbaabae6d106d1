"""`hermes auth`: keys and logins of providers, added, shown and removed."""

from argparse import Namespace
from collections.abc import Callable

from hermes.cli.auth.adopt import PROGRAMS
from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.process import harden_process
from hermes.cli.startup import load_checked_setup, refuse_agent, run_async
from hermes.cli.terminal.text import to_json
from hermes.config.env import decode_argument
from hermes.config.load import Setup, load_setup
from hermes.core.errors import ConfigError, ProviderError
from hermes.llm.endpoints.inventory import NamedProvider, find_configured_provider

_EPILOG = """\
commands:
  add PROVIDER       store a key in .env (typed without echo, or piped in); a second key
                     makes a pool. For providers with a login only (openai-codex): log in
  list [PROVIDER]    list keys and logins: where they are, their last four characters, their state
  status [PROVIDER]  show which model would answer and with which key; exit 1 if PROVIDER cannot
  remove PROVIDER [VARIABLE]   remove a key from .env (--all: every key of the provider)
  login PROVIDER     log in with a browser or a code (anthropic, copilot, openai-codex)
  logout PROVIDER    delete a login
  adopt PROGRAM      take over the login of another program: codex, claude, gh

hermes auth PROVIDER means hermes auth add PROVIDER. Keys in the environment come before keys in
.env, and keys before logins.

examples:
  hermes auth add openrouter --check
  pass show anthropic | hermes auth add anthropic
  hermes auth openai-codex
  hermes auth list --json
"""
_WORD_COUNTS = {"list": (0, 1), "status": (0, 1), "remove": (1, 2)}
"""Action -> how many words may follow it; the others take one."""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("auth", "Manage keys and logins of providers.", _EPILOG)
    add = parser.add_argument
    add("words", nargs="*", metavar="COMMAND PROVIDER", help="see below")
    parser.add_key_option("--key-env", "NAME", "add: read the key from this environment variable")
    parser.add_flag("--check", help="add: test the key with one cheap call first")
    add("--model", metavar="M", default="", help="add --check: the model to test with")
    parser.add_flag("--replace", help="add: replace the present key")
    source = "add: take over the login of this program"
    add("--from", dest="program", choices=sorted(PROGRAMS), help=source)
    parser.add_flag("--all", help="remove: remove every key of the provider")
    parser.add_flag("--no-browser", help="login: do not open a browser")
    parser.add_flag("--json", help="print JSON")
    args = parser.parse_command(argv, profile)
    words = [decode_argument(word) for word in args.words]
    if any(map(_looks_like_key, words)):
        warning = "do not pass a key as an argument, others could see it"
        parser.error(f"{warning}; you will be asked for it")
    if words and words[0] not in _ACTIONS:
        words.insert(0, "add")
    args.action, *args.words = words or ["list"]
    least, most = _WORD_COUNTS.get(args.action, (1, 1))
    if not least <= len(args.words) <= most:
        what = "a program" if args.action == "adopt" else "a provider"
        parser.error(f"{args.action} needs {what}" if not args.words else "too many arguments")
    harden_process()
    return _ACTIONS[args.action](args)


def _looks_like_key(word: str) -> bool:
    """Whether a secret was given where a name belongs; it is then not repeated."""
    from hermes.core.redaction.redactor import Redactor

    return len(word) > 40 or word.startswith("sk-") or Redactor().redact(word) != word


def _load_for_change(args: Namespace) -> Setup:
    refuse_agent("change keys and logins")
    return load_checked_setup(args.profile)


def _load_provider(args: Namespace) -> tuple[Setup, NamedProvider]:
    """For a change of the provider that is named."""
    setup = _load_for_change(args)
    return setup, find_configured_provider(setup.config, args.words[0])


def _add_credential(args: Namespace) -> int:
    setup, provider = _load_provider(args)
    if args.program:
        return _adopt_login(args, args.program, setup, provider)
    if not provider.usual_variable:
        return _log_in(args, setup, provider)
    from hermes.cli.auth.keys import add_key, check_key
    from hermes.cli.auth.secret_input import read_key

    login = f" (or press Ctrl-C and run hermes auth login {provider.name})"
    prompt = f"Key for {provider.name}{login if provider.login_flow is not None else ''}"
    key = read_key(prompt, args.key_env or "")
    if args.check and (problem := check_key(setup, provider, key, args.model)):
        print_stderr(f"{problem} The key was not stored.")
        return EXIT_FAILED
    return _report_change(args, provider, add_key(setup, provider, key, replace=args.replace))


def _log_in(args: Namespace, setup: Setup, provider: NamedProvider) -> int:
    from hermes.cli.auth.login import log_in

    try:
        run_async(log_in(setup, provider, browser=not args.no_browser))
    except ProviderError as error:
        print_stderr(f"could not log in to {provider.name}: {error}")
        return EXIT_FAILED
    return _report_change(args, provider, f"Logged in to {provider.name}.")


def _run_logout(args: Namespace) -> int:
    from hermes.cli.auth.login import log_out

    setup, provider = _load_provider(args)
    log_out(setup, provider)
    text = f"Logged out of {provider.name}; its tokens were deleted from this machine."
    return _report_change(args, provider, text)


def _remove_key(args: Namespace) -> int:
    from hermes.cli.auth.keys import remove_keys

    setup, provider = _load_provider(args)
    which = args.words[1] if len(args.words) > 1 else ""
    removed = remove_keys(setup, provider, which, every=args.all)
    return _report_change(args, provider, f"Removed from .env: {', '.join(removed)}.")


def _run_adopt(args: Namespace) -> int:
    setup = _load_for_change(args)
    name = args.words[0]
    if name not in PROGRAMS:
        raise ConfigError(f"{name!r} is not one of {', '.join(sorted(PROGRAMS))}.")
    provider = find_configured_provider(setup.config, PROGRAMS[name].provider)
    return _adopt_login(args, name, setup, provider)


def _adopt_login(args: Namespace, name: str, setup: Setup, provider: NamedProvider) -> int:
    from hermes.cli.auth.adopt import read_login
    from hermes.cli.auth.keys import add_key
    from hermes.cli.auth.login import store_token
    from hermes.cli.auth.secret_input import check_key_text
    from hermes.llm.auth.oauth.tokens import Token

    program = PROGRAMS[name]
    if program.provider != provider.name or provider.login_flow is None:
        raise ConfigError(f"The login of {name} is for {program.provider}.")
    found = read_login(program, provider.login_flow)
    if not isinstance(found, Token):
        key = check_key_text(found, name)
        return _report_change(args, provider, add_key(setup, provider, key, replace=False))
    store_token(setup, provider, found)
    text = (
        f"{provider.name} now uses the login of {name}. Both share it: when one of them renews it, "
        "the other may have to log in again."
    )
    return _report_change(args, provider, text)


def _report_change(args: Namespace, provider: NamedProvider, text: str) -> int:
    print(to_json({"provider": provider.name, "done": text}) if args.json else text)
    if args.action in ("add", "login", "adopt") and (hint := _describe_next_step(args, provider)):
        print_stderr(hint)
    return 0


def _describe_next_step(args: Namespace, provider: NamedProvider) -> str:
    """What is left to do before the provider answers."""
    from hermes.llm.endpoints.endpoint import ModelChoice
    from hermes.llm.endpoints.resolver import resolve_chain

    setup = load_setup(args.profile)
    name = provider.name
    try:
        resolve_chain(setup.config, setup.secrets, ModelChoice(provider=name))
        current = resolve_chain(setup.config, setup.secrets, ModelChoice())[0].target.provider
    except ConfigError:
        command = f"hermes model set {name}:MODEL"
        return f"to use it, run: {command} (list them: hermes model list {name})"
    if current == name:
        return ""
    return f"{current} answers now; to use this one, run: hermes model set {name}"


def _show_credentials(args: Namespace) -> int:
    from hermes.cli.auth.keys import show_list, show_status

    setup = load_checked_setup(args.profile)
    provider = find_configured_provider(setup.config, args.words[0]) if args.words else None
    show = show_list if args.action == "list" else show_status
    return show(setup, provider, json=args.json)


_ACTIONS: dict[str, Callable[[Namespace], int]] = {
    "add": _add_credential,
    "list": _show_credentials,
    "status": _show_credentials,
    "remove": _remove_key,
    "login": lambda args: _log_in(args, *_load_provider(args)),
    "logout": _run_logout,
    "adopt": _run_adopt,
}

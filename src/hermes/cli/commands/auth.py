"""`hermes auth`: keys and logins of providers, added, shown and removed."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from hermes.cli.auth.adopt import PROGRAMS
from hermes.cli.main import EXIT_FAILED, fail
from hermes.cli.parser import Parser, profile_option, variable_name
from hermes.cli.process import harden
from hermes.cli.terminal.text import dump
from hermes.config.env import argument_text, inside_agent
from hermes.config.load import Setup, load
from hermes.core.errors import ConfigError, ProviderError
from hermes.llm.endpoints.inventory import NamedProvider, find_configured_provider

_EPILOG = """\
commands:
  add PROVIDER       store a key in .env (asked for without echo, or piped in); a second one
                     makes a pool. Where one logs in instead (openai-codex): the same as login
  list [PROVIDER]    keys and logins: where they are, the last four characters, how they fare
  status [PROVIDER]  who would be called now, and with what; exit 1 when PROVIDER cannot be
  remove PROVIDER [VARIABLE]   take a key out of .env (--all: every key of it)
  login PROVIDER     log in with the browser or a code (anthropic, copilot, openai-codex)
  logout PROVIDER    forget a login
  adopt PROGRAM      take over the login of another program: codex, claude, gh

hermes auth PROVIDER means hermes auth add PROVIDER. Keys of the environment count before those
of .env, and keys before logins.

examples:
  hermes auth add openrouter --check
  pass show anthropic | hermes auth add anthropic
  hermes auth openai-codex
  hermes auth list --json
"""
_WORDS = {"list": (0, 1), "status": (0, 1), "remove": (1, 2)}
"""Action -> how many words it takes; the others take one."""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes auth", "Keys and logins of providers.", _EPILOG)
    add = parser.add_argument
    add("words", nargs="*", metavar="COMMAND PROVIDER", help="see below")
    add(
        "--key-env",
        metavar="NAME",
        type=variable_name,
        help="add: take the key from this variable of the environment",
    )
    add("--check", action="store_true", help="add: make one cheap call with the key first")
    add("--model", metavar="M", default="", help="add --check: the model to call")
    add("--replace", action="store_true", help="add: in place of the key that is there")
    add("--from", dest="program", choices=sorted(PROGRAMS), help="add: the login of that program")
    add("--all", action="store_true", help="remove: every key of the provider")
    add("--no-browser", action="store_true", help="login: open no browser")
    add("--json", action="store_true", help="as JSON")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        parser.complain(unknown)
    words = [argument_text(word) for word in args.words]
    if any(map(_is_key, words)):
        parser.error("a key is no argument, others could see it: it is asked for, or piped in")
    if words and words[0] not in _ACTIONS:
        words.insert(0, "add")
    args.action, *args.words = words or ["list"]
    least, most = _WORDS.get(args.action, (1, 1))
    if not least <= len(args.words) <= most:
        what = "a program" if args.action == "adopt" else "a provider"
        parser.error(f"{args.action} needs {what}" if not args.words else "too many words")
    harden()
    return _ACTIONS[args.action](args)


def _is_key(word: str) -> bool:
    """Whether somebody wrote a secret where a name belongs; then it is not repeated."""
    from hermes.core.redaction.redactor import Redactor

    return len(word) > 40 or word.startswith("sk-") or Redactor().clean(word) != word


def _opened(args: Namespace, *, change: bool) -> Setup:
    if change and inside_agent():
        raise ConfigError("A tool of an agent may not change keys and logins; do it yourself.")
    setup = load(args.profile)
    for warning in setup.warnings:
        fail(warning)
    return setup


def _add(args: Namespace) -> int:
    setup = _opened(args, change=True)
    provider = find_configured_provider(setup.config, args.words[0])
    if args.program:
        return _adopted(args, setup, args.program, provider)
    if not provider.usual_variable:
        return _logged_in(args, setup, provider)
    from hermes.cli.auth.add import add_key, check_key
    from hermes.cli.auth.secret_input import read_key

    login = f", or leave with Ctrl-C and run hermes auth login {provider.name}"
    asked = f"Key of {provider.name}{login if provider.login_flow is not None else ''}"
    key = read_key(asked, args.key_env or "")
    if args.check and (wrong := check_key(setup, provider, key, args.model)):
        fail(f"{wrong} The key was not stored.")
        return EXIT_FAILED
    told = add_key(setup, provider, key, replace=args.replace)
    return _done(args, provider, told)


def _login(args: Namespace) -> int:
    setup = _opened(args, change=True)
    return _logged_in(args, setup, find_configured_provider(setup.config, args.words[0]))


def _logged_in(args: Namespace, setup: Setup, provider: NamedProvider) -> int:
    import asyncio

    from hermes.cli.auth.login import log_in

    try:
        asyncio.run(log_in(setup, provider, browser=not args.no_browser))
    except ProviderError as error:
        fail(f"not logged in to {provider.name}: {error}")
        return EXIT_FAILED
    return _done(args, provider, f"Logged in to {provider.name}.")


def _logout(args: Namespace) -> int:
    from hermes.cli.auth.remove import log_out

    setup = _opened(args, change=True)
    provider = find_configured_provider(setup.config, args.words[0])
    log_out(setup, provider)
    return _done(args, provider, f"Logged out of {provider.name}; the tokens are deleted here.")


def _remove(args: Namespace) -> int:
    from hermes.cli.auth.remove import remove_keys

    setup = _opened(args, change=True)
    provider = find_configured_provider(setup.config, args.words[0])
    which = args.words[1] if len(args.words) > 1 else ""
    gone = remove_keys(setup, provider, which, everything=args.all)
    return _done(args, provider, f"Removed from .env: {', '.join(gone)}.")


def _adopt(args: Namespace) -> int:
    setup = _opened(args, change=True)
    name = args.words[0]
    if name not in PROGRAMS:
        raise ConfigError(f"{name!r} is none of {', '.join(sorted(PROGRAMS))}.")
    return _adopted(
        args, setup, name, find_configured_provider(setup.config, PROGRAMS[name].provider)
    )


def _adopted(args: Namespace, setup: Setup, name: str, provider: NamedProvider) -> int:
    from hermes.cli.auth.add import add_key
    from hermes.cli.auth.adopt import taken_over
    from hermes.cli.auth.login import keep
    from hermes.cli.auth.secret_input import checked
    from hermes.llm.auth.oauth.tokens import Token

    program = PROGRAMS[name]
    if program.provider != provider.name or provider.login_flow is None:
        raise ConfigError(f"The login of {name} is one to {program.provider}.")
    found = taken_over(program, provider.login_flow)
    if not isinstance(found, Token):
        return _done(args, provider, add_key(setup, provider, checked(found, name), replace=False))
    keep(setup, provider, found)
    told = (
        f"The login of {name} is used for {provider.name} now. It is one login for both: when one "
        "of them renews it, the other may have to log in again."
    )
    return _done(args, provider, told)


def _done(args: Namespace, provider: NamedProvider, told: str) -> int:
    print(dump({"provider": provider.name, "done": told}) if args.json else told)
    if args.action in ("add", "login", "adopt") and (hint := _next(args, provider)):
        fail(hint)
    return 0


def _next(args: Namespace, provider: NamedProvider) -> str:
    """What is left to do before it answers."""
    from hermes.llm.endpoints.endpoint import ModelChoice
    from hermes.llm.endpoints.resolver import resolve_chain

    setup = load(args.profile)
    name = provider.name
    try:
        resolve_chain(setup.config, setup.secrets, ModelChoice(provider=name))
        now = resolve_chain(setup.config, setup.secrets, ModelChoice())[0].target.provider
    except ConfigError:
        return f"to use it: hermes model set {name}:MODEL (hermes model list {name} shows them)"
    return "" if now == name else f"{now} answers now; to use this one: hermes model set {name}"


def _show(args: Namespace) -> int:
    from hermes.cli.auth.show import show_list, show_status

    setup = _opened(args, change=False)
    provider = find_configured_provider(setup.config, args.words[0]) if args.words else None
    show = show_list if args.action == "list" else show_status
    return show(setup, provider, json=args.json)


_ACTIONS: dict[str, Callable[[Namespace], int]] = {
    "add": _add,
    "list": _show,
    "status": _show,
    "remove": _remove,
    "login": _login,
    "logout": _logout,
    "adopt": _adopt,
}

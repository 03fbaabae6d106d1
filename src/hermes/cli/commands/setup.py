"""`hermes setup`: from nothing to a conversation that works."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from hermes.cli.main import EXIT_FAILED, fail
from hermes.cli.parser import Parser, profile_option, variable_name

if TYPE_CHECKING:
    from hermes.cli.model_candidates import Candidate
    from hermes.config.load import Setup

_EPILOG = """\
Looks for keys (environment, .env), logins, model servers on this machine and the model inside
this program, asks the best one to say hello, and writes what worked to config.yaml. Run it again
whenever you like: what works stays, and nothing is written when nothing answered.

For scripts: --non-interactive asks nothing. With --provider, --model, --base-url, --key-env or
--embedded exactly that is tried; without them the first that answers is taken.
exit status: 0 a model answered, 1 none did, 2 usage or configuration

examples:
  hermes setup
  hermes setup --non-interactive
  hermes setup --non-interactive --provider openrouter --model qwen/qwen3-coder
  hermes setup --base-url http://127.0.0.1:8000/v1 --model my-model --key-env MY_KEY
  hermes setup --embedded
"""
_NONE = "No model was chosen; nothing was written. hermes setup looks again."


def run(argv: list[str], profile: str) -> int:
    args = _arguments(argv, profile)
    from hermes.config.env import inside_agent
    from hermes.core.errors import ConfigError

    if inside_agent():
        raise ConfigError("A tool of an agent may not change its model; do it yourself.")
    attended = not args.non_interactive and all(os.isatty(number) for number in (0, 1, 2))
    done = first(args, attended=attended)
    if done is None:
        return EXIT_FAILED
    if attended and done.fresh:
        from hermes.cli.main import module_of

        code: int = module_of("chat").run(["--continue", "-p", args.profile], args.profile)
        return code
    return 0


def _arguments(argv: list[str], profile: str) -> Namespace:
    parser = Parser("hermes setup", "Find a model that works and use it.", _EPILOG)
    add = parser.add_argument
    add("--non-interactive", action="store_true", help="ask nothing")
    add("--provider", metavar="P", default="", help="a provider name, or custom")
    add("--model", metavar="M", default="", help="model, or provider:model")
    add("--base-url", metavar="U", default="", help="address of a custom endpoint")
    add("--key-env", metavar="VAR", type=variable_name, help="variable with the key")
    add("--embedded", action="store_true", help="the small model inside this program")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.complain(unknown)
    args.key_env = args.key_env or ""
    asked = args.provider or args.model or args.base_url or args.key_env
    if args.embedded and (args.provider or args.base_url or args.key_env):
        parser.error("--embedded goes with --model only")
    args.asked = bool(asked or args.embedded)
    return args


class Done:
    """What came of it."""

    def __init__(self, session: str, *, fresh: bool) -> None:
        self.session = session
        self.fresh = fresh
        """It is the first conversation of this home."""


def first(args: Namespace, *, attended: bool) -> Done | None:
    """Find, try, write. None: nothing answered, and why has been said."""
    import asyncio

    from hermes.cli import log_file as logs
    from hermes.cli.model_candidates import candidates
    from hermes.config import paths
    from hermes.config.load import load
    from hermes.core.redaction.redactor import Redactor
    from hermes.llm.endpoints.resolver import resolve_chain

    setup = load(args.profile, keys=[args.key_env] if args.key_env else [])
    logs.install(paths.log_file(setup.home), Redactor(setup.secrets.known()).clean)
    for warning in setup.warnings:
        fail(warning)
    if (setup.home / "state.db").exists():
        print("This home was made by the original Hermes Agent; its sessions stay as they are.")
    fresh = not paths.database(setup.home).exists()
    if args.asked:
        if args.base_url:
            _look_at(setup, args, attended=attended)
        wanted = _wanted(setup, args)
        resolve_chain(setup.config, setup.secrets, wanted.choice)  # what nobody can call is misuse
        session = _try(setup, wanted, write=True)
        return Done(session, fresh=fresh) if session else None
    found = asyncio.run(candidates(setup))
    _show(found)
    if attended and all(candidate.kind == "embedded" for candidate in found):
        pasted = _pasted(args, bool(found))
        if pasted is not None:
            return Done(pasted, fresh=fresh) if pasted else None
    order = _chosen(found, attended=attended)
    for candidate in order:
        # The model of last resort stays one: a key that comes later is used without asking.
        write = candidate.kind not in ("configured", "embedded") or candidate is not order[-1]
        session = _try(setup, candidate, write=write and candidate.kind != "configured")
        if session:
            return Done(session, fresh=fresh)
    _nothing(bool(found))
    return None


def _wanted(setup: Setup, args: Namespace) -> Candidate:
    """What was asked for; a server nearby is asked what it has, where only it or a model of its
    was named."""
    import asyncio

    from hermes.cli.model_candidates import Candidate
    from hermes.llm.endpoints.endpoint import ModelChoice
    from hermes.llm.endpoints.local_servers import choose_model, find_servers
    from hermes.llm.providers import provider_index

    provider = "local" if args.embedded else args.provider
    choice = ModelChoice(args.model, provider, args.base_url, args.key_env)
    if not args.base_url and not args.model and provider in provider_index().local_servers:
        near = asyncio.run(find_servers([provider]))
        choice = near[0].model_choice if near else choice
    elif not provider:
        choice = asyncio.run(choose_model(setup.config, setup.secrets, choice))
    label = ":".join(filter(None, (choice.provider, choice.model)))
    return Candidate("asked", choice, label or args.base_url or args.key_env)


def _look_at(setup: Setup, args: Namespace, *, attended: bool) -> None:
    """Whether the address lacks its end, and which model there is where none was named.
    ConfigError: it does not say, or has several."""
    from hermes.cli.model.custom import model_of, probed
    from hermes.core.errors import ConfigError
    from hermes.llm.auth.key_pool import NO_KEY, Credential

    url = args.base_url.rstrip("/")
    if args.model and url.count("/") > 2:
        return
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"The address {url!r} must begin with http:// or https://.")
    value = setup.secrets.get(args.key_env) if args.key_env else None
    found = probed(url, Credential(args.key_env, value) if value else NO_KEY, "")
    if found.needs_key and value is None:
        raise ConfigError(
            f"{url} wants a key: give the name of the variable that holds it as --key-env."
        )
    if not found.wire and not found.models:
        if args.model:
            return
        raise ConfigError(
            f"{url} does not say which models it has ({found.problem}): give --model."
        )
    if found.base_url != url:
        fail(f"/v1 was missing: {found.base_url} is what answers there, and is used")
    args.base_url = found.base_url
    args.model = args.model or model_of(found, attended=attended)


def _show(found: list[Candidate]) -> None:
    if not found:
        return
    print("Found:")
    for number, candidate in enumerate(found, 1):
        print(f"  {number}. {candidate.label}")


def _chosen(found: list[Candidate], *, attended: bool) -> list[Candidate]:
    """In the order they are tried: what the user picked first."""
    if not attended or len(found) < 2:
        return found
    while True:
        print(f"Which one? [1-{len(found)}, Enter: 1] ", end="", flush=True)
        line = sys.stdin.readline()
        word = line.strip() or "1"
        if not line or (word.isdecimal() and 1 <= int(word) <= len(found)):
            picked = found[int(word) - 1] if line else found[0]
            return [picked, *(c for c in found if c is not picked)]


def _pasted(args: Namespace, embedded: bool) -> str | None:
    """A key typed in now: the session it answered in, empty when it did not. None: no key."""
    from getpass import getpass

    from hermes.cli.model_candidates import Candidate, variable_for
    from hermes.config import dotenv
    from hermes.config.env import environment
    from hermes.config.load import load
    from hermes.core.errors import ConfigError
    from hermes.llm.endpoints.endpoint import ModelChoice
    from hermes.llm.providers import find_provider, provider_index

    rest = "or Enter for the small model" if embedded else "or Enter to leave"
    try:
        key = getpass(f"Paste the API key of a provider (not shown), {rest}: ").strip()
    except EOFError:
        print()
        raise ConfigError(_NONE) from None
    except KeyboardInterrupt:
        print(f"\n{_NONE}")
        raise
    if not key:
        return None
    variable = variable_for(key)
    while variable not in provider_index().key_variables:
        print("Whose key is it? (e.g. openai, anthropic, openrouter) ", end="", flush=True)
        if not (line := sys.stdin.readline()):
            raise ConfigError(_NONE)
        spec = find_provider(line.strip())
        variable = spec.keys[0] if spec and spec.keys else ""
    provider = provider_index().key_variables[variable]
    spec = find_provider(provider)
    assert spec is not None
    setup = load(args.profile, {**environment(), variable: key})
    label = f"{provider}:{spec.default_model}"
    candidate = Candidate("key", ModelChoice(spec.default_model, provider), label)
    session = _try(setup, candidate, write=True)
    if session:
        dotenv.put(setup.home, variable, key)
        print(f"The key is in {setup.home / '.env'} as {variable}, readable by you alone.")
    else:
        print("The key was not kept.")
    return session


def _try(setup: Setup, candidate: Candidate, *, write: bool) -> str:
    """The session it said hello in; empty: it did not, and why has been said."""
    import asyncio

    from hermes.cli.model_check import hello, keep

    print(f"Trying {candidate.label} ...", flush=True)
    answer = asyncio.run(hello(setup, candidate.choice))
    if answer.problem:
        fail(answer.problem)
        return ""
    print(f"{answer.name} says: {answer.text}")
    if write:
        keep(setup, candidate.choice, answer)
    if candidate.kind == "embedded" and not write:
        print("It is used until you connect a larger one: hermes setup again, or set a key.")
    print(f'It works. hermes talks to it; hermes chat -q "..." asks once. ({answer.seconds:.1f} s)')
    return answer.session


def _nothing(found: bool) -> None:
    from hermes.llm.endpoints.resolver import NOTHING

    fail("None of them answered; nothing was written." if found else NOTHING)

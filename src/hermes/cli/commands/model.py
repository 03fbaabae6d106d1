"""`hermes model`: which model answers, shown, chosen and tested; embedded models downloaded."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes.cli.main import fail
from hermes.cli.parser import Parser, profile_option, variable_name
from hermes.cli.process import harden
from hermes.cli.terminal.text import dump, printable
from hermes.config.env import argument_text, inside_agent
from hermes.config.load import Setup, load
from hermes.core.errors import ConfigError
from hermes.core.wire_names import WIRE_NAMES
from hermes.llm.local.models import DEFAULT, MODELS, LocalModel, find_model

_EPILOG = f"""\
commands:
  (none)             what answers now: provider, address, key, context, prices, fallbacks; on a
                     terminal also a list to choose from, with search
  set PROVIDER:MODEL use it from now on (also: use); what belonged to the provider before goes
  test [PROVIDER:MODEL]   make one real call and say what works; exit 1 when nothing does
  custom URL         an endpoint of your own: tried out, /v1 added where it was left out
  list [PROVIDER]    models of a provider; without one: the embedded models
  pull [NAME]        download an embedded model (default: {DEFAULT})
  local FILE|NAME    use a .gguf file, or a downloaded model, from now on

Embedded models run on this machine, in a process of their own, without a server and without a
key. They need the extra: pip install 'hermes-runtime[local]'.

examples:
  hermes model
  hermes model set anthropic:claude-sonnet-4-5
  hermes model test --json
  hermes model custom http://127.0.0.1:8000 --key-env LAB_KEY --name lab
  hermes model pull
  hermes model local ~/models/my-model.gguf
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes model", "The model that answers: shown, chosen, tested.", _EPILOG)
    add = parser.add_argument
    add("action", choices=sorted(_ACTIONS), nargs="?", default="show", help="see below")
    add("name", nargs="?", default="", help="a model, a provider, an address, or a file")
    add("--model", metavar="M", default="", help="custom: the model there")
    add(
        "--key-env",
        metavar="NAME",
        type=variable_name,
        help="custom: name of the variable with the key",
    )
    add(
        "--api-mode",
        choices=WIRE_NAMES,
        default="",
        help="custom: its protocol; found out if absent",
    )
    add("--name", dest="called", metavar="N", default="", help="custom: keep it under this name")
    add("--cache", action="store_true", help="test: two calls with a long prompt, for the cache")
    add("--json", action="store_true", help="as JSON")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        parser.complain(unknown)
    if args.action == "show" and args.name:
        parser.error("show takes no name")
    if args.action in _NEEDED and not args.name:
        parser.error(f"{args.action} needs {_NEEDED[args.action]}")
    args.name = argument_text(args.name)
    return _ACTIONS[args.action](args)


def _opened(args: Namespace, *, change: bool = False) -> Setup:
    if change and inside_agent():
        raise ConfigError("A tool of an agent may not change its model; do it yourself.")
    setup = load(args.profile)
    for warning in setup.warnings:
        fail(warning)
    return setup


def _show(args: Namespace) -> int:
    from hermes.cli.model.show import gathered, lines

    setup = _opened(args)
    told = gathered(setup)
    if args.json:
        print(dump(told))
        return 0
    print("\n".join(lines(told)), flush=True)
    attended = os.isatty(0) and os.isatty(1) and os.isatty(2)
    return _pick(args, setup, told) if attended and not inside_agent() else 0


def _pick(args: Namespace, setup: Setup, told: dict[str, Any]) -> int:
    import asyncio

    from hermes.cli.model.choices import offered
    from hermes.cli.terminal.picker import Row, pick

    other = Row("another address", "an endpoint of your own")
    current = f"{told.get('provider')}:{told.get('model')}"
    rows = asyncio.run(offered(setup))
    print(file=sys.stderr)
    chosen = pick("Choose a model.", [*rows, other], current)
    if chosen is None or chosen == current:
        return 0
    if chosen != other.value:
        args.name = chosen
        return _set(args)
    print("address: ", end="", file=sys.stderr, flush=True)
    args.name = sys.stdin.readline().strip()
    return _custom(args) if args.name else 0


def _set(args: Namespace) -> int:
    from hermes.cli.model.set_model import missing, switch, understood

    setup = _opened(args, change=True)
    wanted = understood(setup, args.name)
    after = switch(setup, wanted)
    wrong = missing(after)
    return _told(args, wanted.provider, wanted.model, wrong)


def _told(args: Namespace, provider: str, model: str, wrong: str = "") -> int:
    if args.json:
        print(dump({"provider": provider, "model": model, "missing": wrong or None}))
    else:
        print(f"The model is {model} of {provider}.")
        if wrong:
            fail(f"it cannot be called yet: {wrong}")
    return 0


def _custom(args: Namespace) -> int:
    from hermes.cli.model.custom import set_up

    wanted = set_up(_opened(args, change=True), args)
    return _told(args, wanted.provider, wanted.model)


def _test(args: Namespace) -> int:
    from hermes.cli.model.set_model import understood
    from hermes.cli.model.test_model import test
    from hermes.llm.endpoints.endpoint import ModelChoice

    setup = _opened(args)
    choice = ModelChoice()
    if args.name:
        wanted = understood(setup, args.name)
        choice = ModelChoice(wanted.model, wanted.provider)
    harden()
    return test(setup, choice, cache=args.cache, json=args.json)


def _models(args: Namespace) -> int:
    """Of a provider; without one, the embedded ones."""
    if not args.name:
        return _list(args)
    import asyncio

    from hermes.cli.model.choices import offered
    from hermes.llm.endpoints.inventory import find_configured_provider

    setup = _opened(args)
    name = (
        args.name
        if args.name in setup.config.providers
        else find_configured_provider(setup.config, args.name).name
    )
    rows = asyncio.run(offered(setup, name))
    if args.json:
        print(dump([{"model": row.value, "about": row.detail} for row in rows]))
        return 0
    for row in rows:
        print(printable(f"{row.value:<48} {row.detail}").rstrip())
    if not rows:
        fail(f"{name} lists no models")
    return 0


def _list(args: Namespace) -> int:
    from hermes.llm.endpoints.embedded import find_model_file

    secrets = load(args.profile).secrets
    rows = [
        {
            "name": model.name,
            "title": model.title,
            "bytes": model.size,
            "sha256": model.sha256,
            "licence": model.licence,
            "page": model.page,
            "file": str(find_model_file(model, secrets) or ""),
        }
        for model in MODELS
    ]
    if args.json:
        print(dump(rows))
        return 0
    for model, row in zip(MODELS, rows, strict=True):
        here = row["file"] or f"hermes model pull {model.name}"
        size = f"{model.size / 1e6:,.0f} MB"
        print(f"{model.name:<20}{size:>9}  {model.licence:<11} {model.title}\n{'':<31}{here}")
    return 0


def _pull(args: Namespace) -> int:
    model = _known(args.name or DEFAULT)
    load(args.profile)  # the home exists from here on
    import asyncio

    file = asyncio.run(_download(model))
    print(file)
    from hermes.llm.endpoints.embedded import NO_ENGINE, is_engine_installed

    if not is_engine_installed():
        fail(NO_ENGINE)
    elif model.name != DEFAULT:
        fail(f"to use it: hermes model local {model.name}, or --model local:{model.name}")
    return 0


async def _download(model: LocalModel) -> Path:
    from hermes.cli.terminal.download import pull
    from hermes.llm.http.transport import Transport

    transport = Transport()
    try:
        return await pull(model, transport)
    finally:
        await transport.close()


def _local(args: Namespace) -> int:
    from hermes.cli.model.set_model import Wanted, switch

    setup = _opened(args, change=True)
    known = find_model(args.name)
    name = known.name if known else str(_gguf(args.name))
    switch(setup, Wanted("local", name))
    print(f"The model is {name}, on this machine.")
    from hermes.llm.endpoints.embedded import NO_ENGINE, is_engine_installed

    if not is_engine_installed():
        fail(NO_ENGINE)
    return 0


def _gguf(name: str) -> Path:
    file = Path(name).expanduser().absolute()
    try:
        with file.open("rb") as data:
            magic = data.read(4)
    except OSError as error:
        names = ", ".join(model.name for model in MODELS)
        raise ConfigError(
            f"{file} cannot be read: {error.strerror}. Give a .gguf file, or one of {names}."
        ) from None
    if magic != b"GGUF":
        raise ConfigError(f"{file} is no GGUF file; nothing was changed.")
    return file


def _known(name: str) -> LocalModel:
    model = find_model(name)
    if model is None:
        names = ", ".join(m.name for m in MODELS)
        raise ConfigError(
            f"There is no model {name!r} to pull; there are {names}. "
            "For a file you have: hermes model local FILE.gguf"
        )
    return model


_NEEDED = {
    "local": "a .gguf file or the name of a model",
    "set": "PROVIDER:MODEL",
    "use": "PROVIDER:MODEL",
    "custom": "the address of an endpoint",
}
_ACTIONS: dict[str, Callable[[Namespace], int]] = {
    "show": _show,
    "set": _set,
    "use": _set,
    "test": _test,
    "custom": _custom,
    "list": _models,
    "local": _local,
    "pull": _pull,
}

"""`hermes model`: embedded models, listed, downloaded and chosen."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from hermes.cli.arguments import Parser, profile_option
from hermes.cli.display import dump
from hermes.cli.main import fail
from hermes.config import paths
from hermes.config.env import argument_text, environment, inside_agent
from hermes.config.load import load
from hermes.core.errors import ConfigError
from hermes.llm.local.catalogue import DEFAULT, MODELS, LocalModel, find

_EPILOG = f"""\
commands:
  list               the embedded models: size, licence, whether they are here
  pull [NAME]        download one (default: {DEFAULT})
  local FILE|NAME    use a .gguf file, or a downloaded model, from now on

Embedded models run on this machine, in a process of their own, without a server and without a
key. They need the extra: pip install 'hermes-runtime[local]'.

examples:
  hermes model pull
  hermes model local ~/models/my-model.gguf
  hermes chat -q hi --model local:{DEFAULT}
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes model", "Models that run on this machine.", _EPILOG)
    parser.add_argument("action", choices=sorted(_ACTIONS), help="see below")
    parser.add_argument("name", nargs="?", default="", help="a model of the list, or a file")
    parser.add_argument("--json", action="store_true", help="as JSON (list)")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        parser.complain(unknown)
    if args.action == "list" and args.name:
        parser.error("list takes no name")
    if args.action == "local" and not args.name:
        parser.error("local needs a .gguf file or the name of a model")
    args.name = argument_text(args.name)
    return _ACTIONS[args.action](args)


def _list(args: Namespace) -> int:
    from hermes.llm.local.finding import file_of

    secrets = load(args.profile).secrets
    rows = [
        {
            "name": model.name,
            "title": model.title,
            "bytes": model.size,
            "sha256": model.sha256,
            "licence": model.licence,
            "page": model.page,
            "file": str(file_of(model, secrets) or ""),
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
    file = asyncio.run(_download(model))
    print(file)
    from hermes.llm.local.finding import NO_ENGINE, installed

    if not installed():
        fail(NO_ENGINE)
    elif model.name != DEFAULT:
        fail(f"to use it: hermes model local {model.name}, or --model local:{model.name}")
    return 0


async def _download(model: LocalModel) -> Path:
    from hermes.cli.pulling import pull
    from hermes.llm.http import Transport

    transport = Transport()
    try:
        return await pull(model, transport)
    finally:
        await transport.close()


def _local(args: Namespace) -> int:
    if inside_agent():
        raise ConfigError("A tool of an agent may not change its model; do it yourself.")
    known = find(args.name)
    name = known.name if known else str(_gguf(args.name))
    home = paths.find_home(environment(), args.profile)
    for warning in paths.make_home(home):
        fail(warning)
    from hermes.config.edit import render
    from hermes.config.write import editing

    with editing(home) as put:
        put("model.provider", "local")
        put("model.default", render(name))
    print(f"The model is {name}, on this machine.")
    from hermes.llm.local.finding import NO_ENGINE, installed

    if not installed():
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
    model = find(name)
    if model is None:
        names = ", ".join(m.name for m in MODELS)
        raise ConfigError(
            f"There is no model {name!r} to pull; there are {names}. "
            "For a file you have: hermes model local FILE.gguf"
        )
    return model


_ACTIONS: dict[str, Callable[[Namespace], int]] = {"list": _list, "local": _local, "pull": _pull}

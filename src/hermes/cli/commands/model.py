"""`hermes model`: shows, chooses and tests the model that answers; downloads embedded models."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes.cli.main import print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.process import harden_process
from hermes.cli.startup import load_checked_setup, refuse_agent, run_async
from hermes.cli.terminal.text import print_report, strip_controls, to_json
from hermes.config.env import decode_argument, is_inside_agent
from hermes.config.load import Setup, load_setup
from hermes.core.errors import ConfigError
from hermes.core.wire_names import WIRE_NAMES
from hermes.llm.local.models import DEFAULT, MODELS, LocalModel, find_model

_MODEL_NAMES = ", ".join(model.name for model in MODELS)
_EPILOG = f"""\
commands:
  (none)             show the model in use: provider, address, key, context, prices, fallbacks;
                     on a terminal, followed by a list to choose from, with search
  set PROVIDER:MODEL use this model (also: use); settings of the previous provider are removed
  test [PROVIDER:MODEL]   make one real call and report what works; exit 1 when it fails
  custom URL         use your own endpoint: tests it, adds /v1 where it is missing
  list [PROVIDER]    list the models of a provider; without one, the embedded models
  pull [NAME]        download an embedded model (default: {DEFAULT})
  local FILE|NAME    use a .gguf file or a downloaded model

Embedded models run on this machine in a separate process, without a server and without a key.
They need an extra: pip install 'hermes-runtime[local]'.

examples:
  hermes model
  hermes model set anthropic:claude-sonnet-4-5
  hermes model test --json
  hermes model custom http://127.0.0.1:8000 --key-env LAB_KEY --name lab
  hermes model pull
  hermes model local ~/models/my-model.gguf
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("model", "Show, choose or test the model that answers.", _EPILOG)
    add = parser.add_argument
    add("action", choices=sorted(_ACTIONS), nargs="?", default="show", help="see below")
    add("name", nargs="?", default="", help="a model, provider, address or file")
    add("--model", metavar="M", default="", help="custom: the model to use")
    parser.add_key_option("--key-env", "NAME", "custom: environment variable with the key")
    add("--api-mode", choices=WIRE_NAMES, default="", help="custom: protocol (default: detected)")
    add("--name", dest="called", metavar="N", default="", help="custom: save it under this name")
    parser.add_flag("--cache", help="test: make two calls with a long prompt, to see caching")
    parser.add_flag("--json", help="print JSON")
    args = parser.parse_command(argv, profile)
    if args.action == "show" and args.name:
        parser.error("show takes no name")
    if args.action in _REQUIRED_NAMES and not args.name:
        parser.error(f"{args.action} needs {_REQUIRED_NAMES[args.action]}")
    args.name = decode_argument(args.name)
    return _ACTIONS[args.action](args)


def _load_for_change(args: Namespace) -> Setup:
    refuse_agent("change its model")
    return load_checked_setup(args.profile)


def _show_model(args: Namespace) -> int:
    from hermes.app.control.model_description import describe_model
    from hermes.cli.model.show import format_model

    setup = load_checked_setup(args.profile)
    data = run_async(describe_model(setup))
    if args.json:
        print(to_json(data))
        return 0
    print("\n".join(format_model(data)), flush=True)
    attended = os.isatty(0) and os.isatty(1) and os.isatty(2)
    return _pick_model(args, setup, data) if attended and not is_inside_agent() else 0


def _pick_model(args: Namespace, setup: Setup, data: dict[str, Any]) -> int:
    from hermes.app.control.model_selection import list_models
    from hermes.cli.terminal.picker import PickerRow, pick_row

    other = PickerRow("another address", "your own endpoint")
    current = f"{data.get('provider')}:{data.get('model')}"
    rows = run_async(list_models(setup))
    print(file=sys.stderr)
    listed = [PickerRow(row.value, row.detail) for row in rows]
    chosen = pick_row("Choose a model.", [*listed, other], current)
    if chosen is None or chosen == current:
        return 0
    if chosen != other.value:
        args.name = chosen
        return _set_model(args)
    print("Address: ", end="", file=sys.stderr, flush=True)
    args.name = sys.stdin.readline().strip()
    return _add_custom(args) if args.name else 0


def _set_model(args: Namespace) -> int:
    from hermes.app.control.model_selection import describe_missing, parse_selection, save_selection

    setup = _load_for_change(args)
    selection = parse_selection(setup, args.name)
    missing = describe_missing(save_selection(setup, selection))
    return _report_model(args, selection.provider, selection.model, missing)


def _report_model(args: Namespace, provider: str, model: str, missing: str = "") -> int:
    if args.json:
        print(to_json({"provider": provider, "model": model, "missing": missing or None}))
    else:
        print(f"The model is now {model} ({provider}).")
        if missing:
            print_stderr(f"it cannot be called yet: {missing}")
    return 0


def _add_custom(args: Namespace) -> int:
    from hermes.cli.model.setup import add_endpoint

    selection = add_endpoint(_load_for_change(args), args)
    return _report_model(args, selection.provider, selection.model)


def _test_model(args: Namespace) -> int:
    from hermes.app.control.model_selection import parse_selection
    from hermes.cli.model.show import report_test
    from hermes.llm.endpoints.endpoint import ModelChoice

    harden_process()
    setup = load_checked_setup(args.profile)
    choice = ModelChoice()
    if args.name:
        selection = parse_selection(setup, args.name)
        choice = ModelChoice(selection.model, selection.provider)
    return report_test(setup, choice, cache=args.cache, json=args.json)


def _list_models(args: Namespace) -> int:
    """The models of a provider; without one, the embedded models."""
    if not args.name:
        return _list_embedded_models(args)
    from hermes.app.control.model_selection import find_provider_name, list_models

    setup = load_checked_setup(args.profile)
    name = find_provider_name(setup.config, args.name)
    rows = run_async(list_models(setup, name))
    if not rows and not args.json:
        print_stderr(f"{name} lists no models")
    data = [{"model": row.value, "about": row.detail} for row in rows]
    lines = (strip_controls(f"{row.value:<48} {row.detail}").rstrip() for row in rows)
    return print_report(data, lines, json=args.json)


def _list_embedded_models(args: Namespace) -> int:
    from hermes.llm.endpoints.embedded import find_model_file

    secrets = load_setup(args.profile).secrets
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
        print(to_json(rows))
        return 0
    for model, row in zip(MODELS, rows, strict=True):
        here = row["file"] or f"hermes model pull {model.name}"
        size = f"{model.size / 1e6:,.0f} MB"
        print(f"{model.name:<20}{size:>9}  {model.licence:<11} {model.title}\n{'':<31}{here}")
    return 0


def _pull_model(args: Namespace) -> int:
    from hermes.llm.endpoints.embedded import NO_ENGINE, is_engine_installed

    model = _find_embedded_model(args.name or DEFAULT)
    load_setup(args.profile)  # creates the home
    print(run_async(_download_model(model)))
    if not is_engine_installed():
        print_stderr(NO_ENGINE)
    elif model.name != DEFAULT:
        use = f"hermes model local {model.name} (or add --model local:{model.name})"
        print_stderr(f"to use it, run: {use}")
    return 0


async def _download_model(model: LocalModel) -> Path:
    from hermes.cli.terminal.download import download_model
    from hermes.llm.http.transport import Transport

    async with Transport() as transport:
        return await download_model(model, transport)


def _use_local(args: Namespace) -> int:
    from hermes.app.control.model_selection import ModelSelection, save_selection
    from hermes.llm.endpoints.embedded import NO_ENGINE, is_engine_installed

    setup = _load_for_change(args)
    known = find_model(args.name)
    name = known.name if known else str(_check_gguf(args.name))
    save_selection(setup, ModelSelection("local", name))
    print(f"The model is now {name}, on this machine.")
    if not is_engine_installed():
        print_stderr(NO_ENGINE)
    return 0


def _check_gguf(name: str) -> Path:
    file = Path(name).expanduser().absolute()
    try:
        with file.open("rb") as data:
            magic = data.read(4)
    except OSError as error:
        hint = f"Give a .gguf file, or one of {_MODEL_NAMES}."
        raise ConfigError(f"Could not read {file}: {error.strerror}. {hint}") from None
    if magic != b"GGUF":
        raise ConfigError(f"{file} is not a GGUF file; nothing was changed.")
    return file


def _find_embedded_model(name: str) -> LocalModel:
    model = find_model(name)
    if model is None:
        hint = "To use your own file, run: hermes model local FILE.gguf"
        text = f"There is no embedded model {name!r}; choose one of {_MODEL_NAMES}."
        raise ConfigError(f"{text} {hint}")
    return model


_REQUIRED_NAMES = {
    "local": "a .gguf file or the name of a model",
    "set": "PROVIDER:MODEL",
    "use": "PROVIDER:MODEL",
    "custom": "the address of an endpoint",
}
_ACTIONS: dict[str, Callable[[Namespace], int]] = {
    "show": _show_model,
    "set": _set_model,
    "use": _set_model,
    "test": _test_model,
    "custom": _add_custom,
    "list": _list_models,
    "local": _use_local,
    "pull": _pull_model,
}

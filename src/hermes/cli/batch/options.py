"""The options of commands that run many prompts."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.main import print_stderr
from hermes.cli.parser import CommandParser
from hermes.config.load import Setup
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.batch.dataset import CheckToolsets, Dataset
    from hermes.batch.run_folder import RunSettings
    from hermes.batch.trajectories import Format


def add_run_options(parser: CommandParser) -> None:
    parser.add_argument("--name", metavar="N", help="the name of the run (that of the file)")
    parser.add_argument("--output", metavar="DIR", default="", help="where results are written")
    parser.add_count_option("--concurrency", metavar="N", help="conversations at a time (64)")
    parser.add_count_option("--processes", metavar="N", help="processes that share the work (1)")
    parser.add_argument("--model", metavar="M", help="a model, or provider:model")
    parser.add_argument("--toolsets", metavar="A,B", help="toolsets of every item; none: no tools")
    parser.add_argument("--distribution", metavar="D", help="choose toolsets by chance")
    parser.add_argument("--seed", metavar="N", type=_parse_seed, help="of the distribution (0)")
    parser.add_count_option("--max-turns", metavar="N", help="model calls per item (30)")
    for name, what in (("--max-usd", "of the run"), ("--item-usd", "of each item")):
        parser.add_argument(name, metavar="X", type=_parse_amount, help=f"most dollars {what}")
    parser.add_argument(
        "--item-seconds", metavar="S", type=_parse_amount, help="longest time of an item (1800)"
    )
    parser.add_count_option("--rpm", metavar="N", help="most model calls per minute")
    parser.add_count_option("--tpm", metavar="N", help="most tokens per minute, about")
    parser.add_argument("--retries", metavar="N", type=_parse_count, help="of a failed item (2)")
    parser.add_count_option("--limit", metavar="N", help="only the first N items")
    parser.add_argument("--system", metavar="FILE", help="text added to the system prompt")
    parser.add_argument("--prefill", metavar="FILE", help="messages before every prompt (JSON)")
    parser.add_argument("--image", metavar="IMG", help="a container of this image per item")
    parser.add_argument("--format", metavar="F,...", help="hermes, openai, sharegpt, raw, parquet")
    parser.add_flag("--require-reasoning", help="filter out answers without reasoning")
    parser.add_flag("--skip-bad", help="leave out lines that are no items")
    parser.add_flag("--cluster", help="let the nodes of the cluster answer the items")
    parser.add_flag("--share", help=SUPPRESS)  # a further process of a run that is going on
    parser.add_flag("--extend", help="the file has more items than when the run began")


_FIXED = (
    "name output model toolsets distribution seed max_turns limit system prefill image"
    " require_reasoning skip_bad extend"
).split()
"""What a run keeps from its beginning, or what only its beginning needs."""


def find_fixed_option(args: Namespace) -> str:
    """The first option given that a resume cannot change."""
    given = (name for name in _FIXED if getattr(args, name) not in (None, "", False))
    return next((f"--{name.replace('_', '-')}" for name in given), "")


def print_skipped(dataset: Dataset) -> None:
    if dataset.skipped:
        what = "1 bad line is" if dataset.skipped == 1 else f"{dataset.skipped} bad lines are"
        print_stderr(f"{what} left out.")


def _parse_amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _parse_seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a whole number") from None


def _parse_count(text: str) -> int:
    if not text.isdigit() or len(text) > 4:
        raise ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def make_settings(args: Namespace, name: str, setup: Setup) -> RunSettings:
    """The settings of a new run; ConfigError for what cannot be."""
    from hermes.batch.dataset import read_prefill
    from hermes.batch.distributions import find_distribution
    from hermes.batch.image_files import is_image_name
    from hermes.batch.run_folder import RunSettings

    if args.cluster:
        from hermes.app.cluster.node import require_database

        require_database(setup)
        if args.processes is not None:
            raise ConfigError("--processes is not for --cluster: start more nodes instead.")
    toolsets = None if args.toolsets is None else tuple(args.toolsets.split(","))
    if toolsets is not None:
        make_toolset_check(setup)(toolsets)
    if args.distribution:
        find_distribution(args.distribution, setup.config.batch.distributions)
    if args.prefill:
        read_prefill(Path(args.prefill))
    if args.image and not is_image_name(args.image.replace("{id}", "id")):
        raise ConfigError(f"{args.image} is not the name of an image. Nothing was started.")
    settings = RunSettings(
        name,
        model=args.model or "",
        toolsets=toolsets,
        distribution=args.distribution or "",
        seed=args.seed or 0,
        max_turns=args.max_turns or 30,
        system=_read_text(args.system) if args.system else "",
        prefill=str(Path(args.prefill).absolute()) if args.prefill else "",
        image=args.image or "",
        cluster=args.cluster,
        require_reasoning=args.require_reasoning,
    )
    return change_limits(settings, args)


def make_toolset_check(setup: Setup) -> CheckToolsets:
    """Refuses words that select no tool. Where plugins are enabled, unknown ones may be theirs: the
    first item tells."""
    import hermes.app  # noqa: F401 - adds the tools of other packages
    from hermes.tools.registry import list_tool_names, list_toolset_words, select_tools

    has_plugins = bool(setup.config.plugins.enabled)
    known = {*list_toolset_words(), *list_tool_names(), "none", "all"}

    def check_toolsets(words: Sequence[str]) -> None:
        named = [word for word in words if word in known or not has_plugins]
        select_tools(named, platform="batch", settings=setup.config.tools)

    return check_toolsets


def change_limits(settings: RunSettings, args: Namespace) -> RunSettings:
    from msgspec import structs

    names = "concurrency processes max_usd item_usd item_seconds rpm tpm retries".split()
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.format:
        given["formats"] = parse_formats(args.format)
    return structs.replace(settings, **given)


def parse_formats(text: str) -> tuple[Format, ...]:
    from hermes.batch.trajectories import FORMATS

    words = dict.fromkeys(text.split(","))
    if unknown := [word for word in words if word not in FORMATS]:
        raise ConfigError(f"There is no format {unknown[0]}; use {', '.join(FORMATS)}.")
    if "parquet" in words:
        from hermes.batch.parquet_file import require_parquet

        require_parquet()
    return tuple(form for form in FORMATS if form in words)


def _read_text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise ConfigError(f"{file} cannot be read: {reason}. Nothing was started.") from None

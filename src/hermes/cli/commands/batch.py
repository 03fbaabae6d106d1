"""`hermes batch`: answers the prompts of a dataset, each exactly once."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent, run_async
from hermes.cli.terminal.text import print_report
from hermes.config.env import decode_argument
from hermes.config.load import Setup
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.batch.run_folder import RunFolder, RunSettings
    from hermes.batch.trajectories import Format

_EPILOG = """\
commands:
  run FILE.jsonl          answer every prompt of the file; again after a crash: go on
  status NAME             show how far a run is
  resume NAME             go on with a run; limits may be changed
  stop NAME               take no further items; those that run are finished
  export NAME --format F  write the conversations in another format, to -o FILE or stdout
  stats NAME              print the statistics
  list                    list the runs
  distributions           list the distributions of toolsets

A line of the file is a JSON object with `prompt` or `messages`, and, if wanted, `id`, `files`,
`workspace`, `cwd`, `image`, `toolsets`, `model`, `system`, `metadata`. Commands run in the sandbox
or in a container; nobody is asked. Results: trajectories.jsonl, failed.jsonl, statistics.json.

exit status: 0 all are done, 3 some are not, 1 none is, 2 wrong usage or a bad dataset

examples:
  hermes batch run prompts.jsonl --toolsets file,terminal --max-usd 5
  hermes batch resume prompts --max-usd 10
  hermes batch export prompts --format openai -o prompts.openai.jsonl
"""
_ACTIONS = ("run", "status", "resume", "stop", "export", "stats", "list", "distributions")
_WITHOUT_NAME = frozenset({"list", "distributions"})


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("batch", "Answer many prompts, each exactly once.", _EPILOG)
    parser.add_action(_ACTIONS, "list")
    parser.add_argument("word", nargs="?", default="", metavar="FILE|NAME")
    _add_run_options(parser)
    parser.add_flag("--json", help="print JSON (status, stats, list, distributions)")
    parser.add_argument("-o", "--out", metavar="FILE", help="export: write to this file")
    args = parser.parse_command(argv, profile)
    args.word = decode_argument(args.word)
    if bool(args.word) == (args.action in _WITHOUT_NAME):
        what = "FILE" if args.action == "run" else "the NAME of a run"
        parser.error(f"{args.action} {'takes no name' if args.word else f'needs {what}'}")
    if args.toolsets is not None and args.distribution:
        parser.error("--toolsets: not allowed with --distribution")
    if args.action in ("run", "resume", "stop") and not args.share:
        refuse_agent("start or stop batch runs")
    setup = load_checked_setup(args.profile)
    match args.action:
        case "run" | "resume":
            return run_async(_run_items(args, setup))
        case "status" | "stats" | "export":
            return run_async(_show_run(args, setup))
        case "stop":
            return _stop_run(args, setup)
        case "distributions":
            return _list_distributions(args, setup)
        case _:
            return _list_runs(args, setup)


def _add_run_options(parser: CommandParser) -> None:
    parser.add_argument("--name", metavar="N", help="the name of the run (that of the file)")
    parser.add_argument("--output", metavar="DIR", default="", help="where results are written")
    parser.add_count_option("--concurrency", metavar="N", help="conversations at a time (64)")
    parser.add_count_option("--processes", metavar="N", help="processes that share the work (1)")
    parser.add_argument("--model", metavar="M", help="a model, or provider:model")
    parser.add_argument("--toolsets", metavar="A,B", help="toolsets of every item; none: no tools")
    parser.add_argument("--distribution", metavar="D", help="choose toolsets by chance")
    parser.add_argument("--seed", metavar="N", type=int, help="of the distribution (0)")
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
    parser.add_argument("--format", metavar="F,...", help="hermes, openai, sharegpt, raw (hermes)")
    parser.add_flag("--require-reasoning", help="filter out answers without reasoning")
    parser.add_flag("--skip-bad", help="leave out lines that are no items")
    parser.add_flag("--share", help=SUPPRESS)  # a further process of a run that is going on
    parser.add_flag("--extend", help="the file has more items than when the run began")


def _parse_amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _parse_count(text: str) -> int:
    if not text.isdigit() or len(text) > 4:
        raise ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


async def _run_items(args: Namespace, setup: Setup) -> int:
    from hermes.batch.run_folder import find_run
    from hermes.cli.batch.run import continue_run, work_for_run

    if args.share:
        return await work_for_run(setup, find_run(setup.home, args.word))
    if args.action == "resume":
        folder = find_run(setup.home, args.word)
        settings = _change_limits(folder.read_settings(), args)
    else:
        folder, settings = _begin_run(args, setup)
    return await continue_run(setup, folder, settings, args.profile)


def _begin_run(args: Namespace, setup: Setup) -> tuple[RunFolder, RunSettings]:
    from hermes.batch.coordinator import begin_run
    from hermes.batch.dataset import read_dataset, read_prefill
    from hermes.batch.distributions import find_distribution
    from hermes.batch.run_folder import RunSettings, check_name

    file = Path(args.word)
    name = check_name(args.name or file.stem)
    toolsets = None if args.toolsets is None else tuple(args.toolsets.split(","))
    if toolsets is not None:
        from hermes.tools.registry import select_tools

        select_tools(toolsets, platform="batch", settings=setup.config.tools)
    if args.distribution:
        find_distribution(args.distribution, setup.config.batch.distributions)
    if args.prefill:
        read_prefill(Path(args.prefill))
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
        require_reasoning=args.require_reasoning,
    )
    dataset = read_dataset(file, limit=args.limit, skip_bad=args.skip_bad)
    if dataset.skipped:
        print(f"{dataset.skipped} bad lines are left out.", file=sys.stderr)
    settings = _change_limits(settings, args)
    return begin_run(setup.home, settings, args.output, dataset, extend=args.extend)


def _change_limits(settings: RunSettings, args: Namespace) -> RunSettings:
    from msgspec import structs

    names = "concurrency processes max_usd item_usd item_seconds rpm tpm retries".split()
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.format:
        given["formats"] = _parse_formats(args.format)
    return structs.replace(settings, **given)


def _parse_formats(text: str) -> tuple[Format, ...]:
    from hermes.batch.trajectories import FORMATS

    words = dict.fromkeys(text.split(","))
    if unknown := [word for word in words if word not in FORMATS]:
        raise ConfigError(f"There is no format {unknown[0]}; use {', '.join(FORMATS)}.")
    return tuple(form for form in FORMATS if form in words)


def _read_text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read ({error}). Nothing was started.") from None


async def _show_run(args: Namespace, setup: Setup) -> int:
    from hermes.batch.run_folder import find_run
    from hermes.cli.batch.report import describe_status, export_trajectories, read_statistics

    folder = find_run(setup.home, args.word)
    if args.action == "export":
        forms = _parse_formats(args.format or "hermes")
        if len(forms) != 1:
            raise ConfigError("export writes one format at a time.")
        return await export_trajectories(folder, forms[0], args.out or "-")
    statistics = await read_statistics(folder)
    if args.action == "stats":
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(statistics), indent=2).decode())
        return 0
    status = {"name": args.word, "running": folder.find_runner(), "folder": str(folder.path)}
    return print_report(
        {**status, **statistics}, describe_status(status, statistics), json=args.json
    )


def _stop_run(args: Namespace, setup: Setup) -> int:
    import os
    import signal

    from hermes.batch.run_folder import find_run

    pid = find_run(setup.home, args.word).find_runner()
    if pid is None:
        raise ConfigError(f"The run {args.word} is not going on; nothing was stopped.")
    os.kill(pid, signal.SIGINT)
    print(f"{args.word}: takes no further items; those that run are finished.", file=sys.stderr)
    return 0


def _list_distributions(args: Namespace, setup: Setup) -> int:
    from hermes.batch.distributions import BUILT_IN

    known = {**BUILT_IN, **setup.config.batch.distributions}
    width = max(map(len, known))
    lines = [
        f"{name:<{width}}  " + ", ".join(f"{tool} {chance:g} %" for tool, chance in row.items())
        for name, row in known.items()
    ]
    return print_report(known, lines, json=args.json)


def _list_runs(args: Namespace, setup: Setup) -> int:
    from hermes.batch.run_folder import list_runs

    rows = []
    for folder in list_runs(setup.home):
        settings = folder.read_settings()
        running = folder.find_runner()
        rows.append(
            {
                "name": settings.name,
                "items": settings.items,
                "running": running,
                "folder": str(folder.path),
            }
        )
    if not rows and not args.json:
        print("No runs yet. Example: hermes batch run prompts.jsonl", file=sys.stderr)
    lines = [
        f"{row['name']:<24} {row['items']:>8} items  "
        f"{'running' if row['running'] else '-':<8} {row['folder']}"
        for row in rows
    ]
    return print_report(rows, lines, json=args.json)

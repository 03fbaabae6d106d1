"""`hermes batch`: answers the prompts of a dataset, each exactly once."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.batch.options import add_run_options, change_limits, make_settings, parse_formats
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent, run_async
from hermes.cli.terminal.text import print_report
from hermes.config.env import decode_argument
from hermes.config.load import Setup
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.batch.run_folder import RunFolder, RunSettings

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
    add_run_options(parser)
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


async def _run_items(args: Namespace, setup: Setup) -> int:
    from hermes.batch.run_folder import find_run
    from hermes.cli.batch.run import continue_run, work_for_run

    if args.share:
        return await work_for_run(setup, find_run(setup.home, args.word))
    if args.action == "resume":
        folder = find_run(setup.home, args.word)
        settings = change_limits(folder.read_settings(), args)
    else:
        folder, settings = _begin_run(args, setup)
    return await continue_run(setup, folder, settings, args.profile)


def _begin_run(args: Namespace, setup: Setup) -> tuple[RunFolder, RunSettings]:
    from hermes.batch.coordinator import begin_run
    from hermes.batch.dataset import read_dataset
    from hermes.batch.run_folder import check_name

    file = Path(args.word)
    settings = make_settings(args, check_name(args.name or file.stem), setup)
    dataset = read_dataset(file, limit=args.limit, skip_bad=args.skip_bad)
    if dataset.skipped:
        print(f"{dataset.skipped} bad lines are left out.", file=sys.stderr)
    return begin_run(setup.home, settings, args.output, dataset, extend=args.extend)


async def _show_run(args: Namespace, setup: Setup) -> int:
    from hermes.batch.run_folder import find_run
    from hermes.cli.batch.report import describe_status, export_trajectories, read_statistics

    folder = find_run(setup.home, args.word)
    if args.action == "export":
        forms = parse_formats(args.format or "hermes")
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

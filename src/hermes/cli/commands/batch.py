"""`hermes batch`: answers the prompts of a dataset, each exactly once."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.batch.options import (
    add_run_options,
    change_limits,
    find_fixed_option,
    make_settings,
    make_toolset_check,
    parse_formats,
    print_skipped,
)
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent, run_async
from hermes.cli.terminal.text import print_report
from hermes.config.env import build_child_env, decode_argument
from hermes.config.load import Setup
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.batch.run_folder import RunFolder, RunSettings

_EPILOG = """\
commands:
  run FILE.jsonl          answer every prompt of the file; again after a crash: resume
  status NAME             show how far a run is
  resume NAME             resume a run; limits may be changed
  stop NAME               take no further items; those that run are finished
  export NAME --format F  write the conversations in another format, to -o FILE or stdout
  stats NAME              print the statistics
  compress FILE -o FILE   shorten trajectories: their middle becomes a summary
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
  hermes batch compress trajectories.jsonl -o short.jsonl --max-tokens 15250
"""
_ACTIONS = (
    *("run", "status", "resume", "stop", "export", "stats", "compress", "list"),
    "distributions",
)
_WITHOUT_NAME = frozenset({"list", "distributions"})


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("batch", "Answer many prompts, each exactly once.", _EPILOG)
    parser.add_action(_ACTIONS, "list")
    parser.add_argument("word", nargs="?", default="", metavar="FILE|NAME")
    add_run_options(parser)
    parser.add_flag("--retry-failed", help="resume: begin what has failed anew, too")
    parser.add_flag("--json", help="print JSON (status, stats, list, distributions)")
    parser.add_argument("-o", "--out", metavar="FILE", help="export, compress: write to this file")
    parser.add_count_option(
        "--max-tokens", metavar="N", default=15250, help="compress: shorten what is longer (15250)"
    )
    parser.add_count_option(
        "--keep-last", metavar="N", default=4, help="compress: turns at the end that stay (4)"
    )
    args = parser.parse_command(argv, profile)
    args.word = decode_argument(args.word)
    if bool(args.word) == (args.action in _WITHOUT_NAME):
        what = "FILE" if args.action in ("run", "compress") else "the NAME of a run"
        parser.error(f"{args.action} {'takes no name' if args.word else f'needs {what}'}")
    if args.toolsets is not None and args.distribution:
        parser.error("--toolsets: not allowed with --distribution")
    if args.action == "resume" and (option := find_fixed_option(args)):
        parser.error(f"{option}: a run keeps it; only limits and formats can be changed")
    if args.retry_failed and args.action != "resume":
        parser.error("--retry-failed is for resume")
    if args.action in ("run", "resume", "stop") and not args.share:
        refuse_agent("start or stop batch runs")
    setup = load_checked_setup(args.profile)
    match args.action:
        case "run" | "resume":
            return run_async(_run_items(args, setup))
        case "status" | "stats" | "export":
            return run_async(_show_run(args, setup))
        case "compress":
            if not args.out:
                parser.error("compress needs -o FILE")
            return run_async(_compress_file(args, setup))
        case "stop":
            return _stop_run(args, setup)
        case "distributions":
            return _list_distributions(args, setup)
        case _:
            return _list_runs(args, setup)


async def _run_items(args: Namespace, setup: Setup) -> int:
    from hermes.batch.run_folder import find_run
    from hermes.cli.batch.run import continue_run, forget_failures, work_for_run

    if args.share:
        return await work_for_run(setup, find_run(setup.home, args.word))
    if args.action == "resume":
        folder = find_run(setup.home, args.word)
        settings = change_limits(folder.read_settings(), args)
        if args.cluster and not settings.cluster:
            raise ConfigError(f"The run {args.word} was begun without --cluster.")
        if args.retry_failed:
            await forget_failures(setup, folder, settings)
    else:
        folder, settings = _begin_run(args, setup)
    return await continue_run(setup, folder, settings, args.profile)


def _begin_run(args: Namespace, setup: Setup) -> tuple[RunFolder, RunSettings]:
    from functools import partial

    from hermes.batch.coordinator import begin_run
    from hermes.batch.dataset import read_dataset
    from hermes.batch.image_files import require_images
    from hermes.batch.run_folder import check_name
    from hermes.batch.workspace import refuse_private_folder

    file = Path(args.word)
    settings = make_settings(args, check_name(args.name or file.stem), setup)
    dataset = read_dataset(
        file,
        limit=args.limit,
        skip_bad=args.skip_bad,
        check_toolsets=make_toolset_check(setup),
        check_folder=partial(refuse_private_folder, agent_home=setup.home),
    )
    print_skipped(dataset)
    if not settings.cluster:
        images = {item.image or settings.image for item in dataset.items} - {""}
        require_images(images, build_child_env(setup.secrets))
    return begin_run(setup.home, settings, args.output, dataset, extend=args.extend, hidden=[file])


async def _show_run(args: Namespace, setup: Setup) -> int:
    from hermes.batch.run_folder import find_run
    from hermes.cli.batch.report import describe_status, export_trajectories, read_statistics

    folder = find_run(setup.home, args.word)
    if args.action == "export":
        forms = parse_formats(args.format or "hermes")
        if len(forms) != 1:
            raise ConfigError("export writes one format at a time.")
        if forms[0] == "parquet" and not args.out:
            raise ConfigError("parquet is not text: give -o FILE.")
        return await export_trajectories(setup, folder, forms[0], args.out or "-")
    is_whole = args.json or args.action == "stats"
    statistics = await read_statistics(setup, folder, count_messages=is_whole)
    if args.action == "stats":
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(statistics), indent=2).decode())
        return 0
    status = {"name": args.word, "running": folder.find_runner(), "folder": str(folder.path)}
    return print_report(
        {**status, **statistics}, describe_status(status, statistics), json=args.json
    )


async def _compress_file(args: Namespace, setup: Setup) -> int:
    from functools import partial

    import msgspec

    from hermes.app.agents import Options
    from hermes.app.meter import Meter
    from hermes.app.runtime import Runtime
    from hermes.batch.trajectory_summary import SUMMARY_TOKENS, read_lines, shorten_lines
    from hermes.cli.batch.report import check_target
    from hermes.config.private_files import replace_file
    from hermes.core.ledger import Account
    from hermes.core.message import user_message
    from hermes.llm.endpoints.endpoint import ModelChoice

    rows = read_lines(Path(args.word))
    check_target(Path(args.out))
    async with Runtime.open(setup) as runtime:
        services = runtime.services
        agent = runtime.agents.get_agent(Options(ModelChoice(args.model or "")), "batch")
        account = Account(purpose="auxiliary/compression")
        meter = Meter(
            runtime.store, setup.config.budget, account, lambda event: None, runtime.say_once
        )
        ask = partial(
            services.auxiliary.ask_model,
            "compression",
            main=agent,
            max_output=2 * SUMMARY_TOKENS,
            meter=meter,
        )
        count = await shorten_lines(
            rows, args.max_tokens, args.keep_last, lambda text: ask(user_message(text))
        )
    body = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    replace_file(Path(args.out), body)
    print(f"{args.out}: {count.lines} lines, {count.shortened} shortened", file=sys.stderr)
    if count.failed:
        print(f"{count.failed} stay as they are: no model summarised them.", file=sys.stderr)
    return 3 if count.failed else 0


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
        try:
            settings = folder.read_settings()
        except ConfigError as error:  # the others are shown
            print(f"hermes: {error}", file=sys.stderr)
            continue
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

"""`hermes swe`: lets the agent solve issues of repositories, and writes its patches."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from hermes.cli.batch.options import add_run_options, make_settings, print_skipped
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent, run_async
from hermes.config.env import build_child_env, decode_argument
from hermes.config.load import Setup

_EPILOG = """\
A line of the file is a task as SWE-bench has them: `instance_id`, `repo`, `base_commit`,
`problem_statement`. `patch` and `test_patch` are not read. The repository is DIR/owner__name or
DIR/owner__name.git, or with --image that in /testbed of the task's container image, in whose name
{id} is the task's id. Each task gets a copy of its own at the base commit, without later commits
and without a remote. The patches are in predictions.jsonl of the run's folder. Everything else is
as with hermes batch: status, resume, stop, limits.

examples:
  hermes swe run tasks.jsonl --repos ~/repos --max-usd 20
  hermes swe run tasks.jsonl --image 'sweb.eval.x86_64.{id}:latest'
  hermes batch status tasks
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("swe", "Solve issues of repositories, as SWE-bench does.", _EPILOG)
    parser.add_action(("run",), "run")
    parser.add_argument("file", nargs="?", default="", metavar="TASKS.jsonl")
    parser.add_argument("--repos", metavar="DIR", default="", help="where repositories are")
    add_run_options(parser)
    args = parser.parse_command(argv, profile)
    if not args.file or not (args.repos or args.image):
        parser.error("run needs TASKS.jsonl, and --repos DIR or --image PATTERN")
    refuse_agent("start batch runs")
    args.repos = Path(decode_argument(args.repos)).expanduser() if args.repos else None
    return run_async(_run_tasks(args, load_checked_setup(args.profile)))


async def _run_tasks(args: Namespace, setup: Setup) -> int:
    from hermes.batch.coordinator import begin_run
    from hermes.batch.run_folder import check_name
    from hermes.batch.swe_tasks import find_in_images, find_local, read_tasks
    from hermes.cli.batch.run import continue_run

    file = Path(decode_argument(args.file))
    settings = make_settings(args, check_name(args.name or file.stem), setup)
    if args.image:
        find_start = find_in_images(args.image, build_child_env(setup.secrets))
    else:
        find_start = find_local(args.repos)
    tasks = read_tasks(file, find_start, limit=args.limit, skip_bad=args.skip_bad)
    print_skipped(tasks)
    repositories = dict.fromkeys(Path(item.repository) for item in tasks.items if item.repository)
    hidden = [file, *([args.repos] if args.repos else ()), *repositories]
    folder, settings = begin_run(
        setup.home, settings, args.output, tasks, extend=args.extend, hidden=hidden
    )
    return await continue_run(setup, folder, settings, args.profile)

"""`hermes swe`: lets the agent solve issues of repositories, and writes its patches."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from hermes.cli.batch.options import add_run_options, make_settings
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent, run_async
from hermes.config.env import decode_argument
from hermes.config.load import Setup
from hermes.core.errors import ConfigError

_EPILOG = """\
A line of the file is a task as SWE-bench has them: `instance_id`, `repo`, `base_commit`,
`problem_statement`. `patch` and `test_patch` are not read. The repository is DIR/owner__name or
DIR/owner__name.git; each task gets a copy of its own at the base commit, without later commits and
without a remote. The patches are in predictions.jsonl of the run's folder. Everything else is as
with hermes batch: status, resume, stop, limits.

examples:
  hermes swe run tasks.jsonl --repos ~/repos --max-usd 20
  hermes batch status tasks
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("swe", "Solve issues of repositories, as SWE-bench does.", _EPILOG)
    parser.add_action(("run",), "run")
    parser.add_argument("file", nargs="?", default="", metavar="TASKS.jsonl")
    parser.add_argument("--repos", metavar="DIR", default="", help="where repositories are")
    add_run_options(parser)
    args = parser.parse_command(argv, profile)
    if not args.file or not args.repos:
        parser.error("run needs TASKS.jsonl and --repos DIR")
    refuse_agent("start batch runs")
    args.repos = Path(decode_argument(args.repos)).expanduser()
    return run_async(_run_tasks(args, load_checked_setup(args.profile)))


async def _run_tasks(args: Namespace, setup: Setup) -> int:
    from hermes.batch.coordinator import begin_run
    from hermes.batch.run_folder import check_name
    from hermes.batch.swe_tasks import read_tasks
    from hermes.cli.batch.run import continue_run

    file = Path(decode_argument(args.file))
    if args.image:
        raise ConfigError("Tasks run in copies of local repositories; --image is not for them.")
    settings = make_settings(args, check_name(args.name or file.stem), setup)
    tasks = read_tasks(file, args.repos, limit=args.limit)
    folder, settings = begin_run(setup.home, settings, args.output, tasks, extend=args.extend)
    return await continue_run(setup, folder, settings, args.profile)

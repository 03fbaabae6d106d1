"""`hermes cron`: jobs that run on a schedule."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, open_shared_store, refuse_agent, run_async
from hermes.cli.terminal.tables import align_columns
from hermes.cli.terminal.text import one_line, print_report, strip_controls, to_json
from hermes.config.env import decode_argument

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime
    from hermes.config.load import Setup
    from hermes.core.store import JobRun, ScheduledJob
    from hermes.cron.heartbeat import LivingScheduler
    from hermes.cron.job_editor import JobEditor, JobWishes

_EPILOG = """\
commands:
  add SCHEDULE PROMPT    add a job
  list                   list the jobs: id, next time, last result, schedule, name
  show ID                show everything about a job
  edit ID [OPTIONS]      change a job; --schedule and --prompt change these
  pause ID, resume ID    stop a job for a while; times that pass meanwhile are not made up for
  remove ID              remove a job and the record of its runs
  run ID                 run a job now, wait for it and print its answer
  runs [ID]              list the latest runs
  next ID|SCHEDULE       print when a job or a schedule is due
  import FILE            add the jobs of a jobs.json
  run-due                run what is due now, then exit; 1 when a run failed
  daemon                 run what becomes due, until it is stopped
  status                 say which process runs the schedule; 1 when none does

A SCHEDULE is one of
  30m, 2h, 1d            once, after this time
  every 30m              again and again, counted from now
  "0 9 * * 1-5"          five cron fields: minute, hour, day, month, weekday
  "daily 09:00", "weekdays 09:00", "mon,thu 18:30"
  2026-12-01T09:00       once, at this time

Jobs run only while `hermes gateway` or `hermes cron daemon` runs, or when something calls
`hermes cron run-due`.
Nobody can be asked during a run: what needs approval is refused. The answer is written to
HERMES_HOME/cron/output/ID. An answer of [SILENT] means that there is nothing to report.

examples:
  hermes cron add "weekdays 09:00" "Summarise what changed in this repository since yesterday"
  hermes cron next "0 9 * * 1-5" --tz Europe/Berlin
  hermes cron daemon
"""
_CHANGING = frozenset("add edit pause resume remove run import run-due daemon".split())
_DURATIONS = ("timeout", "jitter")
_WISHES = (
    "name tz deliver skills model toolsets workdir script repeat missed timeout max_turns "
    "budget_usd jitter schedule prompt"
).split()


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("cron", "Run prompts and scripts on a schedule.", _EPILOG)
    parser.add_action(sorted(_ACTIONS), "list")
    parser.add_argument("words", nargs="*", metavar="ID|SCHEDULE|PROMPT")
    _add_job_options(parser)
    parser.add_argument("--from", dest="since", metavar="TIME", help="next: count from this time")
    parser.add_count_option("-n", "--limit", metavar="N", help="next, runs: print at most N")
    parser.add_flag("--json", help="print JSON (list, show, runs, next, status)")
    args = parser.parse_command(argv, profile)
    args.words = [decode_argument(word) for word in args.words]
    if problem := _check_usage(args):
        parser.error(problem)
    if args.action in _CHANGING:
        refuse_agent("change or run scheduled jobs")
    return run_async(_run_action(args))


def _add_job_options(parser: CommandParser) -> None:
    parser.add_argument("--name", help="the name of the job (default: its first words)")
    parser.add_argument("--tz", metavar="ZONE", help="time zone, such as Europe/Berlin")
    parser.add_argument("--deliver", metavar="TARGETS", help="where results go (default: local)")
    parser.add_argument(
        "--skill",
        dest="skills",
        action="append",
        metavar="NAME",
        help="begin each run with this skill; may be repeated",
    )
    parser.add_argument("--model", help="the model that answers")
    parser.add_argument("--toolsets", metavar="LIST", help="the tools it may use; none: no tools")
    parser.add_argument("--workdir", metavar="DIR", help="the folder to work in (default: this)")
    parser.add_argument(
        "--script", metavar="FILE", help="run this file of HERMES_HOME/scripts first"
    )
    parser.add_flag("--no-agent", help="the output of the script is the result")
    parser.add_count_option("--repeat", metavar="N", help="end the job after N runs")
    policies = ("one", "skip", "all")
    parser.add_argument("--missed", choices=policies, help="missed times: run one, none or all")
    parser.add_argument("--timeout", metavar="TIME", help="stop a run after this time (30m)")
    parser.add_count_option("--max-turns", metavar="N", help="model calls per run (30)")
    parser.add_argument(
        "--budget-usd", metavar="USD", type=_parse_dollars, help="most dollars per run"
    )
    parser.add_argument("--jitter", metavar="TIME", help="begin each run up to this much later")
    parser.add_argument("--schedule", help="edit: the new schedule")
    parser.add_argument("--prompt", help="edit: the new prompt")


def _parse_dollars(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise ArgumentTypeError(f"{text!r} is not an amount of dollars")
    return value


def _check_usage(args: Namespace) -> str:
    """What is missing or too much; empty when nothing is."""
    match args.action, len(args.words):
        case "add", 0:
            return "add needs a SCHEDULE and a PROMPT"
        case "add", 1 if not args.no_agent and args.prompt is None:
            return "add needs a PROMPT"
        case "next", 0:
            return "next needs an ID or a SCHEDULE"
        case "show" | "edit" | "pause" | "resume" | "remove" | "run", count if count != 1:
            return f"{args.action} needs the ID of one job"
        case "import", count if count != 1:
            return "import needs a FILE"
        case "list" | "run-due" | "daemon" | "status", count if count:
            return f"{args.action} takes no ID"
    return ""


async def _run_action(args: Namespace) -> int:
    setup = load_checked_setup(args.profile)
    async with open_shared_store(setup) as store:
        from hermes.cron.job_editor import JobEditor

        editor = JobEditor(store.jobs, setup.home, setup.config.timezone)
        return await _ACTIONS[args.action](args, setup, editor)


async def _add_job(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    wishes = _read_wishes(args, setup)
    job = editor.draft_job(wishes)
    await editor.add_job(job)
    _print_job(editor, job)
    if job.skills:
        _warn_of_missing_skills(setup, job)
    living = _list_schedulers(setup)
    others = [target for target in job.deliver if target != "local"]
    if others and not any(found.name == "gateway" for found in living):
        print_stderr(f"results are sent to {', '.join(others)} while `hermes gateway` runs")
    if not living:
        print_stderr(
            "scheduler: none. Jobs run only while `hermes gateway` or `hermes cron daemon` runs."
        )
    return 0


def _warn_of_missing_skills(setup: Setup, job: ScheduledJob) -> None:
    from hermes.app.control.skill_registry import list_skills

    known = {skill.name for skill in list_skills(setup, Path(job.workdir))}
    # Those of plugins, plugin:name, are known when plugins are loaded.
    if missing := [name for name in job.skills if name not in known and ":" not in name]:
        print_stderr(f"There is no skill {missing[0]}. Runs fail until it is installed.")


def _read_wishes(args: Namespace, setup: Setup) -> JobWishes:
    from msgspec import structs

    from hermes.cron.job_editor import JobWishes

    wishes = JobWishes(
        **{name: getattr(args, name) for name in _WISHES}, no_agent=args.no_agent or None
    )
    if args.action == "add":
        schedule, *words = args.words
        wishes = structs.replace(
            wishes,
            schedule=schedule,
            prompt=" ".join(words) or args.prompt,
            workdir=args.workdir or str(Path.cwd()),
        )
    if wishes.toolsets is not None:
        from hermes.tools.registry import select_tools

        names = [name.strip() for name in wishes.toolsets.split(",") if name.strip()]
        select_tools(names, platform="cron", settings=setup.config.tools)
    return wishes


def _print_job(editor: JobEditor, job: ScheduledJob) -> None:
    from hermes.cron.job_editor import describe_state

    following = editor.list_next(job, 1)
    state = f"next {following[0]}" if following and not job.paused else describe_state(job)
    print(f"{job.id} {strip_controls(job.name)}, {state}")


async def _edit_job(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    job = await editor.find_job(args.words[0])
    _print_job(editor, await editor.edit_job(job, _read_wishes(args, setup)))
    return 0


async def _pause_job(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    _print_job(editor, await editor.pause_job(await editor.find_job(args.words[0])))
    return 0


async def _resume_job(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    _print_job(editor, await editor.resume_job(await editor.find_job(args.words[0])))
    return 0


async def _remove_job(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    job = await editor.find_job(args.words[0])
    await editor.remove_job(job)
    print(f"removed {job.id} {strip_controls(job.name)}")
    return 0


async def _list_jobs(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    from hermes.cron.job_editor import describe_job, describe_state

    jobs = await editor.jobs.list_jobs()
    last = {job.id: await _find_last_run(editor, job) for job in jobs}
    if args.json:
        rows = [{**describe_job(job), "last": _run_object(job, last[job.id])} for job in jobs]
        print(to_json(rows))
        return 0
    if not jobs:
        print("No jobs yet. Example: hermes cron add 'daily 09:00' 'What is new?'", file=sys.stderr)
        return 0
    lines = [("ID", "NEXT", "LAST", "SCHEDULE", "NAME")]
    for job in jobs:
        following = describe_job(job)["next"] or describe_state(job)
        result = _describe_result(last[job.id])
        lines.append((job.id, following, result, one_line(job.schedule, 30), one_line(job.name)))
    print("\n".join(align_columns(lines)))
    return 0


async def _find_last_run(editor: JobEditor, job: ScheduledJob) -> JobRun | None:
    """The latest run that was executed."""
    runs = await editor.jobs.list_runs(job.id)
    executed = [run for run in runs if run.state not in ("missed", "skipped")]
    return next(iter(executed or runs), None)


def _describe_result(run: JobRun | None) -> str:
    if run is None:
        return "-"
    undelivered = run.output and run.delivery in ("pending", "failed")
    return f"{run.state}, not delivered" if undelivered else run.state


def _run_object(job: ScheduledJob | None, run: JobRun | None) -> dict[str, Any] | None:
    """The run for programs; times are ISO times in the zone of the job."""
    if run is None or job is None:
        return None
    from hermes.cron.occurrences import format_due

    return {
        "job": run.job,
        "due": format_due(job, run.due),
        "state": run.state,
        "delivery": run.delivery,
        "began": format_due(job, run.began) if run.began else None,
        "ended": format_due(job, run.ended) if run.ended else None,
        "session": run.session,
        "error": run.error,
        "output": run.output,
    }


async def _show_job(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    from hermes.cron.job_editor import describe_job

    job = await editor.find_job(args.words[0])
    data = {**describe_job(job), "last": _run_object(job, await _find_last_run(editor, job))}
    shown = {**data, **{name: f"{data[name] / 60:g}m" for name in _DURATIONS if data[name]}}
    lines = [f"{name}: {_format_value(value)}" for name, value in shown.items() if value]
    return print_report(data, map(strip_controls, lines), json=args.json)


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items() if item)
    return ", ".join(value) if isinstance(value, tuple) else str(value)


async def _list_runs(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    jobs = {job.id: job for job in await editor.jobs.list_jobs()}
    only = (await editor.find_job(args.words[0])).id if args.words else None
    runs = await editor.jobs.list_runs(only, limit=args.limit or 20)
    rows = [row for run in runs if (row := _run_object(jobs.get(run.job), run))]
    if args.json:
        print(to_json(rows))
        return 0
    lines = [("JOB", "DUE", "STATE", "DELIVERY", "NAME", "ERROR")]
    for row in rows:
        name = one_line(jobs[row["job"]].name, 30)
        first = (row["job"], row["due"], row["state"], row["delivery"])
        lines.append((*first, name, one_line(row["error"], 80)))
    print("\n".join(align_columns(lines)) if rows else "No runs yet.")
    return 0


async def _print_times(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    from datetime import UTC, datetime

    from hermes.core.errors import ConfigError
    from hermes.cron.occurrences import read_schedule, to_datetime
    from hermes.cron.schedule import load_zone, parse_schedule, parse_time

    text = " ".join(args.words)
    try:
        job = await editor.find_job(text)
    except ConfigError:
        job = None
    zone = load_zone(args.tz or (job.zone if job else editor.find_zone()))
    since = parse_time(args.since, zone) if args.since else datetime.now(UTC)
    if job is not None:
        schedule, anchor = read_schedule(job), to_datetime(job.anchor)
    else:
        schedule, anchor = parse_schedule(text, zone, since), since
    times = islice(schedule.list_times(since, anchor), args.limit or 5)
    lines = (moment.astimezone(zone).isoformat(timespec="seconds") for moment in times)
    return print_report(list(lines) if args.json else (), lines, json=args.json)


def _list_schedulers(setup: Setup) -> list[LivingScheduler]:
    from hermes.cron.heartbeat import LivingScheduler, list_schedulers

    if not setup.database_url:
        return list_schedulers(setup.home)
    from hermes.app.cluster.database import open_database
    from hermes.store.postgres.shared.singletons import find_holder

    with open_database(setup) as db:
        found = find_holder(db, "gateway")
    return [LivingScheduler("gateway", 0, found.age, found.node)] if found is not None else []


async def _show_status(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    from msgspec import to_builtins

    found = _list_schedulers(setup)
    lines = [f"scheduler: {s.name} {s.place}, {s.age:.0f} s ago" for s in found]
    print_report(to_builtins(found), lines or ["scheduler: none"], json=args.json)
    return 0 if found else EXIT_FAILED


@asynccontextmanager
async def _open_runtime(setup: Setup) -> AsyncIterator[Runtime]:
    from hermes.app.runtime import Runtime

    async with AsyncExitStack() as stack:
        store = None
        if setup.database_url:
            store = await stack.enter_async_context(open_shared_store(setup))
        yield await stack.enter_async_context(Runtime.open(setup, store=store))


async def _run_job(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    job = await editor.find_job(args.words[0])
    _start_logging(setup)
    async with _open_runtime(setup) as runtime:
        outcome = await runtime.scheduled_prompts.create_scheduler().run_now(job)
    if outcome.text:
        print(strip_controls(outcome.text) if sys.stdout.isatty() else outcome.text)
    if outcome.state == "ok":
        return 0
    print_stderr(f"{job.name} failed: {outcome.error}")
    return EXIT_FAILED


async def _run_due(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    _start_logging(setup)
    async with _open_runtime(setup) as runtime:
        count = await runtime.scheduled_prompts.create_scheduler().run_due()
    print(f"ran {count.ran}, failed {count.failed}")
    return EXIT_FAILED if count.failed else 0


async def _run_daemon(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    import asyncio

    from hermes.cli.process import SignalHandler, harden_process
    from hermes.cron.heartbeat import announce_scheduler

    harden_process()
    _start_logging(setup)
    async with _open_runtime(setup) as runtime:
        with announce_scheduler(setup.home, "daemon") as heartbeat:
            work = asyncio.create_task(
                runtime.scheduled_prompts.create_scheduler().run_forever(heartbeat)
            )
            SignalHandler().attach(work.cancel)
            print("The schedule is running. Stop it with Ctrl-C.", file=sys.stderr, flush=True)
            await asyncio.wait({work})
            if not work.cancelled():
                work.result()
    return 0


def _start_logging(setup: Setup) -> None:
    from hermes.cli.log_file import start_logging

    start_logging(setup.home, setup.secrets.redactable_values())


async def _import_jobs(args: Namespace, setup: Setup, editor: JobEditor) -> int:
    from hermes.core.errors import ConfigError
    from hermes.cron.import_file import read_jobs_file

    added, skipped = 0, 0
    known = {(job.schedule, job.prompt) for job in await editor.jobs.list_jobs()}
    for wishes, is_paused in read_jobs_file(Path(args.words[0])):
        try:
            job = editor.draft_job(wishes)
            if (job.schedule, job.prompt) in known:
                raise ConfigError("There is the same job already.")
        except ConfigError as error:
            print_stderr(f"{wishes.name or 'A job'} was left out. {error}")
            skipped += 1
            continue
        await editor.add_job(job)
        if is_paused:
            job = await editor.pause_job(job)
        _print_job(editor, job)
        added += 1
    print(f"imported {added}, left out {skipped}")
    return EXIT_FAILED if skipped else 0


_ACTIONS: dict[str, Callable[[Namespace, Setup, JobEditor], Awaitable[int]]] = {
    "add": _add_job,
    "list": _list_jobs,
    "show": _show_job,
    "edit": _edit_job,
    "pause": _pause_job,
    "resume": _resume_job,
    "remove": _remove_job,
    "run": _run_job,
    "runs": _list_runs,
    "next": _print_times,
    "import": _import_jobs,
    "run-due": _run_due,
    "daemon": _run_daemon,
    "status": _show_status,
}

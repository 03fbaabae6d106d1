"""`hermes replay`: plays a stored session again, compares, and branches at a step."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.cli.main import EXIT_FAILED
from hermes.cli.parser import CommandParser
from hermes.cli.session.start import find_session
from hermes.cli.startup import load_checked_setup, open_store, refuse_agent, run_async
from hermes.cli.terminal.text import one_line, print_report
from hermes.config.env import decode_argument
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.batch.replay.difference import Difference
    from hermes.batch.replay.live_branch import LiveEnd
    from hermes.batch.replay.player import PlayedSession
    from hermes.batch.replay.replay_host import StoredConversation
    from hermes.config.load import Setup
    from hermes.core.store import Store

_EPILOG = """\
The session runs through the real loop once more, with the responses that were recorded and the
tool results that are stored; nothing is sent and no tool runs. Every request and message is
compared. Record sessions with --record or with trace.record: wire in config.yaml; a session that
was not recorded is played from its stored messages, without comparing requests.

exit status: 0 identical, 1 different or diverged, 2 usage

examples:
  hermes replay 20260101-120000-ab12
  hermes replay 20260101 --to 3                 branch there
  hermes replay 20260101 --to 3 --model lab:big --live-tools
  hermes sessions export 20260101 --format tape -o s.tape && hermes replay s.tape
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("replay", "Play a recorded session again and compare.", _EPILOG)
    parser.add_argument("session", metavar="ID|FILE")
    parser.add_count_option("--to", metavar="STEP", help="play up to this step; branch there")
    parser.add_argument("--model", metavar="M", help="continue with a live model after --to")
    parser.add_flag("--live-tools", help="with --model: run new calls in a copy of the files")
    parser.add_flag("--json", help="print JSON")
    args = parser.parse_command(argv, profile)
    if args.live_tools and not args.model:
        parser.error("--live-tools needs --model")
    refuse_agent("replay sessions")
    args.session = decode_argument(args.session)
    args.is_file = Path(args.session).is_file()
    return run_async(_replay(args, load_checked_setup(args.profile)))


async def _replay(args: Namespace, setup: Setup) -> int:
    from hermes.app.live.session_tape import load_agents, load_tape
    from hermes.batch.replay.player import load_conversation, play_session
    from hermes.batch.replay.stored_answers import STORED, list_untaped_turns, make_stored_agent
    from hermes.batch.replay.tape_file import read_tape

    word = args.session
    tape = read_tape(Path(word)) if args.is_file else None
    async with open_store(setup.home) as store:
        meta = await find_session(store, tape.session if tape is not None else word)
        found = await load_conversation(store, meta)
        if tape is not None:
            turns, agents = tape.turns, tape.agents
        else:
            turns = [turn for part in found.metas for turn in await load_tape(store, part)]
            agents = dict(await load_agents(store, {turn.agent for turn in turns}))
        if not turns:
            turns, agents = list_untaped_turns(found, meta.id), {STORED: make_stored_agent()}
            print("No tape: stored messages are played as answers.", file=sys.stderr)
        if not turns:
            raise ConfigError(f"Session {meta.id} has no turn that can be played.")
        first = turns[0]
        to = 0 if args.model and args.to is None else args.to
        played = await play_session(found, turns, agents, to)
        if args.to is not None and played.report.identical and played.report.steps < args.to:
            raise ConfigError(f"The session has {played.report.steps} steps; --to is beyond them.")
        if to == 0:
            index = first.first + 1
            played = _move_end(played, first.session, index)
        branch, live = "", None
        if to is not None and played.report.identical:
            branch, live = await _leave_branch(args, setup, store, found, played)
    return _report_replay(args, played, branch, live)


def _move_end(played: PlayedSession, session: str, index: int) -> PlayedSession:
    from msgspec import structs

    return structs.replace(played, session=session, index=index)


async def _leave_branch(
    args: Namespace, setup: Setup, store: Store, found: StoredConversation, played: PlayedSession
) -> tuple[str, LiveEnd | None]:
    """The id of the branch, and how the live model went on."""
    from msgspec import structs

    from hermes.app.runtime import Runtime
    from hermes.app.session_records import find_turn_starts
    from hermes.batch.replay.live_branch import (
        LiveBranch,
        RecordedResults,
        restore_files,
        store_prefix,
    )
    from hermes.batch.runner import confine_setup

    meta, every = found.metas[played.session], found.messages[played.session]
    messages = every[: played.index]
    if not args.model:
        return await store_prefix(store, meta, messages), None
    later = [every[i] for i in find_turn_starts(every) if i >= played.index]
    async with Runtime.open(confine_setup(setup), store=store) as runtime:
        folder = None
        if args.live_tools:
            folder = _create_copy_folder(setup.home, meta.id)
            await restore_files(runtime, meta, messages, folder)
            system = meta.system.replace(meta.cwd, str(folder))
            meta = structs.replace(meta, cwd=str(folder), system=system)
        branch = await store_prefix(store, meta, messages)
        results = RecordedResults(every)
        live = LiveBranch(runtime, results, steps=played.report.steps)
        return branch, await live.run(branch, args.model, later, folder)


def _create_copy_folder(home: Path, session_id: str) -> Path:
    """A new folder for a copy of the files."""
    from tempfile import mkdtemp

    root = home / "replay"
    root.mkdir(mode=0o700, exist_ok=True)
    return Path(mkdtemp(prefix=f"{session_id}-", dir=root))


def _report_replay(
    args: Namespace, played: PlayedSession, branch: str, live: LiveEnd | None
) -> int:
    import msgspec

    report: dict[str, Any] = msgspec.to_builtins(played.report)
    lines = []
    if played.report.difference is None:
        lines.append(f"identical: {played.report.steps} steps")
    else:
        lines += _describe_difference(played.report.difference)
    if branch:
        report["branch"] = branch
        lines.append(f"branch: {branch}")
    if live is not None:
        report["live"] = msgspec.to_builtins(live)
        lines += _describe_live(live)
    print_report(report, lines, json=args.json)
    has_failed = live is not None and live.status != "completed"
    return EXIT_FAILED if has_failed or not played.report.identical else 0


def _describe_difference(found: Difference) -> list[str]:
    return [
        f"different: step {found.step}, {found.kind}, byte {found.byte}",
        f"  recorded: {one_line(found.recorded, 400)}",
        f"  replayed: {one_line(found.replayed, 400)}",
    ]


def _describe_live(live: LiveEnd) -> list[str]:
    lines = []
    if live.folder:
        lines.append(f"files: {live.folder}")
    if live.diverged is not None:
        call = f"{live.diverged.tool} {live.diverged.arguments}"
        lines.append(f"diverged: step {live.diverged.step}, {one_line(call, 200)}")
    elif live.error:
        lines.append(f"{live.status}: {live.error}")
    else:
        lines.append(f"{live.status}: step {live.steps}")
        lines.append(live.text)
    return lines

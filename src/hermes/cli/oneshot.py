"""One turn from the command line: runs it, shows it, and tells by the exit status how it ended."""

import asyncio
import gc
from argparse import Namespace
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from hermes.app.commands import ONE_SHOT, CommandContext, Reply, find_command, run_command
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.app.session_records import has_folder
from hermes.app.structured_output import OutputError, OutputFormat, PromptRun
from hermes.cli.main import EXIT_FAILED, EXIT_SIGPIPE, EXIT_USAGE
from hermes.cli.process import SignalHandler, signal_exit_code
from hermes.cli.session.start import find_resumed_session, introduce_model, make_options
from hermes.cli.terminal.approval_prompt import ApprovalPrompt
from hermes.cli.terminal.output import Output, ReaderGone
from hermes.cli.terminal.output_schema import load_format
from hermes.cli.terminal.progress import ProgressLine
from hermes.cli.terminal.render import RENDERERS
from hermes.cli.terminal.text import to_json
from hermes.config import env
from hermes.config.load import Setup
from hermes.core.errors import ConfigError, StoreError
from hermes.core.events import (
    Approval,
    Question,
    Recorded,
    StepStart,
    TextDelta,
    TurnEnd,
    TurnResult,
)
from hermes.core.message import Message
from hermes.core.store import Store
from hermes.core.taint import BOTH

EXIT_PARTIAL = 3
INTERRUPTED = TurnResult("interrupted", error="Interrupted.", error_code="interrupted")
_SUBMIT_POLL = 0.005


class OneShot:
    """The single turn of this process."""

    def __init__(self, setup: Setup, args: Namespace, signals: SignalHandler) -> None:
        self._setup = setup
        self._args = args
        self._signals = signals
        self._out = Output(1)
        errors = Output(2)
        colour = env.supports_colour(errors.tty)
        self._progress = ProgressLine(errors, colour=colour, animate=colour)
        self._renderer = RENDERERS[args.output](self._out, self._progress)
        self._prompt = ApprovalPrompt(self._progress)
        self._format = load_format(args.output_schema) if args.output_schema else None
        self._session: Session | None = None
        self._turn_ended = False
        self._write_error: int | None = None
        """The exit status once writing the output has failed."""

    async def run(
        self, message: Message, folder: Path, command: tuple[str, str] | None, *, attached: bool
    ) -> int:
        """Answers the message, or runs the slash command; returns the exit status. `attached`: the
        message holds more than the user's own words."""
        task = asyncio.current_task()
        assert task is not None
        self._signals.attach(task.cancel)
        try:
            async with Runtime.open(self._setup) as runtime:
                runtime.knowledge.learns = False
                runtime.delegations.is_single = True
                known = find_command(command[0]) if command else None
                needs_model = known is None or known.needs_model
                session = await self._open_session(runtime, folder, needs_model=needs_model)
                if attached:
                    session.transcript.absorb_taint(BOTH)
                reply = Reply(submit=message)
                if command:
                    context = CommandContext(runtime, session, ONE_SHOT)
                    reply = await self._run_command(context, *command)
                    session = reply.session or session
                if reply.submit is None:
                    result = TurnResult("completed", text=reply.text)
                else:
                    if reply.text:
                        self._progress.print_line(f"! {reply.text}")
                    await introduce_model(session, runtime.transport, self._progress)
                    result = await self._run_turn(runtime.store, session, reply.submit)
                await self._show_result(session, result)
                if farewell := runtime.background_commands.describe_leftovers():
                    self._progress.print_line(f"! {farewell}")
                await session.wait_until_idle()  # hooks and the memory provider hear of the turn
                await session.close()
        except asyncio.CancelledError:
            if not self._signals.received or self._session is not None:
                raise
            await self._renderer.show_result("", INTERRUPTED, None)
            result = INTERRUPTED
        return self._exit_code(result)

    async def _open_session(self, runtime: Runtime, folder: Path, *, needs_model: bool) -> Session:
        resumed = await find_resumed_session(runtime.store, self._args, folder)
        options = make_options(self._args, runtime)
        resume = resumed.id if resumed else ""
        if resumed is not None and not has_folder(resumed):
            raise ConfigError(
                f"The folder of this session no longer exists: {resumed.cwd}. To continue a copy "
                f"in this folder, start hermes here and type /resume {resumed.id}"
            )
        if resumed is not None and runtime.claims.is_taken(resumed.id):
            resume = await runtime.copy_session(resumed.id, options)
            note = f"session {resumed.id} is open in a terminal; continuing in a copy, {resume}"
            self._progress.print_line(f"! {note}")
        session = await runtime.open_session(
            resume=resume,
            cwd=None if resumed else folder,
            options=options,
            needs_model=needs_model,
        )
        if resumed is not None and resumed.cwd != str(folder):
            self._progress.print_line(f"! this session works in {resumed.cwd}")
        if resumed is not None and resumed.state == "interrupted":
            note = "the previous turn was interrupted; continuing from what was stored"
            self._progress.print_line(f"! {note}")
        return session

    async def _run_command(self, context: CommandContext, name: str, args: str) -> Reply:
        """Runs a slash command; one that changes something is previewed and confirmed first."""
        reply = await run_command(context, name, args)
        if not reply.confirm:
            return reply
        if not self._prompt.attended:
            again = f"/{name} {args}".rstrip() + " yes"
            self._progress.print_line(f"! nothing was changed; to do it: {again}")
            return reply
        for line in reply.text.splitlines():
            self._progress.print_line(line)
        if not await self._prompt.confirm(reply.confirm):
            return Reply("Nothing was changed.")
        return await run_command(structs.replace(context, is_confirmed=True), name, args)

    async def _run_turn(self, store: Store, session: Session, message: Message) -> TurnResult:
        self._session = session
        self._signals.stop = self._stop_turn
        session.interactions.user_present = self._prompt.attended
        if self._format is not None:
            return await self._run_checked(session, message, self._format)
        events = session.subscribe_events()
        session.submit(message)
        with suppress(StoreError):  # the turn fails with the same error
            for sentence in await store.wait_until_open():
                self._progress.print_line(f"! {sentence}")
        async for event in events:
            if not gc.isenabled() and not isinstance(event, (StepStart, Recorded)):
                gc.freeze()  # imported modules stay until the end
                gc.enable()
            if isinstance(event, TurnEnd):
                self._turn_ended = True
                return event.result
            if isinstance(event, (Approval, Question)):
                self._prompt.ask(event, session.interactions)
            if self._write_error is None:
                await self._guard_write(session, self._renderer.show_event(event))
        raise AssertionError("a turn ends with TurnEnd")

    async def _run_checked(
        self, session: Session, message: Message, output: OutputFormat[Any]
    ) -> TurnResult:
        """Answers with JSON that fits the user's schema; only the last answer is shown."""
        run = PromptRun(session, message, output)
        try:
            async for event in run.stream_events():
                if isinstance(event, (Approval, Question)):
                    self._prompt.ask(event, session.interactions)
                if not isinstance(event, (TextDelta, TurnEnd)) and self._write_error is None:
                    await self._guard_write(session, self._renderer.show_event(event))
        except OutputError as error:
            failed = run.results[-1]
            return structs.replace(
                failed, status="failed", text="", error=str(error), error_code="output_schema"
            )
        finally:
            self._turn_ended = True
        result = run.results[-1]
        if result.status != "completed":
            return result
        return structs.replace(result, text=to_json(run.output))

    async def _show_result(self, session: Session, result: TurnResult) -> None:
        self._prompt.close()
        if self._write_error is None:
            providers = session.agent.providers
            target = providers[0].target if providers else None
            await self._guard_write(session, self._renderer.show_result(session.id, result, target))

    async def _guard_write(self, session: Session, writing: Awaitable[None]) -> None:
        """Interrupts the turn when nobody reads its answer any more."""
        try:
            await writing
        except ReaderGone:
            self._write_error = EXIT_SIGPIPE
            session.interrupt()
        except OSError as error:
            self._write_error = EXIT_FAILED
            self._progress.print_line(f"hermes: cannot write the output: {error.strerror}")
            session.interrupt()

    def _stop_turn(self) -> None:
        assert self._session is not None
        self._prompt.close()
        if self._args.output == "text":
            self._out.abandon()
        if self._session.is_busy:
            self._session.interrupt()
        elif not self._turn_ended:  # submitted, but not started
            asyncio.get_running_loop().call_later(_SUBMIT_POLL, self._stop_turn)

    def _exit_code(self, result: TurnResult) -> int:
        if self._write_error is not None:
            return self._write_error
        if result.status == "completed":
            return 0
        if result.status == "interrupted":
            return signal_exit_code(self._signals.received or 2)
        if result.error_code == "config":
            return EXIT_USAGE
        return EXIT_PARTIAL if result.status == "partial" else EXIT_FAILED

"""One turn from the command line: set up, run, show, and say by the exit status how it ended."""

from __future__ import annotations

import asyncio
import gc
from argparse import Namespace
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

from hermes.app.runtime import Options, Runtime
from hermes.app.session import Session
from hermes.app.session_chain import current
from hermes.cli.lookup import find_session
from hermes.cli.main import EXIT_FAILED, EXIT_SIGPIPE, EXIT_USAGE
from hermes.cli.process import Signals, exit_code, harden
from hermes.cli.terminal.approval_prompt import Asker
from hermes.cli.terminal.output import Output, ReaderGone
from hermes.cli.terminal.progress import Status
from hermes.cli.terminal.render import RENDERERS
from hermes.config import env
from hermes.config.load import Setup
from hermes.core.errors import ConfigError, StoreError
from hermes.core.events import Approval, Question, Recorded, StepStart, TurnEnd, TurnResult
from hermes.core.message import Message
from hermes.core.store import SessionMeta, Store
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.http.transport import EMBEDDED

EXIT_PARTIAL = 3
INTERRUPTED = TurnResult(interrupted=True, error="Interrupted.", error_code="interrupted")


def make_options(args: Namespace) -> Options:
    choice = ModelChoice(
        model=args.model,
        provider=args.provider,
        base_url=args.base_url,
        api_key_env=args.api_key_env or "",
        api_mode=args.api_mode,
    )
    toolsets = None
    if args.toolsets is not None:
        names = [name.strip() for name in args.toolsets.split(",") if name.strip()]
        toolsets = () if names == ["none"] else tuple(names)
    return Options(choice=choice, toolsets=toolsets, max_turns=args.max_turns, yolo=args.yolo)


async def introduce(session: Session, runtime: Runtime, status: Status) -> None:
    """Say who answers where the user did not choose it, and get what it needs."""
    if session.agent.note:
        status.line(f"! {session.agent.note}")
    base_url = session.agent.providers[0].endpoint.base_url
    if base_url.startswith(EMBEDDED):
        from hermes.cli.terminal.download import prepare

        await prepare(base_url, runtime.transport)


class OneShot:
    """The one turn of this process."""

    def __init__(self, setup: Setup, args: Namespace, signals: Signals) -> None:
        self._setup = setup
        self._args = args
        self._signals = signals
        self._out = Output(1)
        errors = Output(2)
        colour = env.colours(errors.tty)
        self._status = Status(errors, colour=colour, animate=colour)
        self._renderer = RENDERERS[args.output](self._out, self._status)
        self._asker = Asker(self._status)
        self._session: Session | None = None
        self._ended = False
        self._code: int | None = None
        """Set when writing the output failed."""

    async def run(
        self,
        message: Message,
        folder: Path,
        options: Options,
        command: tuple[str, str] | None = None,
    ) -> int:
        task = asyncio.current_task()
        assert task is not None
        self._signals.attach(task.cancel)
        harden()
        try:
            async with Runtime.open(self._setup) as runtime:
                session = await self._open(runtime, folder, options)
                result, told = None, None
                if command:
                    session, told, result = await self._command(runtime, session, command)
                if result is None:
                    await introduce(session, runtime, self._status)
                    result = await self._turn(runtime, session, told or message)
                await self._show(session, result)
                if farewell := runtime.background.farewell():
                    self._status.line(f"! {farewell}")
        except asyncio.CancelledError:
            if not self._signals.received or self._session is not None:
                raise
            await self._renderer.end("", INTERRUPTED, None)
            result = INTERRUPTED
        return self._status_of(result)

    async def _open(self, runtime: Runtime, folder: Path, options: Options) -> Session:
        resume = await self._chosen(runtime.store, folder)
        session = await runtime.session(
            resume=resume.id if resume else "", cwd=folder, options=options
        )
        if resume is not None and resume.state == "interrupted":
            self._status.line("! the previous turn was interrupted; going on from what was stored")
        return session

    async def _command(
        self, runtime: Runtime, session: Session, command: tuple[str, str]
    ) -> tuple[Session, Message | None, TurnResult | None]:
        """Where it goes on; with a message to answer, or as the result of it all."""
        from hermes.cli import slash

        reply = await slash.command(runtime, session, command, self._asker, self._status)
        if reply.submit is None:
            return reply.session or session, None, TurnResult(completed=True, text=reply.text)
        if reply.text:
            self._status.line(f"! {reply.text}")
        return reply.session or session, reply.submit, None

    async def _chosen(self, store: Store, folder: Path) -> SessionMeta | None:
        if self._args.resume is not None:
            named = await find_session(store, self._args.resume)
            return await current(store, named.id)
        if not self._args.latest:
            return None
        found = await store.latest(cwd=str(folder), source="cli")
        if found is None:
            raise ConfigError(f"There is no session of {folder} to continue; leave out --continue.")
        return found

    async def _turn(self, runtime: Runtime, session: Session, message: Message) -> TurnResult:
        self._session = session
        self._signals.redirect(self._stop)
        session.approver = self._asker.possible
        events = session.events()
        session.submit(message)
        with suppress(StoreError):  # the turn itself ends with it
            for sentence in await runtime.store.ready():
                self._status.line(f"! {sentence}")
        async for event in events:
            if not gc.isenabled() and not isinstance(event, (StepStart, Recorded)):
                gc.freeze()  # what was imported stays for good
                gc.enable()
            if isinstance(event, TurnEnd):
                self._ended = True
                return event.result
            if isinstance(event, (Approval, Question)):
                self._asker.ask(event, session)
            if self._code is None:
                await self._guarded(session, self._renderer.event(event))
        raise AssertionError("a turn ends with TurnEnd")

    async def _show(self, session: Session, result: TurnResult) -> None:
        self._asker.close()
        if self._code is None:
            target = session.agent.providers[0].target
            await self._guarded(session, self._renderer.end(session.id, result, target))

    async def _guarded(self, session: Session, writing: Awaitable[None]) -> None:
        """Nobody reads the answer any more: stop making it."""
        try:
            await writing
        except ReaderGone:
            self._code = EXIT_SIGPIPE
            session.interrupt()
        except OSError as error:
            self._code = EXIT_FAILED
            self._status.line(f"hermes: cannot write the output: {error.strerror}")
            session.interrupt()

    def _stop(self) -> None:
        assert self._session is not None
        self._asker.close()
        if self._args.output == "text":
            self._out.abandon()
        if self._session.busy:
            self._session.interrupt()
        elif not self._ended:  # submitted, but not begun
            asyncio.get_running_loop().call_later(0.005, self._stop)

    def _status_of(self, result: TurnResult) -> int:
        if self._code is not None:
            return self._code
        if result.completed:
            return 0
        if result.interrupted:
            return exit_code(self._signals.received or 2)
        if result.error_code == "config":
            return EXIT_USAGE
        return EXIT_PARTIAL if result.partial else EXIT_FAILED

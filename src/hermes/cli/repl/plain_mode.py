"""The conversation line by line: nothing is redrawn, nothing moves, for screen readers and dumb
terminals."""

from __future__ import annotations

import asyncio
import signal
from argparse import Namespace
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli import log_file as logs
from hermes.cli.main import fail
from hermes.cli.terminal.approval_prompt import Asker
from hermes.cli.terminal.output import Output
from hermes.cli.terminal.progress import Status
from hermes.cli.terminal.render import TextRenderer
from hermes.cli.terminal.text import one_line, printable
from hermes.config import paths
from hermes.config.load import load_setup
from hermes.core.errors import ConfigError, HermesError
from hermes.core.events import Approval, Question, TurnEnd
from hermes.core.message import Message
from hermes.core.redaction.redactor import Redactor

if TYPE_CHECKING:
    from hermes.app.commands import Reply
    from hermes.app.runtime import Runtime
    from hermes.app.session import Session
    from hermes.config.load import Setup

_LEAVING = frozenset({"exit", "quit", "/exit", "/quit"})
_SCREEN_ONLY = frozenset({"background", "bg"})


def run(args: Namespace) -> int:
    setup = load_setup(args.profile, keys=[args.api_key_env] if args.api_key_env else [])
    logs.install(paths.log_file(setup.home), Redactor(setup.secrets.redactable_values()).clean)
    for warning in setup.warnings:
        fail(warning)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGHUP, _leave)
    with asyncio.Runner() as runner:
        lines = Lines(args)
        try:
            runner.run(lines.open(setup))
            code = _conversation(runner, lines)
            for sentence in lines.farewell():
                print(sentence)
            return code
        finally:
            runner.run(lines.close())


def _leave(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _conversation(runner: asyncio.Runner, lines: Lines) -> int:
    """Lines are read outside the event loop: then the terminal edits them, and Ctrl-C is prompt."""
    print(f"hermes with {lines.model}. exit, or the end of input, ends it. /help lists commands.")
    while True:
        try:
            line = input("you> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return 0
        if line.lower() in _LEAVING:
            return 0
        if not line:
            continue
        try:
            runner.run(lines.entered(line))
        except KeyboardInterrupt:
            fail("interrupted; what was said is kept")
        except HermesError as error:
            fail(str(error))


class Lines:
    """One session, one turn at a time."""

    def __init__(self, args: Namespace) -> None:
        self._args = args
        self._stack = AsyncExitStack()
        self._out = Output(1)
        self._status = Status(Output(2), colour=False, animate=False)
        self._asker = Asker(self._status)
        self._runtime: Runtime
        self._session: Session

    @property
    def model(self) -> str:
        return self._session.agent.providers[0].target.model

    async def open(self, setup: Setup) -> None:
        from hermes.app.runtime import Runtime
        from hermes.cli.oneshot import introduce
        from hermes.cli.process import harden
        from hermes.cli.repl.session_loop import chosen

        harden()
        args = self._args
        folder = paths.find_working_folder(setup.config.terminal.cwd)
        self._runtime = await self._stack.enter_async_context(Runtime.open(setup))
        self._session = await chosen(self._runtime, args, folder)
        self._session.interactions.present = True
        await introduce(self._session, self._runtime, self._status)
        if not len(self._session.transcript.history):
            await self._offer(folder)

    async def _offer(self, folder: Path) -> None:
        latest = await self._runtime.store.sessions.find_latest(cwd=str(folder), source="cli")
        if latest is not None and latest.state == "interrupted":
            title = one_line(latest.title, 60)
            self._status.line(
                f"! the last conversation here was interrupted: {title}. "
                f"/resume {latest.id} goes on with it"
            )

    def farewell(self) -> list[str]:
        left = self._runtime.background.farewell()
        said = [f"! {left}"] if left else []
        if len(self._session.transcript.history):
            said.append(f"To go on: hermes --resume {self._session.id}")
        return said

    async def close(self) -> None:
        await self._stack.aclose()

    async def entered(self, line: str) -> None:
        from hermes.app.commands import message_text, parse
        from hermes.cli.repl.message_input import compose

        folder = paths.find_working_folder(self._runtime.setup.config.terminal.cwd)
        command = parse(line)
        if command is None:
            message, problems = compose(message_text(line), [], folder)
            for problem in problems:
                fail(problem)
            await self._say(message)
            return
        if command[0] == "export":
            from hermes.cli.repl.export import export

            print(await export(self._runtime, self._session, folder, command[1]))
            return
        if command[0] in _SCREEN_ONLY:
            raise ConfigError(
                "With --plain nothing runs while you type; /background needs a screen."
            )
        reply = await self._command(*command)
        if reply.session is not None:
            self._session = reply.session
            self._session.interactions.present = True
        if reply.text:
            print(printable(reply.text))
        if reply.submit is not None:
            await self._say(reply.submit)

    async def _command(self, name: str, args: str) -> Reply:
        from msgspec import structs

        from hermes.app.commands import CommandContext, Reply, run

        context = CommandContext(self._runtime, self._session, "terminal")
        reply = await run(context, name, args)
        if not reply.confirm:
            return reply
        print(printable(reply.text))
        try:
            said = await asyncio.to_thread(input, f"{reply.confirm} [y/N] ")
        except EOFError:
            said = ""
        if said.strip().lower() not in ("y", "yes"):
            return Reply("Nothing was changed.")
        return await run(structs.replace(context, confirmed=True), name, args)

    async def _say(self, message: Message) -> None:
        session = self._session
        renderer = TextRenderer(self._out, self._status)
        events = session.events()
        done = session.submit(message)
        try:
            async for event in events:
                match event:
                    case TurnEnd(result=result):
                        target = session.agent.providers[0].target
                        await renderer.end(session.id, result, target)
                        if result.pending_steer:
                            continue
                        return
                    case Approval() | Question():
                        self._asker.ask(event, session.interactions)
                    case _:
                        await renderer.event(event)
        except asyncio.CancelledError:
            session.interrupt()
            await asyncio.wait({done})
            raise
        finally:
            self._asker.close()
            events.close()

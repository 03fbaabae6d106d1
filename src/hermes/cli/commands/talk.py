"""`hermes talk`: a conversation line by line; without a terminal, a short one by itself."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.arguments import Parser, profile_option
from hermes.cli.main import EXIT_FAILED, fail
from hermes.cli.settling import settle
from hermes.config import env, paths
from hermes.config.load import Setup, load

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime
    from hermes.app.session import Session
    from hermes.cli.approve import Asker
    from hermes.cli.output import Output
    from hermes.cli.status import Status
    from hermes.core.channel import Channel
    from hermes.core.events import Approval, TurnResult

_INTRODUCTION = ("What is the capital of France?", "List the files in this folder")
_LEAVING = frozenset({"exit", "quit", "/exit", "/quit", "bye"})


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes talk", "A conversation, line by line. An empty line or exit ends it.")
    parser.add_argument("--yolo", action="store_true", help="run tools without asking")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.complain(unknown)
    from hermes.cli import logs
    from hermes.core.redact import Redactor

    setup = load(args.profile)
    logs.install(paths.log_file(setup.home), Redactor(setup.secrets.known()).clean)
    folder = paths.working_folder(setup.config.terminal.cwd)
    attended = os.isatty(0) and os.isatty(2)
    for warning in (*setup.warnings, *settle(setup.home, folder, attended=attended)):
        fail(warning)
    with asyncio.Runner() as runner:
        talk = Talk(setup, yolo=args.yolo)
        try:
            runner.run(talk.open())
            if os.isatty(0) and os.isatty(2):
                return _conversation(runner, talk)
            return runner.run(talk.introduction())
        finally:
            runner.run(talk.close())


def _conversation(runner: asyncio.Runner, talk: Talk) -> int:
    """Lines are read outside the event loop: then the terminal edits them, and Ctrl-C is prompt."""
    print(f"hermes with {talk.model}. An empty line or exit ends the conversation.")
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return 0
        if not line or line.lower() in _LEAVING:
            return 0
        try:
            runner.run(talk.say(line))
        except KeyboardInterrupt:
            fail("interrupted; what was said is kept")


class Talk:
    """One session, one turn at a time."""

    def __init__(self, setup: Setup, *, yolo: bool) -> None:
        from hermes.cli.approve import Asker
        from hermes.cli.output import Output
        from hermes.cli.status import Status

        self._setup = setup
        self._yolo = yolo
        self._stack = AsyncExitStack()
        self._out: Output = Output(1)
        errors = Output(2)
        colour = env.colours(errors.tty)
        self._status: Status = Status(errors, colour=colour, animate=colour)
        self._asker: Asker = Asker(self._status)
        self._runtime: Runtime
        self._session: Session
        self._events: Channel
        self._commands = 0
        """How many tools ran."""

    @property
    def model(self) -> str:
        return self._session.agent.providers[0].target.model

    async def open(self) -> None:
        from hermes.app.runtime import Options, Runtime
        from hermes.cli.oneshot import introduce
        from hermes.cli.process import harden

        harden()
        folder = paths.working_folder(self._setup.config.terminal.cwd)
        self._runtime = await self._stack.enter_async_context(Runtime.open(self._setup))
        self._session = await self._runtime.session(cwd=folder, options=Options(yolo=self._yolo))
        self._session.approver = True
        self._events = self._session.events()
        await introduce(self._session, self._runtime, self._status)

    async def close(self) -> None:
        await self._stack.aclose()

    async def introduction(self) -> int:
        """A real answer and a real call, where nobody can type; only with a model that costs
        nothing."""
        if not self._session.agent.small:
            print(f'{self.model} is connected. Ask it something: hermes chat -q "..."')
            return 0
        for line in _INTRODUCTION:
            print(f"> {line}", flush=True)
            result = await self.say(line)
            if not result.completed:
                return EXIT_FAILED
        if not self._commands:
            fail("the model used no tool; a larger one does better: see hermes model list")
            return EXIT_FAILED
        print('To go on: hermes chat -q "..." --continue, or hermes in a terminal.')
        return 0

    async def say(self, line: str) -> TurnResult:
        from hermes.cli.render import TextRenderer
        from hermes.core.events import Approval, Question, ToolDone, TurnEnd
        from hermes.core.message import user

        session = self._session
        renderer = TextRenderer(self._out, self._status)
        done = session.submit(user(line))
        try:
            async for event in self._events:
                match event:
                    case TurnEnd(result=result):
                        await renderer.end(session.id, result, session.agent.providers[0].target)
                        return result
                    case Approval():
                        await self._approve(event)
                    case Question() if self._asker.possible:
                        self._asker.ask(event, session)
                    case Question():
                        session.reply(event.id, None)
                    case ToolDone(result=returned):
                        self._commands += not returned.error
                        await renderer.event(event)
                    case _:
                        await renderer.event(event)
        except asyncio.CancelledError:
            session.interrupt()
            await asyncio.wait({done})
            raise
        finally:
            self._asker.close()
        raise AssertionError("a turn ends with TurnEnd")

    async def _approve(self, question: Approval) -> None:
        """A person decides; where there is none, only what cannot change anything is allowed."""
        if self._asker.possible:
            self._asker.ask(question, self._session)
            return
        from hermes.exec.gate import Rules, judge

        folder = Path(self._session.meta.cwd)
        judged = judge(
            question.command, workspace=folder, home=self._setup.home, rules=Rules(), sandboxed=True
        )
        harmless = bool(question.command) and judged.read_only and judged.decision != "deny"
        self._session.answer(question.id, "once" if harmless else "deny")

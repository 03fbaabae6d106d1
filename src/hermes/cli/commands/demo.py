"""`hermes demo`: a short conversation by itself, to see an answer and a tool call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.main import EXIT_FAILED, fail
from hermes.cli.parser import Parser, profile_option
from hermes.config import paths
from hermes.config.load import Setup, load

if TYPE_CHECKING:
    from hermes.app.session import Session
    from hermes.cli.terminal.output import Output
    from hermes.cli.terminal.progress import Status
    from hermes.core.channel import Channel
    from hermes.core.events import Approval, TurnResult

_EPILOG = """\
Two questions and a tool call, with the model that is set up; by default the embedded one. With
one that costs something nothing is asked.

examples:
  hermes demo
"""
_INTRODUCTION = ("What is the capital of France?", "List the files in this folder")


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes demo", "A short conversation by itself, to see that it works.", _EPILOG)
    profile_option(parser, profile)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.complain(unknown)
    from hermes.cli import log_file as logs
    from hermes.core.redaction.redactor import Redactor

    setup = load(args.profile)
    logs.install(paths.log_file(setup.home), Redactor(setup.secrets.known()).clean)
    for warning in setup.warnings:
        fail(warning)
    import asyncio

    return asyncio.run(Demo(setup).run())


class Demo:
    """One session, asked by itself."""

    def __init__(self, setup: Setup) -> None:
        from hermes.cli.terminal.output import Output
        from hermes.cli.terminal.progress import Status

        self._setup = setup
        self._out: Output = Output(1)
        self._status: Status = Status(Output(2), colour=False, animate=False)
        self._commands = 0
        """How many tools ran."""

    async def run(self) -> int:
        from hermes.app.runtime import Runtime
        from hermes.cli.oneshot import introduce
        from hermes.cli.process import harden

        harden()
        folder = paths.working_folder(self._setup.config.terminal.cwd)
        async with Runtime.open(self._setup) as runtime:
            session = await runtime.session(cwd=folder)
            session.approver = True
            await introduce(session, runtime, self._status)
            return await self._conversation(session)

    async def _conversation(self, session: Session) -> int:
        """A real answer and a real call, where nobody can type; only with a model that costs
        nothing."""
        model = session.agent.providers[0].target.model
        if not session.agent.small:
            print(f'{model} is connected. Ask it something: hermes chat -q "..."')
            return 0
        events = session.events()
        for line in _INTRODUCTION:
            print(f"> {line}", flush=True)
            result = await self._turn(session, events, line)
            if not result.completed:
                return EXIT_FAILED
        if not self._commands:
            fail("the model used no tool; a larger one does better: see hermes model list")
            return EXIT_FAILED
        print('To go on: hermes chat -q "..." --continue, or hermes in a terminal.')
        return 0

    async def _turn(self, session: Session, events: Channel, line: str) -> TurnResult:
        from hermes.cli.terminal.render import TextRenderer
        from hermes.core.events import Approval, Question, ToolDone, TurnEnd
        from hermes.core.message import user

        renderer = TextRenderer(self._out, self._status)
        session.submit(user(line))
        async for event in events:
            match event:
                case TurnEnd(result=result):
                    await renderer.end(session.id, result, session.agent.providers[0].target)
                    return result
                case Approval():
                    session.answer(event.id, "once" if self._harmless(session, event) else "deny")
                case Question():
                    session.reply(event.id, None)
                case ToolDone(result=returned):
                    self._commands += not returned.error
                    await renderer.event(event)
                case _:
                    await renderer.event(event)
        raise AssertionError("a turn ends with TurnEnd")

    def _harmless(self, session: Session, question: Approval) -> bool:
        """Nobody is there to ask: only what cannot change anything is allowed."""
        from hermes.exec.command_policy import CommandRules, judge_command

        judged = judge_command(
            question.command,
            workspace=Path(session.meta.cwd),
            home=self._setup.home,
            rules=CommandRules(),
            sandboxed=True,
        )
        return bool(question.command) and judged.read_only and judged.decision != "deny"

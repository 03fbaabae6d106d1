"""`hermes demo`: a short sample conversation, with an answer and a tool call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup
from hermes.config import paths

if TYPE_CHECKING:
    from hermes.app.session import Session
    from hermes.cli.terminal.output import Output
    from hermes.cli.terminal.progress import ProgressLine
    from hermes.config.load import Setup
    from hermes.core.channel import Channel
    from hermes.core.events import Approval, TurnResult

_EPILOG = """\
Asks two questions, one of which needs a tool, with the configured model; by default that is the
embedded one. A model that costs money is not called.

examples:
  hermes demo
"""
_QUESTIONS = ("What is the capital of France?", "List the files in this folder")


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("demo", "Run a short sample conversation to see that it works.", _EPILOG)
    args = parser.parse_command(argv, profile)
    from hermes.cli.log_file import start_logging

    setup = load_checked_setup(args.profile)
    start_logging(setup.home, setup.secrets.redactable_values())
    import asyncio

    return asyncio.run(DemoConversation(setup).run())


class DemoConversation:
    """One session in which the questions come from this program."""

    def __init__(self, setup: Setup) -> None:
        from hermes.cli.terminal.output import Output
        from hermes.cli.terminal.progress import ProgressLine

        self._setup = setup
        self._out: Output = Output(1)
        self._progress: ProgressLine = ProgressLine(Output(2), colour=False, animate=False)
        self._tool_calls = 0
        """Tool calls that succeeded."""

    async def run(self) -> int:
        from hermes.app.runtime import Runtime
        from hermes.cli.process import harden_process
        from hermes.cli.session_start import introduce_model

        harden_process()
        folder = paths.find_working_folder(self._setup.config.terminal.cwd)
        async with Runtime.open(self._setup) as runtime:
            session = await runtime.open_session(cwd=folder)
            session.interactions.user_present = True
            await introduce_model(session, runtime.transport, self._progress)
            return await self._ask_questions(session)

    async def _ask_questions(self, session: Session) -> int:
        """Only with a model that costs nothing."""
        model = session.agent.providers[0].target.model
        if not session.agent.small:
            print(f'{model} is configured. Ask it something: hermes chat -q "..."')
            return 0
        events = session.subscribe_events()
        for line in _QUESTIONS:
            print(f"> {line}", flush=True)
            result = await self._run_turn(session, events, line)
            if result.status != "completed":
                return EXIT_FAILED
        if not self._tool_calls:
            print_stderr("the model used no tool; a larger one will: see hermes model list")
            return EXIT_FAILED
        print('To continue: hermes chat -q "..." --continue, or hermes in a terminal.')
        return 0

    async def _run_turn(self, session: Session, events: Channel, line: str) -> TurnResult:
        from hermes.cli.terminal.render import TextRenderer
        from hermes.core.events import Approval, Question, ToolDone, TurnEnd
        from hermes.core.message import user_message

        renderer = TextRenderer(self._out, self._progress)
        session.submit(user_message(line))
        async for event in events:
            match event:
                case TurnEnd(result=result):
                    await renderer.show_result(
                        session.id, result, session.agent.providers[0].target
                    )
                    return result
                case Approval():
                    session.interactions.answer_approval(
                        event.id, "once" if self._is_harmless(session, event) else "deny"
                    )
                case Question():
                    session.interactions.answer_question(event.id, None)
                case ToolDone(result=returned):
                    self._tool_calls += not returned.error
                    await renderer.show_event(event)
                case _:
                    await renderer.show_event(event)
        raise AssertionError("a turn ends with TurnEnd")

    def _is_harmless(self, session: Session, approval: Approval) -> bool:
        """Nobody can be asked, so only commands that change nothing are approved."""
        from hermes.exec.command_policy import CommandRules, judge_command

        judged = judge_command(
            approval.command,
            workspace=Path(session.transcript.meta.cwd),
            home=self._setup.home,
            rules=CommandRules(),
            sandboxed=True,
        )
        return bool(approval.command) and judged.read_only and judged.decision != "deny"

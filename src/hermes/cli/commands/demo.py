"""`hermes demo`: a short sample conversation, with an answer and a tool call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, run_async
from hermes.config import paths

if TYPE_CHECKING:
    from hermes.app.session import Session
    from hermes.cli.terminal.progress import ProgressLine
    from hermes.config.load import Setup
    from hermes.core.events import Approval, Question

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
    from hermes.cli.process import harden_process

    harden_process()
    setup = load_checked_setup(args.profile)
    start_logging(setup.home, setup.secrets.redactable_values())
    return run_async(_hold_conversation(setup))


async def _hold_conversation(setup: Setup) -> int:
    from hermes.app.runtime import Runtime
    from hermes.cli.session.start import introduce_model
    from hermes.cli.terminal.output import Output
    from hermes.cli.terminal.progress import ProgressLine

    progress = ProgressLine(Output(2), colour=False, animate=False)
    folder = paths.find_working_folder(setup.config.terminal.cwd)
    async with Runtime.open(setup) as runtime:
        session = await runtime.open_session(cwd=folder)
        session.interactions.user_present = True
        await introduce_model(session, runtime.transport, progress)
        if not session.agent.small:
            model = session.agent.providers[0].target.model
            print(f'{model} is configured. Ask it something: hermes chat -q "..."')
            return 0
        return await _ask_questions(session, progress, setup.home)


async def _ask_questions(session: Session, progress: ProgressLine, home: Path) -> int:
    from hermes.cli.terminal.output import Output
    from hermes.cli.terminal.render import TextRenderer, show_turn
    from hermes.core.message import ToolReturn, user_message

    def answer(question: Approval | Question) -> None:
        _answer_question(session, question, home)

    events = session.subscribe_events()
    used_tool = False
    for line in _QUESTIONS:
        print(f"> {line}", flush=True)
        session.submit(user_message(line))
        result = await show_turn(TextRenderer(Output(1), progress), session, events, answer)
        if result.status != "completed":
            return EXIT_FAILED
        parts = [part for message in result.messages for part in message.parts]
        used_tool |= any(isinstance(part, ToolReturn) and not part.error for part in parts)
    if not used_tool:
        print_stderr("the model used no tool; a larger one will: see hermes model list")
        return EXIT_FAILED
    print('To continue: hermes chat -q "..." --continue, or hermes in a terminal.')
    return 0


def _answer_question(session: Session, question: Approval | Question, home: Path) -> None:
    """Nobody can be asked, so only commands that change nothing are approved."""
    from hermes.core.events import Question
    from hermes.exec.command_policy import CommandRules, judge_command

    if isinstance(question, Question):
        session.interactions.answer_question(question.id, None)
        return
    judged = judge_command(
        question.command,
        workspace=Path(session.transcript.meta.cwd),
        home=home,
        rules=CommandRules(),
        sandboxed=True,
    )
    harmless = question.command and judged.read_only and judged.decision != "deny"
    session.interactions.answer_approval(question.id, "once" if harmless else "deny")

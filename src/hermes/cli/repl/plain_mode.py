"""Plain mode: the conversation line by line, for screen readers and dumb terminals."""

import asyncio
import signal
import time
from argparse import Namespace
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from msgspec import structs

from hermes.app.commands import CommandContext, Reply, run_command, unescape_message
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.cli.log_file import start_logging
from hermes.cli.main import print_stderr
from hermes.cli.repl.input.message import compose_message, parse_entry
from hermes.cli.repl.shell_escape import run_shell_command
from hermes.cli.repl.state import TWICE_SECONDS
from hermes.cli.session.start import (
    READ_ONLY,
    find_interrupted_session,
    find_resumed_session,
    introduce_model,
    needs_question,
    open_session,
)
from hermes.cli.startup import load_checked_setup
from hermes.cli.terminal.approval_prompt import ApprovalPrompt
from hermes.cli.terminal.output import Output
from hermes.cli.terminal.progress import ProgressLine
from hermes.cli.terminal.render import TextRenderer, show_turn
from hermes.cli.terminal.text import one_line, strip_controls
from hermes.cli.terminal.transcript import export_session
from hermes.config import paths
from hermes.config.env import decode_argument
from hermes.config.load import Setup
from hermes.core.errors import ConfigError, HermesError
from hermes.core.message import Message, user_message
from hermes.core.taint import BOTH

_QUIT_WORDS = frozenset({"exit", "quit", "/exit", "/quit"})
_HELP_KEY = "?"
_SCREEN_COMMANDS = frozenset({"background", "bg"})


def run_plain(args: Namespace) -> int:
    """Holds a conversation line by line; returns the exit status."""
    setup = load_checked_setup(args.profile, [args.api_key_env] if args.api_key_env else [])
    start_logging(setup.home, setup.secrets.redactable_values())
    signal.signal(signal.SIGTERM, _exit_on_signal)
    signal.signal(signal.SIGHUP, _exit_on_signal)
    with asyncio.Runner() as runner:
        conversation = PlainConversation(args)
        try:
            runner.run(conversation.open(setup))
            code = _read_lines(runner, conversation)
            for line in conversation.farewell_lines():
                print(line)
            return code
        finally:
            runner.run(conversation.stack.aclose())


def _exit_on_signal(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _read_lines(runner: asyncio.Runner, conversation: "PlainConversation") -> int:
    """Reads outside the event loop, so that the terminal edits lines and Ctrl-C works at once."""
    keys = "Type exit or press Ctrl-D to quit, /help for commands."
    print(f"hermes with {conversation.model}. {keys}")
    first, interrupted = conversation.first_line, -TWICE_SECONDS
    while True:
        try:
            line, first = first or input("you> ").strip(), ""
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:
            print()
            last, interrupted = interrupted, time.monotonic()
            if interrupted - last < TWICE_SECONDS:
                return 0
            print("Ctrl-C again quits.")
            continue
        if line.lower() in _QUIT_WORDS:
            return 0
        if not line:
            continue
        try:
            runner.run(conversation.handle_line(line))
        except KeyboardInterrupt:
            print_stderr("interrupted; the answer so far is kept")
        except HermesError as error:
            print_stderr(str(error))


class PlainConversation:
    """One session, one turn at a time."""

    def __init__(self, args: Namespace) -> None:
        self._args = args
        self.first_line = decode_argument(args.prompt)
        """The message of the command line."""
        self.stack = AsyncExitStack()
        self._out = Output(1)
        self._progress = ProgressLine(Output(2), colour=False, animate=False)
        self._prompt = ApprovalPrompt(self._progress)
        self._runtime: Runtime
        self._session: Session
        self._read_only = False
        self._offered_output = ""

    @property
    def model(self) -> str:
        return self._session.agent.providers[0].target.model

    async def open(self, setup: Setup) -> None:
        folder = paths.find_working_folder(setup.config.terminal.cwd)
        runtime = self._runtime = await self.stack.enter_async_context(Runtime.open(setup))
        stored = await find_resumed_session(runtime.store, self._args, folder)
        asks = stored is not None and needs_question(runtime, stored, folder)
        opened = await open_session(runtime, self._args, folder, None if asks else stored)
        self._enter_session(opened)
        await introduce_model(opened, runtime.transport, self._progress)
        if asks and stored is not None:
            await self.handle_line(f"/resume {stored.id}")
        if stored is not None:
            return
        if latest := await find_interrupted_session(runtime.store, folder):
            self._progress.print_line(
                f"! your last conversation here was interrupted: {one_line(latest.title, 60)}. "
                f"Resume it with: /resume {latest.id}"
            )

    def _enter_session(self, session: Session, *, read_only: bool = False) -> None:
        self._session, self._read_only = session, read_only
        session.interactions.user_present = True
        self._runtime.claims.claim_session(session.id)

    @property
    def _folder(self) -> Path:
        return Path(self._session.transcript.meta.cwd)

    def farewell_lines(self) -> list[str]:
        left = self._runtime.background_commands.describe_leftovers()
        lines = [f"! {left}"] if left else []
        if len(self._session.transcript.history):
            lines.append(f"Resume with: hermes --resume {self._session.id}")
        return lines

    async def handle_line(self, line: str) -> None:
        folder = self._folder
        if line.startswith("!") and line[1:].strip():
            await self._run_shell(line[1:].strip())
            return
        command = ("help", "") if line == _HELP_KEY else parse_entry(line)
        if command is None:
            typed, output = unescape_message(line), self._offered_output
            text = f"{output}\n{typed}" if output else typed
            self._offered_output = ""
            message, problems = compose_message(text, [], folder, typed=typed)
            if message != user_message(typed):
                self._session.transcript.absorb_taint(BOTH)
            for problem in problems:
                print_stderr(problem)
            await self._run_turn(message)
            return
        if command[0] == "export":
            store = self._runtime.store
            print(await export_session(store, self._session, folder, command[1]))
            return
        if command[0] in _SCREEN_COMMANDS:
            why = "with --plain nothing runs while you type."
            raise ConfigError(f"/background needs a screen: {why}")
        reply = await self._run_command(*command)
        if reply.session is not None:
            self._runtime.claims.release_session(self._session.id)
            self._enter_session(reply.session, read_only=reply.read_only)
        if reply.text:
            print(strip_controls(reply.text))
        if reply.submit is not None:
            await self._run_turn(reply.submit)

    async def _run_shell(self, command: str) -> None:
        """Runs a command of the user's own; its output goes with the next message."""
        session = self._session
        outputs = session.host.workspace.outputs
        done = await run_shell_command(command, self._folder, outputs, lambda data: None)
        for line in filter(None, (done.text, done.ending)):
            print(line)
        print_stderr("the output goes with your next message")
        self._offered_output = done.quote(session.agent.redactor.redact)

    async def _run_command(self, name: str, args: str) -> Reply:
        context = CommandContext(self._runtime, self._session, "terminal")
        reply = await run_command(context, name, args)
        while reply.confirm:
            print(strip_controls(reply.text))
            choices = reply.choices or ("yes",)
            offered = "/".join(choices) if reply.choices else "y/N"
            try:
                typed = await asyncio.to_thread(input, f"{reply.confirm} [{offered}] ")
            except EOFError:
                typed = ""
            word = typed.strip().lower()
            found = [choice for choice in choices if word in (choice, choice[0])]
            if not found:
                return Reply("Nothing was changed.")
            if reply.choices:
                args = f"{args} {found[0]}"
            else:
                context = structs.replace(context, is_confirmed=True)
            reply = await run_command(context, name, args)
        return reply

    async def _run_turn(self, message: Message) -> None:
        session = self._session
        if self._read_only:
            raise ConfigError(READ_ONLY)
        renderer = TextRenderer(self._out, self._progress)
        events = session.subscribe_events()
        done = session.submit(message)
        ask = partial(self._prompt.ask, receiver=session.interactions)
        try:
            result = await show_turn(renderer, session, events, ask)
            if result.status == "failed":
                self._progress.print_line("Type /retry to try again.")
        except asyncio.CancelledError:
            session.interrupt()
            await asyncio.wait({done})
            raise
        finally:
            self._prompt.close()
            events.close()

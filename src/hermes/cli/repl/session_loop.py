"""Behind the prompt: opens the session while the user types, then handles what is entered."""

import asyncio
import gc
import logging
from argparse import Namespace
from collections.abc import Awaitable
from functools import partial
from pathlib import Path

from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.enums import EditingMode

from hermes.app.commands import unescape_message
from hermes.app.commands._own import list_own_commands
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.cli.log_file import start_logging
from hermes.cli.repl.attention import RESTORE_TITLE, SAVE_TITLE, Attention
from hermes.cli.repl.controller import Repl
from hermes.cli.repl.conversation import Conversation, ScreenSeams
from hermes.cli.repl.display.event_view import EventView
from hermes.cli.repl.display.scrollback import Scrollback
from hermes.cli.repl.input.completer import WorkspaceFiles
from hermes.cli.repl.input.message import compose_message, parse_entry
from hermes.cli.repl.slash_commands import SlashCommands
from hermes.cli.repl.state import EnteredMessage
from hermes.cli.session.project_trust import check_context_files
from hermes.cli.session.start import (
    find_interrupted_session,
    find_resumed_session,
    needs_question,
    open_session,
)
from hermes.cli.terminal.download import ensure_available
from hermes.cli.terminal.folder import describe_folder
from hermes.cli.terminal.tables import shorten_path
from hermes.cli.terminal.text import one_line
from hermes.config.env import decode_argument
from hermes.config.load import Setup, load_setup
from hermes.config.paths import find_working_folder
from hermes.config.terminal_keys import DEFAULT_KEYS, format_key
from hermes.core.errors import HermesError
from hermes.core.message import user_message
from hermes.core.taint import BOTH
from hermes.version import VERSION

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 5.0


def load_configuration(args: Namespace) -> Setup:
    setup = load_setup(args.profile, keys=[args.api_key_env] if args.api_key_env else [])
    start_logging(setup.home, setup.secrets.redactable_values())
    return setup


async def serve_prompt(repl: Repl, args: Namespace, setup: Setup) -> str | None:
    """Serves the prompt until the user quits; the text to print when the screen is gone, or None
    when the configuration asks for plain mode."""
    if setup.config.display.plain:
        repl.quit(0)
        return None
    screen = repl.screen
    cwd = repl.editor.cwd = find_working_folder(setup.config.terminal.cwd)
    scrollback = Scrollback(screen.write, lambda: screen.columns, colour=screen.colour)
    view = EventView(repl.state, scrollback)
    if setup.config.display.editing_mode == "vi":
        screen.app.editing_mode = EditingMode.VI
        screen.app.timeoutlen = 1.0  # between the letters of dd and cw
        repl.state.vi = True
    screen.set_theme(setup.config.display.theme)
    repl.action_keys.change({**DEFAULT_KEYS, **setup.config.display.keys})
    scrollback.transcript_key = format_key(repl.state.keys["transcript"])
    warnings = list(setup.warnings)
    if cwd != Path.cwd():  # the user was asked about this folder only
        warnings += check_context_files(setup.home, cwd, attended=False)
    for warning in warnings:
        scrollback.show_note(f"! {warning}")
    async with Runtime.open(setup) as runtime:
        stored = await find_resumed_session(runtime.store, args, cwd)
        asks = stored is not None and needs_question(runtime, stored, cwd)
        session = await open_session(runtime, args, cwd, None if asks else stored)
        loop = SessionLoop(repl, runtime, session, view)
        await loop.begin(session, resumed=stored is not None and not asks)
        if asks and stored is not None:
            loop.first_command = ("resume", stored.id)
        if args.prompt:
            repl.put_message(decode_argument(args.prompt), first=True)
        work = runtime.spawn_task(loop.handle_messages(), "the prompt")
        await repl.left.wait()
        work.cancel()
        return await loop.end()


class SessionLoop:
    """One conversation, from its greeting to the lines printed after it."""

    def __init__(self, repl: Repl, runtime: Runtime, session: Session, view: EventView) -> None:
        session.interactions.busy_mode = "steer"
        repl.screen.write_codes(SAVE_TITLE)
        self._repl = repl
        self._runtime = runtime
        self._scrollback = view.scrollback
        self.first_command: tuple[str, str] | None = None
        """A slash command that runs before anything the user has entered."""
        attention = Attention(repl.screen.write_codes, runtime.setup.config.display)
        seams = ScreenSeams(repl.screen.refresh, repl.edit_text, self._enter_folder, attention)
        self._conversation = Conversation(runtime, session, view, seams)
        self._commands = SlashCommands(repl, self._conversation, view.scrollback)

    def _enter_folder(self, folder: Path) -> None:
        """Completes and attaches files of this folder from now on."""
        editor = self._repl.editor
        editor.cwd = folder
        home = self._runtime.setup.home
        editor.completer.files = WorkspaceFiles(folder, home)
        editor.completer.own_commands = partial(list_own_commands, home, folder)
        if self._runtime.plugins is not None:
            editor.completer.plugin_commands = self._runtime.plugins.commands

    async def begin(self, session: Session, *, resumed: bool) -> None:
        repl, runtime, scrollback = self._repl, self._runtime, self._scrollback
        if not len(session.transcript.history):
            self._show_greeting()
        if session.agent.note:
            scrollback.show_note(f"! {session.agent.note}")
        base_url = session.agent.providers[0].endpoint.base_url
        await ensure_available(base_url, runtime.transport, scrollback.show_note)
        for sentence in await runtime.store.wait_until_open():
            scrollback.show_note(f"! {sentence}")
        if resumed:
            scrollback.show_history(session.transcript.history.messages)
            scrollback.show_note(f"Resumed {session.id} · {describe_folder(repl.editor.cwd)}")
        elif latest := await find_interrupted_session(runtime.store, repl.editor.cwd):
            repl.offered_session = latest.id
            repl.state.offered_title = one_line(latest.title, 60) or "(no title)"
        repl.conversation = repl.viewer.conversation = self._conversation
        repl.state.ready = True
        gc.freeze()  # imported modules stay until the end
        gc.enable()
        repl.screen.refresh()

    def _show_greeting(self) -> None:
        shown = shorten_path(str(self._repl.editor.cwd))
        self._scrollback.show_note(f"Hermes {VERSION} · {shown} · /help")

    async def handle_messages(self) -> None:
        """Handles what is entered, in order; a failure is shown, and the next message taken."""
        if self.first_command is not None:
            await self._guard_handling(self._commands.run(*self.first_command))
        while True:
            entered = await self._repl.next_message()
            try:
                is_handled = await self._guard_handling(self._handle_message(entered))
            finally:
                self._repl.accept_message(entered)
            if not is_handled and parse_entry(entered.text) is None:
                self._return_text(entered.text)
            self._repl.screen.refresh()

    def _return_text(self, text: str) -> None:
        """Puts what could not be sent back into the prompt, unless that is in use."""
        repl = self._repl
        if not repl.editor.text and repl.state.question is None:
            repl.editor.fill(text)

    async def _guard_handling(self, work: Awaitable[None]) -> bool:
        """Whether it was handled; a failure is shown."""
        try:
            await work
            return True
        except HermesError as error:
            self._scrollback.show_problem(str(error))
        except Exception as error:  # the prompt stays, whatever a command does
            log.exception("what was entered could not be handled")
            text = f"That failed ({type(error).__name__}). Nothing stored was lost."
            self._scrollback.show_problem(f"{text} Details: hermes logs")
        return False

    async def _handle_message(self, entered: EnteredMessage) -> None:
        text = entered.text
        command = parse_entry(text)
        if command is not None:
            self._repl.accept_message(entered)
            await self._commands.run(*command)
            return
        if text.startswith("!") and text[1:].strip():
            self._repl.accept_message(entered)
            await self._commands.run_shell(text[1:].strip())
            return
        await self._commands.start_fresh_session()
        await self._ensure_model()
        typed = unescape_message(text)
        expanded, images = self._repl.editor.chips.expand(typed)
        message, problems = await asyncio.to_thread(
            compose_message, expanded, images, self._repl.editor.cwd, typed=typed
        )
        if not self._repl.accept_message(entered):
            return
        conversation = self._conversation
        chips = self._repl.editor.chips
        if message != user_message(expanded) or chips.has_output(typed):
            conversation.session.transcript.absorb_taint(BOTH)
        send = conversation.enqueue_message if entered.queued else conversation.send_message
        send(text, message)
        for problem in problems:
            self._scrollback.show_problem(problem)

    async def _ensure_model(self) -> None:
        """Downloads an embedded model that /model chose, with the prompt out of the way."""
        from hermes.llm.endpoints.embedded import find_missing_model

        base_url = self._conversation.session.agent.providers[0].endpoint.base_url
        if find_missing_model(base_url) is not None:
            async with in_terminal():
                await ensure_available(base_url, self._runtime.transport)

    async def end(self) -> str:
        """Closes the session; the lines to print when the screen is gone."""
        runtime, session = self._runtime, self._conversation.session
        self._repl.screen.write_codes(RESTORE_TITLE)
        lines = []
        if farewell := runtime.background_commands.describe_leftovers():
            lines.append(f"! {farewell}")
        prompts = runtime.background_prompts.list_prompts(session)
        if left := [prompt.session.id for prompt in prompts]:
            lines.append(f"! stopped in the background; resume with --resume: {', '.join(left)}")
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await session.close()
        except TimeoutError:
            lines.append("! a tool did not stop in time; it ends with this program")
        if len(session.transcript.history):
            lines.append(f"Resume with: hermes --resume {session.id}")
        return "\n".join(lines)

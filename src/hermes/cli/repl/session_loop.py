"""Behind the prompt: opens the session while the user types, then handles what is entered."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.repl.display.event_view import EventView
from hermes.cli.repl.display.scrollback import Scrollback
from hermes.cli.repl.input.message import compose_message
from hermes.cli.repl.slash_commands import SlashCommands

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime
    from hermes.app.session import Session
    from hermes.cli.repl.controller import Repl
    from hermes.config.load import Setup

log = logging.getLogger(__name__)

_IMPORT_SWITCH_SECONDS = 0.0005
_CLOSE_SECONDS = 5.0


async def serve_prompt(repl: Repl, args: Namespace) -> str | None:
    """Serves the prompt until the user quits; the text to print when the screen is gone, or None
    when the configuration asks for plain mode."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_IMPORT_SWITCH_SECONDS)  # keys must show while the thread imports
    try:
        setup, cwd = await asyncio.to_thread(_load_setup, args)
    finally:
        sys.setswitchinterval(interval)
    repl.editor.cwd = cwd
    if setup.config.display.plain:
        repl.quit(0)
        return None
    from hermes.app.runtime import Runtime
    from hermes.cli.process import harden_process
    from hermes.cli.session_start import open_session

    screen = repl.screen
    harden_process()
    scrollback = Scrollback(screen.write, lambda: screen.columns, colour=screen.colour)
    repl.view = EventView(repl.state, scrollback)
    if setup.config.display.editing_mode == "vi":
        from prompt_toolkit.enums import EditingMode

        screen.app.editing_mode = EditingMode.VI
        repl.state.vi = True
    for warning in (*setup.warnings, *_check_other_folder(setup, cwd)):
        scrollback.show_note(f"! {warning}")
    async with Runtime.open(setup) as runtime:
        session = await open_session(runtime, args, cwd)
        loop = SessionLoop(repl, runtime, session, repl.view)
        await loop.begin(session)
        work = runtime.spawn(loop.handle_messages(), "the prompt")
        await repl.left.wait()
        work.cancel()
        return await loop.end()


def _load_setup(args: Namespace) -> tuple[Setup, Path]:
    """Reads the configuration and imports what a session needs; runs on a thread."""
    from hermes.cli.log_file import start_logging
    from hermes.config import paths
    from hermes.config.load import load

    setup = load(args.profile, keys=[args.api_key_env] if args.api_key_env else [])
    start_logging(setup.home, setup.secrets.known())
    return setup, paths.working_folder(setup.config.terminal.cwd)


def _check_other_folder(setup: Setup, folder: Path) -> list[str]:
    """About the context files of terminal.cwd, where that is another folder than this one."""
    from hermes.cli.project_trust import check_context_files

    if folder == Path.cwd():
        return []
    return check_context_files(setup.home, folder, attended=False)


class SessionLoop:
    """One conversation, from its greeting to the lines printed after it."""

    def __init__(
        self,
        repl: Repl,
        runtime: Runtime,
        session: Session,
        view: EventView,
    ) -> None:
        from hermes.cli.repl.conversation import Conversation

        session.people.busy = "steer"
        self._repl = repl
        self._runtime = runtime
        self._cwd = repl.editor.cwd
        self._scrollback = view.scrollback
        self._conversation = Conversation(
            runtime,
            session,
            view,
            refresh=repl.screen.refresh,
            edit_text=repl.edit_text,
        )
        self._commands = SlashCommands(repl, self._conversation, view.scrollback)

    async def begin(self, session: Session) -> None:
        from hermes.cli.repl.input.completer import WorkspaceFiles
        from hermes.cli.terminal.download import ensure_available

        repl, runtime, scrollback = self._repl, self._runtime, self._scrollback
        if not len(session.history):
            self._show_greeting()
        if session.agent.note:
            scrollback.show_note(f"! {session.agent.note}")
        base_url = session.agent.providers[0].base_url
        await ensure_available(base_url, runtime.transport, scrollback.show_note)
        for sentence in await runtime.store.ready():
            scrollback.show_note(f"! {sentence}")
        if len(session.history):
            scrollback.show_history(session.history.messages)
        else:
            await self._offer_interrupted_session()
        repl.editor.completer.files = WorkspaceFiles(self._cwd, runtime.setup.home)
        repl.conversation = self._conversation
        repl.state.ready = True
        gc.freeze()  # imported modules stay until the end
        gc.enable()
        repl.screen.refresh()

    def _show_greeting(self) -> None:
        from hermes.version import VERSION

        folder, home = self._cwd, Path.home()
        inside = folder.is_relative_to(home) and folder != home
        shown = f"~/{folder.relative_to(home)}" if inside else str(folder)
        self._scrollback.show_note(f"Hermes {VERSION} · {shown} · /help")

    async def _offer_interrupted_session(self) -> None:
        latest = await self._runtime.store.latest(cwd=str(self._cwd), source="cli")
        if latest is not None and latest.state == "interrupted":
            from hermes.cli.terminal.text import one_line

            self._repl.offered_session = latest.id
            self._repl.state.offered_title = one_line(latest.title, 60) or "(no title)"

    async def handle_messages(self) -> None:
        """Handles what is entered, in order; a failure is shown, and the next message taken."""
        from hermes.core.errors import HermesError

        while True:
            text, queued = await self._repl.next_message()
            try:
                await self._handle_message(text, queued=queued)
            except HermesError as error:
                self._scrollback.show_problem(str(error))
            except Exception as error:  # the prompt stays, whatever a command does
                log.exception("what was entered could not be handled")
                self._scrollback.show_problem(
                    f"That failed ({type(error).__name__}). Nothing stored was lost. "
                    "Details: hermes logs"
                )
            self._repl.screen.refresh()

    async def _handle_message(self, text: str, *, queued: bool) -> None:
        from hermes.app.commands import message_text, parse

        command = parse(text)
        if command is not None:
            await self._commands.run(*command)
            return
        await self._commands.start_fresh_session()
        await self._ensure_model()
        typed = message_text(text)
        expanded, images = self._repl.editor.chips.expand(typed)
        message, problems = await asyncio.to_thread(
            compose_message, expanded, images, self._cwd, typed=typed
        )
        conversation = self._conversation
        send = conversation.enqueue_message if queued else conversation.send_message
        send(text, message)
        for problem in problems:
            self._scrollback.show_problem(problem)

    async def _ensure_model(self) -> None:
        """Downloads an embedded model that /model chose, with the prompt out of the way."""
        from hermes.cli.terminal.download import ensure_available, find_missing_model

        base_url = self._conversation.session.agent.providers[0].base_url
        if find_missing_model(base_url) is not None:
            from prompt_toolkit.application.run_in_terminal import in_terminal

            async with in_terminal():
                await ensure_available(base_url, self._runtime.transport)

    async def end(self) -> str:
        """Closes the session; the lines to print when the screen is gone."""
        runtime, session = self._runtime, self._conversation.session
        lines = []
        if farewell := runtime.background.farewell():
            lines.append(f"! {farewell}")
        if left := [errand.session.id for errand in runtime.errands.of(session)]:
            lines.append(f"! stopped in the background; resume with --resume: {', '.join(left)}")
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await session.close()
        except TimeoutError:
            lines.append("! a tool did not stop in time; it ends with this program")
        if len(session.history):
            lines.append(f"Resume with: hermes --resume {session.id}")
        return "\n".join(lines)

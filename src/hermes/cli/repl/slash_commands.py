"""Slash commands on the screen: those of the registry, those of the terminal, and the picker."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from msgspec import structs

from hermes.app.commands import CommandContext, Reply, run_command
from hermes.app.commands._lookup import list_own_sessions
from hermes.cli.repl.controller import Repl
from hermes.cli.repl.conversation import Conversation
from hermes.cli.repl.display.scrollback import Scrollback
from hermes.cli.repl.display.session_picker import SessionPicker
from hermes.cli.repl.display.tool_results import colour_diff
from hermes.cli.repl.input.completer import LOCAL_COMMANDS
from hermes.cli.repl.local_commands import LocalCommands
from hermes.cli.repl.markdown.styled_text import Style
from hermes.cli.repl.questions import choice_question
from hermes.cli.repl.shell_escape import run_shell_command
from hermes.cli.terminal.text import one_line, strip_controls
from hermes.core.store import SessionMeta

T = TypeVar("T")
SURFACE = "terminal"
_SHELL_LINES = 200
_LISTED_SESSIONS = 200
_PREVIEWED_MESSAGES = 4
_SLOW_SECONDS = 0.2
"""After which a command is shown as running."""


class SlashCommands:
    """Runs one command at a time in the conversation."""

    def __init__(self, repl: Repl, conversation: Conversation, scrollback: Scrollback) -> None:
        self._repl = repl
        self._conversation = conversation
        self._scrollback = scrollback
        self._local = LocalCommands(repl, conversation, scrollback)
        self._suspended = False
        """The next message starts a session of its own."""

    async def run(self, name: str, args: str) -> None:
        conversation = self._conversation
        runtime, session = conversation.runtime, conversation.session
        if name == "clear":
            self._repl.screen.clear()
        self._scrollback.show_message(f"/{name} {args}".rstrip())
        args, _ = self._repl.editor.chips.expand(args)
        if await self._local.run(name, args):
            return
        context = CommandContext(runtime, session, SURFACE)
        if name == "model" and not args:
            args = await self._run_stoppable("/model", self._local.pick_model()) or ""
            if not args:
                return
        if name == "resume" and not args:
            chosen = await self._pick_session(context)
            if chosen is None:
                return
            args = chosen.id
        reply = await self._run_stoppable(f"/{name}", run_command(context, name, args))
        if reply is None:
            return
        if name in ("help", "commands") and not args:
            rows = "\n".join(f"/{name.ljust(10)}  {text}" for name, text in LOCAL_COMMANDS.items())
            reply = structs.replace(reply, text=f"{reply.text}\n\nin this terminal only:\n{rows}")
        while reply.confirm:
            answer = await self._ask_choice(reply)
            if not answer:
                self._scrollback.show_note("Nothing was changed.")
                return
            if reply.choices:
                args = f"{args} {answer}"
            else:
                context = structs.replace(context, is_confirmed=True)
            # Not stoppable: files and messages go back together.
            reply = await run_command(context, name, args)
        await self._follow_reply(reply, resumed=name == "resume")

    async def _ask_choice(self, reply: Reply) -> str:
        """The user's answer to what a command asks first; empty: no."""
        self._show_text(reply.text)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        question = choice_question(reply.confirm, reply.choices or ("yes",), answer.set_result)
        self._conversation.questions.ask(question)
        return await answer

    async def run_shell(self, command: str) -> None:
        """Runs a command of the user's own; its output is offered for the next message."""
        conversation, editor, state = self._conversation, self._repl.editor, self._repl.state
        outputs = conversation.session.host.workspace.outputs
        self._scrollback.show_message(f"!{command}")

        def show_progress(data: bytes) -> None:
            lines = data.decode("utf-8", "replace").rstrip().rsplit("\n", 1)
            state.command_detail = one_line(lines[-1], 200)

        work = run_shell_command(command, conversation.folder, outputs, show_progress)
        try:
            done = await self._run_stoppable(f"!{one_line(command, 60)}", work)
        finally:
            state.command_detail = ""
        if done is None:
            return
        if done.text:
            self._scrollback.show_output(done.text, _SHELL_LINES)
        if done.ending:
            self._scrollback.show_note(done.ending, Style.BAD if done.status else Style.DIM)
        quoted = done.quote(conversation.session.agent.redactor.redact)
        editor.append_chip(editor.chips.add_output(done.label, quoted))

    async def start_fresh_session(self) -> None:
        """After /stop the next message starts a session of its own."""
        if not self._suspended:
            return
        self._suspended = False
        conversation = self._conversation
        fresh = await conversation.runtime.reopen_session(conversation.session)
        await conversation.switch_session(fresh)

    async def _run_stoppable(self, label: str, work: Awaitable[T]) -> T | None:
        """The result of a command; None when the user stopped it."""
        repl, state = self._repl, self._repl.state
        loop = asyncio.get_running_loop()

        def show_running() -> None:
            state.command, state.command_since = label, time.monotonic()
            repl.screen.refresh()

        timer = loop.call_later(_SLOW_SECONDS, show_running)
        try:
            async with asyncio.timeout(None) as repl.command_timeout:
                return await work
        except TimeoutError:
            if repl.command_timeout is None or not repl.command_timeout.expired():
                raise
            self._scrollback.show_note(f"{label} was stopped.")
            return None
        finally:
            timer.cancel()
            repl.command_timeout, state.command = None, ""

    async def _follow_reply(self, reply: Reply, *, resumed: bool) -> None:
        conversation = self._conversation
        if reply.session is not None:
            await conversation.switch_session(reply.session)
            conversation.read_only = reply.read_only
            if resumed:
                messages = conversation.session.transcript.history.messages
                self._scrollback.show_history(messages, is_running=reply.read_only)
        self._suspended = self._suspended or reply.suspend
        self._show_text(reply.text)
        conversation.refresh_status()
        if reply.submit is not None:
            conversation.enqueue_message(reply.submit.text, reply.submit)

    def _show_text(self, text: str) -> None:
        """What a command says or would do: words, and changes to files as a coloured diff."""
        words, found, diff = strip_controls(text).partition("\ndiff --git ")
        if words:
            self._scrollback.show_note(words, "")
        if found:
            self._scrollback.write_block("text", colour_diff(f"diff --git {diff}".split("\n")))

    async def _pick_session(self, context: CommandContext) -> SessionMeta | None:
        """Lets the user choose among the other sessions of this place, latest first."""
        repl, runtime, mine = self._repl, context.runtime, context.session.transcript.meta
        metas = await list_own_sessions(runtime.store, mine, _LISTED_SESSIONS)
        others = [meta for meta in metas if meta.id != context.session.id]
        if not others:
            self._scrollback.show_note("There are no other stored sessions.")
            return None
        answer: asyncio.Future[SessionMeta | None] = asyncio.get_running_loop().create_future()

        async def load_preview(meta: SessionMeta) -> None:
            stored = runtime.store.sessions.stream_messages(meta.id)
            messages = [item.message async for item in stored]
            spoken = [m for m in messages if m.role in ("user", "assistant") and m.text.strip()]
            picker.previews[meta.id] = spoken[-_PREVIEWED_MESSAGES:]
            repl.screen.refresh()

        async def search_messages(text: str) -> None:
            hits = await runtime.store.search.find_messages(text, limit=_LISTED_SESSIONS)
            picker.add_matches(text, frozenset(hit.session.id for hit in hits))
            repl.screen.refresh()

        picker = SessionPicker(
            others,
            answer.set_result,
            lambda meta: runtime.spawn_task(load_preview(meta), f"preview of {meta.id}"),
            lambda text: runtime.spawn_task(search_messages(text), "search of the sessions"),
            mine.cwd,
        )
        repl.screen.search.reset()
        repl.state.picker = picker
        repl.screen.app.layout.focus(repl.screen.search)
        repl.screen.refresh()
        return await answer

"""Slash commands that only the terminal has: they change the screen or need the whole of it."""

import asyncio
import base64
import sys
from collections.abc import Awaitable, Callable

from hermes.cli.repl.controller import Repl
from hermes.cli.repl.conversation import Conversation
from hermes.cli.repl.display.screen import THEMES
from hermes.cli.repl.display.scrollback import Scrollback
from hermes.cli.repl.input.key_help import format_key_help
from hermes.cli.terminal.transcript import export_session
from hermes.config.update import apply_changes
from hermes.core.errors import ConfigError
from hermes.core.text import format_plural

_MAX_COPIED_BYTES = 74_000
"""Terminals drop longer clipboard sequences."""


class LocalCommands:
    """Each is a method that returns the sentence to show."""

    def __init__(self, repl: Repl, conversation: Conversation, scrollback: Scrollback) -> None:
        self._repl = repl
        self._conversation = conversation
        self._scrollback = scrollback
        self._by_name: dict[str, Callable[[str], Awaitable[str]]] = {
            "copy": self._copy_answer,
            "doctor": self._run_doctor,
            "exit": self._quit,
            "export": self._export_session,
            "keys": self._list_keys,
            "login": self._log_in,
            "quit": self._quit,
            "theme": self._set_theme,
        }

    async def run(self, name: str, args: str) -> bool:
        """Whether the terminal has this command."""
        run = self._by_name.get(name)
        if run is None:
            return False
        if text := await run(args):
            self._scrollback.show_note(text, "")
        return True

    async def pick_model(self) -> str:
        """The model that the user chooses from the list; empty: none."""
        from hermes.app.control.model_selection import list_models
        from hermes.cli.terminal.picker import PickerRow, pick_row

        runtime, target = self._conversation.runtime, self._conversation.session.agent.providers[0]
        found = await list_models(runtime.setup)
        rows = [PickerRow(row.value, row.detail) for row in found]
        if not rows:
            raise ConfigError("No provider lists its models. Name one: /model PROVIDER:MODEL")
        current = f"{target.target.provider}:{target.target.model}"
        async with self._repl.viewer.hand_over_terminal():
            return await asyncio.to_thread(pick_row, "Models", rows, current) or ""

    async def _quit(self, args: str) -> str:
        self._repl.quit(0)
        return ""

    async def _list_keys(self, args: str) -> str:
        return format_key_help(self._repl.state.keys)

    async def _export_session(self, args: str) -> str:
        conversation = self._conversation
        store, session = conversation.runtime.store, conversation.session
        return await export_session(store, session, conversation.folder, args)

    async def _copy_answer(self, args: str) -> str:
        answers = [m.text for m in self._conversation.history if m.role == "assistant"]
        text = next((answer for answer in reversed(answers) if answer.strip()), "")
        if not text:
            raise ConfigError("There is no answer to copy yet.")
        data = text.encode("utf-8", "replace")
        if len(data) > _MAX_COPIED_BYTES:
            raise ConfigError("The answer is too long for the clipboard. /export writes it.")
        self._repl.screen.write_codes(f"\x1b]52;c;{base64.b64encode(data).decode()}\x07")
        return f"Copied the last answer ({format_plural(len(text), 'character')})."

    async def _set_theme(self, args: str) -> str:
        screen, name = self._repl.screen, args.lower()
        if not name:
            others = ", ".join(theme for theme in THEMES if theme != screen.theme)
            return f"Theme: {screen.theme}. Others: {others}."
        if name not in THEMES:
            raise ConfigError(f"/theme takes one of: {', '.join(THEMES)}.")
        screen.set_theme(name)
        home = self._conversation.runtime.setup.home
        await asyncio.to_thread(apply_changes, home, {"display.theme": name})
        return f"Theme: {name}."

    async def _run_doctor(self, args: str) -> str:
        await self._run_program("doctor", *args.split())
        return ""

    async def _log_in(self, args: str) -> str:
        if not args:
            await self._run_program("auth", "list")
            return "/login PROVIDER logs in, or asks for an API key."
        from hermes.llm.endpoints.inventory import find_configured_provider

        words = args.split()
        name = next((word for word in words if not word.startswith("-")), "")
        provider = find_configured_provider(self._conversation.runtime.setup.config, name)
        action = "login" if provider.login_flow is not None else "add"
        if await self._run_program("auth", action, *words):
            return ""
        return "A new key or login counts from the next start: /exit, then hermes --continue"

    async def _run_program(self, *words: str) -> int:
        """The exit status of another command of this program, which has the terminal to itself."""
        profile = self._conversation.runtime.setup.profile
        argv = [sys.executable, "-m", "hermes", *(["-p", profile] if profile else []), *words]
        async with self._repl.viewer.hand_over_terminal():
            process = await asyncio.create_subprocess_exec(*argv)
            return await process.wait()

"""The interactive terminal as a program: the prompt first, everything else behind it."""

import os
import signal
import sys
import termios
from argparse import Namespace
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hermes.cli.main import EXIT_FAILED, EXIT_USAGE
from hermes.config import env
from hermes.config.paths import find_home

if TYPE_CHECKING:
    from hermes.cli.repl.controller import Repl
    from hermes.config.load import Setup

_INPUT_FLAGS, _LOCAL_FLAGS = 0, 3
_THREAD_SWITCH_SECONDS = 0.0005


def run_interactive(args: Namespace) -> int:
    """Holds a conversation in this terminal; returns the exit status."""
    term = env.get_environment().get("TERM", "dumb")
    if args.plain or term in ("", "dumb", "unknown"):
        from hermes.cli.repl.plain_mode import run_plain

        return run_plain(args)
    early = EarlyPrompt()
    early.show()
    try:
        import asyncio

        code = asyncio.run(_run_screen(args, term, early))
    finally:
        early.hand_over()
    if code is None:
        args.plain = True
        return run_interactive(args)
    return code


class EarlyPrompt:
    """A prompt to type into while the real one is being imported.

    The terminal echoes and keeps what is typed; the real prompt finds it in its input. On a
    terminal that cannot do this, nothing happens.
    """

    def __init__(self) -> None:
        self._saved: list[Any] | None = None

    def show(self) -> None:
        try:
            saved = termios.tcgetattr(0)
            mode = list(saved)
            mode[_INPUT_FLAGS] &= ~termios.ICRNL  # the real prompt must see Enter as Enter
            mode[_LOCAL_FLAGS] &= ~termios.ECHOCTL
            termios.tcsetattr(0, termios.TCSANOW, mode)
            os.write(1, "❯ ".encode())
        except (OSError, termios.error):
            return
        self._saved = saved

    def hand_over(self) -> None:
        if self._saved is not None:
            saved, self._saved = self._saved, None
            try:
                termios.tcsetattr(0, termios.TCSANOW, saved)
                os.write(1, b"\r\x1b[K")
            except (OSError, termios.error):
                return


async def _run_screen(args: Namespace, term: str, early: EarlyPrompt) -> int | None:
    """The exit status; None when the configuration asks for plain mode."""
    import asyncio

    from hermes.cli.repl.controller import Repl

    home = find_home(env.get_environment(), args.profile)
    repl = Repl(home, colour=env.supports_colour(True), term=term)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, repl.quit, 128 + number)
    early.hand_over()
    serving = loop.create_task(_serve_prompt(repl, args))
    try:
        await repl.screen.app.run_async(set_exception_handler=False)
    except EOFError:
        repl.quit(128 + signal.SIGHUP)
    repl.quit(0)
    farewell = await serving
    if farewell is None:
        return None
    repl.screen.flush()
    if farewell:
        with suppress(OSError):
            print(farewell, flush=True)
    return repl.code or 0


async def _serve_prompt(repl: "Repl", args: Namespace) -> str | None:
    """What `serve_prompt` returns, or the error that ended it."""
    import asyncio

    from hermes.core.errors import ConfigError, HermesError

    interval = sys.getswitchinterval()
    sys.setswitchinterval(_THREAD_SWITCH_SECONDS)  # keys must show while the thread imports
    try:
        setup = await asyncio.to_thread(_load_session_loop, args)
        sys.setswitchinterval(interval)
        from hermes.cli.repl.session_loop import serve_prompt

        return await serve_prompt(repl, args, setup)
    except HermesError as error:
        repl.quit(EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED)
        return f"hermes: {error}"


def _load_session_loop(args: Namespace) -> "Setup":
    """Imports what a session needs and reads the configuration; runs on a thread."""
    from hermes.cli.repl.session_loop import load_configuration

    return load_configuration(args)

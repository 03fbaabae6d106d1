"""The interactive terminal as a program: the prompt first, everything else behind it."""

from __future__ import annotations

import signal
from argparse import Namespace
from typing import TYPE_CHECKING

from hermes.cli.repl.early_prompt import Early
from hermes.config import env
from hermes.config.paths import find_home

if TYPE_CHECKING:
    from hermes.cli.repl.controller import Repl

EXIT_FAILED, EXIT_USAGE = 1, 2


def run(args: Namespace) -> int:
    term = env.get_environment().get("TERM", "dumb")
    if args.plain or term in ("", "dumb", "unknown"):
        from hermes.cli.repl.plain_mode import run as plainly

        return plainly(args)
    early = Early()
    early.show()
    try:
        import asyncio

        code = asyncio.run(_run(args, term, early))
    finally:
        early.hand_over()
    if code is None:
        args.plain = True
        return run(args)
    return code


async def _run(args: Namespace, term: str, early: Early) -> int | None:
    """The exit status; None when the configuration wants it line by line."""
    import asyncio

    from hermes.cli.repl.controller import Repl

    home = find_home(env.get_environment(), args.profile)
    repl = Repl(home, colour=env.supports_colour(True), term=term)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, repl.quit, 128 + number)
    early.hand_over()
    serving = loop.create_task(_serve(repl, args))
    try:
        await repl.screen.app.run_async(set_exception_handler=False)
    except EOFError:
        repl.quit(128 + signal.SIGHUP)
    repl.quit(0)
    said = await serving
    if said is None:
        return None
    repl.screen.flush()
    if said:
        _say(said)
    return repl.code or 0


async def _serve(repl: Repl, args: Namespace) -> str | None:
    from hermes.cli.repl.session_loop import serve
    from hermes.core.errors import ConfigError, HermesError

    try:
        return await serve(repl, args)
    except HermesError as error:
        repl.quit(EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED)
        return f"hermes: {error}"


def _say(text: str) -> None:
    try:
        print(text, flush=True)
    except OSError:
        return

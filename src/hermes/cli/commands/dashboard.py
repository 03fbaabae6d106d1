"""`hermes dashboard`: the agent in a browser."""

from __future__ import annotations

import sys
from argparse import Namespace

from hermes.cli.main import print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.startup import create_home, open_store, refuse_agent, run_async

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from hermes.config.load import Setup
    from hermes.core.store import Store

_EPILOG = """\
Uses a server of this home that has the dashboard (dashboard.enabled), or runs one in the
foreground until Ctrl-C. The browser is signed in with a code, which works once. From a phone or
another machine: see docs/dashboard.md.

examples:
  hermes dashboard
  hermes dashboard --no-open
  hermes dashboard --code            print a new sign-in code, and nothing else
  hermes dashboard --sign-out        sign out every browser
"""
_KEEP_SECONDS = 60


def run(argv: list[str], profile: str) -> int:
    from hermes.cli.server_process import add_address_options, run_server

    parser = CommandParser("dashboard", "Use the agent in a browser.", _EPILOG)
    add_address_options(parser)
    parser.add_flag("--no-open", help="do not open a browser")
    parser.add_flag("--code", help="print a new sign-in code and exit")
    parser.add_flag("--sign-out", help="sign out every browser and exit")
    args = parser.parse_command(argv, profile)
    refuse_agent("use the dashboard")
    home = create_home(args.profile)
    if args.code:
        print(run_async(_make_code(home)))
        return 0
    if args.sign_out:
        ended = run_async(_sign_out(home))
        print(f"Signed out {ended} browser{'' if ended == 1 else 's'}.")
        return 0
    address = _find_server(home)
    if address:
        print(f"listening on {address}", file=sys.stderr, flush=True)
        code = run_async(_make_code(home))
        _show_code(code)
        _open_browser(args, home, address, code)
        return 0

    async def greet(listening: str, setup: Setup, store: Store) -> None:
        from hermes.app.live.sign_in_codes import create_code

        code = await create_code(store.objects)
        _show_code(code, again=True)
        _open_browser(args, home, listening, code)
        _offer_codes(store)

    return run_server(args, greet)


async def _make_code(home: Path) -> str:
    from hermes.app.live.sign_in_codes import create_code

    async with open_store(home) as store:
        return await create_code(store.objects)


async def _sign_out(home: Path) -> int:
    from hermes.server.dashboard.sign_in import end_browser_sessions

    async with open_store(home) as store:
        return await end_browser_sessions(store.objects)


def _find_server(home: Path) -> str:
    from hermes.config.instances import list_instances

    found = [i.address for i in list_instances(home) if i.kind == "dashboard"]
    return found[-1] if found else ""


def _show_code(code: str, *, again: bool = False) -> None:
    hint = "; Enter makes another" if again else ""
    print(f"sign-in code {code} (works once, 5 minutes{hint})", file=sys.stderr, flush=True)


def _offer_codes(store: Store) -> None:
    """A new code for every Enter, where there is an input."""
    import asyncio
    from contextlib import suppress

    from hermes.app.live.sign_in_codes import create_code

    loop = asyncio.get_running_loop()
    waiting: set[asyncio.Task[None]] = set()

    async def show_next() -> None:
        _show_code(await create_code(store.objects), again=True)

    def read_line() -> None:
        if not sys.stdin.readline():
            loop.remove_reader(sys.stdin)
            return
        task = loop.create_task(show_next())
        waiting.add(task)
        task.add_done_callback(waiting.discard)

    with suppress(OSError):  # a file, or closed
        loop.add_reader(sys.stdin, read_line)


def _open_browser(args: Namespace, home: Path, address: str, code: str) -> None:
    """Opens the browser through a private file that leads to the address with the code, so that
    the code is in no command line."""
    if args.no_open:
        return
    import webbrowser

    if not sys.stderr.isatty():
        return
    link = _write_link(home, f"{address}/#code={code}")
    if webbrowser.open(link.as_uri()):
        _remove_later(link)
    else:
        link.unlink(missing_ok=True)
        print_stderr(f"Open {address} in a browser and enter the code.")


def _write_link(home: Path, address: str) -> Path:
    """A private file that leads the browser to the address."""
    import os
    import secrets
    from html import escape

    from hermes.config.paths import make_private_folder

    folder = home / "run"
    make_private_folder(folder)
    file = folder / f"open-{secrets.token_hex(8)}.html"
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        target = escape(address, quote=True)
        out.write(
            '<!doctype html><meta charset="utf-8"><title>Hermes</title>'
            f'<meta http-equiv="refresh" content="0; url={target}">'
            f'<a href="{target}">Continue to Hermes</a>'
        )
    return file


def _remove_later(file: Path) -> None:
    """Remove the file when the browser has read it, also if this process ends before."""
    import subprocess

    script = f"import os, time; time.sleep({_KEEP_SECONDS}); os.unlink({str(file)!r})"
    subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

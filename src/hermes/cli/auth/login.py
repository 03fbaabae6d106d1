"""`hermes auth login`: the browser or a code, shown on the terminal, until there is a token."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from shutil import which

from hermes.config import paths
from hermes.config.env import child_env, environment
from hermes.config.load import Setup
from hermes.config.private_files import locked
from hermes.core.errors import ConfigError
from hermes.llm.auth.oauth import tokens
from hermes.llm.auth.oauth.device import DeviceCode
from hermes.llm.auth.oauth.login import LoginPrompts, run_login
from hermes.llm.auth.oauth.tokens import Token
from hermes.llm.endpoints.inventory import NamedProvider
from hermes.llm.http.transport import Transport


async def log_in(setup: Setup, provider: NamedProvider, *, browser: bool) -> Token:
    """Stored when it returns. ProviderError says why there is none."""
    flow = provider.login_flow
    if flow is None:
        raise ConfigError(
            f"One does not log in to {provider.name}: it takes a key. hermes auth add "
            f"{provider.name} stores one."
        )
    attended = os.isatty(0) and os.isatty(2)
    screen = _Screen(setup, browser=browser and attended)
    transport = Transport()
    try:
        steps = LoginPrompts(screen.code, screen.page, _line if attended else None)
        token = await run_login(flow, transport, steps)
    finally:
        await transport.close()
    keep(setup, provider, token)
    return token


def keep(setup: Setup, provider: NamedProvider, token: Token) -> None:
    folder = paths.logins_folder(setup.home)
    paths.private_folder(folder)
    with locked(folder / f".{provider.name}.lock", f"the login to {provider.name}"):
        try:
            tokens.save_token(folder / f"{provider.name}.json", token)
        except OSError as error:
            raise ConfigError(f"The login could not be stored: {error.strerror}.") from None


class _Screen:
    """What is said on stderr."""

    def __init__(self, setup: Setup, *, browser: bool) -> None:
        self._setup = setup
        self._browser = browser

    def code(self, shown: DeviceCode) -> None:
        self._say(
            f"Open {shown.page} and type in this code (good for {shown.minutes} min):\n\n"
            f"    {shown.code}\n\nNever type in a code that somebody else gave you.\n"
        )
        self._open(shown.complete or shown.page)

    def page(self, address: str) -> None:
        self._say(f"Log in with your browser at this address:\n\n{address}\n")
        if os.isatty(0):
            self._say(
                "If the browser runs on another machine, it ends at an address that does not "
                "load:\npaste that address here and press Enter."
            )
        self._open(address)

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _open(self, address: str) -> None:
        """In a browser on this screen, if there is one."""
        environ = environment()
        screen = (
            sys.platform == "darwin" or environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
        )
        opener = which("open" if sys.platform == "darwin" else "xdg-open")
        if not self._browser or not screen or not opener or environ.get("SSH_CONNECTION"):
            return
        subprocess.Popen(
            [opener, address],
            env=child_env(self._setup.secrets),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


async def _line() -> str:
    """A line the user types or pastes; empty at the end of input."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(0, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(0)
    return os.read(0, 1 << 16).decode("utf-8", "replace")

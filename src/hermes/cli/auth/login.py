"""`hermes auth login` and `logout`: a browser or a code on the terminal, until there is a token."""

import asyncio
import os
import subprocess
import sys
from shutil import which

from hermes.config import paths
from hermes.config.env import build_child_env, get_environment
from hermes.config.load import Setup
from hermes.config.private_files import hold_lock
from hermes.core.errors import ConfigError
from hermes.llm.auth.oauth import tokens
from hermes.llm.auth.oauth.device import DeviceCode
from hermes.llm.auth.oauth.login import LoginPrompts, run_login
from hermes.llm.auth.oauth.tokens import Token
from hermes.llm.endpoints.inventory import NamedProvider
from hermes.llm.http.transport import Transport


async def log_in(setup: Setup, provider: NamedProvider, *, browser: bool) -> Token:
    """Logs in and stores the token. ProviderError says why that failed."""
    flow = provider.login_flow
    if flow is None:
        hint = f"Run: hermes auth add {provider.name}"
        raise ConfigError(f"{provider.name} has no login, it needs a key. {hint}")
    attended = os.isatty(0) and os.isatty(2)
    screen = LoginScreen(setup, browser=browser and attended)
    steps = LoginPrompts(screen.show_code, screen.show_page, read_line if attended else None)
    async with Transport() as transport:
        token = await run_login(flow, transport, steps)
    store_token(setup, provider, token)
    return token


def store_token(setup: Setup, provider: NamedProvider, token: Token) -> None:
    folder = paths.logins_folder(setup.home)
    paths.make_private_folder(folder)
    with hold_lock(folder / f".{provider.name}.lock", f"the login to {provider.name}"):
        try:
            tokens.save_token(folder / f"{provider.name}.json", token)
        except OSError as error:
            raise ConfigError(f"Could not store the login: {error.strerror}.") from None


def log_out(setup: Setup, provider: NamedProvider) -> None:
    """Deletes the token; waits for a renewal in progress. ConfigError: nobody is logged in."""
    folder = paths.logins_folder(setup.home)
    file = folder / f"{provider.name}.json"
    if not file.exists():
        raise ConfigError(f"You are not logged in to {provider.name}.")
    with hold_lock(folder / f".{provider.name}.lock", f"the login to {provider.name}"):
        file.unlink(missing_ok=True)


class LoginScreen:
    """Shows the steps of a login on stderr."""

    def __init__(self, setup: Setup, *, browser: bool) -> None:
        self._setup = setup
        self._browser = browser

    def show_code(self, shown: DeviceCode) -> None:
        _print_step(
            f"Open {shown.page} and enter this code (valid for {shown.minutes} min):\n\n"
            f"    {shown.code}\n\nNever enter a code that somebody else gave you.\n"
        )
        self._open_browser(shown.complete or shown.page)

    def show_page(self, address: str) -> None:
        _print_step(f"Log in with your browser at this address:\n\n{address}\n")
        if os.isatty(0):
            _print_step(
                "If your browser runs on another machine, it ends up at an address that does not "
                "load:\npaste that address here and press Enter."
            )
        self._open_browser(address)

    def _open_browser(self, address: str) -> None:
        """Opens the address in a browser on this screen, if there is one."""
        environ, mac = get_environment(), sys.platform == "darwin"
        screen = mac or environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
        opener = which("open" if mac else "xdg-open")
        if not self._browser or not screen or not opener or environ.get("SSH_CONNECTION"):
            return
        environ, null = build_child_env(self._setup.secrets), subprocess.DEVNULL
        subprocess.Popen(
            [opener, address],
            env=environ,
            stdin=null,
            stdout=null,
            stderr=null,
            start_new_session=True,
        )


async def read_line() -> str:
    """A line that the user types or pastes; empty at the end of input."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(0, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(0)
    return os.read(0, 1 << 16).decode("utf-8", "replace")


def _print_step(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

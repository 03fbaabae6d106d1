"""The process behind `hermes gateway run`: from the lock to the exit status."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.app.runtime import Runtime
from hermes.cli.gateway.api_server import host_api_server, read_api_server, read_settings
from hermes.cli.gateway.profiles import load_profiles
from hermes.cli.log_file import log_info_events, start_logging
from hermes.cli.main import print_stderr
from hermes.cli.process import (
    SignalHandler,
    harden_process,
    raise_file_limit,
    tune_garbage_collection,
)
from hermes.config import paths
from hermes.config.api_server import ApiServer
from hermes.config.env import get_environment
from hermes.config.instances import announce_instance
from hermes.config.load import Setup, load_setup
from hermes.config.platforms import is_enabled, read_platform
from hermes.core.errors import ConfigError, StoreError
from hermes.gateway.chat_commands import check_quick_commands
from hermes.gateway.hub import OpenPlatform
from hermes.gateway.platforms import (
    HOSTED,
    find_token,
    list_names,
    load_platform,
    require_known,
)
from hermes.gateway.process.repair import DamageWatch, salvage_store
from hermes.gateway.process.state_file import acquire_lock, find_pid
from hermes.gateway.schedule import has_active_jobs
from hermes.gateway.service import Gateway
from hermes.gateway.turn_reply import deliveries
from hermes.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from hermes.app.extensions.plugins import Plugins
    from hermes.gateway.adapter import PlatformSpec

EXIT_RUNNING = 3
EXIT_RESTART = 75
"""A supervisor starts the program again."""
RUNNING = "gateway running"
ALREADY_RUNNING = "already running (pid {pid})"
_NOTHING_ON = (
    "No messenger is set up and no job is scheduled, so there is nothing to serve. Run: "
    "hermes gateway setup"
)
_NOTHING_USABLE = "No messenger that is on has its token. Run: hermes gateway setup"


class ServedHome(Struct, frozen=True):
    """What is served of one profile."""

    setup: Setup
    platforms: tuple[OpenPlatform, ...]
    server: ApiServer | None

    @property
    def is_empty(self) -> bool:
        return not self.platforms and self.server is None


async def run_gateway(profile: str) -> int:
    """Serve until a signal; the exit status. A restart replaces the process and does not return,
    unless a supervisor does it."""
    harden_process()
    setup = load_setup(profile)
    profiles = load_profiles(setup)
    known = (setup, *profiles.values())
    start_logging(setup.home, {v for s in known for v in s.secrets.redactable_values()})
    log_info_events(deliveries.name)
    for warning in setup.warnings:
        print_stderr(warning)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a restart before it has started
    lock = acquire_lock(setup.home)
    if lock is None:
        pid = find_pid(setup.home) or "unknown"
        print(ALREADY_RUNNING.format(pid=pid), file=sys.stderr, flush=True)
        return EXIT_RUNNING
    raise_file_limit()
    check_quick_commands(setup.config.gateway)
    if setup.database_url:
        return await _run_node(setup, profile)
    home = read_home(setup)
    others: dict[str, ServedHome] = {}
    for name, found in profiles.items():
        with suppress_trouble(name):
            others[name] = read_home(found)
    async with AsyncExitStack() as stack:
        is_empty = home.is_empty and all(other.is_empty for other in others.values())
        main, notice = await open_gateway(stack, home, needs_job=is_empty)
        started = [(main, notice)]
        for name, other in others.items():
            with suppress_trouble(name):
                child = await open_profile(stack, other)
                main.add_profile(name, child[0])
                started.append(child)
        SignalHandler().attach(main.request_stop)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, main.restart_for_owner)
        tune_garbage_collection()
        if not await serve_all(started):
            # As after a crash: the turns go on, or are told of, at the next start.
            for gateway, _ in started:
                await gateway.close_store()
            leave_process(profile, restart=main.restart_requested)
    if main.restart_requested:
        leave_process(profile, restart=True)
    return 0


async def _run_node(setup: Setup, profile: str) -> int:
    """Serve as one of the nodes of a cluster."""
    from hermes.cli.gateway.node import run_gateway_node

    open_platforms(setup)  # ConfigError before anything is opened
    if setup.config.gateway.profiles:
        print_stderr("gateway.profiles are not served: a node of a cluster serves one profile")
    if await run_gateway_node(setup, read_settings(setup), open_all_platforms):
        leave_process(profile, restart=True)
    return 0


def open_all_platforms(runtime: Runtime) -> tuple[OpenPlatform, ...]:
    """Every messenger that is on, those of plugins too."""
    setup = runtime.setup
    return (*open_platforms(setup), *open_registered_platforms(setup, runtime.plugins))


def open_or_tell(runtime: Runtime) -> tuple[OpenPlatform, ...]:
    """Every messenger that is on; what keeps them from being opened is said."""
    try:
        return open_all_platforms(runtime)
    except ConfigError as error:
        print_stderr(str(error))
        return ()


def read_home(setup: Setup) -> ServedHome:
    server = read_api_server(setup)
    return ServedHome(setup, open_platforms(setup, needs_one=server is None), server)


async def open_gateway(
    stack: AsyncExitStack, home: ServedHome, *, needs_job: bool = False
) -> tuple[Gateway, str]:
    """The gateway of a home, and what its owner should be told. ConfigError when there is nothing
    to serve: `needs_job` says that only the schedule is left."""
    file = paths.database_file(home.setup.home)
    may_have_more = bool(home.setup.config.plugins.enabled)
    if needs_job and not may_have_more and not file.exists():
        raise ConfigError(_NOTHING_ON)
    store = SqliteStore(file)
    stack.push_async_callback(store.close)
    store.open()
    notice = await open_database(store, file)
    runtime = await stack.enter_async_context(Runtime.open(home.setup, store=store))
    registered = open_registered_platforms(home.setup, runtime.plugins)
    if needs_job and not registered and not await has_active_jobs(store.jobs):
        raise ConfigError(_NOTHING_ON)
    platforms = (*home.platforms, *registered)
    _warn_about_access(platforms)
    hosted = () if home.server is None else (host_api_server(runtime, store, home.server),)
    gateway = Gateway(runtime, store, platforms, hosted)
    stack.enter_context(announce_instance(home.setup.home, "gateway"))
    return gateway, notice


async def open_profile(stack: AsyncExitStack, home: ServedHome) -> tuple[Gateway, str]:
    """The gateway of another profile, unless a gateway of its own serves it."""
    if acquire_lock(home.setup.home) is None:
        pid = find_pid(home.setup.home) or "unknown"
        raise ConfigError(f"It is served already by another gateway (pid {pid}).")
    return await open_gateway(stack, home)


@contextmanager
def suppress_trouble(profile: str) -> Iterator[None]:
    """Trouble of one profile does not keep the others from being served."""
    try:
        yield
    except ConfigError as error:
        print_stderr(f"{profile} is not served: {error}")


async def serve_all(started: list[tuple[Gateway, str]]) -> bool:
    """Run all gateways until they are told to stop; whether every turn ended in time."""
    waiting = len(started)

    def report_one() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            started[0][0].save_status()  # with the platforms of all profiles
            _report_running()

    runs = [gateway.run(report_one, notice) for gateway, notice in started]
    return all(await asyncio.gather(*runs))


def open_platforms(setup: Setup, *, needs_one: bool = True) -> tuple[OpenPlatform, ...]:
    """Every messenger that is on. ConfigError when a key is wrong, or when none of those that are
    on has its token and one is needed."""
    if not setup.config.plugins.enabled:  # otherwise one of them may know the name
        for name in _list_named(setup):
            require_known(name)
    on = (name for name in list_names() if _is_mentioned(name, setup))
    opened, missing = _open_specs(setup, {name: load_platform(name) for name in on})
    if missing and not opened and needs_one:
        raise ConfigError(missing[0] if len(missing) == 1 else _NOTHING_USABLE)
    for sentence in missing:
        print_stderr(sentence)
    return opened


def _list_named(setup: Setup) -> tuple[str, ...]:
    """The platforms that the settings speak of."""
    config = setup.config
    return (*config.platforms, *config.gateway.reset.by_platform)


def _is_mentioned(name: str, setup: Setup) -> bool:
    """Whether anything is set for a messenger: most are off and not even imported."""
    return name in setup.config.platforms or setup.secrets.has_any(f"{name.upper()}_")


def open_registered_platforms(setup: Setup, plugins: Plugins | None) -> tuple[OpenPlatform, ...]:
    """Every messenger of plugins that is on. ConfigError when a key is wrong or a name is taken."""
    if plugins is None:
        return ()
    for name in plugins.platforms:
        if name in (*list_names(), *HOSTED):
            raise ConfigError(f"A plugin offers the platform {name}, which is built in.")
    for name in _list_named(setup):
        require_known(name, plugins.platforms)
    opened, missing = _open_specs(setup, plugins.platforms)
    for sentence in missing:
        print_stderr(sentence)
    return opened


def _open_specs(
    setup: Setup, specs: Mapping[str, PlatformSpec]
) -> tuple[tuple[OpenPlatform, ...], list[str]]:
    """The platforms that are on, and why others of them could not be opened."""
    opened: list[OpenPlatform] = []
    missing: list[str] = []
    for name, spec in specs.items():
        settings = read_platform(name, spec.settings, setup.config, setup.secrets)
        if not is_enabled(settings, find_token(spec, settings, setup.secrets)):
            continue
        try:
            opened.append(OpenPlatform(name, settings, spec.open(settings, setup.secrets)))
        except ConfigError as error:
            missing.append(str(error))
    return tuple(opened), missing


def _warn_about_access(platforms: tuple[OpenPlatform, ...]) -> None:
    for found in platforms:
        settings = found.settings
        if gap := settings.find_gap():
            print_stderr(f"{found.name}: {gap}")
        if settings.allow_all_users or settings.allowed_users or settings.group_members:
            continue
        if found.platform.capabilities.authenticates:
            continue
        advice = f"list people in platforms.{found.name}.allowed_users"
        if found.platform.capabilities.pairs:
            advice = "people who write get a code for hermes pairing"
        print_stderr(f"{found.name}: nobody may talk to it yet; {advice}")


async def open_database(store: SqliteStore, file: Path) -> str:
    """Salvages a damaged database; returns what the owner should be told."""
    try:
        if not await DamageWatch(store, file).find_damage():
            for notice in await store.wait_until_open():
                print_stderr(notice)
            return ""
    except StoreError as error:
        raise ConfigError(str(error)) from None
    text = await salvage_store(store)
    print_stderr(text)
    return text


def _report_running() -> None:
    print(RUNNING, file=sys.stderr, flush=True)
    address = get_environment().get("NOTIFY_SOCKET", "")
    if address:
        import socket

        target = "\0" + address[1:] if address.startswith("@") else address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
            notifier.sendto(b"READY=1", target)


def leave_process(profile: str, *, restart: bool) -> None:
    """End this process at once, or replace it with a new one; its tools end with it."""
    sys.stdout.flush()
    sys.stderr.flush()
    environ = get_environment()
    if not restart:
        os._exit(0)
    if environ.get("INVOCATION_ID") or environ.get("XPC_SERVICE_NAME"):
        os._exit(EXIT_RESTART)
    os.execv(sys.executable, command_line(profile))


def command_line(profile: str) -> list[str]:
    """The command that runs the gateway."""
    chosen = ["-p", profile] if profile else []
    return [sys.executable, "-m", "hermes", *chosen, "gateway", "run"]


def find_log(home: Path) -> Path:
    return home / "logs" / "gateway.log"

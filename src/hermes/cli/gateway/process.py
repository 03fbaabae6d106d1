"""The process behind `hermes gateway run`: from the lock to the exit status."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from hermes.app.runtime import Runtime
from hermes.cli.gateway.api_server import host_api_server, read_api_server
from hermes.cli.log_file import log_info_events, start_logging
from hermes.cli.main import print_stderr
from hermes.cli.process import (
    SignalHandler,
    harden_process,
    raise_file_limit,
    tune_garbage_collection,
)
from hermes.config import paths
from hermes.config.env import get_environment
from hermes.config.instances import announce_instance
from hermes.config.load import Setup, load_setup
from hermes.config.platforms import is_enabled, read_platform
from hermes.core.errors import ConfigError, StoreError
from hermes.gateway import texts
from hermes.gateway.hub import OpenPlatform
from hermes.gateway.platforms import list_names, load_platform, require_known
from hermes.gateway.service import Gateway
from hermes.gateway.state_file import acquire_lock, find_pid
from hermes.gateway.turn_reply import deliveries
from hermes.store.sqlite import SqliteStore

EXIT_RUNNING = 3
EXIT_RESTART = 75
"""A supervisor starts the program again."""
_NOTHING_ON = "No messenger is set up, so there is nothing to serve. Run: hermes gateway setup"


async def run_gateway(profile: str) -> int:
    """Serve until a signal; the exit status. A restart replaces the process and does not return,
    unless a supervisor does it."""
    harden_process()
    setup = load_setup(profile)
    start_logging(setup.home, setup.secrets.redactable_values())
    log_info_events(deliveries.name)
    for warning in setup.warnings:
        print_stderr(warning)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a restart before it has started
    lock = acquire_lock(setup.home)
    if lock is None:
        print_stderr(f"already running (pid {find_pid(setup.home) or 'unknown'})")
        return EXIT_RUNNING
    raise_file_limit()
    platforms = open_platforms(setup)
    server = read_api_server(setup)
    if not platforms and server is None:
        raise ConfigError(_NOTHING_ON)
    _warn_about_access(platforms)
    store = SqliteStore(paths.database_file(setup.home))
    store.open()
    notice = await open_database(store)
    async with Runtime.open(setup, store=store) as runtime:
        hosted = () if server is None else (host_api_server(runtime, server),)
        gateway = Gateway(runtime, store, platforms, hosted)
        SignalHandler().attach(gateway.request_stop)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, gateway.request_restart)
        tune_garbage_collection()
        with announce_instance(setup.home, "gateway"):
            ended = await gateway.run(_report_running, notice)
        if not ended:
            # As after a crash: the turns go on, or are told of, at the next start.
            await store.close()
            leave_process(profile, restart=gateway.restart_requested)
    await store.close()
    if gateway.restart_requested:
        leave_process(profile, restart=True)
    return 0


def open_platforms(setup: Setup) -> tuple[OpenPlatform, ...]:
    """Every messenger that is on. ConfigError when a key is wrong, or when none has its token."""
    for name in setup.config.platforms:
        require_known(name)
    opened: list[OpenPlatform] = []
    missing: list[str] = []
    for name in list_names():
        spec = load_platform(name)
        settings = read_platform(name, spec.settings, setup.config, setup.secrets)
        token = setup.secrets.get(settings.token_env or spec.variable)
        if not is_enabled(settings, token or setup.secrets.get(spec.alternative)):
            continue
        try:
            opened.append(OpenPlatform(name, settings, spec.open(settings, setup.secrets)))
        except ConfigError as error:
            missing.append(str(error))
    for sentence in missing:
        print_stderr(sentence)
    if missing and not opened:
        raise ConfigError(_NOTHING_ON)
    return tuple(opened)


def _warn_about_access(platforms: tuple[OpenPlatform, ...]) -> None:
    for found in platforms:
        settings = found.settings
        if settings.allow_all_users or settings.allowed_users or settings.group_members:
            continue
        if found.platform.capabilities.pairs:
            text = "nobody may talk to it yet; people who write get a code for hermes pairing"
            print_stderr(f"{found.name}: {text}")


async def open_database(store: SqliteStore) -> str:
    """Salvages a damaged database; returns what the owner should be told."""
    try:
        for notice in await store.wait_until_open():
            print_stderr(notice)
        return ""
    except StoreError as error:
        if error.code != "damaged":
            raise ConfigError(str(error)) from None
    saved = await store.maintenance.salvage()
    text = texts.DATABASE_DAMAGED.format(
        sessions=saved.sessions,
        messages=saved.messages,
        lost=saved.lost,
        name=saved.damaged_file.name,
    )
    print_stderr(text)
    return text


def _report_running() -> None:
    print("gateway running", file=sys.stderr, flush=True)
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

"""All checks of an installation, in the order in which they are shown, and the repairs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from hermes.app.control.doctor import connectivity, home, knowledge, machine, mcp, plugins, schedule
from hermes.app.control.doctor.check import Check
from hermes.config.load import Setup
from hermes.core.errors import ConfigError

CheckMessengers: TypeAlias = Callable[[Setup], Awaitable[Sequence[Check]]]
REPAIRABLE = ("home", "leftovers")
"""Checks whose problems a running program can repair."""


async def run_checks(
    folder: Path,
    load: Callable[[], Setup],
    check_messengers: CheckMessengers | None,
    *,
    online: bool = False,
    fix: bool = False,
) -> list[Check]:
    """Check the home `folder`, which `load` reads. `online`: also test the key. `fix`: repair it
    first."""
    checks = [machine.check_version()]
    if fix:
        checks.append(home.repair_home(folder))
        checks += await home.salvage_sessions(folder)
    setup = None
    try:
        setup = load()
        checks.append(home.check_configuration(setup))
    except ConfigError as error:
        checks.append(home.describe_broken_config(folder, error))
    if await asyncio.to_thread(folder.is_dir):  # checked even with a broken configuration
        checks.append(home.check_permissions(folder, setup.warnings if setup else ()))
        checks.append(await home.check_sessions(folder))
        checks += [home.check_disk(folder), home.check_clock(folder), home.check_leftovers(folder)]
        checks.append(await schedule.check_schedule(folder))
    if setup is not None:
        checks += await _check_parts(setup, check_messengers, online=online)
    checks += [machine.check_sqlite(), await machine.check_sandbox(setup)]
    checks += [*machine.check_programs(), await machine.check_browser(setup)]
    return [*checks, *machine.check_extras()]


async def _check_parts(
    setup: Setup, check_messengers: CheckMessengers | None, *, online: bool
) -> list[Check]:
    checks = [await plugins.check_plugins(setup), *await knowledge.check_knowledge(setup)]
    checks += await connectivity.check_models(setup, online=online)
    if check_messengers is not None:
        checks += await check_messengers(setup)
    checks += await mcp.check_servers(setup)
    if setup.config.terminal.backend in ("docker", "ssh"):
        checks.append(await connectivity.check_backend(setup))
    return checks

"""Starts Playwright's driver with an environment of our choice."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from hermes.core.errors import ToolError

if TYPE_CHECKING:
    from playwright.async_api import Playwright

MISSING = (
    "No browser was started: Playwright is not installed. Install the extra `browser` "
    "(pip install 'hermes-runtime[browser]')."
)
_ENV_FUNCTION = "get_driver_env"
_STOP_TIMEOUT = 10.0


@asynccontextmanager
async def start_driver(env: Mapping[str, str]) -> "AsyncIterator[Playwright]":
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        raise ToolError(MISSING) from None
    _replace_driver_env(dict(env))
    playwright = async_playwright()
    # Shielded: a half-started driver cannot be stopped.
    started = asyncio.ensure_future(playwright.start())
    try:
        yield await asyncio.shield(started)
    finally:
        await asyncio.wait([started], timeout=_STOP_TIMEOUT)
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                await playwright.__aexit__()


def _replace_driver_env(env: dict[str, str]) -> None:
    """Replace the function that makes the driver's environment wherever it was imported: it hands
    over our whole environment, keys included, and Playwright has no parameter for it."""
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("playwright._impl")]
    importers = [m for m in modules if hasattr(m, _ENV_FUNCTION)]
    if not importers:
        raise ToolError(
            "No browser was started: this version of Playwright would pass secrets to its driver. "
            "Install the version that the extra `browser` names."
        )
    for module in importers:
        setattr(module, _ENV_FUNCTION, lambda: env)

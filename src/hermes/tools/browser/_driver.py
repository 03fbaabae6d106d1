"""Playwright's driver, started with an environment of our choosing and connected to a browser."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from hermes.core.errors import ToolError

if TYPE_CHECKING:
    from playwright.async_api import Playwright

MISSING = (
    "Playwright is not installed, so there is no browser: install the extra `browser` "
    "(pip install 'hermes-runtime[browser]')."
)
_ENV_FUNCTION = "get_driver_env"
_STOP_TIMEOUT = 10.0


@asynccontextmanager
async def start_driver(env: Mapping[str, str]) -> AsyncIterator[Playwright]:
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        raise ToolError(MISSING) from None
    _replace_driver_env(dict(env))
    playwright = async_playwright()
    # Shielded: half started it could not be stopped.
    started = asyncio.ensure_future(playwright.start())
    try:
        yield await asyncio.shield(started)
    finally:
        await asyncio.wait([started], timeout=_STOP_TIMEOUT)
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                await playwright.__aexit__()


def _replace_driver_env(env: dict[str, str]) -> None:
    """Playwright has no parameter for it: it hands our whole environment, keys included, to its
    driver. So the function that it asks is replaced wherever it was imported to."""
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("playwright._impl")]
    places = [m for m in modules if hasattr(m, _ENV_FUNCTION)]
    if not places:
        raise ToolError(
            "This version of Playwright would pass secrets on to its driver, so no browser is "
            "started; install the version the extra `browser` names."
        )
    for module in places:
        setattr(module, _ENV_FUNCTION, lambda: env)

"""Listens for the deliveries of services that call us."""

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from hermes.gateway.adapter import ConnectionFailure

MAX_BODY_BYTES = 1_048_576


@asynccontextmanager
async def open_listener(
    host: str,
    port: int,
    routes: Mapping[tuple[str, str], Callable[[Any], Awaitable[Any]]],
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> AsyncIterator[None]:
    """Serve the routes, by method and path; ConnectionFailure when the port cannot be had."""
    from aiohttp import web

    app = web.Application(client_max_size=max_body_bytes)
    for (method, path), handler in routes.items():
        app.router.add_route(method, path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            is_taken = error.errno == errno.EADDRINUSE
            why = os.strerror(error.errno) if error.errno else str(error)
            text = f"cannot listen on {host}:{port}: {why}"
            raise ConnectionFailure("port_in_use" if is_taken else "error", text) from None
        yield
    finally:
        await runner.cleanup()

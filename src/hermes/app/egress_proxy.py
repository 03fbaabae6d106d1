"""The way out that the operator granted to confined commands: one proxy, opened when needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.config.paths import cache_folder

if TYPE_CHECKING:
    from hermes.net.ssrf import SsrfGuard


class Egress:
    """One per process. `gate` gives the checks that every fetch of ours goes through; `on_refusal`
    gets a sentence about every host that was refused."""

    def __init__(
        self,
        home: Path,
        gate: Callable[[], SsrfGuard],
        on_refusal: Callable[[str], None],
    ) -> None:
        self._home = home
        self._gate = gate
        self._on_refusal = on_refusal
        self._opened: dict[tuple[str, ...], str] = {}
        self._opening = asyncio.Lock()
        self._held = AsyncExitStack()

    async def open(self, hosts: tuple[str, ...]) -> str:
        """Where a proxy to these hosts listens, in the form that the sandbox of this machine
        takes. `*` leads everywhere."""
        async with self._opening:
            if hosts not in self._opened:
                self._opened[hosts] = await self._start(hosts)
        return self._opened[hosts]

    async def close(self) -> None:
        await self._held.aclose()

    async def _start(self, hosts: tuple[str, ...]) -> str:
        from hermes.exec.sandbox_probe import probe_tier
        from hermes.net.egress_proxy import serve_loopback_proxy, serve_unix_proxy

        domains = None if "*" in hosts else hosts
        if (await probe_tier(cache_folder(self._home))).level == 1:
            import tempfile

            # Not in our home, whose path may be too long for a socket.
            private = tempfile.TemporaryDirectory(prefix="hermes-", ignore_cleanup_errors=True)
            folder = Path(self._held.enter_context(private))
            socket = serve_unix_proxy(folder, domains, self._gate(), on_refusal=self._on_refusal)
            return str(await self._held.enter_async_context(socket))
        local = await self._held.enter_async_context(
            serve_loopback_proxy(self._gate(), domains=domains, on_refusal=self._on_refusal)
        )
        return local.url.replace("//", f"//{local.user}:{local.password}@", 1)

"""The egress proxy through which confined commands reach the domains the operator allowed."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.config.paths import cache_folder

if TYPE_CHECKING:
    from hermes.net.egress_proxy import Refusal
    from hermes.net.ssrf import SsrfGuard


class SharedEgressProxy:
    """One per process, started by its first user. `get_guard` returns the check that every request
    of Hermes itself passes too; `on_refusal` gets every refusal."""

    def __init__(
        self,
        home: Path,
        get_guard: "Callable[[], SsrfGuard]",
        on_refusal: "Callable[[Refusal], None]",
    ) -> None:
        self._home = home
        self._get_guard = get_guard
        self._on_refusal = on_refusal
        self._addresses: dict[tuple[str, ...], str] = {}
        self._opening = asyncio.Lock()
        self._exit_stack = AsyncExitStack()

    async def open(self, hosts: tuple[str, ...]) -> str:
        """The address of a proxy to these hosts, in the form that the sandbox of this machine
        takes. `*`: every host."""
        async with self._opening:
            if hosts not in self._addresses:
                self._addresses[hosts] = await self._start_proxy(hosts)
        return self._addresses[hosts]

    async def close(self) -> None:
        await self._exit_stack.aclose()

    async def _start_proxy(self, hosts: tuple[str, ...]) -> str:
        from hermes.exec.sandbox_probe import probe_tier
        from hermes.net.egress_proxy import serve_loopback_proxy, serve_unix_proxy

        domains = None if "*" in hosts else hosts
        if (await probe_tier(cache_folder(self._home))).level == 1:
            import tempfile

            # Not in the agent's home, whose path may be too long for a socket.
            private = tempfile.TemporaryDirectory(prefix="hermes-", ignore_cleanup_errors=True)
            folder = Path(self._exit_stack.enter_context(private))
            socket = serve_unix_proxy(
                folder, domains, self._get_guard(), on_refusal=self._on_refusal
            )
            return str(await self._exit_stack.enter_async_context(socket))
        local = await self._exit_stack.enter_async_context(
            serve_loopback_proxy(self._get_guard(), domains=domains, on_refusal=self._on_refusal)
        )
        return local.url.replace("//", f"//{local.user}:{local.password}@", 1)

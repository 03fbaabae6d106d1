"""The server: built from a Runtime and its settings; listens, and drains when it stops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from hermes.app.runtime import Runtime
from hermes.config.api_server import ApiServer
from hermes.core.redaction.redactor import Redactor
from hermes.server.http.connection import Acceptor
from hermes.server.http.idempotency import IdempotencyKeys
from hermes.server.http.listener import EarlyListener, open_listener
from hermes.server.http.metrics import Metrics
from hermes.server.http.principals import Principals, load_keys
from hermes.server.middleware import Middleware
from hermes.server.route import Router, RouteServices
from hermes.server.routes import list_routes
from hermes.server.turns.runs import RunRegistry
from hermes.server.turns.server_instance import ServerInstance
from hermes.server.turns.stored_responses import ResponseStore
from hermes.server.turns.turn_runner import TurnRunner

LAST_SECONDS = 5.0
"""For interrupted turns to tell their clients."""


class Server:
    """Serves one Runtime. Constructing it opens nothing."""

    def __init__(self, runtime: Runtime, settings: ApiServer) -> None:
        keys = load_keys(settings, runtime.setup.secrets)
        secrets = {*runtime.setup.secrets.redactable_values(), *keys.values()}
        self.runtime = runtime
        self.settings = settings
        self.principals = Principals(settings, keys)
        self.metrics = Metrics()
        self._clean = Redactor(secrets).clean
        self._instance = ServerInstance(runtime.setup.home)
        self._acceptor: Acceptor | None = None
        self.turns = TurnRunner(runtime, settings, self.metrics, self._redact_error)
        self.runs = RunRegistry(self.turns, self._instance)
        self.services = RouteServices(
            runtime=runtime,
            settings=settings,
            model=settings.model_name or _name_model(runtime.setup.profile),
            metrics=self.metrics,
            idempotency=IdempotencyKeys(runtime.store.objects, runtime.spawn),
            turns=self.turns,
            responses=ResponseStore(runtime.store, self._instance, settings),
            runs=self.runs,
        )
        self.metrics.add_gauge("active_turns", lambda: self.turns.slots.active_turns)
        self.metrics.add_gauge("active_runs", lambda: len(self.runs.active))
        self.metrics.add_gauge("connections", lambda: self.connection_count)

    @property
    def connection_count(self) -> int:
        return self._acceptor.total if self._acceptor else 0

    @asynccontextmanager
    async def listen(self, listener: EarlyListener | None = None) -> AsyncIterator[str]:
        """Serve on the port that is open already, or open it; yields the address. On leaving,
        running turns are drained."""
        async with AsyncExitStack() as stack:
            if listener is None:
                listener = await stack.enter_async_context(open_listener(self.settings))
            stack.enter_context(self._instance.mark_running())
            await self.runs.end_abandoned_runs()
            router, names = Router(list_routes()), listener.host_names
            middleware = Middleware(router, self.services, self.principals, names)
            self._acceptor = Acceptor(
                middleware.respond, middleware.record_health_check, names, self.settings
            )
            listener.hand_over(self._acceptor)
            for check in listener.health_checks:
                middleware.record_health_check(check)
            try:
                yield listener.address
            finally:
                self.turns.slots.close()
                listener.close()
                self._acceptor.close_all_idle()
                await self._drain_turns()
                self._acceptor.close_all_idle()
                await self._acceptor.shutdown(1.0)

    async def _drain_turns(self) -> None:
        """Let running turns end for a while; then interrupt them, which their clients are told."""
        slots = self.turns.slots
        if await slots.wait_until_free(self.settings.drain_seconds):
            return
        for run in list(self.runs.active.values()):
            run.interrupt()
        for session in list(self.turns.sessions.active):
            session.interrupt()
        await slots.wait_until_free(LAST_SECONDS)

    def _redact_error(self, error: str) -> str:
        """An error fit for clients: without secrets, and without the path of the home."""
        return self._clean(error).replace(str(self.runtime.setup.home), "HERMES_HOME")


def _name_model(profile: str) -> str:
    return profile if profile and profile != "default" else "hermes-agent"

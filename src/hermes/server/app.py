"""The HTTP server of one Runtime: wires its parts together, listens, and drains on stop."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from hermes.app.control.messengers import Messengers
from hermes.app.runtime import Runtime
from hermes.config.api_server import ApiServer
from hermes.config.instances import announce_instance
from hermes.core.redaction.redactor import Redactor
from hermes.server.http.connection import Acceptor
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

if TYPE_CHECKING:
    from hermes.server.dashboard.dashboard import Dashboard

LAST_SECONDS = 5.0
"""How long interrupted turns have to tell their clients."""


class Server:
    """Serves one Runtime. The constructor opens nothing; `listen` does."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ApiServer,
        describe_gateway: Callable[[], dict[str, Any] | None] = lambda: None,
        open_messengers: Callable[[], Messengers] | None = None,
    ) -> None:
        keys = load_keys(settings, runtime.setup.secrets)
        secrets = {*runtime.setup.secrets.redactable_values(), *keys.values()}
        self.runtime = runtime
        self.settings = settings
        self.principals = Principals(settings, keys)
        self.metrics = Metrics()
        self._clean = Redactor(secrets).redact
        self._instance = ServerInstance(runtime.setup.home)
        self._acceptor: Acceptor | None = None
        self.turns = TurnRunner(runtime, settings, self.metrics, self._instance, self._redact_error)
        objects, profile = runtime.store.objects, runtime.setup.profile
        named_profile = "" if profile == "default" else profile
        self.runs = RunRegistry(self.turns, objects, runtime.spawn_task, self._instance)
        dashboard = self._open_dashboard(open_messengers)
        self.services = RouteServices(
            runtime=runtime,
            settings=settings,
            model=settings.model_name or named_profile or "hermes-agent",
            metrics=self.metrics,
            turns=self.turns,
            responses=ResponseStore(runtime.store, self._instance, settings),
            runs=self.runs,
            routes=list_routes(dashboard=dashboard is not None),
            describe_gateway=describe_gateway,
            open_messengers=open_messengers,
            dashboard=dashboard,
        )
        self.metrics.add_gauge("active_turns", lambda: self.turns.slots.active_turns)
        self.metrics.add_gauge("active_runs", lambda: len(self.runs.active))
        self.metrics.add_gauge("connections", lambda: self.connection_count)

    @property
    def connection_count(self) -> int:
        return self._acceptor.total if self._acceptor else 0

    @asynccontextmanager
    async def listen(self, listener: EarlyListener | None = None) -> AsyncIterator[str]:
        """Serve on `listener`, or on a port opened here; yields the address. Leaving the block
        drains the running turns."""
        async with AsyncExitStack() as stack:
            if listener is None:
                listener = await stack.enter_async_context(open_listener(self.settings))
            stack.enter_context(self._instance.mark_running())
            await self.runs.end_abandoned_runs()
            await self.turns.failures.load_failures()
            router, names = Router(self.services.routes), listener.host_names
            dashboard = self.services.dashboard
            if dashboard is not None:
                stack.push_async_callback(dashboard.close)
                stack.enter_context(
                    announce_instance(self.runtime.setup.home, "dashboard", listener.address)
                )
                dashboard.cookie_name = f"hermes-{listener.address.rpartition(':')[2]}"
                names |= {dashboard.public_host} - {""}
            middleware = Middleware(router, self.services, self.principals, names)
            self._acceptor = Acceptor(
                middleware.respond, middleware.record_health_check, names, self.settings
            )
            listener.hand_over(self._acceptor)
            for check in listener.health_checks:
                middleware.record_health_check(check)
            if dashboard is not None:
                from hermes.server.session_access import resume_queue

                resuming = resume_queue(self.services, self.principals)
                self.runtime.spawn_task(resuming, "messages of before")
            try:
                yield listener.address
            finally:
                self.turns.slots.close()
                if dashboard is not None:
                    dashboard.end_feeds()
                listener.close()
                self._acceptor.close_all_idle()
                await self._drain_turns()
                self._acceptor.close_all_idle()
                await self._acceptor.shutdown(1.0)

    async def _drain_turns(self) -> None:
        """Wait for running turns to end; interrupt those that take longer than `drain_seconds`."""
        slots = self.turns.slots
        if await slots.wait_until_free(self.settings.drain_seconds):
            return
        for run in list(self.runs.active.values()):
            run.interrupt()
        for session in list(self.turns.sessions.active):
            session.interrupt()
        if self.services.dashboard is not None:
            self.services.dashboard.live.conversations.interrupt_all()
        await slots.wait_until_free(LAST_SECONDS)

    def _open_dashboard(
        self, open_messengers: Callable[[], Messengers] | None
    ) -> "Dashboard | None":
        settings = self.runtime.setup.config.dashboard
        if not settings.enabled:
            return None
        from hermes.server.dashboard.dashboard import Dashboard

        return Dashboard(self.runtime, settings, self.principals, open_messengers)

    def _redact_error(self, error: str) -> str:
        """Remove secrets and the path of the home from an error message for clients."""
        return self._clean(error).replace(str(self.runtime.setup.home), "HERMES_HOME")

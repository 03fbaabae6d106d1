"""The HTTP server of one Runtime: wires its parts together, listens, and drains on stop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
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
from hermes.server.http.tenant_access import TenantAccess
from hermes.server.middleware import Middleware
from hermes.server.nodes.node_work import NodeWork
from hermes.server.nodes.run_recovery import RunRecovery
from hermes.server.route import Router, RouteServices
from hermes.server.routes import IMPORTS, list_routes
from hermes.server.runs.runs import RunRegistry
from hermes.server.turns.server_instance import NodeInstance, ServerInstance
from hermes.server.turns.stored_responses import ResponseStore
from hermes.server.turns.turn_runner import TurnRunner

if TYPE_CHECKING:
    from hermes.app.cluster.node import ClusterNode
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
        node: "ClusterNode | None" = None,
    ) -> None:
        """`node`: this server as one of a cluster."""
        keys = load_keys(settings, runtime.setup.secrets)
        secrets = {*runtime.setup.secrets.redactable_values(), *keys.values()}
        self.runtime = runtime
        self.settings = settings
        self.principals = Principals(settings, keys)
        self.metrics = Metrics()
        self._clean = Redactor(secrets).redact
        self._instance = ServerInstance(runtime.setup.home)
        if node is not None:
            lease = node.lease
            self._instance = NodeInstance(runtime.setup.home, lease.acquire(), lease.is_alive)
            self._instance.has_own_files = node.has_own_files
        self._acceptor: Acceptor | None = None
        tenants = TenantAccess(node.limits, settings.tool_execution) if node is not None else None
        self.turns = TurnRunner(
            runtime, settings, self.metrics, self._instance, self._redact_error, tenants
        )
        objects, profile = runtime.store.objects, runtime.setup.profile
        named_profile = "" if profile == "default" else profile
        self.runs = RunRegistry(self.turns, objects, runtime.spawn_task, self._instance)
        find_principal = self.principals.find_by_name
        self._recovery = RunRecovery(self.runs, self.turns, objects, self._instance, find_principal)
        self.work = NodeWork(node, self.runs, self._recovery, self.turns) if node else None
        dashboard = self._open_dashboard(open_messengers)
        self.services = RouteServices(
            runtime=runtime,
            settings=settings,
            model=settings.model_name or named_profile or "hermes-agent",
            metrics=self.metrics,
            turns=self.turns,
            responses=ResponseStore(runtime.store, self._instance, settings),
            runs=self.runs,
            list_routes=partial(list_routes, dashboard=dashboard is not None),
            describe_gateway=describe_gateway,
            open_messengers=open_messengers,
            dashboard=dashboard,
            run_orders=self.work.orders if self.work else None,
            find_obstacle=self._find_obstacle,
            find_failure=lambda: node.notices.failure if node is not None else None,
        )
        self._node = node
        if node is not None:
            self.metrics.add_gauge("cluster_takeovers", lambda: self.runs.takeovers)
            add_node_gauges(self.metrics, node)
            runtime.agents.cooldowns.shared = node.keys
            self.turns.marks = node.calls
            self.turns.sessions.join_nodes(node.turn_locks)
            self.turns.sessions.folders = node.open_folders(runtime.setup)
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
            self._begin_work(stack)
            if self.work is not None and self.work.is_worker:
                self.work.begin_worker(self.runtime.spawn_task)
            await self.turns.failures.load_failures()
            dashboard, names = self.services.dashboard, listener.host_names
            router = Router(list_routes(), () if dashboard is None else IMPORTS)
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

    @asynccontextmanager
    async def run_waiting(
        self, queues: Sequence[str] = (), *, until_idle: bool = False
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Answer what waits for sessions, without a port; the task ends when there is nothing more
        to do. Leaving the block hands over what still runs."""
        assert self.work is not None
        async with AsyncExitStack() as stack:
            await self.turns.failures.load_failures()
            self._begin_work(stack)
            yield self.work.begin_worker(self.runtime.spawn_task, queues, until_idle=until_idle)
            self.turns.slots.close()
            await self._drain_turns()

    def _begin_work(self, stack: AsyncExitStack) -> None:
        """Continue the runs of servers that have died; as a node, share all of them."""
        spawn = self.runtime.spawn_task
        if self.work is None:
            spawn(self._recovery.continue_runs(), "runs of before")
            return
        for name, work in self.work.list_services():
            stack.callback(spawn(work, name).cancel)

    async def _drain_turns(self) -> None:
        """Wait for running turns to end; interrupt those that take longer than `drain_seconds`.
        A node hands its runs over after the step that runs now."""
        slots, patience = self.turns.slots, self.settings.drain_seconds
        if self._node is not None:
            patience = self._node.settings.drain_seconds
        if self.work is not None:
            await self.work.hand_over()
        if not await slots.wait_until_free(patience):
            await self._interrupt_turns()
        if self.work is not None:
            await self.work.wait_for_worker()

    async def _interrupt_turns(self) -> None:
        slots = self.turns.slots
        for run in list(self.runs.active.values()):
            run.leave()
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

    def _find_obstacle(self) -> str:
        """Why clients should turn to another server; empty: nothing is in the way."""
        if self.turns.slots.closed:
            return "draining"
        return self._node.find_obstacle() if self._node is not None else ""

    def _redact_error(self, error: str) -> str:
        """Remove secrets and the path of the home from an error message for clients."""
        return self._clean(error).replace(str(self.runtime.setup.home), "HERMES_HOME")


def add_node_gauges(metrics: Metrics, node: "ClusterNode") -> None:
    """What is measured of the database of a cluster."""
    writer, sessions = node.store.database.writer, node.store.sessions
    metrics.add_gauge("cluster_fenced_writes", lambda: sessions.fenced_writes)
    metrics.add_gauge("cluster_write_groups", lambda: writer.groups)
    metrics.add_gauge("cluster_written_jobs", lambda: writer.jobs_written)
    metrics.add_gauge("cluster_write_seconds", lambda: writer.seconds)
    metrics.add_gauge("cluster_group_size", lambda: writer.jobs_written / max(1, writer.groups))
    metrics.add_gauge("cluster_queue_depth", lambda: node.queue.depth)
    metrics.add_gauge("cluster_oldest_wait_seconds", lambda: node.queue.oldest_wait)
    metrics.add_gauge("cluster_database_seconds", lambda: node.queue.database_seconds)
    metrics.measure = node.measure_queue

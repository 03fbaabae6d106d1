"""One node of a cluster: its store, its lease, and what other nodes see of it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import json, structs

from hermes.app.cluster.owner_streams import OwnerStreams
from hermes.app.cluster.singleton import Serve, Singleton
from hermes.config.load import Setup
from hermes.config.paths import find_working_folder
from hermes.config.schema import Config
from hermes.core.errors import ConfigError, StoreError
from hermes.version import VERSION

if TYPE_CHECKING:
    from hermes.app.cluster.session_folders import SessionFolders
    from hermes.store.postgres.engine import Answer, Wake
    from hermes.store.postgres.store import PostgresStore

CLUSTER_KEY = "HERMES_CLUSTER_KEY"
"""The variable with what seals the logins that nodes share."""
EXIT_LATE = 75
"""The exit status of a node that was stopped for longer than its lease: it may be started again."""
_RETRY_SECONDS = 0.5
_MEASURE_SECONDS = 1.0
"""Figures are asked for most when the database is slow: then the last ones are shown."""
_SWEEP_SECONDS = 3600.0
_WAKES_AT_A_TIME = 200
"""Sessions that are woken anew without a node having died."""
log = logging.getLogger(__name__)


class _TableCare:
    """When what was last done."""

    def __init__(self) -> None:
        self.is_first = True
        self.died = self.reaped = self.looked = time.monotonic()
        self.swept = -_SWEEP_SECONDS

    def is_busy(self, lease: float) -> bool:
        """Whether a node has died lately: a worker counts as dead a little later, if at all."""
        return time.monotonic() - self.died < 2 * lease


def require_database(setup: Setup) -> str:
    """The address of the cluster's database; ConfigError without one, or without the driver."""
    url = setup.database_url
    if not url:
        raise ConfigError(
            "There is no cluster: its database is not configured. Nothing was changed. Set "
            f"{setup.config.cluster.database_env or 'cluster.database'}, for example to "
            "postgresql://user:password@host/name."
        )
    if not all(map(find_spec, ("psycopg", "procrastinate"))):
        raise ConfigError(
            "A cluster needs the extra `cluster`, which is not installed. Nothing was changed. "
            "Run: pip install 'hermes-runtime[cluster]'"
        )
    return url


def place_workspaces(setup: Setup) -> Setup:
    """The setup of a node: its sessions work in the folder that all nodes share."""
    kind, _, folder = setup.config.cluster.workspaces.partition(":")
    if kind != "shared":
        return setup
    if not Path(folder).is_dir():
        raise ConfigError(
            f"{folder} is not a folder (cluster.workspaces). Nothing was changed. Mount the shared "
            "disk there, or name another folder."
        )
    terminal = structs.replace(setup.config.terminal, cwd=folder)
    return structs.replace(setup, config=structs.replace(setup.config, terminal=terminal))


class ClusterNode:
    """This process as one of the nodes. Its row is written when it starts and deleted when it
    ends; a killed node's lease ends by itself."""

    def __init__(self, setup: Setup, roles: Sequence[str] = ()) -> None:
        """`roles`: others than the configured ones."""
        url = require_database(setup)
        from hermes.store.postgres.database import TenantDatabase
        from hermes.store.postgres.engine import ProcrastinateEngine
        from hermes.store.postgres.inbox import PostgresInbox
        from hermes.store.postgres.nodes import QueueRecord
        from hermes.store.postgres.notices import NodeNotices
        from hermes.store.postgres.shared.calls import PostgresCalls
        from hermes.store.postgres.shared.keys import PostgresKeys
        from hermes.store.postgres.shared.singletons import SingletonTable
        from hermes.store.postgres.shared.turn_locks import TurnLocks
        from hermes.store.postgres.shared_limits import SharedLimits
        from hermes.store.postgres.store import open_postgres

        self.settings = cluster = setup.config.cluster
        self.roles = tuple(roles) or cluster.roles
        self.has_own_files = cluster.workspaces in ("none", "snapshot")
        """Whether the files of a session are on the node that ran it."""
        self.store: PostgresStore = open_postgres(
            url,
            node=cluster.node,
            lease_seconds=cluster.lease_seconds,
            patience=cluster.patience_seconds,
        )
        self.lease = self.store.database.lease
        self.notices = NodeNotices(url, self.lease.node)
        self.engine = ProcrastinateEngine(url, cluster.lease_seconds, self.notices)
        rows = TenantDatabase(self.store.database, None)
        self.calls = PostgresCalls(rows)
        self.turn_locks = TurnLocks(rows)
        self.inbox = PostgresInbox(
            rows,
            self.engine.defer,
            limit=cluster.inbox,
            stays_at_node=self.has_own_files,
        )
        self.limits = SharedLimits(self.store.database, self.inbox.wake_inside)
        cluster_key = setup.secrets.get(CLUSTER_KEY) or ""
        self.keys = PostgresKeys(self.store.database, cluster_key)
        self.streams = OwnerStreams(self.lease.node, self._find_address)
        self.singletons: dict[str, Singleton] = {}
        self._singleton_table = SingletonTable(self.store.database, self.engine.defer)
        self.queue = QueueRecord()
        """As it was last measured."""
        self._digest = _hash_config(setup.config)

    async def join_cluster(self, on_drain: Callable[[], None]) -> None:
        """Show this node to the others. `on_drain` is called when somebody wants it to end."""
        loop = asyncio.get_running_loop()
        self.lease.on_late = _exit_late

        def tell_loop() -> None:
            loop.call_soon_threadsafe(on_drain)

        self.lease.on_drain = tell_loop
        cluster = self.settings
        described = {
            "address": cluster.address,
            "roles": ",".join(self.roles),
            "version": VERSION,
            "digest": self._digest,
        }
        deadline = loop.time() + 2 * cluster.lease_seconds
        while True:
            try:
                return await asyncio.to_thread(self.lease.describe_node, described)
            except StoreError as error:
                # This node may have been killed, and its lease not be over yet.
                if error.code != "in_use" or loop.time() >= deadline:
                    raise
            await asyncio.sleep(_RETRY_SECONDS)

    async def work(
        self, answer: Answer, *, queues: Sequence[str] = (), until_idle: bool = False
    ) -> None:
        """Answer the wakes of sessions until the node is drained; with `until_idle` until none is
        left. `queues`: others than the common one and that of this node."""
        for singleton in self.singletons.values():
            await singleton.announce()

        async def answer_any(wake: Wake) -> None:
            singleton = self.singletons.get(wake.session) if wake.queue == SINGLETONS else None
            await (answer(wake) if singleton is None else singleton.hold())

        from hermes.store.postgres.engine import SINGLETONS

        await self.engine.run(
            answer_any,
            queues=queues or self.list_queues(),
            turns=self.settings.turns + len(self.singletons),
            until_idle=until_idle,
        )

    def list_queues(self) -> tuple[str, ...]:
        """What this node works on."""
        from hermes.store.postgres.engine import SINGLETONS, TURNS, node_queue

        found = (TURNS, node_queue(self.lease.node)) if "worker" in self.roles else ()
        return (*found, SINGLETONS) if self.singletons else found

    def add_singleton(self, name: str, serve: Serve) -> None:
        """Take part in doing something that one node does at a time."""
        self.singletons[name] = Singleton(name, serve, self._singleton_table, self.lease)

    async def bury_dead(self) -> None:
        """Clear up after dead nodes as soon as they are found: nothing of what they ran belongs to
        them any more, and others are woken for it."""
        loop, found = asyncio.get_running_loop(), asyncio.Event()

        def tell_loop() -> None:
            loop.call_soon_threadsafe(found.set)

        self.lease.on_dead = tell_loop
        care = _TableCare()
        while True:
            found.clear()
            try:
                if self.lease.is_steady:  # otherwise the others could not renew theirs either
                    await self._care_for_tables(care)
            except Exception as error:  # noqa: BLE001 - the database is away; the next look is due
                log.warning("dead nodes could not be looked for: %s", error)
            pause = self.lease.seconds / 5
            if care.is_busy(self.lease.seconds):
                pause = min(pause, _RETRY_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await found.wait()

    async def _care_for_tables(self, care: _TableCare) -> None:
        from hermes.store.postgres.inbox import has_unwoken, renew_wakes
        from hermes.store.postgres.nodes import delete_old_events, remove_dead_owners
        from hermes.store.postgres.shared.turn_locks import remove_dead_locks
        from hermes.store.postgres.tenants import clear_removed_tenants

        database, lease = self.store.database, self.lease.seconds
        dead = self.lease.take_dead()
        if dead or care.is_first:
            remove = partial(remove_dead_owners, owners=dead)
            await asyncio.to_thread(self.lease.run_query, remove)
            renew = partial(renew_wakes, defer=self.engine.defer)
            for work in (remove_dead_locks, renew):
                await asyncio.to_thread(database.run_apart, work)
            care.is_first = False
        now = time.monotonic()
        care.died = now if dead else care.died
        if care.is_busy(lease) or now - care.reaped > 2 * lease:
            care.reaped = now
            await self.engine.reap()
        if now - care.looked > lease:
            care.looked = now
            if await database.read(has_unwoken):
                some = partial(
                    renew_wakes, defer=self.engine.defer, most=_WAKES_AT_A_TIME, of_tenant=1
                )
                await asyncio.to_thread(database.run_apart, some)
        if now - care.swept > _SWEEP_SECONDS:
            care.swept = now
            delete_old = partial(delete_old_events, hours=self.settings.events_hours)
            for work in (delete_old, clear_removed_tenants):
                await asyncio.to_thread(database.run_apart, work)

    def open_folders(self, setup: Setup) -> SessionFolders | None:
        """The folders of sessions, where they are to follow them."""
        if self.settings.workspaces != "snapshot":
            return None
        from hermes.app.cluster.session_folders import SessionFolders
        from hermes.store.postgres.database import TenantDatabase
        from hermes.store.postgres.shared.snapshots import SnapshotTable

        return SessionFolders(
            SnapshotTable(TenantDatabase(self.store.database, None)),
            find_working_folder(setup.config.terminal.cwd),
            setup.home / "run" / "snapshots",
            node=self.lease.node,
            limit_mb=self.settings.snapshot_mb,
        )

    async def measure_queue(self) -> None:
        """Look how much waits and how fast the database answers; without it nothing changes."""
        from hermes.store.postgres.nodes import measure_queue

        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_MEASURE_SECONDS):
                self.queue = await self.store.database.read(lambda db: measure_queue(db.db))

    async def _find_address(self, node: str) -> str:
        """How to reach a living node; empty: it has not said so."""
        from hermes.store.postgres.nodes import find_address

        return await self.store.database.read(lambda db: find_address(db.db, node))

    def find_obstacle(self) -> str:
        """Why requests should go to other nodes; empty: nothing is in the way."""
        if self.lease.draining:
            return "draining"
        is_cut_off = self.lease.is_late or self.notices.failure is not None
        return "cut_off" if is_cut_off else ""


def _hash_config(config: Config) -> str:
    """The same on all nodes that behave alike: without what each has for itself."""
    own = structs.replace(config.cluster, node="", address="", roles=())
    alike = structs.replace(config, cluster=own)
    return hashlib.sha256(json.encode(alike)).hexdigest()[:12]


def _exit_late() -> None:
    """What this process runs belongs to other nodes by now: it must not do anything more."""
    log.error("this node was stopped for longer than its lease; it ends")
    os._exit(EXIT_LATE)

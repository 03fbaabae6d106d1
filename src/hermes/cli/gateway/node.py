"""The messengers and the schedule of a cluster, in a process that is one of its nodes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.agent.loop import NODE_DIED, CutTurn
from hermes.app.cluster.node import ClusterNode, place_workspaces
from hermes.app.runtime import Runtime
from hermes.cli.main import print_stderr
from hermes.cli.process import SignalHandler, tune_garbage_collection
from hermes.config.api_server import ApiServer
from hermes.config.instances import announce_instance
from hermes.config.load import Setup
from hermes.gateway.process.messenger_desk import MessengerDesk
from hermes.gateway.service import Gateway
from hermes.server.app import Server

if TYPE_CHECKING:
    from hermes.gateway.hub import OpenPlatform

NAME = "gateway"
Open = Callable[[Runtime], "tuple[OpenPlatform, ...]"]
"""Opens the messengers that are on; ConfigError when none can be."""


async def serve_gateway(
    node: ClusterNode, runtime: Runtime, open_platforms: Open, stop: asyncio.Event
) -> None:
    """Serve messengers and run jobs until the event is set, which one node does at a time."""
    platforms = open_platforms(runtime)
    if not platforms:
        await _run_schedule(runtime, stop)
        return
    gateway = Gateway(runtime, node.store, platforms)
    gateway.hub.cut, settings = CutTurn(NODE_DIED), gateway.hub.settings
    if settings.on_restart == "tell":  # turns that the end of another node cut off go on here
        gateway.hub.settings = structs.replace(settings, on_restart="resume")
    stopping = runtime.spawn_task(_stop_gateway(gateway, stop), "end of the gateway")
    try:
        await gateway.run(partial(print_stderr, f"messengers are served by {node.lease.node}"))
    finally:
        stopping.cancel()
        runtime.chats = None


async def _stop_gateway(gateway: Gateway, stop: asyncio.Event) -> None:
    await stop.wait()
    gateway.request_stop()


async def _run_schedule(runtime: Runtime, stop: asyncio.Event) -> None:
    """Run jobs where there is no messenger."""
    from hermes.cron.heartbeat import announce_scheduler

    scheduler = runtime.scheduled_prompts.create_scheduler()
    with announce_scheduler(runtime.setup.home, NAME) as heartbeat:
        running = runtime.spawn_task(scheduler.run_forever(heartbeat), "schedule")
        await stop.wait()
        scheduler.is_draining = True
        if scheduler.runs:
            await asyncio.wait(
                set(scheduler.runs), timeout=runtime.setup.config.gateway.drain_seconds
            )
        running.cancel()
        await asyncio.wait({running})


async def run_gateway_node(setup: Setup, settings: ApiServer, open_platforms: Open) -> bool:
    """Be a node until a signal; whether it is to be started again."""
    stop, restart = asyncio.Event(), asyncio.Event()
    roles = {role for role in setup.config.cluster.roles if settings.enabled or role != "api"}
    roles.add("gateway")
    node = ClusterNode(setup, tuple(sorted(roles)))
    setup = place_workspaces(setup)

    def request_restart() -> None:
        restart.set()
        stop.set()

    SignalHandler().attach(stop.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, request_restart)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(node.store.close)
        await node.store.wait_until_open()
        await node.join_cluster(stop.set)
        runtime = await stack.enter_async_context(Runtime.open(setup, store=node.store))
        serve = partial(serve_gateway, node, runtime, open_platforms)
        node.add_singleton(NAME, serve)
        stack.enter_context(announce_instance(setup.home, NAME))
        desk = MessengerDesk(setup, node.store)
        server = Server(runtime, settings, desk.describe_gateway, lambda: desk, node)
        tune_garbage_collection()
        if settings.enabled:
            address = await stack.enter_async_context(server.listen())
            print_stderr(f"listening on {address}")
        else:
            await stack.enter_async_context(server.run_waiting())
        print_stderr(f"gateway running as {node.lease.node}")
        await stop.wait()
    return restart.is_set()

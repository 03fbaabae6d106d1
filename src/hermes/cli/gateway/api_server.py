"""The API server inside the gateway's process."""

import asyncio

from hermes.app.runtime import Runtime
from hermes.config import api_server
from hermes.config.api_server import ApiServer
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.gateway.adapter import ConnectionFailure
from hermes.gateway.process.messenger_desk import MessengerDesk
from hermes.gateway.process.supervisor import Supervisor
from hermes.gateway.service import HostedServer
from hermes.store.tables.mailbox import MessengerStore

NAME = "api_server"


def read_api_server(setup: Setup) -> ApiServer | None:
    """The settings of the API server; None when it is off."""
    settings = read_settings(setup)
    return settings if settings.enabled else None


def read_settings(setup: Setup) -> ApiServer:
    variables = {name: setup.secrets.get(name) or "" for name in api_server.VARIABLES}
    return api_server.read_settings(setup.config, variables)[0]


def host_api_server(runtime: Runtime, store: MessengerStore, settings: ApiServer) -> HostedServer:
    async def serve(supervisor: Supervisor) -> None:
        from hermes.server.app import Server
        from hermes.server.http.listener import open_listener

        try:
            desk = MessengerDesk(runtime.setup, store)
            server = Server(runtime, settings, desk.describe_gateway, lambda: desk)
        except ConfigError as error:
            raise ConnectionFailure("unconfigured", str(error), fatal=True) from None
        try:
            async with open_listener(settings) as listener, server.listen(listener):
                supervisor.report_connected()
                await asyncio.Event().wait()
        except ConfigError as error:
            is_taken = "cannot listen" in str(error)
            code = "port_in_use" if is_taken else "unconfigured"
            raise ConnectionFailure(code, str(error), fatal=not is_taken) from None  # type: ignore[arg-type]

    return HostedServer(NAME, serve)

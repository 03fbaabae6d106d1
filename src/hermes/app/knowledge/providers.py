"""Chooses the memory provider that the configuration names."""

import asyncio
from collections.abc import Mapping

from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.core.store import Store
from hermes.memory.provider import HTTP, HttpProvider, MemoryProvider, ProviderFailed

_ALONE = "The memory of this machine is used alone."


def open_provider(setup: Setup, registered: Mapping[str, MemoryProvider]) -> MemoryProvider:
    """The configured provider; ConfigError when there is none of that name, or it lacks something.
    `registered`: those of plugins."""
    name, http = setup.config.memory.provider, setup.config.memory.http
    if name != HTTP:
        if name in registered:
            return registered[name]
        raise ConfigError(f"No plugin offers the memory provider {name}. {_ALONE}")
    if not http.url:
        raise ConfigError(f"memory.http.url is not set. {_ALONE}")
    key = setup.secrets.get(http.api_key_env) if http.api_key_env else ""
    if key is None:
        raise ConfigError(f"{http.api_key_env} is not set (environment or .env). {_ALONE}")
    return HttpProvider(http.url, key, http.timeout_seconds)


async def deliver_waiting(setup: Setup, store: Store) -> None:
    """Deliver what waits, for a command that has no conversation; what a provider of a plugin is to
    be told waits for one."""
    if setup.config.memory.provider != HTTP:
        return
    from hermes.memory.delivery_queue import DeliveryQueue
    from hermes.memory.external_memory import ExternalMemory

    queue = DeliveryQueue(store, setup.home, open_provider(setup, {}))
    external = ExternalMemory(
        queue,
        setup.config.memory.http.timeout_seconds,
        lambda work, name: asyncio.create_task(work),
    )
    external.begin_delivery()
    await external.close()


async def check_provider(setup: Setup) -> str:
    """Whether the configured provider can be used, in words."""
    name = setup.config.memory.provider
    if name != HTTP:
        return f"{name}, of a plugin"
    try:
        provider = open_provider(setup, {})
    except ConfigError as error:
        return f"failed: {error}"
    try:
        await provider.check_health()
    except ProviderFailed as error:
        return f"failed: {error}"
    finally:
        await provider.close()
    return "ok"

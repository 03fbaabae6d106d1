"""What the configuration makes of web access: the door, and a search service behind it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from msgspec import Struct

from hermes.config.schema import Web as Settings
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError, ToolError
from hermes.net.errors import EgressError
from hermes.net.fetcher import Door
from hermes.net.search.base import Asked, Backend, Hit, usable
from hermes.net.url import parse

BACKENDS = ("searxng", "brave", "tavily", "exa", "duckduckgo")


class Web(Struct, frozen=True):
    """One per process."""

    door: Door
    find: Callable[[str, int], Any]
    """(query, count) -> an awaitable list of hits."""


def open_web(settings: Settings, secrets: Secrets, **hooks: Any) -> Web:
    """`hooks` are those of Door."""
    try:
        door = Door(allow=settings.allow_hosts, **hooks)
    except EgressError as error:
        raise ConfigError(f"web.allow_hosts takes host or host:port. {error}") from None

    async def find(query: str, count: int) -> list[Hit]:
        backend, asked = choose(settings, secrets, query, count)
        inside = Door(allow=[*settings.allow_hosts, _place(asked.base_url)], **hooks)
        return usable(await backend.search(inside, asked), count)

    return Web(door, find)


def choose(settings: Settings, secrets: Secrets, query: str, count: int) -> tuple[Backend, Asked]:
    """The configured backend, or the first one that has what it needs."""
    search = settings.search
    name = search.backend or _likely(settings, secrets)
    if not name:
        raise ToolError(
            f"No search service is set: set web.search.backend to {', '.join(BACKENDS)} "
            "(duckduckgo needs nothing else)."
        )
    backend = load(name)
    key_name = search.api_key_env or backend.key_env
    key = (secrets.get(key_name) if key_name else None) or ""
    if key_name and not key:
        raise ToolError(
            f"The search service {name} needs a key: put it in .env as {key_name}, "
            "or name another variable in web.search.api_key_env."
        )
    base = (search.base_url or backend.base_url).rstrip("/")
    if not base:
        raise ToolError(f"The search service {name} needs its address: set web.search.base_url.")
    return backend, Asked(query, count, base, key, key_name)


def load(name: str) -> Backend:
    found = import_module(f"hermes.net.search.{name}").BACKEND
    assert isinstance(found, Backend)
    return found


def _likely(settings: Settings, secrets: Secrets) -> str:
    if settings.search.base_url:
        return "searxng"
    keyed = (load(name) for name in BACKENDS)
    return next((b.name for b in keyed if b.key_env and secrets.get(b.key_env)), "")


def _place(base_url: str) -> str:
    """The operator wrote this address, so it may be an internal one."""
    at = parse(base_url + "/")
    return f"[{at.host}]:{at.port}" if ":" in at.host else f"{at.host}:{at.port}"

"""Web access as configured: a fetcher and a search service."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from msgspec import Struct

from hermes.config.schema import WebSection as Settings
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError, ToolError
from hermes.net.errors import EgressError
from hermes.net.fetcher import WebFetcher
from hermes.net.search.base import SearchBackend, SearchHit, SearchRequest, filter_hits
from hermes.net.url import parse_url

BACKEND_NAMES = ("searxng", "brave", "tavily", "exa", "duckduckgo")


class WebAccess(Struct, frozen=True):
    """One per process."""

    fetcher: WebFetcher
    search: Callable[[str, int], Any]
    """(query, count) -> an awaitable list of hits."""


def open_web_access(settings: Settings, secrets: Secrets, **hooks: Any) -> WebAccess:
    """`hooks`: parameters of WebFetcher that tests replace."""
    try:
        fetcher = WebFetcher(allow=settings.allow_hosts, **hooks)
    except EgressError as error:
        raise ConfigError(f"web.allow_hosts takes host or host:port. {error}") from None

    async def search_web(query: str, count: int) -> list[SearchHit]:
        backend, request = choose_backend(settings, secrets, query, count)
        allow = [*settings.allow_hosts, _host_and_port(request.base_url)]
        return filter_hits(await backend.search(WebFetcher(allow=allow, **hooks), request), count)

    return WebAccess(fetcher, search_web)


def choose_backend(
    settings: Settings, secrets: Secrets, query: str, count: int
) -> tuple[SearchBackend, SearchRequest]:
    """The configured backend, or the first one that has its key or URL."""
    search = settings.search
    name = search.backend or _find_usable_backend(settings, secrets)
    if not name:
        raise ToolError(
            f"No search service is set up: set web.search.backend to {', '.join(BACKEND_NAMES)} "
            "(duckduckgo needs nothing else)."
        )
    backend = load_backend(name)
    key_name = search.api_key_env or backend.key_env
    key = (secrets.get(key_name) if key_name else None) or ""
    if key_name and not key:
        raise ToolError(
            f"The search service {name} needs a key: put it in .env as {key_name}, "
            "or name another variable in web.search.api_key_env."
        )
    base = (search.base_url or backend.base_url).rstrip("/")
    if not base:
        raise ToolError(f"The search service {name} needs its URL: set web.search.base_url.")
    return backend, SearchRequest(query, count, base, key, key_name)


def load_backend(name: str) -> SearchBackend:
    found = import_module(f"hermes.net.search.{name}").BACKEND
    assert isinstance(found, SearchBackend)
    return found


def _find_usable_backend(settings: Settings, secrets: Secrets) -> str:
    if settings.search.base_url:
        return "searxng"
    keyed = (load_backend(name) for name in BACKEND_NAMES)
    return next((b.name for b in keyed if b.key_env and secrets.get(b.key_env)), "")


def _host_and_port(base_url: str) -> str:
    """For the list of allowed hosts: the operator set this URL, so it may be an internal one."""
    url = parse_url(base_url + "/")
    return f"[{url.host}]:{url.port}" if ":" in url.host else f"{url.host}:{url.port}"

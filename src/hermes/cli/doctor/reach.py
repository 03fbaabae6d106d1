"""The model and where commands run: whether they are there."""

from __future__ import annotations

import asyncio
import re
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

from hermes.cli.doctor.check import Check, State
from hermes.config.env import proxy_for
from hermes.config.load import Setup
from hermes.core.errors import ConfigError, HermesError
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.local_servers import choose_model
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.hosts import is_usual_server
from hermes.llm.http.transport import EMBEDDED

_CONNECT = 3.0
_SKEW = 300.0


async def models(setup: Setup, *, online: bool) -> list[Check]:
    """What a conversation would be led with, and whether it is there."""
    choice = await choose_model(setup.config, setup.secrets, ModelChoice())
    try:
        endpoints = resolve_chain(setup.config, setup.secrets, choice)
    except ConfigError as error:
        return [Check("model", "failed", str(error))]
    return [_model(endpoints), *await _providers(endpoints, online=online)]


def _model(endpoints: list[ModelEndpoint]) -> Check:
    first, *rest = endpoints
    details = [f"falls back to {e.target.provider}:{e.target.model}" for e in rest]
    keys = ", ".join(key.source for key in first.keys) or "no key"
    target = f"{first.target.provider}:{first.target.model}"
    if first.base_url.startswith(EMBEDDED):
        return _embedded(target, first.base_url, details)
    text = f"{target} at {_shown(first.base_url)} ({first.target.wire}, {keys}); not called"
    return Check("model", "ok", text, tuple(details))


def _embedded(target: str, base_url: str, details: list[str]) -> Check:
    from hermes.llm.endpoints.embedded import missing_model
    from hermes.llm.local.uri import parse_uri

    if lacking := missing_model(base_url):
        size = f"{lacking.size / 1e6:,.0f} MB"
        text = (
            f"{target} is downloaded when it is first needed, {size}; hermes setup connects others"
        )
        return Check("model", "note", text, tuple(details))
    place, _ = parse_uri(base_url)
    return Check("model", "ok", f"{target}, {place.file}; not started", tuple(details))


def _shown(base_url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", base_url)


async def _providers(endpoints: list[ModelEndpoint], *, online: bool) -> list[Check]:
    """The one that is called must be there; fallbacks only should."""
    remote = [e for e in endpoints if not e.base_url.startswith(EMBEDDED)]
    ask = _asked if online else _connected
    found = await asyncio.gather(*(ask(endpoint) for endpoint in remote))
    return [
        Check(check.name, "note", check.text, check.details)
        if check.state == "failed" and endpoint is not endpoints[0]
        else check
        for check, endpoint in zip(found, remote, strict=True)
    ]


async def _connected(endpoint: ModelEndpoint) -> Check:
    """A connection and no more: not a byte is sent."""
    name = f"provider {endpoint.target.provider}"
    through = None if is_usual_server(endpoint.base_url) else proxy_for(endpoint.base_url)
    parts = urlsplit(through or endpoint.base_url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    where = f"{host}:{port}" + (" (the proxy)" if through else "")
    began = time.monotonic()
    try:
        async with asyncio.timeout(_CONNECT):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return Check(name, "failed", f"{where} does not answer within {_CONNECT:.0f} s")
    except (OSError, UnicodeError) as error:
        return Check(name, "failed", f"{where} cannot be reached: {_why(error)}")
    writer.close()
    took = (time.monotonic() - began) * 1000
    text = f"{where} can be reached ({took:.0f} ms); --online asks it, too"
    return Check(name, "ok", text)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


async def _asked(endpoint: ModelEndpoint) -> Check:
    """For its list of models, which costs nothing and takes the key."""
    from hermes.llm.client import Client
    from hermes.llm.http.transport import Transport

    name = f"provider {endpoint.target.provider}"
    transport = Transport()
    try:
        listed = await Client(endpoint, transport).listing.check_access()
    finally:
        await transport.close()
    if listed.problem:
        return Check(name, "failed", listed.problem)
    status, details = listed.status, _skewed(listed.date)
    if status in (401, 403):
        keys = ", ".join(key.source for key in endpoint.keys) or "no key"
        return Check(name, "failed", f"it refuses the key ({status}, {keys})", details)
    if status >= 500:
        return Check(name, "failed", f"it answers {status}: it has a problem of its own", details)
    if status == 200:
        return Check(name, "note" if details else "ok", "it answers and takes the key", details)
    return Check(name, "ok", f"it answers ({status} to a list of models)", details)


def _skewed(date: str) -> tuple[str, ...]:
    """The provider's clock against ours."""
    try:
        apart = time.time() - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return ()
    if abs(apart) < _SKEW:
        return ()
    way = "ahead of" if apart > 0 else "behind"
    return (f"the clock here is {abs(apart) / 60:.0f} min {way} the provider's: set it",)


async def backend(setup: Setup) -> Check:
    """Tried for real: a container is made and removed, or a host connected to."""
    from hermes.app.backends import Places
    from hermes.config.env import child_env
    from hermes.exec.process.local import stop_all

    name = f"terminal backend {setup.config.terminal.backend}"
    places = Places(setup, child_env(setup.secrets))
    place = places.place("doctor", Path.cwd(), setup.config.sandbox.mode)
    assert place is not None
    try:
        text = await place.check()
        confined = await place.confined()
    except HermesError as error:
        return Check(name, "failed", str(error).removesuffix(" Nothing was run."))
    finally:
        await places.close()
        await stop_all()
    if confined:
        return Check(name, "ok", f"{text}; commands are confined to it")
    state: State = "failed" if setup.config.sandbox.required else "note"
    return Check(name, state, f"{text}; what does not only read asks")

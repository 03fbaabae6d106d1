"""Checks of what is called: the model, its provider, and the backend that runs commands."""

import asyncio
import re
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

from hermes.app.backends import Backends
from hermes.app.control.doctor.check import Check, CheckState
from hermes.config.env import build_child_env, find_proxy
from hermes.config.load import Setup
from hermes.core.errors import ConfigError, HermesError
from hermes.exec.backends.remote import NotRun
from hermes.exec.process.local import stop_left_running
from hermes.llm.client import Client
from hermes.llm.endpoints.embedded import find_missing_model
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.local_servers import choose_model
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.hosts import is_usual_server
from hermes.llm.http.transport import Transport
from hermes.llm.local.uri import is_embedded_endpoint, parse_uri

_CONNECT_SECONDS = 3.0
_MAX_SKEW_SECONDS = 300.0


async def check_models(setup: Setup, *, online: bool) -> list[Check]:
    """The models of a new conversation, and whether their providers can be reached."""
    choice = await choose_model(setup.config, setup.secrets, ModelChoice())
    try:
        endpoints = resolve_chain(setup.config, setup.secrets, choice)
    except ConfigError as error:
        return [Check("model", "failed", str(error))]
    return [_describe_model(endpoints), *await _check_providers(endpoints, online=online)]


def _describe_model(endpoints: list[ModelEndpoint]) -> Check:
    first, *fallbacks = endpoints
    details = [f"falls back to {e.target.provider}:{e.target.model}" for e in fallbacks]
    keys = ", ".join(key.source for key in first.keys) or "no key"
    target = f"{first.target.provider}:{first.target.model}"
    if model := find_missing_model(first.base_url):
        size = f"{model.size / 1e6:,.0f} MB"
        text = f"{target} is downloaded on first use ({size}); for another model run: hermes setup"
        return Check("model", "note", text, tuple(details))
    if is_embedded_endpoint(first.base_url):
        text = f"{target}, {parse_uri(first.base_url)[0].file}; not started"
    else:
        address = re.sub(r"//[^/@]*@", "//", first.base_url)  # without a password
        text = f"{target} at {address} ({first.target.wire}, {keys}); not called"
    return Check("model", "ok", text, tuple(details))


async def _check_providers(endpoints: list[ModelEndpoint], *, online: bool) -> list[Check]:
    """The first provider must be reachable; a fallback that is not is only noted."""
    remote = [e for e in endpoints if not is_embedded_endpoint(e.base_url)]
    check_provider = _list_models if online else _connect_to_provider
    found = await asyncio.gather(*(check_provider(endpoint) for endpoint in remote))
    return [
        Check(check.name, "note", check.text, check.details)
        if check.state == "failed" and endpoint is not endpoints[0]
        else check
        for check, endpoint in zip(found, remote, strict=True)
    ]


async def _connect_to_provider(endpoint: ModelEndpoint) -> Check:
    """Only connects: not a byte is sent."""
    name = f"provider {endpoint.target.provider}"
    proxy = None if is_usual_server(endpoint.base_url) else find_proxy(endpoint.base_url)
    parts = urlsplit(proxy or endpoint.base_url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    where = f"{host}:{port}" + (" (the proxy)" if proxy else "")
    began = time.monotonic()
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return Check(name, "failed", f"{where} did not answer within {_CONNECT_SECONDS:.0f} s")
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Check(name, "failed", f"{where} cannot be reached: {why}")
    writer.close()
    took = (time.monotonic() - began) * 1000
    text = f"{where} can be reached ({took:.0f} ms); test the key with --online"
    return Check(name, "ok", text)


async def _list_models(endpoint: ModelEndpoint) -> Check:
    """Asks for the list of models, which needs the key and costs nothing."""
    name = f"provider {endpoint.target.provider}"
    async with Transport() as transport:
        response = await Client(endpoint, transport).listing.check_access()
    if response.problem:
        return Check(name, "failed", response.problem)
    status = response.status
    details = _describe_skew(response.date)
    if status in (401, 403):
        keys = ", ".join(key.source for key in endpoint.keys) or "no key"
        return Check(name, "failed", f"it rejects the key ({status}, {keys})", details)
    if status >= 500:
        text = f"it answers {status}: the problem is at the provider"
        return Check(name, "failed", text, details)
    if status == 200:
        return Check(name, "note" if details else "ok", "it answers and accepts the key", details)
    return Check(name, "ok", f"it answers ({status} when asked for its models)", details)


def _describe_skew(date: str) -> tuple[str, ...]:
    """Compares the provider's clock with ours."""
    try:
        skew = time.time() - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return ()
    if abs(skew) < _MAX_SKEW_SECONDS:
        return ()
    way = "ahead of" if skew > 0 else "behind"
    return (f"the clock here is {abs(skew) / 60:.0f} min {way} the provider's; set the clock",)


async def check_backend(setup: Setup) -> Check:
    """A real test: creates and removes a container, or connects to a host."""
    name = f"terminal backend {setup.config.terminal.backend}"
    backends = Backends(setup, build_child_env(setup.secrets))
    backend = backends.get_backend("doctor", Path.cwd(), setup.config.sandbox.mode)
    assert backend is not None
    try:
        text = await backend.check_access()
        confined = await backend.is_confined()
    except HermesError as error:
        return Check(name, "failed", error.reason if isinstance(error, NotRun) else str(error))
    finally:
        await backends.close()
        await stop_left_running()
    if confined:
        return Check(name, "ok", f"{text}; commands are confined to it")
    state: CheckState = "failed" if setup.config.sandbox.required else "note"
    return Check(name, state, f"{text}; commands that change something need approval")

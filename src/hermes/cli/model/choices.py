"""The models one can choose: live lists of every provider one can call, and what is known."""

from __future__ import annotations

import asyncio

from hermes.cli.terminal.picker import Row
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.client import Client
from hermes.llm.endpoints import embedded
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.inventory import list_all_credentials
from hermes.llm.endpoints.local_servers import find_servers
from hermes.llm.endpoints.model_facts import ModelFacts, find_facts, list_models
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.http.transport import Transport
from hermes.llm.local.models import MODELS

_NO_CHAT = ("embed", "whisper", "tts", "dall-e", "moderation", "transcribe", "rerank", "imagen")


async def offered(setup: Setup, only: str = "") -> list[Row]:
    """`provider:model` rows, the provider in use first. `only`: of that provider."""
    transport = Transport()
    try:
        endpoints = [only] if only else _callable_ones(setup)
        lists = await asyncio.gather(*(_listed(setup, name, transport) for name in endpoints))
        near = () if only else await find_servers()
    finally:
        await transport.close()
    rows: dict[str, Row] = {}
    for name, models in zip(endpoints, lists, strict=True):
        rows |= {f"{name}:{m}": Row(f"{name}:{m}", _detail(find_facts(name, m))) for m in models}
    for server in near:
        for model in server.models:
            value = f"{server.provider}:{model}"
            rows.setdefault(value, Row(value, "on this machine"))
    if not only and embedded.is_engine_installed():
        for local_model in MODELS:
            value = f"local:{local_model.name}"
            rows.setdefault(value, Row(value, "in a process of ours, no key"))
    return list(rows.values())


def _callable_ones(setup: Setup) -> list[str]:
    """Who has a credential, the one in use first."""
    held = list_all_credentials(setup.config, setup.secrets, Cooldowns())
    found = list(dict.fromkeys(one.provider for one in held))
    try:
        now = resolve_chain(setup.config, setup.secrets, ModelChoice())[0].target.provider
    except ConfigError:
        return found
    return [now, *(name for name in found if name != now)]


async def _listed(setup: Setup, name: str, transport: Transport) -> tuple[str, ...]:
    """As the endpoint lists them; where it does not, as they are known."""
    endpoint = _any_of(setup, name)
    live: tuple[str, ...] = ()
    if endpoint is not None and not endpoint.base_url.startswith("local:"):
        live = await Client(endpoint, transport).listing.list_models()
    listed = live or list_models(name)
    return tuple(m for m in listed if not any(word in m.lower() for word in _NO_CHAT))


def _any_of(setup: Setup, name: str) -> ModelEndpoint | None:
    for choice in (ModelChoice(provider=name), ModelChoice("?", name)):
        try:
            return resolve_chain(setup.config, setup.secrets, choice)[0]
        except ConfigError:
            continue
    return None


def _detail(known: ModelFacts) -> str:
    parts = []
    if known.context:
        parts.append(f"{known.context // 1000}k")
    if known.prices is not None:
        parts.append(f"${known.prices.input:g}/${known.prices.output:g}")
    if known.images:
        parts.append("images")
    if known.tools is False:
        parts.append("no tools")
    return " · ".join(parts)

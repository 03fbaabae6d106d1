"""The models a user can choose: listed by providers with a key, and by servers on this machine."""

import asyncio

from hermes.cli.terminal.download import is_embedded_endpoint
from hermes.cli.terminal.picker import PickerRow
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.client import Client
from hermes.llm.endpoints.embedded import is_engine_installed
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.inventory import list_all_credentials
from hermes.llm.endpoints.local_servers import find_servers
from hermes.llm.endpoints.model_facts import ModelFacts, find_facts
from hermes.llm.endpoints.model_facts import list_models as list_known_models
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.http.transport import Transport
from hermes.llm.local.models import MODELS

_NOT_FOR_CHAT = "embed whisper tts dall-e moderation transcribe rerank imagen".split()


async def list_models(setup: Setup, only: str = "") -> list[PickerRow]:
    """Rows of `provider:model`, the provider in use first; with `only`, of that provider."""
    async with Transport() as transport:
        providers = [only] if only else _usable_providers(setup)
        lists = await asyncio.gather(*(_provider_models(setup, p, transport) for p in providers))
        servers = () if only else await find_servers()
    rows: dict[str, PickerRow] = {}
    for name, models in zip(providers, lists, strict=True):
        for model in models:
            value = f"{name}:{model}"
            rows[value] = PickerRow(value, _describe_model(find_facts(name, model)))
    for server in servers:
        for model in server.models:
            value = f"{server.provider}:{model}"
            rows.setdefault(value, PickerRow(value, "on this machine"))
    if not only and is_engine_installed():
        for embedded in MODELS:
            value = f"local:{embedded.name}"
            rows.setdefault(value, PickerRow(value, "runs on this machine, no key"))
    return list(rows.values())


def _usable_providers(setup: Setup) -> list[str]:
    """The providers with a credential, the one in use first."""
    credentials = list_all_credentials(setup.config, setup.secrets, Cooldowns())
    found = list(dict.fromkeys(credential.provider for credential in credentials))
    try:
        current = resolve_chain(setup.config, setup.secrets, ModelChoice())[0].target.provider
    except ConfigError:
        return found
    return [current, *(name for name in found if name != current)]


async def _provider_models(setup: Setup, provider: str, transport: Transport) -> tuple[str, ...]:
    """The models that the endpoint lists or, where it lists none, those known of the provider."""
    endpoint = _find_endpoint(setup, provider)
    live: tuple[str, ...] = ()
    if endpoint is not None and not is_embedded_endpoint(endpoint.base_url):
        live = await Client(endpoint, transport).listing.list_models()
    listed = live or list_known_models(provider)
    return tuple(m for m in listed if not any(word in m.lower() for word in _NOT_FOR_CHAT))


def _find_endpoint(setup: Setup, provider: str) -> ModelEndpoint | None:
    for choice in (ModelChoice(provider=provider), ModelChoice("?", provider)):
        try:
            return resolve_chain(setup.config, setup.secrets, choice)[0]
        except ConfigError:
            continue
    return None


def _describe_model(known: ModelFacts) -> str:
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

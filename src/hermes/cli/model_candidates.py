"""Models that could be used here: configured, by key or login, on this machine; each a choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.config.load import Setup
from hermes.llm.endpoints.endpoint import CUSTOM, ModelChoice
from hermes.llm.providers import find_provider, provider_index

Kind: TypeAlias = Literal["asked", "configured", "key", "login", "server", "embedded"]
_PREFIXES = (
    ("sk-ant-", "ANTHROPIC_API_KEY"),
    ("sk-or-", "OPENROUTER_API_KEY"),
    ("sk-proj-", "OPENAI_API_KEY"),
    ("sk-svcacct-", "OPENAI_API_KEY"),
    ("xai-", "XAI_API_KEY"),
    ("gsk_", "GROQ_API_KEY"),
    ("csk-", "CEREBRAS_API_KEY"),
    ("AIza", "GEMINI_API_KEY"),
    ("nvapi-", "NVIDIA_API_KEY"),
    ("hf_", "HF_TOKEN"),
    ("fw_", "FIREWORKS_API_KEY"),
    ("tgp_", "TOGETHER_API_KEY"),
    ("vck_", "AI_GATEWAY_API_KEY"),
)
"""How a key begins -> the variable it belongs in."""


class Candidate(Struct, frozen=True):
    kind: Kind
    choice: ModelChoice
    label: str
    """For people: what it is and where it comes from."""


async def candidates(setup: Setup) -> list[Candidate]:
    """The better ones first. Only servers on this machine and OPENAI_BASE_URL are asked."""
    found = [*_configured(setup), *await _endpoint(setup), *_by_key(setup), *_by_login(setup)]
    found += await _servers()
    return [*found, *_embedded(setup)]


def _configured(setup: Setup) -> Iterator[Candidate]:
    model = setup.config.model
    if model.default or model.provider or model.base_url:
        name = ":".join(filter(None, (model.provider, model.default))) or model.base_url
        yield Candidate("configured", ModelChoice(), f"{name}, as config.yaml says")


async def _endpoint(setup: Setup) -> list[Candidate]:
    """Of the environment: it says itself which models it has."""
    model, url = setup.config.model, setup.secrets.get("OPENAI_BASE_URL")
    if not url or model.default or model.provider or model.base_url:
        return []
    from hermes.llm.auth.key_pool import NO_KEY, Credential
    from hermes.llm.endpoints.probe import Prober
    from hermes.llm.http.transport import Transport

    value = setup.secrets.get("OPENAI_API_KEY")
    key = Credential("OPENAI_API_KEY", value) if value else NO_KEY
    transport = Transport()
    try:
        models = (await Prober(transport, key).probe_address(url.rstrip("/"), "")).models
    finally:
        await transport.close()
    if not models:
        return [Candidate("configured", ModelChoice(), "the endpoint of OPENAI_BASE_URL")]
    more = f" ({len(models) - 1} more there)" if len(models) > 1 else ""
    choice = ModelChoice(models[0], CUSTOM, url, key.source if value else "")
    return [Candidate("key", choice, f"{models[0]} at {url}{more} (OPENAI_BASE_URL)")]


def _by_key(setup: Setup) -> Iterator[Candidate]:
    seen = {setup.config.model.provider}
    for variable, provider in provider_index().key_variables.items():
        spec = find_provider(provider)
        if provider in seen or spec is None or not setup.secrets.get(variable):
            continue
        seen.add(provider)
        if spec.default_model:
            where = setup.secrets.source(variable)
            label = f"{provider}:{spec.default_model}, with {variable} ({where})"
            yield Candidate("key", ModelChoice(spec.default_model, provider), label)


def _by_login(setup: Setup) -> Iterator[Candidate]:
    keyed = {c.choice.provider for c in _by_key(setup)}
    for provider in dict.fromkeys((*provider_index().key_variables.values(), "openai-codex")):
        spec = find_provider(provider)
        if provider in keyed or spec is None or not spec.default_model:
            continue
        if setup.secrets.login(spec.name) is not None:
            label = f"{provider}:{spec.default_model}, logged in"
            yield Candidate("login", ModelChoice(spec.default_model, provider), label)


async def _servers() -> list[Candidate]:
    from hermes.llm.endpoints.local_servers import find_servers

    found = []
    for server in await find_servers():
        more = f" ({len(server.models) - 1} more there)" if len(server.models) > 1 else ""
        label = f"{server.models[0]} of {server.provider} on this machine{more}"
        found.append(Candidate("server", server.model_choice, label))
    return found


def _embedded(setup: Setup) -> Iterator[Candidate]:
    from hermes.llm.endpoints import embedded

    if not embedded.is_engine_installed():
        return
    model = embedded.default_local_model(setup.secrets)
    there = embedded.find_model_file(model, setup.secrets) is not None
    size = "" if there else f", {model.size // 10**6} MB to download"
    label = f"{model.name}, a small model inside this program{size}"
    yield Candidate("embedded", ModelChoice(model.name, "local"), label)


def variable_for(key: str) -> str:
    """Which variable a pasted key belongs in, by how it begins; empty: not to be told."""
    key = key.strip()
    return next((variable for prefix, variable in _PREFIXES if key.startswith(prefix)), "")

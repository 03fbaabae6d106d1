"""Models that could be used here: configured, by key or login, or on this machine."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.config.load import Setup
from hermes.llm.auth.key_pool import NO_KEY, Credential
from hermes.llm.endpoints.embedded import default_local_model, find_model_file, is_engine_installed
from hermes.llm.endpoints.endpoint import CUSTOM, ModelChoice
from hermes.llm.endpoints.local_servers import find_servers
from hermes.llm.endpoints.probe import Prober
from hermes.llm.http.transport import Transport
from hermes.llm.providers import find_provider, provider_index

CandidateKind: TypeAlias = Literal["requested", "configured", "key", "login", "server", "embedded"]
_KEY_PREFIXES = (
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
"""The beginning of a key -> the variable it belongs in."""


class Candidate(Struct, frozen=True):
    kind: CandidateKind
    choice: ModelChoice
    label: str
    """For people: which model it is and where it comes from."""


async def find_candidates(setup: Setup) -> list[Candidate]:
    """The better ones first. Contacts only servers on this machine and OPENAI_BASE_URL."""
    return [
        *_configured_model(setup),
        *await _environment_endpoint(setup),
        *_models_by_key(setup),
        *_models_by_login(setup),
        *await _local_servers(),
        *_embedded_model(setup),
    ]


def _configured_model(setup: Setup) -> Iterator[Candidate]:
    model = setup.config.model
    if model.default or model.provider or model.base_url:
        name = ":".join(filter(None, (model.provider, model.default))) or model.base_url
        yield Candidate("configured", ModelChoice(), f"{name} (from config.yaml)")


async def _environment_endpoint(setup: Setup) -> list[Candidate]:
    """The endpoint of OPENAI_BASE_URL, with a model that it lists."""
    model, url = setup.config.model, setup.secrets.get("OPENAI_BASE_URL")
    if not url or model.default or model.provider or model.base_url:
        return []
    value = setup.secrets.get("OPENAI_API_KEY")
    key = Credential("OPENAI_API_KEY", value) if value else NO_KEY
    async with Transport() as transport:
        models = (await Prober(transport, key).probe_address(url.rstrip("/"), "")).models
    if not models:
        return [Candidate("configured", ModelChoice(), "the endpoint in OPENAI_BASE_URL")]
    more = f" (and {len(models) - 1} more)" if len(models) > 1 else ""
    choice = ModelChoice(models[0], CUSTOM, url, key.source if value else "")
    return [Candidate("key", choice, f"{models[0]} at {url}{more} (OPENAI_BASE_URL)")]


def _models_by_key(setup: Setup) -> Iterator[Candidate]:
    seen = {setup.config.model.provider}
    for variable, provider in provider_index().key_variables.items():
        spec = find_provider(provider)
        if provider in seen or spec is None or not setup.secrets.get(variable):
            continue
        seen.add(provider)
        if spec.default_model:
            where = setup.secrets.find_source(variable)
            label = f"{provider}:{spec.default_model}, with {variable} ({where})"
            yield Candidate("key", ModelChoice(spec.default_model, provider), label)


def _models_by_login(setup: Setup) -> Iterator[Candidate]:
    with_key = {c.choice.provider for c in _models_by_key(setup)}
    for provider in dict.fromkeys((*provider_index().key_variables.values(), "openai-codex")):
        spec = find_provider(provider)
        if provider in with_key or spec is None or not spec.default_model:
            continue
        if setup.secrets.find_login(spec.name) is not None:
            label = f"{provider}:{spec.default_model}, logged in"
            yield Candidate("login", ModelChoice(spec.default_model, provider), label)


async def _local_servers() -> list[Candidate]:
    found = []
    for server in await find_servers():
        more = f" (and {len(server.models) - 1} more)" if len(server.models) > 1 else ""
        label = f"{server.models[0]} from {server.provider} on this machine{more}"
        found.append(Candidate("server", server.model_choice, label))
    return found


def _embedded_model(setup: Setup) -> Iterator[Candidate]:
    if not is_engine_installed():
        return
    model = default_local_model(setup.secrets)
    downloaded = find_model_file(model, setup.secrets) is not None
    size = "" if downloaded else f" ({model.size // 10**6} MB download)"
    label = f"{model.name}: small built-in model{size}"
    yield Candidate("embedded", ModelChoice(model.name, "local"), label)


def guess_variable(key: str) -> str:
    """The variable that a pasted key belongs in, by its beginning; empty when that is unknown."""
    key = key.strip()
    return next((variable for prefix, variable in _KEY_PREFIXES if key.startswith(prefix)), "")

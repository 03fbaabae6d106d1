"""The model that answers now and the test of one, as plain data."""

from typing import Any

from msgspec import structs

from hermes.app.control.model_probe import FEATURES, ModelTrial
from hermes.config import paths
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.llm.auth.key_pool import Credential
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.learned_limits import LearnedLimits
from hermes.llm.endpoints.local_servers import find_servers, pick_server
from hermes.llm.endpoints.resolver import is_undecided, resolve_chain

_PRICES = ("input", "output", "cache_read", "cache_write")


async def describe_model(setup: Setup) -> dict[str, Any]:
    """What `hermes model` shows, as plain data. Contacts only this machine."""
    data: dict[str, Any] = {"error": None, "note": None}
    choice = ModelChoice()
    nearby = await find_servers() if is_undecided(setup.config, setup.secrets, choice) else ()
    if server := pick_server(nearby, setup.config, choice):
        choice = server.model_choice
        data["note"] = server.note
    try:
        chain = resolve_chain(setup.config, setup.secrets, choice)
    except ConfigError as error:
        data |= {"error": str(error), "fallbacks": []}
    else:
        limits = LearnedLimits(paths.cache_folder(setup.home) / "limits.json")
        data |= _describe_endpoint(limits.apply_to(chain[0]))
        if chain[0].finds_calling:
            found = limits.find(chain[0].base_url, chain[0].target.model).calling
            data["tool_calls"] = found or None
        data["note"] = data["note"] or chain[0].note or None
        data["fallbacks"] = _list_fallbacks(setup, chain[1:])
    data["auxiliary"] = _list_auxiliary(setup)
    names = ("provider", "base_url", "models")
    data["nearby"] = [{name: getattr(server, name) for name in names} for server in nearby]
    return data


def _describe_endpoint(endpoint: ModelEndpoint) -> dict[str, Any]:
    target, facts = endpoint.target, endpoint.facts
    return {
        "provider": target.provider,
        "model": target.model,
        "wire": target.wire,
        "base_url": endpoint.base_url,
        "keys": [_describe_key(key) for key in endpoint.keys],
        "context_length": endpoint.context_length,
        "max_output": endpoint.max_output or facts.output,
        "images": facts.images,
        "tools": facts.tools,
        "tool_calls": endpoint.quirks.calling,
        "reasoning": facts.reasoning,
        "prices": {name: getattr(facts.prices, name) for name in _PRICES} if facts.prices else None,
    }


def _describe_key(key: Credential) -> dict[str, str]:
    hint = f"…{key.value[-4:]}" if len(key.value) >= 16 else "…"
    return {"source": key.source, "hint": "" if key.login else hint}


def _list_fallbacks(setup: Setup, chain: list[ModelEndpoint]) -> list[dict[str, Any]]:
    """In the order of the configuration, including those without a key."""
    usable = {f"{e.target.provider}:{e.target.model}": e for e in chain}
    found: list[dict[str, Any]] = []
    for entry in setup.config.fallback_providers:
        row: dict[str, Any] = {"entry": entry, "usable": entry in usable}
        if endpoint := usable.get(entry):
            keys = [_describe_key(key) for key in endpoint.keys]
            row |= {"base_url": endpoint.base_url, "keys": keys}
        found.append(row)
    return found


def _list_auxiliary(setup: Setup) -> dict[str, str]:
    found: dict[str, str] = {}
    for job, section in setup.config.auxiliary.items():
        address = section.base_url, section.api_key_env, section.api_mode or ""
        choice = ModelChoice(section.model, section.provider, *address)
        try:
            target = resolve_chain(setup.config, setup.secrets, choice)[0].target
            found[job] = f"{target.provider}:{target.model}"
        except ConfigError as error:
            found[job] = f"not usable: {error}"
    return found


def describe_trial(trial: ModelTrial) -> dict[str, Any]:
    states = {feature.name: feature.state for feature in trial.features}
    notes = {feature.name: feature.note for feature in trial.features if feature.note}
    values = {"yes": True, "no": False, "unknown": None}
    return {
        "provider": trial.target.provider,
        "model": trial.target.model,
        "wire": trial.target.wire,
        "base_url": trial.base_url,
        "key": trial.key or None,
        "works": not trial.error,
        "error": {"code": trial.code, "message": trial.error} if trial.error else None,
        **{name: values[states[name]] if name in states else None for name in FEATURES},
        "notes": notes,
        "seconds": round(trial.seconds, 3),
        "first_seconds": round(trial.first, 3) if trial.first is not None else None,
        "usage": {k: v for k, v in structs.asdict(trial.usage).items() if k != "cost"},
        "cost_usd": trial.usage.cost,
    }

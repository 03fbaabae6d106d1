"""`hermes model`: the model that answers now, its address, key and price, and its fallbacks."""

from typing import Any

from hermes.cli.terminal.text import one_line
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


def format_model(data: dict[str, Any]) -> list[str]:
    """The result of `describe_model` as lines for people."""
    found = [("model", data["error"])] if data["error"] else _format_endpoint(data)
    for row in data["fallbacks"]:
        note = "" if row["usable"] else "  (no key: skipped)"
        found.append(("fallback", row["entry"] + note))
    found += [(f"for {job}", text) for job, text in data["auxiliary"].items()]
    for server in data["nearby"]:
        names = one_line(", ".join(server["models"]), 80)
        found.append(("on this machine", f"{server['provider']} at {server['base_url']}: {names}"))
    if data["note"]:
        found.append(("note", data["note"]))
    return [f"{name:<16}{text}" for name, text in found]


def _format_endpoint(data: dict[str, Any]) -> list[tuple[str, str]]:
    keys = ", ".join(f"{k['source']} {k['hint']}".strip() for k in data["keys"]) or "none needed"
    output = data["max_output"]
    context = f"{data['context_length']:,} tokens" if data["context_length"] else "unknown"
    found = [
        ("model", f"{data['model']}  ({data['provider']})"),
        ("address", f"{data['base_url']}  ({data['wire']})"),
        ("key", keys),
        ("context", context + (f", answers up to {output:,}" if output else "")),
    ]
    if (prices := data["prices"]) is not None:
        text = f"${prices['input']:g} in, ${prices['output']:g} out per million tokens"
        read = prices["cache_read"]
        found.append(("price", f"{text}, ${read:g} cached" if read is not None else text))
    return found

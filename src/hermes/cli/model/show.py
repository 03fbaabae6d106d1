"""`hermes model`: what answers now, from where, with which key, and what stands behind it."""

from __future__ import annotations

import asyncio
from typing import Any

from hermes.cli.terminal.text import one_line
from hermes.config import paths
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.llm.auth.key_pool import Credential
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.learned_limits import LearnedLimits
from hermes.llm.endpoints.local_servers import LocalServer, find_servers, pick_server
from hermes.llm.endpoints.model_facts import Prices
from hermes.llm.endpoints.resolver import is_undecided, resolve_chain


async def survey(setup: Setup) -> dict[str, Any]:
    """Everything that is shown, as plain data. Only this machine is asked."""
    told: dict[str, Any] = {"error": None, "note": None}
    choice = ModelChoice()
    nearby = await find_servers() if is_undecided(setup.config, setup.secrets, choice) else ()
    if near := pick_server(nearby, setup.config, choice):
        choice = near.model_choice
        told["note"] = near.note
    try:
        chain = resolve_chain(setup.config, setup.secrets, choice)
    except ConfigError as error:
        told |= {"error": str(error), "fallbacks": []}
    else:
        limits = LearnedLimits(paths.cache_folder(setup.home) / "limits.json")
        told |= _endpoint(limits.apply_to(chain[0]))
        told["note"] = told["note"] or chain[0].note or None
        told["fallbacks"] = _fallbacks(setup, chain[1:])
    told["auxiliary"] = _auxiliary(setup)
    told["nearby"] = [_server(server) for server in nearby]
    return told


def _endpoint(endpoint: ModelEndpoint) -> dict[str, Any]:
    target, facts = endpoint.target, endpoint.facts
    return {
        "provider": target.provider,
        "model": target.model,
        "wire": target.wire,
        "base_url": endpoint.base_url,
        "keys": [_key(key) for key in endpoint.keys],
        "context_length": endpoint.context_length,
        "max_output": endpoint.max_output or facts.output,
        "images": facts.images,
        "tools": facts.tools,
        "reasoning": facts.reasoning,
        "prices": _prices(facts.prices),
    }


def _key(key: Credential) -> dict[str, str]:
    hint = f"…{key.value[-4:]}" if len(key.value) >= 16 else "…"
    return {"source": key.source, "hint": "" if key.login else hint}


def _prices(prices: Prices | None) -> dict[str, float | None] | None:
    if prices is None:
        return None
    names = ("input", "output", "cache_read", "cache_write")
    return {name: getattr(prices, name) for name in names}


def _fallbacks(setup: Setup, chain: list[ModelEndpoint]) -> list[dict[str, Any]]:
    """In the order of the configuration, those without a key included."""
    callable_ones = {(e.target.provider, e.target.model): e for e in chain}
    found: list[dict[str, Any]] = []
    for entry in setup.config.fallback_providers:
        name, _, model = entry.partition(":")
        endpoint = next(
            (e for (p, m), e in callable_ones.items() if m == model and p == name), None
        )
        row: dict[str, Any] = {"entry": entry, "usable": endpoint is not None}
        if endpoint is not None:
            row |= {"base_url": endpoint.base_url, "keys": [_key(k) for k in endpoint.keys]}
        found.append(row)
    return found


def _auxiliary(setup: Setup) -> dict[str, str]:
    found: dict[str, str] = {}
    for job, wanted in setup.config.auxiliary.items():
        choice = ModelChoice(
            wanted.model,
            wanted.provider,
            wanted.base_url,
            wanted.api_key_env,
            wanted.api_mode or "",
        )
        try:
            target = resolve_chain(setup.config, setup.secrets, choice)[0].target
            found[job] = f"{target.provider}:{target.model}"
        except ConfigError as error:
            found[job] = f"not usable: {error}"
    return found


def _server(server: LocalServer) -> dict[str, Any]:
    return {
        "provider": server.provider,
        "base_url": server.base_url,
        "models": list(server.models),
    }


def lines(told: dict[str, Any]) -> list[str]:
    """The same for people."""
    found: list[tuple[str, str]] = []
    if told["error"]:
        found.append(("model", told["error"]))
    else:
        found += _about(told)
    found += [
        ("fallback", row["entry"] + ("" if row["usable"] else "  (no key: skipped)"))
        for row in told["fallbacks"]
    ]
    found += [(f"for {job}", text) for job, text in told["auxiliary"].items()]
    for server in told["nearby"]:
        names = one_line(", ".join(server["models"]), 80)
        found.append(("on this machine", f"{server['provider']} at {server['base_url']}: {names}"))
    if told["note"]:
        found.append(("note", told["note"]))
    return [f"{name:<16}{text}" for name, text in found]


def _about(told: dict[str, Any]) -> list[tuple[str, str]]:
    keys = ", ".join(f"{k['source']} {k['hint']}".strip() for k in told["keys"]) or "none needed"
    found = [
        ("model", f"{told['model']}  ({told['provider']})"),
        ("address", f"{told['base_url']}  ({told['wire']})"),
        ("key", keys),
        ("context", _tokens(told["context_length"], told["max_output"])),
    ]
    if (prices := told["prices"]) is not None:
        found.append(("price", _price(prices)))
    return found


def _tokens(context: int | None, output: int | None) -> str:
    text = f"{context:,} tokens" if context else "not known"
    return f"{text}, answers up to {output:,}" if output else text


def _price(prices: dict[str, float | None]) -> str:
    text = f"${prices['input']:g} in, ${prices['output']:g} out per million tokens"
    read = prices["cache_read"]
    return f"{text}, ${read:g} from a cache" if read is not None else text


def gathered(setup: Setup) -> dict[str, Any]:
    return asyncio.run(survey(setup))

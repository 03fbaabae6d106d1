"""`hermes model` and `hermes model test`: the model that answers now, and what works with it."""

from typing import Any

from msgspec import structs

from hermes.app.model_probe import FEATURES, ModelTrial, examine_model
from hermes.app.runtime import Runtime
from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.startup import run_async
from hermes.cli.terminal.download import ensure_available, is_embedded_endpoint
from hermes.cli.terminal.text import one_line, print_report
from hermes.config import paths
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.llm.auth.key_pool import Credential
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.learned_limits import LearnedLimits
from hermes.llm.endpoints.local_servers import choose_model, find_servers, pick_server
from hermes.llm.endpoints.resolver import is_undecided, resolve_chain

_PRICES = ("input", "output", "cache_read", "cache_write")
_CALLING = {
    "native": "native",
    "text": "written as text, recognised",
    "schema": "forced by a JSON schema",
    None: "found out at the first call",
}
_STATE_MARKS = {"yes": "✓", "no": "✗", "unknown": "–"}


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
        ("tool calls", _CALLING[data["tool_calls"]]),
    ]
    if (prices := data["prices"]) is not None:
        text = f"${prices['input']:g} in, ${prices['output']:g} out per million tokens"
        read = prices["cache_read"]
        found.append(("price", f"{text}, ${read:g} cached" if read is not None else text))
    return found


def report_test(setup: Setup, choice: ModelChoice, *, cache: bool, json: bool) -> int:
    """Tests the model and prints the result; returns the exit status."""
    trial = run_async(_test_model(setup, choice, cache=cache))
    print_report(_trial_object(trial), _format_trial(trial), json=json)
    if trial.error:
        print_stderr(trial.error)
        return EXIT_FAILED
    return 0


async def _test_model(setup: Setup, choice: ModelChoice, *, cache: bool) -> ModelTrial:
    async with Runtime.open(setup) as runtime:
        choice = await choose_model(setup.config, setup.secrets, choice)
        endpoint = resolve_chain(setup.config, setup.secrets, choice)[0]
        endpoint = runtime.agents.learned_limits.apply_to(endpoint)
        await ensure_available(endpoint.base_url, runtime.transport)
        return await examine_model(runtime.services, endpoint, cache=cache)


def _format_trial(trial: ModelTrial) -> list[str]:
    target, usage = trial.target, trial.usage
    place = "on this machine" if is_embedded_endpoint(trial.base_url) else f"at {trial.base_url}"
    found = [f"{target.provider}:{target.model} {place} ({target.wire})"]
    for feature in trial.features:
        mark = _STATE_MARKS[feature.state]
        found.append(f"{mark} {feature.name:<10} {feature.note}".rstrip())
    if not trial.error:
        first = f", first response after {trial.first:.2f} s" if trial.first is not None else ""
        cost = f", ${usage.cost:.5f}" if usage.cost is not None else ""
        tokens = f"{usage.input} tokens in, {usage.output} out{cost}"
        found.append(f"{trial.seconds:.2f} s{first}; {tokens}")
    found += [one_line(note, 300) for note in trial.notes]
    return found


def _trial_object(trial: ModelTrial) -> dict[str, Any]:
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

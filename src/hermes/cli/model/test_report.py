"""`hermes model test`: one real call and what works, for people or as JSON."""

from typing import Any

from msgspec import structs

from hermes.app.model_probe import FEATURES, ModelTrial, examine_model
from hermes.app.runtime import Runtime
from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.startup import run_async
from hermes.cli.terminal.download import ensure_available, is_embedded_endpoint
from hermes.cli.terminal.text import one_line, print_report
from hermes.config.load import Setup
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.endpoints.local_servers import choose_model
from hermes.llm.endpoints.resolver import resolve_chain

_STATE_MARKS = {"yes": "✓", "no": "✗", "unknown": "–"}


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

"""`hermes model` and `hermes model test`: the model that answers now, and what works with it."""

from typing import Any

from hermes.app.control.model_description import describe_trial
from hermes.app.control.model_probe import ModelTrial, examine_model
from hermes.app.runtime import Runtime
from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.startup import run_async
from hermes.cli.terminal.download import ensure_available
from hermes.cli.terminal.text import one_line, print_report
from hermes.config.load import Setup
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.endpoints.local_servers import choose_model
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.local.uri import is_embedded_endpoint

_CALLING = {
    "native": "native",
    "text": "written as text, recognised",
    "schema": "forced by a JSON schema",
    None: "found out at the first call",
}
_STATE_MARKS = {"yes": "✓", "no": "✗", "unknown": "–"}


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
    print_report(describe_trial(trial), _format_trial(trial), json=json)
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

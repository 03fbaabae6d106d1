"""The index of providers and wires says what their modules say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from hermes.core.wire_names import WIRE_NAMES
from hermes.llm import index
from hermes.llm.index import load_builtin_index
from hermes.llm.provider_spec import ProviderSpec
from hermes.llm.providers import find_provider, provider_index, register_provider
from hermes.llm.wire import wire_facts

SCRIPT = Path(__file__).parents[3] / "scripts" / "provider_index.py"


def test_it_is_what_the_script_would_write() -> None:
    render = runpy.run_path(str(SCRIPT))["render"]
    assert index.FILE.read_bytes() == render(), "run: make provider-index"


def test_every_wire_and_every_row_of_the_package_is_in_it() -> None:
    found = load_builtin_index()
    assert tuple(found.wires) == WIRE_NAMES
    rows = [find_provider(entry.name) for entry in found.providers]
    assert all(row is not None and row.wire in found.wires for row in rows)
    assert all(wire_facts(name) == facts for name, facts in found.wires.items())


def test_whoever_may_be_chosen_without_being_named_has_a_rank_of_their_own() -> None:
    entries = load_builtin_index().providers
    chosen = [e.rank for e in entries if e.keys or e.logs_in or e.local_address]
    assert len(chosen) == len(set(chosen)) and max(chosen) < 1000


def test_makers_come_before_hosts_and_hosts_before_aggregators() -> None:
    order = list(dict.fromkeys(provider_index().key_variables.values()))
    assert order[0] == "anthropic"
    assert order.index("zai") < order.index("groq") < order.index("openrouter")
    assert provider_index().vendor_routers[0] == "openrouter"
    assert provider_index().logins == ("anthropic", "openai-codex", "copilot")
    assert list(provider_index().local_servers) == ["ollama", "lmstudio", "llamacpp", "vllm"]


@pytest.mark.parametrize("name", ["acme", "groq"])
def test_a_registered_row_is_found_by_all_that_points_to_it_until_it_is_taken_out(
    name: str,
) -> None:
    before = provider_index()
    row = ProviderSpec(
        name,
        "chat",
        "https://api.acme.example/v1",
        keys=("ACME_API_KEY",),
        aliases=("acme-ai",),
        hosts=("api.acme.example",),
        model_prefixes=("acme-",),
    )
    unregister = register_provider(row)
    assert find_provider(name) is row and find_provider("ACME-AI") is row
    found = provider_index()
    assert found.key_variables["ACME_API_KEY"] == found.hosts["api.acme.example"] == name
    assert list(found.key_variables)[-1] == "ACME_API_KEY", "behind all built-in ones"
    unregister()
    unregister()
    assert find_provider(name) is not row and provider_index() == before

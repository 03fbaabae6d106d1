"""What is known about a model: its limits, its inputs, and the price of its tokens."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from msgspec import Struct, structs

from hermes.core.message import Usage

_FILE = Path(__file__).with_name("data") / "models.tsv"
_MILLION = 1_000_000
_REGION = re.compile(r"^(?:us|us-gov|eu|apac|au|ca|jp|sa|me|af|global)\.")
_SIZE = re.compile(r"(?<![\w.])(?:e|\d+x)?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", re.IGNORECASE)
_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")


class PriceTier(Struct, frozen=True):
    """Prices for the whole call when the prompt is longer than `above` tokens."""

    above: int
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class Prices(Struct, frozen=True):
    """Dollars per million tokens. An unknown cache price is the price of input."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None
    """None: as other output."""
    tiers: tuple[PriceTier, ...] = ()
    """Ascending."""

    def cost_of(self, usage: Usage) -> float:
        """Dollars for this usage; input includes cached tokens, output includes reasoning."""
        rate: Prices | PriceTier = self
        for tier in self.tiers:
            if usage.input > tier.above:
                rate = tier
        read = min(usage.cache_read, usage.input)
        written = min(usage.cache_write, usage.input - read)
        thought = min(usage.reasoning, usage.output) if self.reasoning is not None else 0
        read_price = rate.input if rate.cache_read is None else rate.cache_read
        write_price = rate.input if rate.cache_write is None else rate.cache_write
        total = (
            (usage.input - read - written) * rate.input
            + read * read_price
            + written * write_price
            + (usage.output - thought) * rate.output
            + thought * (self.reasoning or 0.0)
        )
        return total / _MILLION

    def max_cost(self, prompt: int, output: int) -> float:
        """The most a call can cost: nothing read from a cache, everything written to it."""
        plain = Usage(prompt, output)
        written = Usage(prompt, output, cache_write=prompt)
        return max(map(self.cost_of, (plain, written, Usage(prompt, output, reasoning=output))))


class ModelFacts(Struct, frozen=True):
    """None means unknown; nothing here is guessed."""

    context: int | None = None
    output: int | None = None
    """Maximum tokens of one answer."""
    images: bool | None = None
    tools: bool | None = None
    reasoning: bool | None = None
    prices: Prices | None = None
    parameters: float | None = None
    """In billions."""


UNKNOWN = ModelFacts()


def find_facts(provider: str, model: str) -> ModelFacts:
    """What is known about a model of a built-in provider, by its name there."""
    section, other = _find_section(provider)
    if other:
        return structs.replace(find_facts(other, model), prices=None)
    for name, exact in _spell_names(model):
        if (line := _find_model_line(section, name)) is not None:
            found = _parse_model_line(line)
            return found if exact else structs.replace(found, prices=None)
    return UNKNOWN


def list_models(provider: str) -> tuple[str, ...]:
    """Names of the known models of a built-in provider."""
    section, other = _find_section(provider)
    if other:
        return list_models(other)
    listed = [line.partition("\t")[0] for line in section.decode().split("\n")]
    return tuple(name for name in listed if name and "*" not in name)


def merge_facts(known: ModelFacts, stated: ModelFacts) -> ModelFacts:
    """Both together; what the endpoint itself says overrides what is known from tables."""
    changes = {k: v for k, v in structs.asdict(stated).items() if v is not None}
    return structs.replace(known, **changes)


def read_size(model: str) -> float | None:
    """Billions of parameters, as the name of a model says (qwen3-1.7b, smollm2-135m)."""
    sizes = _SIZE.findall(model)
    return max((float(n) / (1 if unit in "bB" else 1000) for n, unit in sizes), default=None)


@cache
def _read_data() -> bytes:
    try:
        return _FILE.read_bytes()
    except OSError:
        return b"\n@\n"


def _find_section(provider: str) -> tuple[bytes, str]:
    """The lines of a provider, or the name of another provider that has the same models."""
    if not provider.isprintable() or not provider:
        return b"", ""
    data = _read_data()
    head = f"\n@{provider}".encode()
    if (start := data.find(head + b"\n")) >= 0:
        return data[start + len(head) : data.index(b"\n@", start + 1) + 1], ""
    if (start := data.find(head + b"\t")) >= 0:
        return b"", data[start + len(head) + 1 : data.index(b"\n", start + 1)].decode()
    return b"", ""


def _spell_names(model: str) -> Iterator[tuple[str, bool]]:
    """The spellings a name may be listed under, and whether the listed price holds for it."""
    name = model.lower().removeprefix("models/")
    plain = _REGION.sub("", name)
    undated = _DATE.sub("", plain)
    yield from ((spelt, True) for spelt in dict.fromkeys((name, plain, undated)))
    routed, colon, _ = undated.rpartition(":")
    if colon:  # a route or a variant, with a price of its own
        yield routed, False


def _find_model_line(section: bytes, name: str) -> str | None:
    if not section or "\t" in name or "\n" in name:
        return None
    key = f"\n{name}\t".encode(errors="replace")
    start = section.find(key)
    if start >= 0:
        return section[start + 1 : section.index(b"\n", start + 1)].decode()
    globs = _glob_lines(section)
    return next((line for line in globs if fnmatchcase(name, line.partition("\t")[0])), None)


@cache
def _glob_lines(section: bytes) -> tuple[str, ...]:
    return tuple(x for x in section.decode().split("\n") if "*" in x.partition("\t")[0])


def _parse_model_line(line: str) -> ModelFacts:
    fields = line.split("\t")[1:]
    fields += [""] * (9 - len(fields))
    context, output, flags, *price, tiers = fields
    images, tools, reasoning = (flag in flags if flags else None for flag in "itr")
    limits = (int(context) if context else None, int(output) if output else None)
    return ModelFacts(*limits, images, tools, reasoning, _parse_prices(price, tiers))


def _parse_prices(texts: list[str], tiers: str) -> Prices | None:
    if not texts[0]:
        return None
    source, output, read, write, reasoning = (float(t) if t else None for t in texts)
    steps = tuple(_parse_tier(t) for t in tiers.split(",") if t)
    return Prices(source or 0.0, output or 0.0, read, write, reasoning, steps)


def _parse_tier(text: str) -> PriceTier:
    above, *prices = text.split(":")
    source, output, read, write = (float(p) if p else None for p in prices)
    return PriceTier(int(above), source or 0.0, output or 0.0, read, write)

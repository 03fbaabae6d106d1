"""The generated index of built-in providers and wires, read instead of importing them all."""

from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.llm.provider_spec import ProviderSpec, WireFacts

FILE = Path(__file__).with_name("index.json")
_COPIED = tuple("name rank keys aliases hosts vendor_names model_prefixes portable_models".split())
"""Fields that a row and its entry share."""


class ProviderEntry(Struct, frozen=True, omit_defaults=True):
    """What must be known about a provider before its row is imported."""

    name: str
    rank: int
    keys: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    vendor_names: bool = False
    model_prefixes: tuple[str, ...] = ()
    portable_models: str = ""
    logs_in: bool = False
    local_address: str = ""
    """The usual base URL of a model server on this machine; empty: it is none."""
    reference_for: str = ""
    """The wire whose unknown endpoints get its headers and quirks; empty: none."""
    module: str = ""
    """The module of its row; empty: the one that has its name."""


class Index(Struct, frozen=True):
    providers: tuple[ProviderEntry, ...]
    wires: dict[str, WireFacts]


@cache
def load_builtin_index() -> Index:
    return msgspec.json.decode(FILE.read_bytes(), type=Index)


def describe_provider(spec: ProviderSpec, module: str = "") -> ProviderEntry:
    """The index entry of a row."""
    local_server = spec.auth == "none" and not spec.embedded
    return ProviderEntry(
        **{name: getattr(spec, name) for name in _COPIED},
        logs_in=spec.oauth is not None,
        local_address=spec.base_url if local_server else "",
        reference_for=spec.wire if spec.wire_reference else "",
        module="" if module == spec.name.replace("-", "_") else module,
    )

"""The registry of providers: their rows, and which one a key, host or model name belongs to."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module

from msgspec import Struct

from hermes.llm.index import describe_provider, load_builtin_index
from hermes.llm.provider_spec import ProviderSpec

_registered: dict[str, ProviderSpec] = {}


class ProviderIndex(Struct, frozen=True):
    """Provider names by key variable, alias, host and more, each in the order of rank."""

    names: tuple[str, ...]
    """All providers, sorted."""
    key_variables: Mapping[str, str]
    aliases: Mapping[str, str]
    hosts: Mapping[str, str]
    model_prefixes: Mapping[str, str]
    portable_models: Mapping[str, str]
    wire_references: Mapping[str, str]
    local_servers: Mapping[str, str]
    """Name -> usual base URL of the model servers that users run themselves."""
    logins: tuple[str, ...]
    vendor_routers: tuple[str, ...]
    """Providers that take model names of the form vendor/model."""


@cache
def provider_index() -> ProviderIndex:
    entries = {entry.name: entry for entry in load_builtin_index().providers}
    entries |= {name: describe_provider(spec) for name, spec in _registered.items()}
    ranked = sorted(entries.values(), key=lambda entry: (entry.rank, entry.name))
    return ProviderIndex(
        names=tuple(sorted(entries)),
        key_variables={key: entry.name for entry in ranked for key in entry.keys},
        aliases={alias: entry.name for entry in ranked for alias in entry.aliases},
        hosts={host: entry.name for entry in ranked for host in entry.hosts},
        model_prefixes={p: entry.name for entry in ranked for p in entry.model_prefixes},
        portable_models={e.portable_models: e.name for e in ranked if e.portable_models},
        wire_references={e.reference_for: e.name for e in ranked if e.reference_for},
        local_servers={e.name: e.local_address for e in ranked if e.local_address},
        logins=tuple(entry.name for entry in ranked if entry.logs_in),
        vendor_routers=tuple(entry.name for entry in ranked if entry.vendor_names),
    )


def find_provider(name: str) -> ProviderSpec | None:
    """The row of a provider, by name or alias; no other row is imported."""
    index = provider_index()
    name = index.aliases.get(name.lower(), name.lower())
    if name in _registered:
        return _registered[name]
    return _import_row(name) if name in index.names else None


def find_model_makers(model: str) -> Iterator[str]:
    """The providers whose own models have names like this."""
    prefixes = provider_index().model_prefixes
    return (maker for prefix, maker in prefixes.items() if model.lower().startswith(prefix))


def register_provider(spec: ProviderSpec) -> Callable[[], None]:
    """Add a row from outside the package, replacing a row of the same name. Call the result to
    remove it again."""
    _registered[spec.name] = spec
    provider_index.cache_clear()

    def unregister_provider() -> None:
        if _registered.get(spec.name) is spec:
            del _registered[spec.name]
            provider_index.cache_clear()

    return unregister_provider


@cache
def _import_row(name: str) -> ProviderSpec:
    entry = next(entry for entry in load_builtin_index().providers if entry.name == name)
    module = entry.module or name.replace("-", "_")
    row: ProviderSpec = import_module(f"{__name__}.{module}").PROVIDER
    return row

"""Which wire an address speaks, and which provider's row describes it."""

import re
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from hermes.core.wire_names import DEFAULT_WIRE
from hermes.llm.hosts import is_own_address
from hermes.llm.provider_spec import ProviderSpec, Quirks, overlay_quirks
from hermes.llm.providers import find_provider, provider_index
from hermes.llm.wire import check_wire_name, wire_facts, wire_names

_DEFAULT_OF_VARIABLE = re.compile(r"\{[^}]*=([^}]*)\}")


def choose_wire(base_url: str, api_mode: str | None, provider: str) -> str:
    """The configured wire, else the one of the address, else the one of the provider's row.
    ConfigError when the configured one does not exist."""
    if api_mode:
        return check_wire_name(api_mode)
    url = urlsplit(base_url)
    host = url.hostname or ""
    address = host + url.path.rstrip("/")
    for wire in wire_names():
        pattern = wire_facts(wire).url_pattern
        if pattern and re.search(pattern, address):
            return wire
    spec = find_provider(provider)
    if spec is None:
        return DEFAULT_WIRE
    standard = _DEFAULT_OF_VARIABLE.sub(r"\1", spec.base_url)
    is_theirs = not base_url or host == urlsplit(standard).hostname
    return spec.wire if is_theirs else _wire_family(spec.wire)


def match_row(spec: ProviderSpec | None, base_url: str, wire: str) -> ProviderSpec | None:
    """The row that describes an endpoint: its provider's, host's or wire's; None: unknown."""
    row = spec or _host_row(base_url)
    if row is not None and _wire_family(row.wire) == _wire_family(wire):
        return row
    return find_provider(provider_index().wire_references.get(wire, ""))


def match_quirks(
    row: ProviderSpec | None, spec: ProviderSpec | None, base_url: str, model: str
) -> Quirks:
    """The quirks of the row that describes an endpoint, plus what its provider or the maker of the
    model demands of every request, whichever wire it speaks."""
    if row is None:
        quirks = Quirks(effort="think" if is_own_address(base_url) else "effort")
        for glob, maker in provider_index().portable_models.items():
            found = find_provider(maker) if fnmatchcase(model.lower(), glob) else None
            if found is not None:
                return overlay_quirks(quirks, found.models[glob])
        return quirks
    quirks = row.quirks_for(model)
    owner = spec or _host_row(base_url)
    if owner is None or owner is row:
        return quirks
    theirs = owner.quirks_for(model)
    limit = theirs.max_tokens_default or quirks.max_tokens_default
    return overlay_quirks(quirks, {"drop": theirs.drop, "max_tokens_default": limit})


def missing_path_hint(base_url: str, wire: str) -> str:
    """A hint for the address of the user's own server when it lacks the usual path; empty: the
    address is fine."""
    path = wire_facts(wire).server_path
    if not path or urlsplit(base_url).path.strip("/") or not is_own_address(base_url):
        return ""
    return (
        f"The address {base_url} has no path; most servers of this kind expect {path} at the end. "
        f"If calls fail, set it to {base_url}{path}."
    )


def _host_row(base_url: str) -> ProviderSpec | None:
    host = (urlsplit(base_url).hostname or "").lower()
    return find_provider(provider_index().hosts.get(host, ""))


def _wire_family(wire: str) -> str:
    return wire_facts(wire).family or wire

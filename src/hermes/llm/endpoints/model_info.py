"""What an endpoint says about its model: context length, output, images, tools, prices."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from hermes.core.message import Target
from hermes.llm.endpoints.model_facts import UNKNOWN, ModelFacts, Prices, merge_facts
from hermes.llm.provider_spec import InfoSource
from hermes.llm.wire import wire_facts
from hermes.llm.wire.convert import as_dict, as_dicts

FetchJson: TypeAlias = Callable[[str, str, bytes], Awaitable[Any]]
"""Method, URL, body -> the JSON response; None: there was none."""

_CONTEXT = tuple(
    "loaded_context_length context_length max_model_len context_window max_context_length "
    "inputTokenLimit max_input_tokens".split()
)
_OUTPUT = ("max_completion_tokens", "max_output_tokens", "outputTokenLimit", "max_tokens")
_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d+)", re.MULTILINE)


async def query_model(
    fetch: FetchJson, target: Target, base_url: str, ways: Sequence[InfoSource]
) -> ModelFacts:
    """Ask in the given ways, in order; an earlier answer overrides a later one."""
    known = UNKNOWN
    for way in ways:
        known = merge_facts(await _QUERIES[way](fetch, target, base_url), known)
        if known.context is not None:
            break
    return known


def list_url(base_url: str, wire: str) -> str:
    """Where an endpoint lists its models; empty: nowhere."""
    path = wire_facts(wire).list_path
    if not path:
        return ""
    url = base_url.partition("?")[0].rstrip("/")
    return url.removesuffix("/v1") + path if path.startswith("/v1") else url + path


def model_names(listed: Any) -> tuple[str, ...]:
    """The names in a list of models."""
    found = [str(row.get("id") or row.get("name") or "") for row in _list_entries(listed)]
    return tuple(name.removeprefix("models/") for name in found if name)


def _list_entries(listed: Any) -> list[dict[str, Any]]:
    if isinstance(listed, dict):
        listed = listed.get("data") or listed.get("models")
    return as_dicts(listed)


async def _query_list(fetch: FetchJson, target: Target, base_url: str) -> ModelFacts:
    url = list_url(base_url, target.wire)
    return _read_entry(await fetch("GET", url, b""), target.model) if url else UNKNOWN


async def _query_show(fetch: FetchJson, target: Target, base_url: str) -> ModelFacts:
    """Ollama: the context length of the loaded model, else the one it would be loaded with."""
    root = _server_root(base_url)
    body = msgspec.json.encode({"model": target.model})
    shown = as_dict(await fetch("POST", f"{root}/api/show", body))
    if not shown:
        return UNKNOWN
    loaded = as_dicts(as_dict(await fetch("GET", f"{root}/api/ps", b"")).get("models"))
    lengths = (m.get("context_length") for m in loaded if _is_model(m, target.model))
    configured = _NUM_CTX.search(str(shown.get("parameters") or ""))
    info = as_dict(shown.get("model_info"))
    trained = next((v for k, v in info.items() if k.endswith(".context_length")), None)
    length = _token_count(next(lengths, None))
    length = length or (int(configured[1]) if configured else _token_count(trained))
    size = _read_billions(info.get("general.parameter_count"))
    capabilities = shown.get("capabilities")
    if not isinstance(capabilities, list):
        return ModelFacts(length, parameters=size)
    return ModelFacts(
        length,
        images="vision" in capabilities,
        tools="tools" in capabilities,
        reasoning="thinking" in capabilities,
        parameters=size,
    )


async def _query_props(fetch: FetchJson, target: Target, base_url: str) -> ModelFacts:
    """llama.cpp: the context length of one slot."""
    props = as_dict(await fetch("GET", f"{_server_root(base_url)}/props", b""))
    settings = as_dict(props.get("default_generation_settings"))
    sees = as_dict(props.get("modalities")).get("vision")
    return ModelFacts(
        _token_count(settings.get("n_ctx")) or _token_count(props.get("n_ctx")),
        images=sees if isinstance(sees, bool) else None,
    )


async def _query_studio(fetch: FetchJson, target: Target, base_url: str) -> ModelFacts:
    """LM Studio: its own list, which knows what is loaded."""
    listed = await fetch("GET", f"{_server_root(base_url)}/api/v0/models", b"")
    return _read_entry(listed, target.model)


_QUERIES: dict[InfoSource, Callable[[FetchJson, Target, str], Awaitable[ModelFacts]]] = {
    "list": _query_list,
    "show": _query_show,
    "props": _query_props,
    "studio": _query_studio,
}


def _read_entry(listed: Any, model: str) -> ModelFacts:
    """The facts in the model's entry of a list, under all the field names servers use."""
    row = next((r for r in _list_entries(listed) if _is_model(r, model)), {})
    top = as_dict(row.get("top_provider"))
    context = (top.get("context_length"), *map(row.get, _CONTEXT))
    output = (top.get("max_completion_tokens"), *map(row.get, _OUTPUT))
    return ModelFacts(
        next(filter(None, map(_token_count, context)), None),
        next(filter(None, map(_token_count, output)), None),
        _takes_images(row),
        _takes_tools(row),
        None,
        _read_prices(as_dict(row.get("pricing"))),
        _read_billions(as_dict(row.get("meta")).get("n_params")),
    )


def _read_billions(count: object) -> float | None:
    return count / 1e9 if isinstance(count, int) and count > 0 else None


def _takes_images(row: dict[str, Any]) -> bool | None:
    modalities = as_dict(row.get("architecture")).get("input_modalities")
    if isinstance(modalities, list):
        return "image" in modalities
    sees = as_dict(row.get("capabilities")).get("vision")
    if isinstance(sees, bool):
        return sees
    return True if row.get("type") == "vlm" else None


def _takes_tools(row: dict[str, Any]) -> bool | None:
    takes = row.get("supported_parameters")
    if isinstance(takes, list):
        return "tools" in takes
    capabilities = row.get("capabilities")
    calls = as_dict(capabilities).get("function_calling")
    if isinstance(calls, bool):
        return calls
    return True if isinstance(capabilities, list) and "tool_use" in capabilities else None


def _read_prices(pricing: dict[str, Any]) -> Prices | None:
    """Prices from dollars per token, given as text."""
    names = ("prompt", "completion", "input_cache_read", "input_cache_write")
    source, output, read, write = (_dollars_per_million(pricing.get(name)) for name in names)
    return None if source is None or output is None else Prices(source, output, read, write)


def _dollars_per_million(value: Any) -> float | None:
    try:
        number = float(value) * 1e6
    except (TypeError, ValueError):
        return None
    return round(number, 6) if 0 <= number < 1e6 else None


def _is_model(row: dict[str, Any], model: str) -> bool:
    """Whether an entry is about this model: servers add a tag or a folder to its name."""
    names = {str(row.get(n) or "").removeprefix("models/") for n in ("id", "name", "model")}
    return model in names or f"{model}:latest" in names


def _server_root(base_url: str) -> str:
    return base_url.partition("?")[0].rstrip("/").removesuffix("/v1")


def _token_count(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < 1_000_000_000 else None

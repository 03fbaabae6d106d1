"""Keys and models: which are set, whether they work, which model answers."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from hermes.app.control.model_description import describe_model, describe_trial
from hermes.app.control.model_download import ModelDownload
from hermes.app.control.model_probe import examine_model
from hermes.app.control.model_selection import (
    describe_missing,
    list_models,
    parse_selection,
    save_selection,
)
from hermes.app.control.stored_keys import describe_keys, find_key_owner, try_key
from hermes.config.dotenv import remove_variable, set_variable
from hermes.config.load import Setup, reload_setup
from hermes.config.secrets import is_secret_name
from hermes.core.errors import ConfigError, HermesError
from hermes.core.redaction.redactor import Redactor, learn_secret
from hermes.llm.endpoints.embedded import find_missing_model, find_model_file
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.endpoints.local_servers import choose_model
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.local.models import MODELS, find_model
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import ApiError
from hermes.server.http.response_schemas import ActionAnswer, ObjectList
from hermes.server.route import Route, RouteServices, require_dashboard

_LIST_SECONDS = 20.0
_TEST_SECONDS = 120.0


class KeyBody(Struct):
    value: Annotated[str, Meta(min_length=1, max_length=4096)]


class KeyTrial(Struct):
    name: str
    works: bool
    error: str | None


class ModelBody(Struct):
    model: Annotated[str, Meta(max_length=300)] = ""
    """As provider:model; empty: the one that answers now."""


class PullBody(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=100)]


async def list_keys(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the variables that hold keys, and whether they are set; never their values."""
    setup = await _reload(services)
    rows = await describe_keys(setup, services.runtime.store.ledger)
    return json_response(ObjectList("list", rows))


async def set_key(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Store a key in .env; it is never shown again."""
    return await _change_key(call, services, call.decode_body(KeyBody).value)


async def remove_key(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Remove a key from .env."""
    return await _change_key(call, services, "")


async def _change_key(call: ApiCall, services: RouteServices, value: str) -> web.StreamResponse:
    home, name = services.runtime.setup.home, call.path_params["name"]
    try:
        if value:
            await _require_key_name(services, name)
            learn_secret(value)
            await asyncio.to_thread(set_variable, home, name, value)
        else:
            await asyncio.to_thread(remove_variable, home, name)
    except ConfigError as error:
        text = str(error).replace(value or "\0", "[redacted]")
        raise ApiError(422, text, param="value", code="invalid") from None
    return json_response({"name": name, "set": bool(value)})


async def _require_key_name(services: RouteServices, name: str) -> None:
    """422 for a variable that is no key: some change settings that need to be confirmed."""
    if is_secret_name(name):
        return
    setup = await _reload(services)
    rows = await describe_keys(setup, services.runtime.store.ledger)
    if name not in {row["name"] for row in rows}:
        text = f"{name[:100]} is not a variable for a key. Nothing was changed; .env can be edited."
        raise ApiError(422, text, param="name", code="invalid")


async def try_stored_key(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Make one real call with a key and say whether it was answered."""
    name, setup = call.path_params["name"], await _reload(services)
    if setup.secrets.get(name) is None:
        text = f"{name} is not set. Nothing was called."
        raise ApiError(422, text, param="name", code="invalid")
    try:
        provider = find_key_owner(setup, name)
        choice = ModelChoice("", provider.name, "", name)
        async with asyncio.timeout(_TEST_SECONDS):
            error = await try_key(services.runtime, setup, provider, choice)
    except HermesError as failure:
        raise ApiError(422, _redact(setup, failure), param="name", code="invalid") from None
    except TimeoutError:
        error = f"There was no answer within {_TEST_SECONDS:.0f} seconds."
    return json_response(KeyTrial(name, not error, _redact(setup, error) or None))


async def _reload(services: RouteServices) -> Setup:
    return await asyncio.to_thread(reload_setup, services.runtime.setup)


def _redact(setup: Setup, text: object) -> str:
    """Also without keys that were stored since this process started."""
    return Redactor(setup.secrets.redactable_values()).redact(str(text))


async def get_models(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get the model that answers now, those that can be chosen, and those of this machine."""
    setup = await _reload(services)
    current = await describe_model(setup)
    for row in (current, *current["fallbacks"]):
        row["keys"] = [key["source"] for key in row.get("keys", ())]
    try:
        async with asyncio.timeout(_LIST_SECONDS):
            rows = await list_models(setup)
    except (TimeoutError, HermesError):
        rows = []
    data = [{"model": row.value, "about": row.detail} for row in rows]
    return json_response({"current": current, "data": data, "embedded": _describe_embedded(setup)})


def _describe_embedded(setup: Setup) -> list[dict[str, Any]]:
    names = ("name", "title", "licence", "page")
    return [
        {
            **{name: getattr(model, name) for name in names},
            "bytes": model.size,
            "downloaded": find_model_file(model, setup.secrets) is not None,
        }
        for model in MODELS
    ]


async def try_model(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Make one real call with a model and say what works."""
    body, setup = call.decode_optional_body(ModelBody), await _reload(services)
    runtime = services.runtime
    try:
        choice = ModelChoice()
        if body.model:
            selection = parse_selection(setup, body.model)
            choice = ModelChoice(selection.model, selection.provider)
        choice = await choose_model(setup.config, setup.secrets, choice)
        endpoint = resolve_chain(setup.config, setup.secrets, choice)[0]
        if find_missing_model(endpoint.base_url) is not None:
            raise ConfigError("This model is not downloaded yet. Run: hermes model pull")
        endpoint = runtime.agents.learned_limits.apply_to(endpoint)
        async with asyncio.timeout(_TEST_SECONDS):
            trial = await examine_model(runtime.services, endpoint)
    except HermesError as failure:
        raise ApiError(422, _redact(setup, failure), param="model", code="invalid") from None
    except TimeoutError:
        text = f"The model did not answer within {_TEST_SECONDS:.0f} seconds."
        raise ApiError(422, text, param="model", code="timeout") from None
    found = describe_trial(trial)
    if found["error"]:
        found["error"]["message"] = _redact(setup, found["error"]["message"])
    return json_response(found)


async def list_downloads(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the downloads of models to this machine, and how far they are."""
    rows = [to_builtins(row) for row in require_dashboard(services).downloads.latest]
    return json_response(ObjectList("list", rows))


async def pull_model(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Download a model to this machine; the download goes on when the page is closed."""
    wanted = call.decode_body(PullBody).name
    model = find_model(wanted)
    if model is None:
        names = ", ".join(model.name for model in MODELS)
        text = f"There is no model {wanted!r} to download. Choose one of {names}."
        raise ApiError(422, text, param="name", code="invalid")
    return json_response(require_dashboard(services).downloads.start_download(model), 202)


async def choose_default(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Use another model for new sessions, from the next start on."""
    body, setup = call.decode_body(ModelBody), await _reload(services)

    def save() -> str:
        selection = parse_selection(setup, body.model)
        missing = describe_missing(save_selection(setup, selection))
        line = f"The model is now {selection.model} ({selection.provider})."
        return f"{line} It cannot be called yet: {missing}" if missing else line

    try:
        line = await asyncio.to_thread(save)
    except ConfigError as error:
        raise ApiError(422, _redact(setup, error), param="model", code="invalid") from None
    return json_response(ActionAnswer([line]))


_KEY, _MODELS = "/api/keys/{name}", "/api/models"
_PULL = f"{_MODELS}/pull"
_route = partial(Route, scope="admin", errors=(422,))
ROUTES = (
    _route("GET", "/api/keys", list_keys, "keys", ObjectList),
    _route("PUT", _KEY, set_key, "key_set", body=KeyBody),
    _route("DELETE", _KEY, remove_key, "key_remove"),
    _route("POST", f"{_KEY}/test", try_stored_key, "key_test", KeyTrial),
    _route("GET", _MODELS, get_models, "model_choices"),
    _route("POST", f"{_MODELS}/test", try_model, "model_test", body=ModelBody, body_optional=True),
    _route("GET", _PULL, list_downloads, "model_downloads", ObjectList),
    _route("POST", _PULL, pull_model, "model_pull", ModelDownload, PullBody, status=202),
    _route("POST", f"{_MODELS}/set", choose_default, "model_set", ActionAnswer, ModelBody),
)

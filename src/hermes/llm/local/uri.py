"""Addresses of embedded models: a file and its context in the place of a host."""

from __future__ import annotations

from urllib.parse import quote, unquote

from msgspec import Struct

from hermes.llm.http.transport import EMBEDDED

_HOST = "local-model"


class ServedModel(Struct, frozen=True):
    """What a child is started with."""

    file: str
    context: int


def build_uri(place: ServedModel) -> str:
    return f"{EMBEDDED}//{_HOST}/{place.context}/{quote(place.file, safe='')}"


def parse_uri(url: str) -> tuple[ServedModel, str]:
    """The place, and the path of a request behind it."""
    _, _, rest = url.removeprefix(f"{EMBEDDED}//").partition("/")
    context, _, rest = rest.partition("/")
    file, slash, path = rest.partition("/")
    return ServedModel(unquote(file), int(context)), f"/v1{slash}{path}"

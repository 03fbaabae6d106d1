"""Addresses of embedded models: a file and its context in the place of a host."""

from __future__ import annotations

from urllib.parse import quote, unquote

from msgspec import Struct

from hermes.llm.http.transport import EMBEDDED

_HOST = "local-model"


class Place(Struct, frozen=True):
    """What a child is started with."""

    file: str
    context: int


def address(place: Place) -> str:
    return f"{EMBEDDED}//{_HOST}/{place.context}/{quote(place.file, safe='')}"


def parse(url: str) -> tuple[Place, str]:
    """The place, and the path of a request behind it."""
    _, _, rest = url.removeprefix(f"{EMBEDDED}//").partition("/")
    context, _, rest = rest.partition("/")
    file, slash, path = rest.partition("/")
    return Place(unquote(file), int(context)), f"/v1{slash}{path}"

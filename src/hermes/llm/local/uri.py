"""Addresses of embedded models, which name a file and a context length."""

from urllib.parse import quote, unquote

from msgspec import Struct

from hermes.llm.http.transport import EMBEDDED

_HOST = "local-model"


class ServedModel(Struct, frozen=True):
    """The model a child process serves."""

    file: str
    context: int


def is_embedded_endpoint(base_url: str) -> bool:
    """Whether the endpoint is a model that runs on this machine, in a process of this program."""
    return base_url.startswith(EMBEDDED)


def build_uri(served: ServedModel) -> str:
    return f"{EMBEDDED}//{_HOST}/{served.context}/{quote(served.file, safe='')}"


def parse_uri(url: str) -> tuple[ServedModel, str]:
    """The model of an address, and the path of the request."""
    _, _, rest = url.removeprefix(f"{EMBEDDED}//").partition("/")
    context, _, rest = rest.partition("/")
    file, slash, path = rest.partition("/")
    return ServedModel(unquote(file), int(context)), f"/v1{slash}{path}"

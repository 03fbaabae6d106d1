"""Model servers on this machine, searched on their usual ports when nothing is configured."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, structs

from hermes.config.schema import Config
from hermes.config.secrets import Secrets
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.endpoints.resolver import is_undecided
from hermes.llm.providers import provider_index
from hermes.llm.wire.convert import as_dict, as_dicts, as_text

SECONDS = 0.2
_LARGEST_LIST = 1 << 20
_NO_CHAT = ("embed", "bge-", "rerank", "whisper", "tts")


class LocalServer(Struct, frozen=True):
    provider: str
    base_url: str
    models: tuple[str, ...]

    @property
    def model_choice(self) -> ModelChoice:
        return ModelChoice(self.models[0], self.provider)

    @property
    def note(self) -> str:
        address = urlsplit(self.base_url).netloc
        more = f" ({len(self.models) - 1} more there)" if len(self.models) > 1 else ""
        return (
            f"Using {self.models[0]} of {self.provider}, found on this machine at {address}{more}. "
            "Run `hermes model` to choose another."
        )


async def find_servers(names: Sequence[str] | None = None) -> tuple[LocalServer, ...]:
    """The servers that answer and have a chat model, in the given order; all are asked at once."""
    servers = provider_index().local_servers
    asked = servers if names is None else names
    found = await asyncio.gather(*(_ask_server(name, servers[name]) for name in asked))
    return tuple(server for server in found if server is not None)


async def choose_model(config: Config, secrets: Secrets, choice: ModelChoice) -> ModelChoice:
    """The model a conversation would use. Servers are asked only if nothing is configured."""
    if not is_undecided(config, secrets, choice):
        return choice
    found = pick_server(await find_servers(), config, choice)
    return found.model_choice if found is not None else choice


def pick_server(
    found: Sequence[LocalServer], config: Config, choice: ModelChoice
) -> LocalServer | None:
    """The first server; if a model is named, the first that has it, with that model in front."""
    name = choice.model or config.model.default
    if not name:
        return found[0] if found else None
    for server in found:
        if model := next((m for m in server.models if m in (name, f"{name}:latest")), ""):
            others = [m for m in server.models if m != model]
            return structs.replace(server, models=(model, *others))
    return None


async def _ask_server(name: str, base_url: str) -> LocalServer | None:
    try:
        async with asyncio.timeout(SECONDS):
            models = _parse_models(await _http_get(f"{base_url}/models"))
    except (OSError, TimeoutError, EOFError, ValueError):
        return None
    return LocalServer(name, base_url, models) if models else None


async def _http_get(url: str) -> bytes:
    """Plain HTTP/1.0 to this machine: importing an HTTP client would take longer than the call."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        head = f"GET {parts.path} HTTP/1.0\r\nHost: {parts.netloc}\r\n"
        writer.write(f"{head}Accept: application/json\r\n\r\n".encode())
        await writer.drain()
        if b" 200 " not in await reader.readline():
            return b""
        size = -1
        while line := (await reader.readline()).strip().lower():
            name, _, value = line.partition(b":")
            if name == b"content-length" and value.strip().isdigit():
                size = min(int(value), _LARGEST_LIST)
        return await (reader.readexactly(size) if size >= 0 else _read_rest(reader))
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _read_rest(reader: asyncio.StreamReader) -> bytes:
    """The body up to its end; b"" if it is too long to be a list of models."""
    found = bytearray()
    while piece := await reader.read(_LARGEST_LIST):
        found += piece
        if len(found) > _LARGEST_LIST:
            return b""
    return bytes(found)


def _parse_models(body: bytes) -> tuple[str, ...]:
    try:
        listed = as_dict(msgspec.json.decode(body))
    except msgspec.DecodeError:
        return ()
    names = [as_text(entry.get("id")) for entry in as_dicts(listed.get("data"))]
    return tuple(n for n in names if n and not any(word in n.lower() for word in _NO_CHAT))

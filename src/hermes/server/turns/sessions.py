"""From a request to a session: whose it is, what it is called, and what came before."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from unicodedata import category

from msgspec import Struct, structs

from hermes.app.agents import Options
from hermes.app.session import Session
from hermes.app.transcript import ClientConversation
from hermes.core.errors import StoreError
from hermes.core.message import Message
from hermes.core.store import SessionMeta
from hermes.server.http.errors import ApiError, bad, missing
from hermes.server.http.principals import Principal
from hermes.server.http.route import Call
from hermes.server.turns.client_tools import ClientTools

if TYPE_CHECKING:
    from hermes.server.app import Server

SOURCE = "api"
LONGEST_NAME = 256
_PREFIX = "api-"


class Ask(Struct, frozen=True):
    """One turn as a client wants it."""

    prompt: Message
    past: tuple[Message, ...] = ()
    instructions: str = ""
    session: str = ""
    """The id of a stored conversation to go on with; empty: the client brings its past."""
    session_key: str = ""
    chain: str = ""
    """The id to store it under, when it is not derived from its beginning."""
    keep: bool = True
    client_tools: ClientTools | None = None
    """The client runs these instead of us ours."""
    settings: dict[str, Any] = {}
    """What replaces fields of core.provider.Settings."""


class Headers(Struct, frozen=True):
    """What a request says about its session."""

    session: str = ""
    key: str = ""


def session_headers(call: Call) -> Headers:
    return Headers(
        _name(call, "X-Hermes-Session-Id"),
        _name(call, "X-Hermes-Session-Key"),
    )


def _name(call: Call, header: str) -> str:
    value = call.request.headers.get(header, "").strip()
    if not value:
        return ""
    if call.server.principals.open:
        raise ApiError(403, f"{header} needs a server with a key.", code="key_required")
    if len(value) > LONGEST_NAME or not speakable(value):
        raise bad(f"{header} has at most {LONGEST_NAME} characters, no control characters.")
    return value


def speakable(name: str) -> bool:
    """Neither control characters nor bytes that are no text; what joins emoji is neither."""
    return not any(category(c) in ("Cc", "Cs", "Zl", "Zp") for c in name)


def derived(principal: Principal, instructions: str, messages: Sequence[Message]) -> str:
    """The same for all turns of a conversation: its beginning, and whose it is."""
    first = next((m for m in messages if m.role == "user"), None)
    digest = hashlib.sha256()
    for text in (principal.name, instructions, first.text if first else ""):
        raw = text.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    if first is not None:
        for part in first.parts:
            digest.update(getattr(part, "data", b"") or getattr(part, "url", "").encode())
    return _PREFIX + digest.hexdigest()[:32]


def owned(meta: SessionMeta, principal: Principal) -> bool:
    """The nameless principal is the operator: what belongs to nobody else is theirs."""
    owner = meta.key.partition("/")[0] if meta.source == SOURCE else ""
    return owner == principal.name


def key_of(principal: Principal, session_key: str) -> str:
    return f"{principal.name}/{session_key}"


@asynccontextmanager
async def opened(server: Server, principal: Principal, ask: Ask) -> AsyncIterator[Session]:
    """The session of this turn. Leaving the block for any reason ends what still runs in it."""
    async with alone(server, ask.session):
        session = await _open(server, principal, ask)
        server.sessions.add(session)
        try:
            yield session
        finally:
            server.sessions.discard(session)
            await asyncio.shield(session.close())


@asynccontextmanager
async def alone(server: Server, identity: str) -> AsyncIterator[None]:
    """Turns of one stored conversation come one after the other."""
    if not identity:
        yield
        return
    lock, waiting = server.turns.get(identity, (None, 0))
    lock = lock or asyncio.Lock()
    server.turns[identity] = (lock, waiting + 1)
    try:
        async with lock:
            yield
    finally:
        _, waiting = server.turns[identity]
        if waiting == 1:
            del server.turns[identity]
        else:
            server.turns[identity] = (lock, waiting - 1)


async def _open(server: Server, principal: Principal, ask: Ask) -> Session:
    past = ask.past
    identity = ask.session
    if identity:
        past = await stored(server, principal, identity)
    else:
        identity = ask.chain or derived(principal, ask.instructions, (*past, ask.prompt))
    session = await server.runtime.open_client_session(
        ClientConversation(identity, past, ask.instructions, ask.keep),
        source=SOURCE,
        key=key_of(principal, ask.session_key),
        options=Options(toolsets=server.settings.toolsets),
    )
    if principal.name:
        session.host.account = structs.replace(session.host.account, user=principal.name)
    if principal.daily_usd is not None:
        caps = [c for c in (session.host.budget.user_usd, principal.daily_usd) if c is not None]
        session.host.budget = structs.replace(session.host.budget, user_usd=min(caps))
    tools = ask.client_tools
    changes = {**ask.settings, **(tools.settings if tools else {})}
    agent = session.agent
    if changes:
        agent = structs.replace(agent, settings=structs.replace(agent.settings, **changes))
    if tools:
        agent = structs.replace(agent, tools={}, specs=tools.specs, hand_over=True)
    session.host.agent = agent
    return session


async def stored(server: Server, principal: Principal, identity: str) -> tuple[Message, ...]:
    store = server.runtime.store
    try:
        meta = await store.sessions.get_meta(identity)
        if meta is None:
            return ()
        if not owned(meta, principal):
            raise missing("session", identity)
        return tuple(await store.sessions.load_messages(identity))
    except StoreError:
        return ()


def wanted_settings(
    server: Server,
    *,
    tokens: int | None,
    temperature: float | None,
    effort: str | None,
    stop: str | Sequence[str] | None = None,
) -> dict[str, Any]:
    """What a client asks of the provider, within the operator's limits. Many say 0 or -1 tokens
    when they want no limit."""
    most = server.settings.max_output_tokens
    tokens = tokens if tokens and tokens > 0 else None
    changes = {
        "max_output": min(tokens or most, most) if most else tokens,
        "temperature": temperature,
        "effort": effort,
        "stop": (stop,) if isinstance(stop, str) else tuple(stop or ()),
    }
    return {name: value for name, value in changes.items() if value is not None and value != ()}

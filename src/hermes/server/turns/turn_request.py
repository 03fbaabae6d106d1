"""One turn as a client requests it: every protocol is parsed into the same value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unicodedata import category

from msgspec import Struct

from hermes.core.message import Message
from hermes.server.http.call import ApiCall
from hermes.server.http.errors import ApiError, bad_request
from hermes.server.turns.client_tools import ClientTools
from hermes.server.turns.content import is_visible

MAX_NAME_LENGTH = 256


class TurnRequest(Struct, frozen=True):
    prompt: Message
    past: tuple[Message, ...] = ()
    instructions: str = ""
    """Added to the system prompt of this turn, never stored with the session."""
    session: str = ""
    """The id of a stored session to continue; empty: the client sends the past itself."""
    session_key: str = ""
    new_session: str = ""
    """The id to store a sent past under; empty: it is derived from the beginning."""
    keep: bool = True
    """Whether the session is stored."""
    client_tools: ClientTools | None = None
    """Tools the client runs; the server's own are off then."""
    settings: dict[str, Any] = {}
    """Replaces fields of core.provider.Settings."""


def split_prompt(
    messages: Sequence[Message], field: str, noun: str = "message"
) -> tuple[tuple[Message, ...], Message]:
    """The past and the prompt: the last message that is not the assistant's. `field` and `noun`
    name it in the error when there is none."""
    last = len(messages) - 1
    while last >= 0 and messages[last].role == "assistant":
        last -= 1
    if last < 0 or not _has_content(messages[last]):
        raise bad_request(f"{field}: there is no user {noun} with visible content.", field)
    return tuple(m for m in messages[:last] if _has_content(m)), messages[last]


def _has_content(message: Message) -> bool:
    return message.role == "tool" or bool(message.calls) or is_visible(message)


def join_instructions(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def read_session_headers(call: ApiCall) -> tuple[str, str]:
    """The session id and the session key of a request, each empty when it sends none."""
    return _read_name(call, "X-Hermes-Session-Id"), _read_name(call, "X-Hermes-Session-Key")


def _read_name(call: ApiCall, header: str) -> str:
    value = call.request.headers.get(header, "").strip()
    if not value:
        return ""
    if not call.principal.has_key:
        raise ApiError(403, f"{header} needs a server with a key.", code="key_required")
    return check_name(value, header, None)


def check_name(name: str, field: str, param: str | None) -> str:
    if len(name) > MAX_NAME_LENGTH or not is_text(name):
        raise bad_request(
            f"{field} has at most {MAX_NAME_LENGTH} characters, no control characters.", param
        )
    return name


def is_text(name: str) -> bool:
    """Neither control characters nor invalid bytes; joiners as in emoji are neither."""
    return not any(category(c) in ("Cc", "Cs", "Zl", "Zp") for c in name)


def limit_settings(
    max_output: int | None,
    *,
    tokens: int | None,
    temperature: float | None,
    effort: str | None = None,
    stop: str | Sequence[str] | None = None,
) -> dict[str, Any]:
    """What the client wants of the provider, within the operator's `max_output`. Many clients
    send 0 or -1 tokens when they want no limit."""
    tokens = tokens if tokens and tokens > 0 else None
    changes = {
        "max_output": min(tokens or max_output, max_output) if max_output else tokens,
        "temperature": temperature,
        "effort": effort,
        "stop": (stop,) if isinstance(stop, str) else tuple(stop or ()),
    }
    return {name: value for name, value in changes.items() if value is not None and value != ()}

"""The request for one turn: the value that every protocol is parsed into."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from hermes.core.message import Message
from hermes.server.http.errors import bad_request
from hermes.server.turns.client_tools import ClientTools
from hermes.server.turns.content import has_visible_content


class TurnRequest(Struct, frozen=True):
    """One turn as a client requests it."""

    prompt: Message
    past: tuple[Message, ...] = ()
    instructions: str = ""
    """Added to the system prompt of this turn; never stored with the session."""
    session: str = ""
    """The id of a stored session to continue; empty if the request contains the past."""
    session_key: str = ""
    new_session: str = ""
    """The id for a session whose past is in the request; empty: derived from its first message."""
    keep: bool = True
    """Whether the session is stored."""
    client_tools: ClientTools | None = None
    """Tools that the client runs instead of the server's own."""
    settings: dict[str, Any] = {}
    """Fields of core.provider.Settings to replace."""


def split_prompt(
    messages: Sequence[Message], field: str, noun: str = "message"
) -> tuple[tuple[Message, ...], Message]:
    """Split messages into past and prompt, the last message that is not the assistant's. `field`
    and `noun` are for the error when there is none."""
    last = len(messages) - 1
    while last >= 0 and messages[last].role == "assistant":
        last -= 1
    if last < 0 or not _has_content(messages[last]):
        raise bad_request(f"{field} must contain a user {noun} with visible content.", field)
    return tuple(m for m in messages[:last] if _has_content(m)), messages[last]


def _has_content(message: Message) -> bool:
    return message.role == "tool" or bool(message.calls) or has_visible_content(message)


def join_texts(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def limit_settings(
    max_output: int | None,
    *,
    tokens: int | None,
    temperature: float | None,
    effort: str | None = None,
    stop: str | Sequence[str] | None = None,
) -> dict[str, Any]:
    """The client's model settings, within the operator's `max_output`. Many clients send 0 or -1
    tokens for no limit."""
    tokens = tokens if tokens and tokens > 0 else None
    changes = {
        "max_output": min(tokens or max_output, max_output) if max_output else tokens,
        "temperature": temperature,
        "effort": effort,
        "stop": (stop,) if isinstance(stop, str) else tuple(stop or ()),
    }
    return {name: value for name, value in changes.items() if value is not None and value != ()}

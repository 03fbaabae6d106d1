"""The request for one turn: the value that every protocol is parsed into."""

from collections.abc import Sequence
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta, Struct, structs

from hermes.core.message import Message
from hermes.core.provider import Effort
from hermes.server.http.errors import bad_request, unsupported_parameter
from hermes.server.http.json_body import parse_flag
from hermes.server.http.request_schemas import FlagField
from hermes.server.requests.client_tools import ClientTools
from hermes.server.requests.content import has_visible_content
from hermes.server.requests.output_format import AnswerFormat


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
    results: tuple[Message, ...] = ()
    """Results of the client's tools that came together with the prompt; `past` ends with them."""
    client_tools: ClientTools | None = None
    """The tools of the client; None: only the server's own."""
    settings: dict[str, Any] = {}
    """Fields of core.provider.Settings to replace."""
    answer_format: AnswerFormat | None = None
    has_own_limit: bool = False
    """Whether the client limits the length of the answer; it then ends there."""
    ignored: tuple[str, ...] = ()
    """What of the request had no effect."""


class _StoredRequest(Struct, frozen=True, omit_defaults=True):
    """What of a request without client tools another server needs to continue its turn."""

    prompt: Message
    past: tuple[Message, ...] = ()
    instructions: str = ""
    session: str = ""
    session_key: str = ""
    new_session: str = ""


def encode_request(request: TurnRequest) -> bytes:
    names = _StoredRequest.__struct_fields__
    return msgspec.msgpack.encode(_StoredRequest(*(getattr(request, name) for name in names)))


def decode_request(body: bytes) -> TurnRequest:
    return TurnRequest(*structs.astuple(msgspec.msgpack.decode(body, type=_StoredRequest)))


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


def list_last_results(past: Sequence[Message]) -> tuple[Message, ...]:
    """The results of tools that `past` ends with."""
    start = len(past)
    while start and past[start - 1].role == "tool":
        start -= 1
    return tuple(past[start:])


def _has_content(message: Message) -> bool:
    return message.role == "tool" or bool(message.calls) or has_visible_content(message)


def join_texts(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


class CommonFields(Struct, kw_only=True):
    """Fields that mean the same in every protocol."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    background: FlagField | None = None

    def check_supported(self) -> None:
        """Refuse what this server cannot do and a client would miss."""
        if self.n is not None and self.n > 1:
            raise unsupported_parameter("n", "only one answer is given.")
        if self.logprobs or self.top_logprobs:
            raise unsupported_parameter("logprobs", "they are not available.")
        if parse_flag(self.background, "background"):
            raise unsupported_parameter(
                "background", "use POST /v1/runs for work without a client."
            )


class ModelOptions(Struct, frozen=True, kw_only=True):
    """What a client wants of the model's answer."""

    max_tokens: int | None = None
    """Many clients send 0 or -1 for no limit."""
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    effort: str | None = None
    effort_field: str = "reasoning_effort"
    stop: str | Sequence[str] | None = None

    @property
    def has_limit(self) -> bool:
        return bool(self.max_tokens and self.max_tokens > 0)

    def build_settings(self, max_output: int | None) -> dict[str, Any]:
        """Fields of core.provider.Settings, within the operator's `max_output`."""
        tokens = self.max_tokens if self.has_limit else None
        changes = {
            "max_output": min(tokens or max_output, max_output) if max_output else tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "effort": self._parse_effort(),
            "stop": (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
        }
        return {name: value for name, value in changes.items() if value is not None and value != ()}

    def _parse_effort(self) -> str | None:
        known = get_args(Effort)
        if self.effort == "max":
            return str(known[-1])
        if self.effort is not None and self.effort not in known:
            field, names = self.effort_field, ", ".join((*known, "max"))
            raise bad_request(f"{field} must be one of {names}.", field)
        return self.effort

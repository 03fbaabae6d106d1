"""All kinds of failures, classified in llm/errors and acted on in agent/recovery."""

from enum import Enum

from msgspec import Struct


class Kind(Enum):
    """What went wrong, as finely as recovery needs it. The value appears in logs and events."""

    AUTH = "auth"
    FORBIDDEN = "forbidden"
    BILLING = "billing"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER = "server_error"
    CONFLICT = "conflict"
    NETWORK = "network"
    STALLED = "stalled"
    TLS = "tls"
    REDIRECT = "redirect"
    NOT_API = "not_api"
    CONTEXT_OVERFLOW = "context_overflow"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    OUTPUT_CAP = "output_cap"
    PARAMETER = "parameter"
    STREAM_UNSUPPORTED = "stream_unsupported"
    MEDIA_REJECTED = "media_rejected"
    REPLAY_REJECTED = "replay_rejected"
    MESSAGE_ORDER = "message_order"
    MODEL_NOT_FOUND = "model_not_found"
    WRONG_PATH = "wrong_path"
    CONTENT_POLICY = "content_policy"
    BAD_REQUEST = "bad_request"
    BAD_UNICODE = "bad_unicode"
    NO_TERMINAL = "no_terminal"
    TRUNCATED_CALL = "truncated_call"
    UNREADABLE_CALL = "unreadable_call"
    EMPTY = "empty"
    ANSWER_TOO_LARGE = "answer_too_large"
    UNKNOWN = "unknown"


_BAD_REQUESTS = (
    *(Kind.OUTPUT_CAP, Kind.PARAMETER, Kind.STREAM_UNSUPPORTED, Kind.MEDIA_REJECTED),
    *(Kind.REPLAY_REJECTED, Kind.MESSAGE_ORDER, Kind.BAD_UNICODE),
)
CODES: dict[Kind, str] = {
    **{kind: kind.value for kind in Kind},
    **dict.fromkeys(_BAD_REQUESTS, "bad_request"),
    Kind.FORBIDDEN: "auth",
    Kind.CONFLICT: "server_error",
    Kind.REDIRECT: "network",
    Kind.NOT_API: "network",
    Kind.WRONG_PATH: "model_not_found",
    Kind.NO_TERMINAL: "server_error",
    Kind.TRUNCATED_CALL: "output_truncated",
    Kind.UNREADABLE_CALL: "bad_request",
    Kind.EMPTY: "empty_response",
    Kind.ANSWER_TOO_LARGE: "output_truncated",
    Kind.UNKNOWN: "internal",
}
"""Kind -> the public error code (loop.md). Codes of turn endings that are not provider
failures (thinking_exhausted, max_turns, tool_loop, ...) are named where they are decided."""
OWN_FAILURES = frozenset({"internal", "unavailable"})
"""Codes of failures of this program: of itself, and of a database that is away."""


class Failure(Struct, frozen=True):
    """One classified failure. `message` is the provider's own words, redacted and bounded."""

    kind: Kind
    message: str
    status: int | None = None
    code: str = ""
    """The provider's own code or type, as it came."""
    retry_after: float | None = None
    """Seconds the provider asked us to wait."""
    limit: int | None = None
    """Context or output limit in tokens, when the provider stated it."""
    param: str = ""
    """Name of the request parameter the provider rejected."""


class HermesError(Exception):
    """Base of every error we raise on purpose."""


class ProviderError(HermesError):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class ToolError(HermesError):
    """The message is for the model; it will see it and adapt."""


class ConfigError(HermesError):
    """Bad configuration or usage: one sentence for the operator; nothing was changed."""


class StoreError(HermesError):
    """The store could not read or write: what failed, whether anything was lost, what to do.

    `code`: busy, full, readonly, files, gone, damaged, newer, foreign, io, in_use, missing, exists,
    closed, fenced, away.
    """

    def __init__(self, message: str, code: str = "io") -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_passing(self) -> bool:
        """Whether the same may work in a while, without anything being changed here."""
        return self.code in ("busy", "full", "readonly", "files", "away")

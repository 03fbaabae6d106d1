"""The table that says what a refusal means: rows in order, the first one that fits decides."""

from __future__ import annotations

from msgspec import Struct

from hermes.core.errors import Kind
from hermes.llm.errors import patterns as w

NONE = 0
"""Stands for: no HTTP status, the error came inside a 200 answer."""


class Rule(Struct, frozen=True):
    """`text` is searched in the message (quotes removed, case ignored), `code` must match the
    whole code; what is empty matches everything. Groups `limit` and `param` fill the Failure."""

    kind: Kind
    text: str = ""
    status: frozenset[int] | None = None
    code: str = ""
    param: str = ""


def _at(*statuses: int) -> frozenset[int]:
    return frozenset(statuses)


_INSIDE = _at(NONE, 200)
_REQUEST = _at(NONE, 200, 400, 404, 422)
_ANYWHERE = _at(NONE, 200, 400, 409, 412, 413, 422, *range(500, 600))
"""Where a request that is too long is reported: routers wrap the real error in anything."""
_DENIED = _at(NONE, 200, 400, 401, 403, 422)
_5XX = frozenset(range(500, 600))

TOO_LONG = (
    # Tokens per minute look like tokens per request; these stand before the rows on length.
    Rule(Kind.CONTEXT_OVERFLOW, rf"request too large\b.{{0,200}}\blimit:? {w.N}"),
    Rule(Kind.CONTEXT_OVERFLOW, r"exceed context limit: \d+ \+ \d+ > \d+"),
    Rule(Kind.RATE_LIMITED, r"too many tokens(?: per day)?, (?:please )?wait"),
    Rule(Kind.RATE_LIMITED, r"tokens per (?:min|hour|day)|rate.?limit", _at(429)),
    Rule(Kind.BAD_UNICODE, w.BAD_UNICODE, _REQUEST),
    Rule(Kind.PARAMETER, w.BAD_ID, _REQUEST, param="call_id"),
    *(Rule(Kind.OUTPUT_CAP, text, _ANYWHERE) for text in w.OUTPUT),
    *(Rule(Kind.CONTEXT_OVERFLOW, text, _ANYWHERE) for text in w.CONTEXT),
    Rule(
        Kind.CONTEXT_OVERFLOW,
        status=_ANYWHERE,
        code=r"context_length_exceeded|exceed_context_size_error|model_max_prompt_tokens_exceeded"
        r"|context_window_exceeded|prompt_too_long|max_tokens_exceeded|tokens_limit_reached|1261",
    ),
)

CONVERSATION = (
    Rule(Kind.REPLAY_REJECTED, code="invalid_encrypted_content|invalid_thinking_signature"),
    Rule(Kind.PARAMETER, w.REPLAY_MISSING, _REQUEST, param="missing"),
    Rule(Kind.REPLAY_REJECTED, w.REPLAY, _REQUEST),
    Rule(Kind.STREAM_UNSUPPORTED, w.STREAM, _REQUEST | {403, 405, 501}),
    Rule(Kind.MEDIA_REJECTED, w.IMAGE_IN_TOOL, _REQUEST, param="tool_image"),
    Rule(Kind.MEDIA_REJECTED, w.BAD_IMAGE, _REQUEST | {413, 415, 500}, param="bad_image"),
    Rule(Kind.MEDIA_REJECTED, w.IMAGE, _REQUEST | {413, 415, 500}, param="image"),
    Rule(
        Kind.MEDIA_REJECTED,
        code=r"invalid_image\w*|image_\w+|unsupported_(?:image|file)\w*",
        param="image",
    ),
    Rule(Kind.MESSAGE_ORDER, w.ORDER, _REQUEST),
    Rule(Kind.MESSAGE_ORDER, status=_REQUEST, code="1214"),
)

ACCOUNT = (
    Rule(Kind.FORBIDDEN, w.FORBIDDEN, _DENIED | {404, 451}),
    # Free tiers word a limit per minute like an empty account, but say when to come back.
    Rule(Kind.RATE_LIMITED, r"quota.{0,600}(?:retry in|retrydelay|try again in) ?[:\d]", _at(429)),
    Rule(
        Kind.BILLING,
        code=r"insufficient_(?:quota|balance|credits?|funds)\w*|billing_\w+|payment_required"
        r"|exceeded_current_quota\w*|usage_limit_reached|quota_exceeded|arrearage|credit\w*"
        r"|spend_limit\w*|1008|1113|1308|1309|usage_not_included|account_deactivated",
    ),
    Rule(Kind.BILLING, w.NO_CREDIT, _DENIED | {402, 412, 429}),
    Rule(Kind.BILLING, r"exceeded your current quota", _INSIDE | {429}),
    Rule(Kind.BILLING, status=_at(402)),
    Rule(
        Kind.AUTH,
        code=r"invalid_api_key|authentication_error|invalid_authentication\w*|unauthenticated"
        r"|unauthorized|(?:unrecognizedclient|expiredtoken|invalidsignature|incompletesignature"
        r"|missingauthenticationtoken|invalidclienttokenid)\w*"
        r"|token_(?:expired|invalidated|revoked)|api_key_invalid|no_api_key|100[0-4]",
    ),
    Rule(Kind.AUTH, w.BAD_KEY, _DENIED),
    Rule(
        Kind.CONTENT_POLICY,
        code=r"content_filter\w*|content_policy\w*|responsibleaipolicyviolation|moderation\w*"
        r"|data_?inspection\w*|safety\w*|prohibited_content|invalid_prompt|1301|1026|1027",
    ),
    Rule(Kind.CONTENT_POLICY, w.POLICY, _REQUEST | {403, 451, 500}),
)

MODEL_OR_FIELD = (
    Rule(Kind.PARAMETER, r"no endpoints found that support tool", _REQUEST, param="tools"),
    Rule(Kind.OVERLOADED, r"model.{0,60}(?:is )?(?:currently )?loading|loading model"),
    Rule(
        Kind.MODEL_NOT_FOUND,
        code=r"model_not_found|model_not_supported|model_decommissioned|modelnotfound\w*|1211"
        r"|deploymentnotfound|invalid_model\w*|unknown_model|model_not_available|model_unavailable",
    ),
    Rule(Kind.PARAMETER, w.SCHEMA, _REQUEST | {500}, param="schema"),
    Rule(Kind.PARAMETER, w.NO_TOOLS, _REQUEST | {500, 501}, param="tools"),
    Rule(
        Kind.PARAMETER,
        r"developer instruction is not enabled",
        _REQUEST,
        param="systemInstruction",
    ),
    Rule(
        Kind.PARAMETER,
        r"\.role does not support developer"
        r"|(?:unknown variant|unexpected role|invalid role) developer",
        _REQUEST,
        param="developer",
    ),
    Rule(Kind.PARAMETER, r"verified to generate reasoning", _DENIED, param="reasoning.summary"),
    Rule(Kind.PARAMETER, r"tools?[\[.]\d+[\w.\]]*\bstrict\b", _REQUEST, param="strict"),
    Rule(Kind.PARAMETER, r"thinking\.(?:\w+\.)?display", _REQUEST, param="thinking.display"),
    Rule(Kind.PARAMETER, r"temperature and top_p cannot both", _REQUEST, param="top_p"),
    Rule(Kind.PARAMETER, w.NO_THINKING, _REQUEST, param="thinking"),
    *(Rule(Kind.PARAMETER, text, _REQUEST) for text in w.PARAMETER),
    Rule(Kind.MODEL_NOT_FOUND, w.NO_MODEL, _REQUEST | {403, 410}),
    Rule(Kind.CONTEXT_OVERFLOW, status=_ANYWHERE, code="1210"),
    Rule(Kind.PAYLOAD_TOO_LARGE, w.PAYLOAD, _REQUEST | {413}),
    Rule(Kind.SERVER, code="tool_use_failed"),
)

THEIR_STATE = (
    Rule(
        Kind.OVERLOADED,
        code=r"(?:engine_)?overloaded\w*|modelnotready\w*|serviceunavailable\w*|unavailable"
        r"|slow_down|1305|1312",
    ),
    Rule(
        Kind.RATE_LIMITED,
        code=r"rate_?limit\w*|throttling\w*|too_?many_?requests\w*|resource_exhausted"
        r"|servicequotaexceeded\w*|130[23]|1002|1039|2045",
        status=_INSIDE | {400, 403},
    ),
    Rule(Kind.OVERLOADED, w.OVERLOADED, _INSIDE | _5XX | {429}),
    Rule(Kind.RATE_LIMITED, w.RATE_LIMITED, _INSIDE | {403}),
    Rule(Kind.NETWORK, w.NETWORK, _INSIDE),
    Rule(
        Kind.SERVER,
        code=r"server_error|internal\w*|api_error|modelstreamerror\w*|modelerror\w*|modeltimeout\w*"
        r"|timeout_error|bad_gateway|gateway_timeout|upstream_error|deadline_exceeded|1234",
        status=_INSIDE | {400},
    ),
    Rule(
        Kind.FORBIDDEN,
        code=r"permission_(?:error|denied)|accessdenied\w*|forbidden|access_denied",
        status=_INSIDE | {400},
    ),
    Rule(Kind.PAYLOAD_TOO_LARGE, code="request_too_large", status=_INSIDE | {400}),
    Rule(Kind.MODEL_NOT_FOUND, code="not_found_error|resourcenotfoundexception", status=_INSIDE),
    Rule(
        Kind.BAD_REQUEST,
        code=r"invalid_request\w*|validationexception|invalid_argument|invalid_parameter\w*"
        r"|bad_request\w*|failed_precondition|out_of_range",
        status=_INSIDE,
    ),
    Rule(Kind.SERVER, w.SERVER, _INSIDE),
)

STATUS = (
    Rule(Kind.AUTH, status=_at(401)),
    Rule(Kind.FORBIDDEN, status=_at(403, 407, 451)),
    Rule(Kind.WRONG_PATH, status=_at(404, 405, 410)),
    Rule(Kind.CONFLICT, status=_at(409)),
    Rule(Kind.PAYLOAD_TOO_LARGE, status=_at(413)),
    Rule(Kind.RATE_LIMITED, status=_at(429)),
    Rule(Kind.OVERLOADED, status=_at(503, 529)),
    Rule(Kind.SERVER, status=_5XX | {408, 424, 425, 499}),
    Rule(Kind.REDIRECT, status=frozenset(range(300, 400))),
    Rule(Kind.BAD_REQUEST, status=frozenset(range(400, 500))),
    Rule(Kind.UNKNOWN),
)

RULES: tuple[Rule, ...] = (
    *TOO_LONG,
    *CONVERSATION,
    *ACCOUNT,
    *MODEL_OR_FIELD,
    *THEIR_STATE,
    *STATUS,
)

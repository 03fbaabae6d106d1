"""What refusals mean: a table of rules, of which the first match decides."""

from collections.abc import Set as AbstractSet

from msgspec import Struct

from hermes.core.errors import Kind
from hermes.llm.errors import patterns

NONE = 0
"""Stands for no HTTP status: the error came inside a response with status 200."""


class ErrorRule(Struct, frozen=True):
    """`text` is searched in the message, without quotes and ignoring case; `code` must match the
    whole code. Empty fields match everything. Groups `limit` and `param` fill the Failure."""

    kind: Kind
    text: str = ""
    status: AbstractSet[int] | None = None
    code: str = ""
    param: str = ""


_INSIDE = frozenset({NONE, 200})
_REQUEST = _INSIDE | {400, 404, 422}
_ANYWHERE = _INSIDE | {400, 409, 412, 413, 422, *range(500, 600)}
"""Statuses of requests that are too long: routers wrap the real error in any of these."""
_DENIED = _INSIDE | {400, 401, 403, 422}
_5XX = frozenset(range(500, 600))

RULES: tuple[ErrorRule, ...] = (
    # Tokens per minute look like tokens per request, so these come before the rules on length.
    ErrorRule(Kind.CONTEXT_OVERFLOW, rf"request too large\b.{{0,200}}\blimit:? {patterns.N}"),
    ErrorRule(Kind.CONTEXT_OVERFLOW, r"exceed context limit: \d+ \+ \d+ > \d+"),
    ErrorRule(Kind.RATE_LIMITED, r"too many tokens(?: per day)?, (?:please )?wait"),
    ErrorRule(Kind.RATE_LIMITED, r"tokens per (?:min|hour|day)|rate.?limit", {429}),
    ErrorRule(Kind.BAD_UNICODE, patterns.BAD_UNICODE, _REQUEST),
    ErrorRule(Kind.PARAMETER, patterns.BAD_ID, _REQUEST, param="call_id"),
    *(ErrorRule(Kind.OUTPUT_CAP, text, _ANYWHERE) for text in patterns.OUTPUT),
    *(ErrorRule(Kind.CONTEXT_OVERFLOW, text, _ANYWHERE) for text in patterns.CONTEXT),
    ErrorRule(
        Kind.CONTEXT_OVERFLOW,
        status=_ANYWHERE,
        code=r"context_length_exceeded|exceed_context_size_error|model_max_prompt_tokens_exceeded"
        r"|context_window_exceeded|prompt_too_long|max_tokens_exceeded|tokens_limit_reached|1261",
    ),
    # The conversation.
    ErrorRule(Kind.REPLAY_REJECTED, code="invalid_encrypted_content|invalid_thinking_signature"),
    ErrorRule(Kind.PARAMETER, patterns.REPLAY_MISSING, _REQUEST, param="missing"),
    ErrorRule(Kind.REPLAY_REJECTED, patterns.REPLAY, _REQUEST),
    ErrorRule(Kind.STREAM_UNSUPPORTED, patterns.STREAM, _REQUEST | {403, 405, 501}),
    ErrorRule(Kind.MEDIA_REJECTED, patterns.IMAGE_IN_TOOL, _REQUEST, param="tool_image"),
    ErrorRule(
        Kind.MEDIA_REJECTED, patterns.BAD_IMAGE, _REQUEST | {413, 415, 500}, param="bad_image"
    ),
    ErrorRule(Kind.MEDIA_REJECTED, patterns.IMAGE, _REQUEST | {413, 415, 500}, param="image"),
    ErrorRule(
        Kind.MEDIA_REJECTED,
        code=r"invalid_image\w*|image_\w+|unsupported_(?:image|file)\w*",
        param="image",
    ),
    ErrorRule(Kind.MESSAGE_ORDER, patterns.ORDER, _REQUEST),
    ErrorRule(Kind.MESSAGE_ORDER, status=_REQUEST, code="1214"),
    # The account.
    ErrorRule(Kind.FORBIDDEN, patterns.FORBIDDEN, _DENIED | {404, 451}),
    # Free tiers word a limit per minute like an empty account, but say when to retry.
    ErrorRule(
        Kind.RATE_LIMITED, r"quota.{0,600}(?:retry in|retrydelay|try again in) ?[:\d]", {429}
    ),
    ErrorRule(
        Kind.BILLING,
        code=r"insufficient_(?:quota|balance|credits?|funds)\w*|billing_\w+|payment_required"
        r"|exceeded_current_quota\w*|usage_limit_reached|quota_exceeded|arrearage|credit\w*"
        r"|spend_limit\w*|1008|1113|1308|1309|usage_not_included|account_deactivated",
    ),
    ErrorRule(Kind.BILLING, patterns.NO_CREDIT, _DENIED | {402, 412, 429}),
    ErrorRule(Kind.BILLING, r"exceeded your current quota", _INSIDE | {429}),
    ErrorRule(Kind.BILLING, status={402}),
    ErrorRule(
        Kind.AUTH,
        code=r"invalid_api_key|authentication_error|invalid_authentication\w*|unauthenticated"
        r"|unauthorized|(?:unrecognizedclient|expiredtoken|invalidsignature|incompletesignature"
        r"|missingauthenticationtoken|invalidclienttokenid)\w*"
        r"|token_(?:expired|invalidated|revoked)|api_key_invalid|no_api_key|100[0-4]",
    ),
    ErrorRule(Kind.AUTH, patterns.BAD_KEY, _DENIED),
    ErrorRule(
        Kind.CONTENT_POLICY,
        code=r"content_filter\w*|content_policy\w*|responsibleaipolicyviolation|moderation\w*"
        r"|data_?inspection\w*|safety\w*|prohibited_content|invalid_prompt|1301|1026|1027",
    ),
    ErrorRule(Kind.CONTENT_POLICY, patterns.POLICY, _REQUEST | {403, 451, 500}),
    # The model, or one field of the request.
    ErrorRule(Kind.PARAMETER, r"no endpoints found that support tool", _REQUEST, param="tools"),
    ErrorRule(Kind.OVERLOADED, r"model.{0,60}(?:is )?(?:currently )?loading|loading model"),
    ErrorRule(
        Kind.MODEL_NOT_FOUND,
        code=r"model_not_found|model_not_supported|model_decommissioned|modelnotfound\w*|1211"
        r"|deploymentnotfound|invalid_model\w*|unknown_model|model_not_available|model_unavailable",
    ),
    ErrorRule(Kind.PARAMETER, patterns.SCHEMA, _REQUEST | {500}, param="schema"),
    ErrorRule(Kind.PARAMETER, patterns.NO_TOOLS, _REQUEST | {500, 501}, param="tools"),
    ErrorRule(Kind.PARAMETER, patterns.NO_INSTRUCTION, _REQUEST, param="systemInstruction"),
    ErrorRule(Kind.PARAMETER, patterns.NO_DEVELOPER, _REQUEST, param="developer"),
    ErrorRule(Kind.PARAMETER, patterns.NO_SUMMARY, _DENIED, param="reasoning.summary"),
    ErrorRule(Kind.PARAMETER, r"tools?[\[.]\d+[\w.\]]*\bstrict\b", _REQUEST, param="strict"),
    ErrorRule(Kind.PARAMETER, r"thinking\.(?:\w+\.)?display", _REQUEST, param="thinking.display"),
    ErrorRule(Kind.PARAMETER, r"temperature and top_p cannot both", _REQUEST, param="top_p"),
    ErrorRule(Kind.PARAMETER, patterns.NO_THINKING, _REQUEST, param="thinking"),
    *(ErrorRule(Kind.PARAMETER, text, _REQUEST) for text in patterns.PARAMETER),
    ErrorRule(Kind.MODEL_NOT_FOUND, patterns.NO_MODEL, _REQUEST | {403, 410}),
    ErrorRule(Kind.CONTEXT_OVERFLOW, status=_ANYWHERE, code="1210"),
    ErrorRule(Kind.PAYLOAD_TOO_LARGE, patterns.PAYLOAD, _REQUEST | {413}),
    ErrorRule(Kind.SERVER, code="tool_use_failed"),
    # The provider's own state.
    ErrorRule(
        Kind.OVERLOADED,
        code=r"(?:engine_)?overloaded\w*|modelnotready\w*|serviceunavailable\w*|unavailable"
        r"|slow_down|1305|1312",
    ),
    ErrorRule(
        Kind.RATE_LIMITED,
        code=r"rate_?limit\w*|throttling\w*|too_?many_?requests\w*|resource_exhausted"
        r"|servicequotaexceeded\w*|130[23]|1002|1039|2045",
        status=_INSIDE | {400, 403},
    ),
    ErrorRule(Kind.OVERLOADED, patterns.OVERLOADED, _INSIDE | _5XX | {429}),
    ErrorRule(Kind.RATE_LIMITED, patterns.RATE_LIMITED, _INSIDE | {403}),
    ErrorRule(Kind.NETWORK, patterns.NETWORK, _INSIDE),
    ErrorRule(
        Kind.SERVER,
        code=r"server_error|internal\w*|api_error|modelstreamerror\w*|modelerror\w*|modeltimeout\w*"
        r"|timeout_error|bad_gateway|gateway_timeout|upstream_error|deadline_exceeded|1234",
        status=_INSIDE | {400},
    ),
    ErrorRule(
        Kind.FORBIDDEN,
        code=r"permission_(?:error|denied)|accessdenied\w*|forbidden|access_denied",
        status=_INSIDE | {400},
    ),
    ErrorRule(Kind.PAYLOAD_TOO_LARGE, code="request_too_large", status=_INSIDE | {400}),
    ErrorRule(
        Kind.MODEL_NOT_FOUND, code="not_found_error|resourcenotfoundexception", status=_INSIDE
    ),
    ErrorRule(
        Kind.BAD_REQUEST,
        code=r"invalid_request\w*|validationexception|invalid_argument|invalid_parameter\w*"
        r"|bad_request\w*|failed_precondition|out_of_range",
        status=_INSIDE,
    ),
    ErrorRule(Kind.SERVER, patterns.SERVER, _INSIDE),
    # Nothing but the status.
    ErrorRule(Kind.AUTH, status={401}),
    ErrorRule(Kind.FORBIDDEN, status={403, 407, 451}),
    ErrorRule(Kind.WRONG_PATH, status={404, 405, 410}),
    ErrorRule(Kind.CONFLICT, status={409}),
    ErrorRule(Kind.PAYLOAD_TOO_LARGE, status={413}),
    ErrorRule(Kind.RATE_LIMITED, status={429}),
    ErrorRule(Kind.OVERLOADED, status={503, 529}),
    ErrorRule(Kind.SERVER, status=_5XX | {408, 424, 425, 499}),
    ErrorRule(Kind.REDIRECT, status=frozenset(range(300, 400))),
    ErrorRule(Kind.BAD_REQUEST, status=frozenset(range(400, 500))),
    ErrorRule(Kind.UNKNOWN),
)

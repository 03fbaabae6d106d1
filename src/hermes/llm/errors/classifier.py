"""Classifies an error of a provider, however it is worded; the only place that does."""

import re
from collections.abc import Mapping
from functools import cache

from hermes.core.errors import Failure, Kind
from hermes.llm.errors.patterns import CONTEXT_LIMITS, FIELDS, PARTS, ROOM
from hermes.llm.errors.retry_after import retry_after
from hermes.llm.errors.rules import RULES, ErrorRule

MAX_MESSAGE = 8000
_MAX_SEARCHED = 4000
_QUOTES = str.maketrans("", "", "`'\"\\“”‘’")
_NESTED = {"generation_config", "generationConfig", "inferenceConfig", "inferenceconfig", "body"}
"""Containers of request fields: `generation_config.temperature` means `temperature`."""
_NOT_A_FIELD = {"", "model", "messages", "message", "input", "contents", "content", "inputs", "of"}
_SPECIAL = {
    *("call_id", "schema", "developer", "missing", "strict"),
    *("reasoning.summary", "thinking.display"),
}
"""Parameters of rules that are more exact than the field the provider names."""
_MIN_ANSWER = 1024
"""With less room than this for the answer, the prompt counts as too long."""


def classify_error(
    *,
    status: int | None,
    code: str = "",
    message: str = "",
    param: str = "",
    headers: Mapping[str, str] | None = None,
) -> Failure:
    """The failure by the first matching rule. `param` is a top-level request field, or one of:
    `image`, `tool_image` (an image inside a tool result), `call_id` (form of tool-call ids),
    `schema` and `strict` (of a tool), `developer` (the role), `missing` (reasoning that must be
    sent back), `reasoning.summary`, `thinking.display`."""
    text = message.translate(_QUOTES)[:_MAX_SEARCHED]
    http_status = status or 0
    if http_status in (0, 200) and code.isdecimal() and 300 <= int(code) <= 599:
        http_status = int(code)  # routers put the upstream's status into the body
    kind, found, field = _match_rules(http_status, code.strip().lower(), text, field_name(param))
    limit = _parse_number(found.get("limit")) if found else None
    if kind is Kind.OUTPUT_CAP and limit and "(excl" in text:
        limit -= 1
    if kind is Kind.CONTEXT_OVERFLOW:
        kind, limit = _read_overflow(text, limit)
    return Failure(
        kind,
        _bound_message(message, status, code),
        status=status,
        code=code[:100],
        retry_after=retry_after(headers or {}, message[:_MAX_SEARCHED]),
        limit=limit,
        param=field,
    )


def _match_rules(
    http_status: int, code: str, text: str, given: str
) -> tuple[Kind, dict[str, str | None], str]:
    for rule in RULES:
        match = _match_rule(rule, http_status, code, text)
        if match is None:
            continue
        if rule.kind is not Kind.PARAMETER:
            return rule.kind, match, rule.param
        field = field_name(match.get("param") or "")
        field = rule.param if rule.param in _SPECIAL else given or field or rule.param
        if field == "stream" and not rule.param:
            return Kind.STREAM_UNSUPPORTED, match, ""
        if field:
            return rule.kind, match, field
    raise AssertionError("the last row fits everything")


def _match_rule(
    rule: ErrorRule, http_status: int, code: str, text: str
) -> dict[str, str | None] | None:
    if rule.status is not None and http_status not in rule.status:
        return None
    if rule.code and not (code and _compile_pattern(rule.code).fullmatch(code)):
        return None
    if not rule.text:
        return {}
    match = _compile_pattern(rule.text).search(text)
    return match.groupdict() if match else None


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def field_name(path: str) -> str:
    """The top-level request field of a path: `reasoning` for `reasoning.effort`; empty for a path
    inside the messages."""
    if path in _SPECIAL:
        return path
    parts = [p for p in re.split(r"[.\[\]/ ]+", path.translate(_QUOTES).strip("$.:,;")) if p]
    while len(parts) > 1 and parts[0] in _NESTED:
        del parts[0]
    if not parts or parts[0].lower() in _NOT_A_FIELD:
        return "cache_control" if parts[-1:] == ["cache_control"] else ""
    spelt = {field.lower(): field for field in FIELDS.split("|")}
    return spelt.get(parts[0].lower(), parts[0])


def _read_overflow(text: str, limit: int | None) -> tuple[Kind, int | None]:
    """The kind and the stated limit: if the prompt alone would fit, only the answer is too long."""
    for pattern in ROOM:
        if match := _compile_pattern(pattern).search(text):
            limit = int(match["limit"])
            room = limit - int(match["prompt"])
            return (
                (Kind.OUTPUT_CAP, room) if room >= _MIN_ANSWER else (Kind.CONTEXT_OVERFLOW, limit)
            )
    if limit is None:
        stated = (_compile_pattern(pattern).search(text) for pattern in CONTEXT_LIMITS)
        limit = next((_parse_number(match["limit"]) for match in stated if match), None)
    parts = _compile_pattern(PARTS).findall(text)
    prompt = [n for n, what in parts if what.lower() not in ("completion", "output")]
    if limit and 0 < len(prompt) < len(parts):
        room = limit - sum(_parse_number(n) or 0 for n in prompt)
        if room >= _MIN_ANSWER:
            return Kind.OUTPUT_CAP, room
    return Kind.CONTEXT_OVERFLOW, limit


def _parse_number(text: str | None) -> int | None:
    digits = (text or "").replace(",", "")
    return (int(digits) or None) if digits.isdecimal() and len(digits) < 12 else None


def _bound_message(message: str, status: int | None, code: str) -> str:
    other = f"HTTP {status}" if status else "the provider gave no reason"
    text = " ".join(message.split()) or code or other
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def summarize_body(raw: bytes) -> str:
    """The gist of an error that is not JSON: the title of a web page, or its text."""
    text = raw[:MAX_MESSAGE].decode("utf-8", "replace")
    if title := re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL):
        return title[1].strip()
    if "<" in text:
        text = re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", text, flags=re.I | re.S)
    return " ".join(text.split())

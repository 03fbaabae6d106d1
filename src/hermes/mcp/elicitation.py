"""Passes questions of servers on to the person who is there, and their answers back."""

import re
from typing import Any

from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

from hermes.core.tool import UserQuestion
from hermes.core.untrusted_text import make_inert

_SECRET = re.compile(
    r"pass\s?-?(word|phrase|code)|secret|token|api.?key|\bkeys?\b|credential|\bpin\b", re.I
)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_MAX_FIELDS = 10
_MAX_TEXT = 2000
_YES = frozenset({"yes", "y", "true"})
_NO = frozenset({"no", "n", "false"})
_DECLINED = ElicitResult(action="decline")
_TRIES = 2


async def answer_elicitation(
    server: str, params: ElicitRequestFormParams | ElicitRequestURLParams, ask: UserQuestion
) -> ElicitResult:
    """The person's answers. Secrets are never asked for, and addresses are shown, not opened."""
    message = make_inert(params.message)[:_MAX_TEXT]
    head = f"The MCP server {server} asks: {message}"
    if isinstance(params, ElicitRequestURLParams):
        address = make_inert(params.url)[:_MAX_TEXT]
        text = f"{head}\nIt wants you to open this address yourself: {address}"
        answer = await ask(text, ("done", "decline"))
        return ElicitResult(action="accept") if answer == "done" else _DECLINED
    schema = params.requested_schema
    fields = schema.get("properties") or {}
    if len(fields) > _MAX_FIELDS or any(_is_secret(params.message, *f) for f in fields.items()):
        return _DECLINED
    if not fields:
        answer = await ask(head, ("accept", "decline"))
        return ElicitResult(action="accept", content={}) if answer == "accept" else _DECLINED
    required = set(schema.get("required") or ())
    content: dict[str, Any] = {}
    for name, field in fields.items():
        value = await _ask_field(head, name, field, ask, required=name in required)
        if value is None:
            return _DECLINED
        if value != "":
            content[name] = value
        head = f"The MCP server {server} also asks:"
    return ElicitResult(action="accept", content=content)


def _is_secret(message: str, name: str, field: dict[str, Any]) -> bool:
    """Whether a field asks for a secret; where it takes any answer, the message may say so."""
    words = [name, field.get("title"), field.get("description"), field.get("format")]
    if not _list_choices(field):
        words.append(message)
    texts = (_HUMP.sub(" ", str(word)).replace("_", " ") for word in words if word)
    return any(map(_SECRET.search, texts))


async def _ask_field(
    head: str, name: str, field: dict[str, Any], ask: UserQuestion, *, required: bool
) -> Any:
    """The value of one field; empty: left out; None: the person declines."""
    about = make_inert(str(field.get("description") or field.get("title") or name))[:_MAX_TEXT]
    usual = field.get("default")
    optional = "" if required else " (optional)"
    if usual is not None:
        optional = f" (empty: {make_inert(str(usual))[:100]})"
    question = f"{head}\n{make_inert(name)}: {about}{optional}"
    choices = _list_choices(field)
    for _ in range(_TRIES):
        answer = await ask(question, choices)
        if answer is None:
            return None
        text = answer.strip()
        if not text and usual is not None:
            return usual
        if not text and not required:
            return ""
        value = _convert_answer(text, field, choices)
        if value is not None:
            return value
        question = f"{head}\n{make_inert(name)}: this must be {field.get('type', 'text')}. {about}"
    return None


def _list_choices(field: dict[str, Any]) -> tuple[str, ...]:
    if field.get("type") == "boolean":
        return ("yes", "no")
    options = field.get("enum") or [
        o.get("const") for o in field.get("oneOf") or () if isinstance(o, dict)
    ]
    return tuple(str(option) for option in options)


def _convert_answer(text: str, field: dict[str, Any], choices: tuple[str, ...]) -> Any:
    """The answer as the field's type; None: it does not fit."""
    kind = field.get("type", "string")
    if kind == "boolean":
        word = text.lower()
        return True if word in _YES else False if word in _NO else None
    if kind in ("integer", "number"):
        try:
            return int(text) if kind == "integer" else float(text)
        except ValueError:
            return None
    if kind == "array":
        return [word.strip() for word in text.split(",")]
    return text if text and (not choices or text in choices) else None

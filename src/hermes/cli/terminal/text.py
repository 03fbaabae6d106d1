"""Text made fit for showing: one line, no control characters, valid JSON."""

from __future__ import annotations

from typing import Any

import orjson

from hermes.core.text import clean

_CONTROL = {code: None for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if code not in (9, 10)}


_TROUBLE = {
    "auth": "the key was refused",
    "forbidden": "the provider does not allow it",
    "billing": "the account has no credit",
    "rate_limited": "too many requests for now",
    "overloaded": "the provider is overloaded",
    "server_error": "the provider failed",
    "network": "the connection failed",
    "stalled": "no answer came",
    "context_overflow": "the conversation is too long for the model",
    "payload_too_large": "the request is too large",
    "output_cap": "the model cannot write that much at once",
    "parameter": "the model does not know a setting",
    "stream_unsupported": "the provider does not stream",
    "media_rejected": "an image was refused",
    "replay_rejected": "earlier reasoning was refused",
    "message_order": "the history was refused",
    "no_terminal": "the answer broke off",
    "truncated_call": "a tool call broke off",
    "empty": "the answer was empty",
    "bad_request": "the request was refused",
    "content_policy": "the provider declined the request",
    "model_not_found": "the model is not there",
    "not_api": "what answered is no model",
    "wrong_path": "the address is not the right one",
    "redirect": "the address leads elsewhere",
    "conflict": "something else was under way there",
    "unknown": "something went wrong at the provider",
}
_REMEDY = {
    "backoff": "trying again",
    "wait": "trying again",
    "retry": "trying again",
    "new_connection": "trying again on a new connection",
    "refresh_token": "renewing the login",
    "next_credential": "trying the next key",
    "fallback": "asking the next provider",
    "drop_parameter": "trying without it",
    "one_of_two": "trying with one setting instead of two",
    "lower_effort": "trying with less reasoning",
    "smaller_output": "asking for less",
    "larger_output": "allowing more",
    "no_stream": "trying without",
    "no_images": "trying without images",
    "without_images": "trying without images",
    "drop_thinking": "trying without it",
    "compress": "making it shorter",
    "repair_history": "mending it",
    "nudge": "asking it to go on",
}


def recovering(kind: str, action: str, wait: float) -> str:
    """What went wrong, and what is done about it, in words."""
    trouble = _TROUBLE.get(kind, kind.replace("_", " "))
    remedy = _REMEDY.get(action, action.replace("_", " "))
    return f"! {trouble}: {remedy}" + (f" in {wait:.0f} s" if wait >= 1 else "")


def printable(text: str) -> str:
    """Without control characters: what a model or a tool wrote must not drive the terminal."""
    return text.translate(_CONTROL)


def one_line(text: str, limit: int = 120) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def parsed(arguments: str) -> Any:
    """The object the tool was given, with what was put right in it; else what the model wrote."""
    try:
        value = orjson.loads(arguments) if arguments.strip() else {}
    except ValueError:
        value = arguments
    if isinstance(value, dict):
        return value
    from hermes.agent.json_repair import BadArguments, parse

    try:
        return parse(arguments)
    except BadArguments:
        return value


def dump(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return orjson.dumps(_cleaned(value)).decode()


def _cleaned(value: Any) -> Any:
    """Lone surrogates are not text for JSON."""
    match value:
        case str():
            return clean(value)
        case dict():
            return {clean(str(key)): _cleaned(item) for key, item in value.items()}
        case list():
            return [_cleaned(item) for item in value]
        case _:
            return value


def call_line(name: str, arguments: str) -> str:
    """A call on one line: its name and the argument that says most."""
    values = parsed(arguments)
    if not isinstance(values, dict):
        return one_line(f"{name} {arguments}")
    if isinstance(values.get("pattern"), str):
        place = f" in {values['path']}" if isinstance(values.get("path"), str) else ""
        return one_line(f"{name}: {values['pattern']}{place}")
    if isinstance(values.get("todos"), list):
        return name
    for key in ("command", "path", "query", "url", "question"):
        if isinstance(values.get(key), str):
            return one_line(f"{name}: {values[key]}")
    return one_line(f"{name} {arguments}" if values else name)

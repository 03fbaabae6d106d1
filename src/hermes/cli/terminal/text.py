"""Text made fit for the terminal: one line, no control characters, valid JSON."""

from collections.abc import Iterable
from typing import Any

import orjson

from hermes.core.text import clean_value
from hermes.core.untrusted_text import reveal_hidden

TOKEN_KINDS = ("input", "output", "cache_read", "cache_write", "reasoning")
"""What is counted of a call, in reports `input_tokens` and so on."""
_CONTROL = {code: None for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if code not in (9, 10)}
_PROBLEMS = {
    "auth": "the API key was rejected",
    "forbidden": "the provider denied access",
    "billing": "the account is out of credit",
    "rate_limited": "too many requests",
    "overloaded": "the provider is overloaded",
    "server_error": "the provider failed",
    "network": "the connection failed",
    "stalled": "no response",
    "context_overflow": "the conversation is too long for the model",
    "payload_too_large": "the request is too large",
    "output_cap": "the requested output is too long for the model",
    "parameter": "the model does not support a setting",
    "stream_unsupported": "the provider does not support streaming",
    "media_rejected": "an image was rejected",
    "replay_rejected": "earlier reasoning was rejected",
    "message_order": "the history was rejected",
    "no_terminal": "the answer was cut off",
    "truncated_call": "a tool call was cut off",
    "unreadable_call": "a tool call could not be read",
    "empty": "the answer was empty",
    "bad_request": "the request was rejected",
    "content_policy": "the provider declined the request",
    "model_not_found": "the model was not found",
    "not_api": "the address is not a model API",
    "wrong_path": "the address is wrong",
    "redirect": "the address redirects elsewhere",
    "conflict": "another request was in progress",
    "unknown": "an unknown provider error",
}
_REMEDIES = {
    "backoff": "retrying",
    "wait": "retrying",
    "retry": "retrying",
    "new_connection": "retrying on a new connection",
    "refresh_token": "renewing the login",
    "next_credential": "trying the next key",
    "fallback": "trying the next provider",
    "drop_parameter": "retrying without it",
    "one_of_two": "retrying with one setting instead of two",
    "lower_effort": "retrying with less reasoning",
    "smaller_output": "asking for less output",
    "larger_output": "allowing more output",
    "no_stream": "retrying without streaming",
    "no_images": "retrying without images",
    "without_images": "retrying without images",
    "drop_thinking": "retrying without it",
    "compress": "compressing it",
    "repair_history": "repairing it",
    "force_schema": "asking for it in a fixed form",
    "nudge": "asking it to continue",
}


def format_recovery(kind: str, action: str, wait: float) -> str:
    """What went wrong with a request and what is done about it, in words."""
    problem = _PROBLEMS.get(kind, kind.replace("_", " "))
    remedy = _REMEDIES.get(action, action.replace("_", " "))
    return f"! {problem}: {remedy}" + (f" in {wait:.0f} s" if wait >= 1 else "")


def strip_controls(text: str) -> str:
    """The text without control characters: models and tools must not drive the terminal."""
    return text.translate(_CONTROL)


def make_visible(text: str) -> str:
    """The text with control and hidden characters shown: a person decides about what it says."""
    return strip_controls(reveal_hidden(text))


def one_line(text: str, limit: int = 120) -> str:
    """The text on a single line of at most `limit` characters, without control characters and with
    hidden ones shown."""
    line = " ".join(reveal_hidden(strip_controls(text)).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def parse_arguments(arguments: str) -> Any:
    """The arguments as the tool got them, repaired; where that fails, the model's own text."""
    try:
        value = orjson.loads(arguments) if arguments.strip() else {}
    except ValueError:
        value = arguments
    if isinstance(value, dict):
        return value
    from hermes.agent.json_repair import BadArguments, parse_arguments

    try:
        return parse_arguments(arguments)
    except BadArguments:
        return value


def to_json(value: Any) -> str:
    """The value as JSON, lone surrogates replaced."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return orjson.dumps(clean_value(value)).decode()


def print_report(data: Any, lines: Iterable[str], *, json: bool) -> int:
    """Prints the data for programs or the lines for people; returns the exit status 0."""
    for line in (to_json(data),) if json else lines:
        print(line)
    return 0


def format_call(name: str, arguments: str) -> str:
    """A tool call on one line: its name and its most telling argument."""
    values = parse_arguments(arguments)
    if not isinstance(values, dict):
        return one_line(f"{name} {arguments}")
    if isinstance(values.get("pattern"), str):
        where = f" in {values['path']}" if isinstance(values.get("path"), str) else ""
        return one_line(f"{name}: {values['pattern']}{where}")
    if isinstance(values.get("todos"), list):
        return name
    for key in ("command", "path", "query", "url", "question"):
        if isinstance(values.get(key), str):
            return one_line(f"{name}: {values[key]}")
    return one_line(f"{name} {arguments}" if values else name)

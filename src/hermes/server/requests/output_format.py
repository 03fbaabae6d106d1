"""Structured output: the format that a client requires of an answer."""

import re
from typing import Any

import orjson
from msgspec import Struct

from hermes.app.structured_output import find_json
from hermes.server.http.errors import bad_request
from hermes.server.requests.json_schema import find_mismatch

_REQUEST = "Reply with JSON that fits this JSON Schema, and with nothing else:\n{}"
_ANY_REQUEST = "Reply with one JSON object, and with nothing else."
_RETRY = "Your reply does not fit the JSON Schema: {} Reply again, with the corrected JSON only."
_ANY_OBJECT = {"type": "object"}
_MAX_SCHEMA_BYTES = 200_000


class AnswerFormat(Struct, frozen=True):
    """A JSON Schema that the final answer must fit."""

    schema: dict[str, Any]
    name: str = "answer"
    strict: bool = False

    @property
    def setting(self) -> dict[str, Any]:
        """The format as core.provider.Settings has it."""
        return {"name": self.name, "schema": self.schema, "strict": self.strict}

    @property
    def instructions(self) -> str:
        """What tells a model about the format."""
        if self.schema == _ANY_OBJECT:
            return _ANY_REQUEST
        return _REQUEST.format(orjson.dumps(self.schema).decode())

    def extract_answer(self, text: str) -> tuple[str, str]:
        """The JSON in an answer, and what is wrong with it: one of them is empty."""
        problem = "it is not JSON."
        for candidate in find_json(text):
            try:
                value = orjson.loads(candidate)
            except ValueError:
                continue
            mismatch = find_mismatch(value, self.schema)
            if not mismatch:
                return candidate.strip(), ""
            problem = mismatch
        return "", problem

    def request_correction(self, problem: str) -> str:
        return _RETRY.format(problem)


def parse_answer_format(value: Any, field: str) -> AnswerFormat | None:
    """Parse `response_format` of Chat Completions, or the `format` of the other protocols; None
    for plain text."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise bad_request(f"{field} must be an object.", field)
    match value.get("type"):
        case "text" | None:
            return None
        case "json_object" if "value" not in value:
            return AnswerFormat(_ANY_OBJECT)
        case "json" | "json_object":  # Hugging Face's form: the schema itself is the value
            return _make_format({"schema": value.get("value")}, field)
        case "json_schema":
            return _make_format(value.get("json_schema", value), field)
        case kind:
            text = f"{field}.type {str(kind)[:40]!r} is not supported."
            raise bad_request(text, field, "unsupported_parameter")


def _make_format(wrapped: Any, field: str) -> AnswerFormat:
    schema = wrapped.get("schema") if isinstance(wrapped, dict) else None
    if not isinstance(schema, dict):
        raise bad_request(f"{field} must have a schema.", field)
    if len(orjson.dumps(schema)) > _MAX_SCHEMA_BYTES:
        raise bad_request(f"{field}: the schema is too large.", field)
    name = re.sub(r"[^A-Za-z0-9_-]", "_", str(wrapped.get("name") or "answer"))[:64]
    return AnswerFormat(schema, name, wrapped.get("strict") is True)

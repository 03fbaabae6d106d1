"""Types of request fields that are parsed by hand, with their schemas for OpenAPI."""

from typing import Annotated, Any, TypeAlias, get_args

from msgspec import Meta

from hermes.core.provider import Effort

_URL = {"type": "string", "pattern": "^(https?://|data:image/)"}
_TEXT = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {
        "type": {"enum": ["text", "input_text", "output_text"]},
        "text": {"type": "string"},
    },
}
_IMAGE = {
    "type": "object",
    "required": ["type", "image_url"],
    "properties": {
        "type": {"enum": ["image_url", "input_image"]},
        "image_url": {
            "anyOf": [_URL, {"type": "object", "required": ["url"], "properties": {"url": _URL}}]
        },
    },
}
_CONTENT = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"anyOf": [_TEXT, _IMAGE]}},
        {"type": "null"},
    ]
}
_MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": _CONTENT,
    },
}
MessageContent: TypeAlias = Annotated[Any, Meta(extra_json_schema=_CONTENT)]
TurnInput: TypeAlias = Annotated[
    Any,
    Meta(
        extra_json_schema={
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "minItems": 1, "items": _MESSAGE},
            ]
        }
    ),
]
HistoryItems: TypeAlias = Annotated[list[Any], Meta(extra_json_schema={"items": _MESSAGE})]
ToolExecutionField: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"enum": ["client", "server", "both", "none"]})
]
EffortField: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"enum": [*get_args(Effort), "max"]})
]
FlagField: TypeAlias = Annotated[
    bool | str, Meta(extra_json_schema={"enum": [True, False, "true", "false"]})
]

"""Estimates how many tokens a request has."""

from collections.abc import Iterable, Sequence

import msgspec

from hermes.agent.compression.token_estimate import message_weight, text_weight
from hermes.core.message import Message
from hermes.core.provider import ToolSpec


def estimate_tokens(
    instructions: str, messages: Iterable[Message], tools: Sequence[ToolSpec] = ()
) -> int:
    """About how many tokens these are; what the server adds to them is not counted."""
    declared = text_weight(msgspec.json.encode(tools).decode()) if tools else 0
    return text_weight(instructions) + declared + sum(map(message_weight, messages))

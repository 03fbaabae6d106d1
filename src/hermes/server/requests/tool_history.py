"""Tool calls in the history of a request that declares no tools."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from hermes.core.message import Message
from hermes.core.provider import ToolSpec
from hermes.server.http.call import ApiCall
from hermes.server.http.errors import ApiError
from hermes.server.requests.client_tools import ClientTools, is_tool_name
from hermes.server.requests.side_requests import is_side_request

ParseMessages: TypeAlias = Callable[[bool], tuple[str, Sequence[Message]]]
"""Parses the instructions and messages of a request, with or without its tool calls."""
_MARKS = (b"tool_calls", b"tool_result", b"function_call_output")


def parse_tool_history(
    call: ApiCall, parse: ParseMessages, tools: ClientTools | None, execution: str
) -> tuple[ClientTools | None, str, Sequence[Message]]:
    """The tools, instructions and messages of a request. Without declared tools, calls and results
    are left out, unless the client goes on by itself: with the result of its own call, or with a
    side request, such as a summary of its history. Then the model sees them and calls nothing."""
    if tools is None and any(mark in call.body for mark in _MARKS):
        try:
            instructions, messages = parse(True)
        except ApiError:  # of no use to the model either
            instructions, messages = "", ()
        if messages:
            is_result = messages[-1].role == "tool" and not execution
            if is_result or is_side_request(instructions, messages[-1]):
                return _declare_called_tools(messages), instructions, messages
    return tools, *parse(tools is not None)


def _declare_called_tools(messages: Sequence[Message]) -> ClientTools:
    """Tools for the calls in the messages, which some providers refuse without."""
    called = dict.fromkeys(call.name for message in messages for call in message.calls)
    schema = {"type": "object", "properties": {}}
    specs = tuple(ToolSpec(name, "", schema) for name in called if is_tool_name(name))
    return ClientTools(specs, {"tool_choice": "none"} if specs else {})

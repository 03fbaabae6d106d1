"""A question to a model beside every conversation: not recorded, and without tools."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from hermes.agent.turn import Learned, Metering, Turn
from hermes.core.events import TurnEvent
from hermes.core.history import History
from hermes.core.message import Message, Target, ToolCall
from hermes.core.tool import ToolContext

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime


def turn_aside(
    runtime: Runtime,
    prompt: Message,
    system: str,
    *,
    learned: dict[Target, Learned],
    meter: Metering | None,
    emit: Callable[[TurnEvent], None] = lambda _: None,
) -> Turn:
    return Turn(
        system=system,
        history=History((prompt,)),
        record=_forget,
        emit=emit,
        steer=lambda: "",
        context=_no_tools,
        absorb=_nothing_read,
        sleep=runtime.sleep,
        learned=learned,
        meter=meter,
    )


async def _forget(message: Message | None, state: Any) -> None:
    return None


def _nothing_read(brings: Collection[Any]) -> None:
    return None


def _no_tools(call: ToolCall) -> ToolContext:
    raise AssertionError("a question beside the conversation has no tools")

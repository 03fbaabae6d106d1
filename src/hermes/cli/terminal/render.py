"""A running turn on the terminal: as text, as one JSON object, or as a line of JSON per event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hermes.cli.terminal.output import Output
from hermes.cli.terminal.progress import Status
from hermes.cli.terminal.text import dump, parsed, printable
from hermes.core.events import (
    Approval,
    Notice,
    Question,
    Recovering,
    StepStart,
    TextDelta,
    ThinkingDelta,
    ToolDone,
    ToolStarted,
    TurnEvent,
    TurnResult,
)
from hermes.core.message import Message, Target, ToolReturn


class Renderer(Protocol):
    async def event(self, event: TurnEvent) -> None: ...
    async def end(self, session_id: str, result: TurnResult, target: Target | None) -> None: ...


class TextRenderer:
    """The answer on stdout as it arrives; what happens meanwhile on stderr."""

    def __init__(self, out: Output, status: Status) -> None:
        self._out = out
        self._status = status
        self._step: list[str] = []
        """Text of the current step, as shown."""
        self._earlier = ""
        """Text of the last step before it that had any."""
        self._open_line = False

    async def event(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text=text):
                self._status.clear()
                self._step.append(text)
                await self._write(text)
            case StepStart():
                await self._end_line()
                self._earlier = "".join(self._step) or self._earlier
                self._step.clear()
                self._status.event(event)
            case ToolStarted() | ToolDone() | Notice() | Recovering():
                if self._out.tty and self._status.out.tty:
                    await self._end_line()
                self._status.event(event)
            case _:
                self._status.event(event)

    async def end(self, session_id: str, result: TurnResult, target: Target | None) -> None:
        self._status.clear()
        shown = "".join(self._step)
        if result.text.startswith(shown) and (shown or result.text != self._earlier):
            await self._write(result.text[len(shown) :])
        await self._end_line()
        if result.error:
            await self._status.out.write(f"hermes: {printable(result.error)}\n")

    async def _write(self, text: str) -> None:
        if text:
            await self._out.write(printable(text) if self._out.tty else text)
            self._open_line = not text.endswith("\n")
            self._status.midline = self._open_line and self._out.tty

    async def _end_line(self) -> None:
        if self._open_line:
            await self._write("\n")


class JsonRenderer:
    """One object at the end; stderr as for text."""

    def __init__(self, out: Output, status: Status) -> None:
        self._out = out
        self._status = status

    async def event(self, event: TurnEvent) -> None:
        self._status.event(event)

    async def end(self, session_id: str, result: TurnResult, target: Target | None) -> None:
        self._status.clear()
        await self._out.write(dump(result_object(session_id, result, target)) + "\n")
        if result.error:
            self._status.out.offer(f"hermes: {printable(result.error)}\n")


class StreamRenderer:
    """One JSON event per line as it happens, the result last."""

    def __init__(self, out: Output, status: Status) -> None:
        self._out = out
        self._status = status

    async def event(self, event: TurnEvent) -> None:
        self._status.event(event)
        line = event_object(event)
        if line is not None:
            await self._out.write(dump(line) + "\n")

    async def end(self, session_id: str, result: TurnResult, target: Target | None) -> None:
        self._status.clear()
        line = {"type": "result", **result_object(session_id, result, target)}
        await self._out.write(dump(line) + "\n")
        if result.error:
            self._status.out.offer(f"hermes: {printable(result.error)}\n")


RENDERERS: dict[str, Callable[[Output, Status], Renderer]] = {
    "text": TextRenderer,
    "json": JsonRenderer,
    "stream-json": StreamRenderer,
}


def event_object(event: TurnEvent) -> dict[str, Any] | None:
    """The public form of an event; None for those that stay inside."""
    match event:
        case TextDelta(text=text):
            return {"type": "text.delta", "text": text}
        case ThinkingDelta(text=text):
            return {"type": "reasoning.delta", "text": text}
        case ToolStarted(call=call):
            arguments = parsed(call.args)
            return {
                "type": "tool.started",
                "id": call.id,
                "name": call.name,
                "arguments": arguments,
            }
        case ToolDone(result=result, duration=duration):
            return {
                "type": "tool.completed",
                "id": result.call_id,
                "name": result.name,
                "result": result.text,
                "error": result.error,
                "duration_ms": round(duration * 1000),
            }
        case Notice(code=code, text=text):
            return {"type": "notice", "code": code, "text": text}
        case Approval(summary=why, call=call, command=command):
            text = f"{call.name} asks for approval ({why}): {command or call.args}"
            return {"type": "notice", "code": "approval", "text": text}
        case Question(text=text, choices=choices):
            shown = f"{text} ({' / '.join(choices)})" if choices else text
            return {"type": "notice", "code": "question", "text": shown}
        case Recovering(kind=kind, action=action, wait=wait):
            return {"type": "recovering", "kind": kind, "action": action, "wait_seconds": wait}
        case _:
            return None


def result_object(session_id: str, result: TurnResult, target: Target | None) -> dict[str, Any]:
    usage = result.usage
    answered = result.target or target
    error = {"code": result.error_code, "message": result.error} if result.error_code else None
    return {
        "session_id": session_id,
        "completed": result.status == "completed",
        "partial": result.status == "partial",
        "interrupted": result.status == "interrupted",
        "text": result.text,
        "reasoning": result.reasoning,
        "error": error,
        "tool_calls": tool_calls(result.messages),
        "model_calls": result.model_calls,
        "usage": {
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "cache_read_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
            "reasoning_tokens": usage.reasoning,
        },
        "cost_usd": usage.cost,
        "model": answered.model if answered else "",
        "provider": answered.provider if answered else "",
    }


def tool_calls(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Every call of a turn with its result; null for one that has none."""
    results: dict[str, ToolReturn] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolReturn):
                results[part.call_id] = part
    calls = [call for message in messages for call in message.calls]
    return [
        {
            "id": call.id,
            "name": call.name,
            "arguments": parsed(call.args),
            "result": results[call.id].text if call.id in results else None,
            "error": results[call.id].error if call.id in results else True,
        }
        for call in calls
    ]

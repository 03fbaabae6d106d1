"""The output of a turn: as text, as one JSON object, or as one JSON line per event."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from hermes.cli.terminal.output import Output
from hermes.cli.terminal.progress import ProgressLine
from hermes.cli.terminal.text import TOKEN_KINDS, parse_arguments, strip_controls, to_json
from hermes.core import events
from hermes.core.events import TurnEvent, TurnResult
from hermes.core.message import Message, Target, ToolReturn

if TYPE_CHECKING:
    from hermes.app.session import Session
    from hermes.core.channel import Channel


class Renderer(Protocol):
    """Shows the events of a turn and, at its end, the result."""

    async def show_event(self, event: TurnEvent) -> None: ...
    async def show_result(
        self, session_id: str, result: TurnResult, target: Target | None
    ) -> None: ...


class TextRenderer:
    """The answer on stdout as it arrives, progress on stderr."""

    def __init__(self, out: Output, progress: ProgressLine) -> None:
        self._out = out
        self._progress = progress
        self._step: list[str] = []
        """The text of the current step, as shown."""
        self._earlier = ""
        """The text of the latest earlier step that had any."""
        self._open_line = False

    async def show_event(self, event: TurnEvent) -> None:
        match event:
            case events.TextDelta(text=text):
                self._progress.clear()
                self._step.append(text)
                await self._write_text(text)
            case events.StepStart():
                await self._end_line()
                self._earlier = "".join(self._step) or self._earlier
                self._step.clear()
                self._progress.show_event(event)
            case events.ToolStarted() | events.ToolDone() | events.Notice() | events.Recovering():
                if self._out.tty and self._progress.out.tty:
                    await self._end_line()
                self._progress.show_event(event)
            case _:
                self._progress.show_event(event)

    async def show_result(self, session_id: str, result: TurnResult, target: Target | None) -> None:
        self._progress.clear()
        shown = "".join(self._step)
        if result.text.startswith(shown) and (shown or result.text != self._earlier):
            await self._write_text(result.text[len(shown) :])
        await self._end_line()
        if result.error:
            await self._progress.out.write(f"hermes: {strip_controls(result.error)}\n")

    async def _write_text(self, text: str) -> None:
        if text:
            await self._out.write(strip_controls(text) if self._out.tty else text)
            self._open_line = not text.endswith("\n")
            self._progress.midline = self._open_line and self._out.tty

    async def _end_line(self) -> None:
        if self._open_line:
            await self._write_text("\n")


class JsonRenderer:
    """One JSON object at the end; with `stream`, also a JSON line per event before it."""

    def __init__(self, out: Output, progress: ProgressLine, *, stream: bool = False) -> None:
        self._out = out
        self._progress = progress
        self._stream = stream

    async def show_event(self, event: TurnEvent) -> None:
        self._progress.show_event(event)
        if self._stream and (line := event_object(event)) is not None:
            await self._out.write(to_json(line) + "\n")

    async def show_result(self, session_id: str, result: TurnResult, target: Target | None) -> None:
        self._progress.clear()
        line = result_object(session_id, result, target)
        if self._stream:
            line = {"type": "result", **line}
        await self._out.write(to_json(line) + "\n")
        if result.error:
            self._progress.out.offer(f"hermes: {strip_controls(result.error)}\n")


RENDERERS: dict[str, Callable[[Output, ProgressLine], Renderer]] = {
    "text": TextRenderer,
    "json": JsonRenderer,
    "stream-json": partial(JsonRenderer, stream=True),
}


async def show_turn(
    renderer: Renderer,
    session: "Session",
    channel: "Channel",
    ask: Callable[[events.Approval | events.Question], None],
) -> TurnResult:
    """Shows a turn to its end and passes its questions on."""
    async for event in channel:
        match event:
            case events.TurnEnd(result=result):
                target = session.agent.providers[0].target
                await renderer.show_result(session.id, result, target)
                if not result.pending_steer:
                    return result
            case events.Approval() | events.Question():
                ask(event)
            case _:
                await renderer.show_event(event)
    raise AssertionError("a turn ends with TurnEnd")


def event_object(event: TurnEvent) -> dict[str, Any] | None:
    """The public form of an event; None for internal events."""
    match event:
        case events.TextDelta(text=text):
            return {"type": "text.delta", "text": text}
        case events.ThinkingDelta(text=text):
            return {"type": "reasoning.delta", "text": text}
        case events.ToolStarted(call=call):
            head = {"type": "tool.started", "id": call.id, "name": call.name}
            return {**head, "arguments": parse_arguments(call.args)}
        case events.ToolDone(result=result, duration=duration):
            head = {"type": "tool.completed", "id": result.call_id, "name": result.name}
            took = round(duration * 1000)
            return {**head, "result": result.text, "error": result.error, "duration_ms": took}
        case events.Notice(code=code, text=text):
            return {"type": "notice", "code": code, "text": text}
        case events.Approval(summary=why, call=call, command=command):
            text = f"{call.name} asks for approval ({why}): {command or call.args}"
            return {"type": "notice", "code": "approval", "text": text}
        case events.Question(text=text, choices=choices):
            shown = f"{text} ({' / '.join(choices)})" if choices else text
            return {"type": "notice", "code": "question", "text": shown}
        case events.Recovering(kind=kind, action=action, wait=wait):
            return {"type": "recovering", "kind": kind, "action": action, "wait_seconds": wait}
        case _:
            return None


def result_object(session_id: str, result: TurnResult, target: Target | None) -> dict[str, Any]:
    """The public form of a result."""
    usage = result.usage
    answered = result.target or target
    detail = result.error_detail or None
    error = {"code": result.error_code, "message": result.error, "detail": detail}
    return {
        "session_id": session_id,
        **{name: result.status == name for name in ("completed", "partial", "interrupted")},
        "text": result.text,
        "reasoning": result.reasoning,
        "error": error if result.error_code else None,
        "tool_calls": tool_call_objects(result.messages),
        "model_calls": result.model_calls,
        "usage": {f"{name}_tokens": getattr(usage, name) for name in TOKEN_KINDS},
        "cost_usd": usage.cost,
        "model": answered.model if answered else "",
        "provider": answered.provider if answered else "",
    }


def tool_call_objects(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Every tool call of a turn with its result, which is null while there is none."""
    returns = [p for m in messages for p in m.parts if isinstance(p, ToolReturn)]
    results = {part.call_id: {"result": part.text, "error": part.error} for part in returns}
    missing = {"result": None, "error": True}
    return [
        {"id": call.id, "name": call.name, "arguments": parse_arguments(call.args)}
        | results.get(call.id, missing)
        for message in messages
        for call in message.calls
    ]

"""How the turns of a session spent their time: model calls and tool calls, one after the other."""

from collections.abc import Iterable, Sequence
from typing import Any

from hermes.core.ledger import CallRecord
from hermes.core.message import ToolReturn
from hermes.core.store import StoredMessage


class TurnTrace:
    """Sorts what happened into the turns of a session; each begins with a message of the user."""

    def __init__(self, messages: Sequence[StoredMessage], calls: Iterable[CallRecord]) -> None:
        self._starts = [
            m for m in messages if m.message.role == "user" and m.message.kind == "normal"
        ]
        self._turns: list[dict[str, Any]] = [
            {"seq": m.seq, "seconds": 0.0, "cost_usd": 0.0, "spans": []} for m in self._starts
        ]
        self._trace_tools(messages)
        for call in calls:
            self._trace_call(call)

    def describe(self) -> list[dict[str, Any]]:
        """The turns with their spans, whose starts are seconds since the turn began."""
        for start, turn in zip(self._starts, self._turns, strict=True):
            spans = sorted(turn["spans"], key=lambda span: span["start"])
            end = max((span["start"] + span["seconds"] for span in spans), default=start.created)
            for span in spans:
                span["start"] = round(max(0.0, span["start"] - start.created), 3)
            turn["spans"], turn["seconds"] = spans, round(max(0.0, end - start.created), 3)
            turn["cost_usd"] = round(turn["cost_usd"], 6)
        return self._turns

    def _find_turn(self, moment: float) -> dict[str, Any] | None:
        found = None
        for start, turn in zip(self._starts, self._turns, strict=True):
            if start.created <= moment:
                found = turn
        return found

    def _trace_call(self, call: CallRecord) -> None:
        turn = self._find_turn(call.started)
        if turn is None:
            return
        turn["cost_usd"] += call.cost or 0.0
        turn["spans"].append(
            {
                "kind": "model",
                "name": f"{call.provider}:{call.model}",
                "purpose": call.purpose,
                "start": call.started,
                "seconds": round(call.seconds, 3),
                "input": call.input,
                "cached": call.cached,
                "output": call.output,
                "cost_usd": call.cost,
                "error": call.outcome or None,
            }
        )

    def _trace_tools(self, messages: Sequence[StoredMessage]) -> None:
        """A tool runs from the message that calls it to the one with its result."""
        called: dict[str, float] = {}
        for stored in messages:
            for call in stored.message.calls:
                called[call.id] = stored.created
            for part in stored.message.parts:
                if isinstance(part, ToolReturn) and part.call_id in called:
                    self._trace_tool(part, called.pop(part.call_id), stored.created)

    def _trace_tool(self, part: ToolReturn, began: float, ended: float) -> None:
        turn = self._find_turn(began)
        if turn is None:
            return
        counts = {"input": 0, "cached": 0, "output": 0, "cost_usd": None}
        span = {"kind": "tool", "name": part.name, "start": began}
        error = part.text[:200] if part.error else None
        span |= {"seconds": round(max(0.0, ended - began), 3), **counts, "error": error}
        turn["spans"].append(span)

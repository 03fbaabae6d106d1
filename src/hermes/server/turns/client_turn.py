"""One turn of a client from its prompt to its end, asked again until its answer fits the format."""

from collections import deque
from collections.abc import Callable

from msgspec import structs

from hermes.app.session import Session
from hermes.core.events import TextDelta, TurnEnd, TurnEvent, TurnResult
from hermes.core.message import Usage, user_message
from hermes.server.requests.client_tools import list_open_calls
from hermes.server.requests.output_format import AnswerFormat
from hermes.server.turns.client_events import ClientEvents

MAX_CORRECTIONS = 2
"""How often the model is asked again for an answer that does not fit."""


class ClientTurn:
    """Iterates over the events of the turn; the last one is its TurnEnd. With a required format,
    text is only shown once it fits: the client cannot take back what it has read."""

    def __init__(
        self,
        session: Session,
        events: ClientEvents,
        answer_format: AnswerFormat | None,
        explain: Callable[[TurnResult], TurnResult],
    ) -> None:
        self.session = session
        self._events = events
        self._format = answer_format
        self._explain = explain
        self._corrections_left = MAX_CORRECTIONS
        self._earlier: list[TurnResult] = []
        self._ready: deque[TurnEvent] = deque()

    def stop(self) -> None:
        """Interrupt the turn; it still ends with a TurnEnd."""
        self._events.stop_turn()

    def __aiter__(self) -> "ClientTurn":
        return self

    async def __anext__(self) -> TurnEvent:
        while not self._ready:
            event = await anext(self._events)
            if isinstance(event, TurnEnd):
                self._end_turn(event.result)
            elif self._format is None or not isinstance(event, TextDelta):
                self._ready.append(event)
        return self._ready.popleft()

    async def run_to_end(self, watch: Callable[[TurnEvent], None]) -> TurnResult:
        """The result, when the turn has ended; `watch` sees the events before it."""
        async for event in self:
            if isinstance(event, TurnEnd):
                return event.result
            watch(event)
        raise RuntimeError("The turn has no end.")

    def _end_turn(self, result: TurnResult) -> None:
        if self._format is not None and result.status == "completed":
            if not list_open_calls(result.messages):
                found, problem = self._format.extract_answer(result.text)
                if problem and self._corrections_left:
                    self._request_correction(result, problem)
                    return
                result = self._apply_format(result, found, problem)
            if result.text and result.status == "completed":
                self._ready.append(TextDelta(result.text))
        self._ready.append(TurnEnd(self._explain(_join_results([*self._earlier, result]))))

    def _request_correction(self, result: TurnResult, problem: str) -> None:
        assert self._format is not None
        self._corrections_left -= 1
        self._earlier.append(result)
        correction = user_message(self._format.request_correction(problem))
        # Not the user's words: the problem may quote the model.
        self.session.submit(structs.replace(correction, kind="injected"))

    def _apply_format(self, result: TurnResult, found: str, problem: str) -> TurnResult:
        if not problem:
            return structs.replace(result, text=found)
        error = (
            f"The answer does not fit the required format, also after {MAX_CORRECTIONS} "
            f"corrections: {problem} The conversation is kept. Simplify the schema or use another "
            "model."
        )
        return structs.replace(
            result, status="failed", text="", error=error, error_code="invalid_output"
        )


def _join_results(results: list[TurnResult]) -> TurnResult:
    """The last result, with what all of them used and did."""
    return structs.replace(
        results[-1],
        messages=tuple(message for result in results for message in result.messages),
        model_calls=sum(result.model_calls for result in results),
        usage=sum((result.usage for result in results), Usage()),
        effects=any(result.effects for result in results),
    )

"""Answers that must match a type: the model gets the schema, and is asked again if it misses it."""

import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import Struct, structs

from hermes.app.session import Session
from hermes.core.errors import HermesError
from hermes.core.events import Notice, TurnEnd, TurnEvent, TurnResult
from hermes.core.message import Message, Text, user_message

T = TypeVar("T")
MAX_RETRIES = 2
"""How often the model is asked again for an answer that does not match."""
_REQUEST = "Reply with JSON that fits this JSON Schema, and with nothing else:\n{}"
_RETRY = "Your reply does not fit the JSON Schema: {} Reply again, with the corrected JSON only."
_FENCE = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


class OutputError(HermesError):
    """The model's answer does not match the requested type, even after asking again.

    Attributes:
        problem: What does not match, in one sentence.
        text: The answer, as the model wrote it.
    """

    def __init__(self, problem: str, text: str) -> None:
        super().__init__(f"The answer does not match the requested type: {problem}")
        self.problem = problem
        self.text = text


class OutputFormat(Struct, Generic[T], frozen=True):
    """The required format of an answer: the model gets `schema`; `decode` checks the JSON it writes
    and raises a ValidationError that says what does not match."""

    schema: dict[str, Any] | None
    """None: any text."""
    decode: Callable[[str], T]

    def add_schema(self, prompt: Message) -> Message:
        """The prompt followed by the schema."""
        if self.schema is None:
            return prompt
        request = _REQUEST.format(msgspec.json.encode(self.schema).decode())
        others = [part for part in prompt.parts if not isinstance(part, Text)]
        return structs.replace(prompt, parts=(*others, Text(f"{prompt.text}\n\n{request}")))

    def parse_answer(self, text: str) -> T:
        """The answer as a value; OutputError when there is none in the text."""
        problem = "it is not JSON."
        for candidate in find_json(text) if self.schema is not None else (text,):
            try:
                return self.decode(candidate)
            except msgspec.ValidationError as error:
                problem = f"{error}."
            except (ValueError, RecursionError):
                continue
        raise OutputError(problem, text)


def build_format(output: type[T]) -> OutputFormat[T]:
    """The format of a type; TypeError when JSON cannot express it."""
    if output is str:
        return cast("OutputFormat[T]", OutputFormat(None, str))
    return OutputFormat(msgspec.json.schema(output), msgspec.json.Decoder(output).decode)


class PromptRun(Generic[T]):
    """One prompt, answered in as many turns as it takes for the answer to match its format."""

    def __init__(self, session: Session, prompt: Message, output: OutputFormat[T]) -> None:
        self.results: list[TurnResult] = []
        """The results of its turns, in order."""
        self.output: T | None = None
        """The answer, when the last turn completed."""
        self._session = session
        self._message = output.add_schema(prompt)
        self._format = output

    async def stream_events(self) -> AsyncGenerator[TurnEvent, None]:
        """The events until the last turn has ended; OutputError when no answer matches. Closing the
        generator stops the turn."""
        for retries_left in range(MAX_RETRIES, -1, -1):
            async with aclosing(self._session.stream_turn(self._message)) as events:
                async for event in events:
                    if isinstance(event, TurnEnd):
                        self.results.append(event.result)
                    yield event
            result = self.results[-1]
            if result.status != "completed":
                return
            try:
                self.output = self._format.parse_answer(result.text)
                return
            except OutputError as error:
                if not retries_left:
                    raise
                yield Notice("output", f"{error} Asking again.")
                # Not the user's words: the problem may quote the model.
                retry = user_message(_RETRY.format(error.problem))
                self._message = structs.replace(retry, kind="injected")


def find_json(text: str) -> Iterator[str]:
    """The text itself, the contents of its code fences, and what is between its brackets."""
    yield text
    yield from _FENCE.findall(text)
    begin = min((n for n in map(text.find, "{[") if n >= 0), default=-1)
    if begin >= 0:
        yield text[begin : max(map(text.rfind, "}]")) + 1]

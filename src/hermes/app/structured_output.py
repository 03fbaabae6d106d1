"""Answers that must fit a type: the schema is told, the answer is checked and asked for again."""

from __future__ import annotations

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
RETRIES = 2
"""How often an answer that does not fit is asked for again."""
_REQUEST = "Reply with JSON that fits this JSON Schema, and with nothing else:\n{}"
_RETRY = "Your reply does not fit the JSON Schema: {} Reply again, with the corrected JSON only."
_FENCE = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


class OutputError(HermesError):
    """The model's answer does not fit the requested type, although it was asked again.

    Attributes:
        problem: What does not fit, in one sentence.
        text: The answer, as the model wrote it.
    """

    def __init__(self, problem: str, text: str) -> None:
        super().__init__(f"The answer does not fit the requested type: {problem}")
        self.problem = problem
        self.text = text


class OutputFormat(Struct, Generic[T], frozen=True):
    """What an answer must look like: `schema` is told to the model, `decode` checks the JSON it
    writes, with a ValidationError that says what does not fit."""

    schema: dict[str, Any] | None
    """None: any text."""
    decode: Callable[[str], T]

    def add_schema(self, prompt: Message) -> Message:
        """The prompt, with the schema behind it."""
        if self.schema is None:
            return prompt
        request = _REQUEST.format(msgspec.json.encode(self.schema).decode())
        others = [part for part in prompt.parts if not isinstance(part, Text)]
        return structs.replace(prompt, parts=(*others, Text(f"{prompt.text}\n\n{request}")))

    def parse_answer(self, text: str) -> T:
        """The answer as a value; OutputError when there is none in the text."""
        problem = "it is not JSON."
        for candidate in _find_json(text) if self.schema is not None else (text,):
            try:
                return self.decode(candidate)
            except msgspec.ValidationError as error:
                problem = f"{error}."
            except (ValueError, RecursionError):
                continue
        raise OutputError(problem, text)


def format_of(output: type[T]) -> OutputFormat[T]:
    """The format of a type; TypeError when JSON cannot express it."""
    if output is str:
        return cast("OutputFormat[T]", OutputFormat(None, str))
    return OutputFormat(msgspec.json.schema(output), msgspec.json.Decoder(output).decode)


class PromptRun(Generic[T]):
    """One prompt, answered in as many turns as it takes for the answer to fit its format."""

    def __init__(self, session: Session, prompt: Message, output: OutputFormat[T]) -> None:
        self.results: list[TurnResult] = []
        """How its turns ended, the last one last."""
        self.output: T | None = None
        """The answer, when the last turn completed."""
        self._session = session
        self._message = output.add_schema(prompt)
        self._format = output

    async def stream(self) -> AsyncGenerator[TurnEvent, None]:
        """What happens until the last turn has ended; OutputError when no answer fits. Closing the
        generator stops the turn."""
        for retries in range(RETRIES, -1, -1):
            async with aclosing(self._session.stream(self._message)) as events:
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
                if not retries:
                    raise
                yield Notice("output", f"{error} Asking again.")
                self._message = user_message(_RETRY.format(error.problem))


def _find_json(text: str) -> Iterator[str]:
    """The text itself, what it holds in code fences, and what stands between its brackets."""
    yield text
    yield from _FENCE.findall(text)
    begin = min((n for n in map(text.find, "{[") if n >= 0), default=-1)
    if begin >= 0:
        yield text[begin : max(map(text.rfind, "}]")) + 1]

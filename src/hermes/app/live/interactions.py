"""What a session asks its user, and what the user answers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Generic, TypeVar

from msgspec import structs

from hermes.config.schema import BusyMode
from hermes.core.events import Answer, Approval, Notice, Question, TurnEvent
from hermes.core.hooks import SessionHooks
from hermes.core.message import ToolCall

APPROVAL_SECONDS = 300.0
"""A request that nobody answers in this time is denied."""
T = TypeVar("T")
Q = TypeVar("Q", Approval, Question)


class PendingQuestions(Generic[Q, T]):
    """Questions waiting for an answer, oldest first, each with a unique id."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Q, asyncio.Future[T | None]]] = {}

    @property
    def questions(self) -> tuple[Q, ...]:
        return tuple(question for question, future in self._waiting.values() if not future.done())

    def make_unique_id(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._waiting:
            number += 1
            name = f"{wanted}-{number}"
        return name

    def find_question(self, question_id: str) -> Q | None:
        question, future = self._waiting.get(question_id, (None, None))
        return question if future is not None and not future.done() else None

    async def wait_for_answer(self, question: Q, show: Callable[[Q], None]) -> T | None:
        """Show the question and wait; cancelling the wait withdraws it."""
        future: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._waiting[question.id] = (question, future)
        try:
            show(question)
            return await future
        finally:
            del self._waiting[question.id]

    def set_answer(self, question_id: str, answer: T | None) -> None:
        self._waiting[question_id][1].set_result(answer)


class Interactions:
    """The approvals and questions of one session. With nobody present every approval is denied and
    every question stays unanswered."""

    def __init__(self, emit: Callable[[TurnEvent], None]) -> None:
        self.user_present = False
        """Whether somebody answers Approval and Question events."""
        self.busy_mode: BusyMode = "queue"
        """What happens to a message sent while a turn runs."""
        self.verbose = False
        """Whether the user wants to see tool output."""
        self.approval_seconds = APPROVAL_SECONDS
        self.on_approval: Callable[[Approval], Awaitable[Answer]] | None = None
        self.on_question: Callable[[Question], Awaitable[str | None]] | None = None
        """Code that answers instead of a person; the events are then for information only."""
        self.on_resolved: Callable[[str, str | None], None] = lambda question_id, answer: None
        """Called when an approval or a question is no longer open; None: nobody answered."""
        self.suspend_call: Callable[[ToolCall], AbstractAsyncContextManager[object]] = nullcontext
        """Entered while a person is asked about a call."""
        self.emit = emit
        self.hooks: SessionHooks | None = None
        self._approvals: PendingQuestions[Approval, Answer] = PendingQuestions()
        self._questions: PendingQuestions[Question, str] = PendingQuestions()
        self._question_count = 0

    @property
    def pending_approvals(self) -> tuple[Approval, ...]:
        return self._approvals.questions

    @property
    def pending_questions(self) -> tuple[Question, ...]:
        return self._questions.questions

    async def request_approval(self, question: Approval) -> Answer | None:
        """The user's answer; None when nobody is present or answers in time."""
        if not self.user_present:
            return None
        async with self.suspend_call(question.call):
            return await self._await_hooked(question)

    async def _await_hooked(self, question: Approval) -> Answer | None:
        if self.hooks is None:
            return await self._await_approval(question)
        command = question.command or question.call.name
        await self.hooks.notify("pre_approval_request", command=command)
        answer = await self._await_approval(question)
        await self.hooks.notify("post_approval_response", command=command, choice=answer or "deny")
        return answer

    async def _await_approval(self, question: Approval) -> Answer | None:
        question = structs.replace(question, id=self._approvals.make_unique_id(question.id))
        if self.on_approval is not None:
            self.emit(question)
            return await self.on_approval(question)
        answer: Answer | None = None
        try:
            async with asyncio.timeout(self.approval_seconds):
                answer = await self._approvals.wait_for_answer(question, self.emit)
        except TimeoutError:
            pass
        finally:
            self.on_resolved(question.id, answer)
        return answer

    async def ask_question(self, question: str, choices: tuple[str, ...]) -> str | None:
        if not self.user_present and self.on_question is None:
            self.emit(Notice("question", f"{question} (Nobody is present to answer.)"))
            return None
        self._question_count += 1
        asked = Question(f"q{self._question_count}", question, choices)
        if self.on_question is not None:
            self.emit(asked)
            return await self.on_question(asked)
        text: str | None = None
        try:
            text = await self._questions.wait_for_answer(asked, self.emit)
        finally:
            self.on_resolved(asked.id, text)
        return text

    def answer_approval(self, approval_id: str, answer: Answer | bool) -> bool:
        """Answer a pending approval; True allows it once. False when it is not pending, or the
        answer is not one of its choices."""
        question = self._approvals.find_question(approval_id)
        if isinstance(answer, bool):
            answer = "once" if answer else "deny"
        if question is None or answer not in question.choices:
            return False
        self._approvals.set_answer(approval_id, answer)
        return True

    def answer_question(self, question_id: str, text: str | None) -> bool:
        """Answer a pending question; None: the user declines. False when it is not pending."""
        if self._questions.find_question(question_id) is None:
            return False
        self._questions.set_answer(question_id, text)
        return True

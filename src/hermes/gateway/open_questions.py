"""What is asked in chats: approvals, questions of the agent, confirmations of commands."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import structs

from hermes.app.knowledge.titles import SpawnTask
from hermes.app.session import Session
from hermes.core.events import Answer, Approval, Question
from hermes.core.untrusted_text import reveal_hidden
from hermes.gateway import texts
from hermes.gateway.adapter import Button
from hermes.gateway.content.render import fence_code
from hermes.gateway.content.reply import Content, Reply
from hermes.gateway.outbox import Outbox
from hermes.gateway.turn_reply import ReplyAddress

LONGEST_LABEL = 40


class Pending(Protocol):
    """What waits for an answer."""

    session: Session | None
    labels: tuple[str, ...]

    @property
    def is_open(self) -> bool: ...

    def choose(self, index: int, name: str, *, is_admin: bool) -> str | None:
        """Take an answer of a person of that name; the line that says so, None: it is too late."""


class AskedApproval:
    def __init__(self, session: Session, approval: Approval) -> None:
        self.session: Session | None = session
        self.labels = tuple(texts.APPROVAL_LABELS[choice] for choice in approval.choices)
        self._interactions = session.interactions
        self._approval = approval

    @property
    def is_open(self) -> bool:
        waiting = self._interactions.pending_approvals
        return any(asked.id == self._approval.id for asked in waiting)

    def choose(self, index: int, name: str, *, is_admin: bool) -> str | None:
        choice: Answer = self._approval.choices[index]
        if choice == "always" and not is_admin:
            choice = "session"  # a rule for everybody is the owner's
        if not self._interactions.answer_approval(self._approval.id, choice):
            return None
        return describe_answer(choice, name)


class AskedQuestion:
    def __init__(self, session: Session, question: Question) -> None:
        self.session: Session | None = session
        self.labels = tuple(choice[:LONGEST_LABEL] for choice in question.choices)
        self._interactions = session.interactions
        self._question = question

    @property
    def is_open(self) -> bool:
        waiting = self._interactions.pending_questions
        return any(asked.id == self._question.id for asked in waiting)

    def choose(self, index: int, name: str, *, is_admin: bool) -> str | None:
        choice = self._question.choices[index]
        if not self._interactions.answer_question(self._question.id, choice):
            return None
        return f"{name}: {choice}"


class AskedChoice:
    """A command that asks first; it belongs to no turn."""

    session: Session | None = None
    is_open = True

    def __init__(
        self, labels: tuple[str, ...], act: Callable[[str], Awaitable[None]], spawn: SpawnTask
    ) -> None:
        self.labels = labels
        self._act = act
        self._spawn = spawn

    def choose(self, index: int, name: str, *, is_admin: bool) -> str | None:
        self._spawn(self._run(self.labels[index]), "command")
        return f"{name}: {self.labels[index]}"

    async def _run(self, label: str) -> None:
        await self._act(label)


class Asked:
    """One question in a chat, and the message that shows it."""

    def __init__(self, pending: Pending, requester: tuple[str, str]) -> None:
        self.pending = pending
        self.requester, self.requester_name = requester
        self.reply: Reply | None = None
        self.last_line: str | None = None
        """How it ended, if that was known before it was shown."""
        self.token = secrets.token_urlsafe(9)


class OpenQuestions:
    """Buttons carry a token that only this process knows."""

    def __init__(self, outbox: Outbox, spawn: SpawnTask) -> None:
        self._outbox = outbox
        self._spawn = spawn
        self._asked: dict[str, Asked] = {}

    async def ask(
        self,
        session: Session,
        question: Approval | Question,
        address: ReplyAddress,
        requester: tuple[str, str],
        *,
        minutes: float,
    ) -> None:
        """Show a question of the agent. `requester`: the id and the name of the person."""
        redact = session.agent.redactor.redact
        if isinstance(question, Approval):
            text = redact_approval(question, redact, minutes)
            await self._show(Asked(AskedApproval(session, question), requester), text, address)
        else:
            numbered = [f"{i}. {choice}" for i, choice in enumerate(question.choices, 1)]
            text = redact("\n".join([question.text, *numbered]))
            await self._show(Asked(AskedQuestion(session, question), requester), text, address)

    async def ask_choice(
        self,
        text: str,
        labels: tuple[str, ...],
        address: ReplyAddress,
        requester: tuple[str, str],
        act: Callable[[str], Awaitable[None]],
    ) -> None:
        """Show a question of the gateway itself; `act` is told the label that was chosen."""
        pending = AskedChoice(labels, act, self._spawn)
        await self._show(Asked(pending, requester), text, address, plain=True)

    async def _show(
        self, asked: Asked, text: str, address: ReplyAddress, *, plain: bool = False
    ) -> None:
        if not asked.pending.is_open:
            return
        labels = asked.pending.labels
        buttons = tuple(Button(label, f"{asked.token}:{i}") for i, label in enumerate(labels))
        self._asked[asked.token] = asked
        content = Content(
            text, address.thread, buttons=buttons, in_group=address.in_group, plain=plain
        )
        asked.reply = await self._outbox.post(address.platform, address.chat, content)
        if asked.last_line is not None:
            await self._close(asked, asked.last_line)

    def find(self, data: str) -> tuple[Asked, int] | None:
        """The question that a button belongs to, and the number of the choice."""
        token, _, index = data.partition(":")
        asked = self._asked.get(token)
        return (asked, int(index)) if asked is not None and index.isdecimal() else None

    async def answer(self, asked: Asked, index: int, name: str, *, is_admin: bool) -> bool:
        """Choose an answer for a person of that name; False when it is too late."""
        if index >= len(asked.pending.labels):
            return False
        line = asked.pending.choose(index, name, is_admin=is_admin)
        if line is None:
            return False
        await self._close(asked, line)
        return True

    async def close_answered(self, session: Session, line: str = texts.NOBODY_ANSWERED) -> None:
        """Say below each question of the session that is not open any more how it ended."""
        ended = [
            self._asked.pop(asked.token)
            for asked in list(self._asked.values())
            if asked.pending.session is session and not asked.pending.is_open
        ]
        for asked in ended:
            await self._close(asked, line if isinstance(asked.pending, AskedApproval) else "")

    async def _close(self, asked: Asked, line: str) -> None:
        self._asked.pop(asked.token, None)
        if asked.reply is None:
            asked.last_line = line
            return
        content = asked.reply.content
        text = f"{content.text}\n{line}".rstrip()
        await self._outbox.revise(asked.reply, structs.replace(content, text=text, buttons=()))


def redact_approval(question: Approval, redact: Callable[[str], str], minutes: float) -> str:
    """The request as people read it."""
    command = question.command or f"{question.call.name} {question.call.args}"
    text = texts.APPROVAL.format(
        reason=redact(question.summary),
        command=fence_code(reveal_hidden(redact(command))),
        span=texts.format_span(minutes),
    )
    if question.diff:
        text += "\n" + fence_code(reveal_hidden(redact(question.diff)), "diff")
    if "always" in question.choices:
        text += "\n" + texts.ALWAYS_SAVES.format(rules=redact("; ".join(question.rules)))
    return text


def describe_answer(answer: str, name: str) -> str:
    if answer == "deny":
        return texts.DENIED_BY.format(name=name)
    return texts.ALLOWED_BY.format(answer=answer, name=name)

"""What the agent has asked in chats: approvals and questions, and who may answer them."""

import secrets

from msgspec import structs

from hermes.app.session import Session
from hermes.core.events import Answer, Approval, Question
from hermes.gateway import texts
from hermes.gateway.adapter import Button
from hermes.gateway.content.render import fence_code
from hermes.gateway.outbox import Content, Outbox, Reply
from hermes.gateway.turn_reply import ReplyAddress


class Asked:
    """One question in a chat, and the message that shows it."""

    def __init__(
        self, session: Session, question: Approval | Question, requester: tuple[str, str]
    ) -> None:
        self.session = session
        self.question = question
        self.requester, self.requester_name = requester
        self.reply: Reply | None = None
        self.token = secrets.token_urlsafe(9)

    @property
    def is_pending(self) -> bool:
        interactions = self.session.interactions
        if isinstance(self.question, Approval):
            return any(q.id == self.question.id for q in interactions.pending_approvals)
        return any(q.id == self.question.id for q in interactions.pending_questions)


class OpenQuestions:
    """Buttons carry a token that only this process knows."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
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
        """Show a question in the chat. `requester`: the id and the name of the person."""
        asked = Asked(session, question, requester)
        redact = session.agent.redactor.redact
        if isinstance(question, Approval):
            command = question.command or f"{question.call.name} {question.call.args}"
            text = texts.APPROVAL.format(
                reason=redact(question.summary),
                command=fence_code(redact(command)),
                span=texts.format_span(minutes),
            )
            if question.diff:
                text += "\n" + fence_code(redact(question.diff), "diff")
            labels = [texts.APPROVAL_LABELS[choice] for choice in question.choices]
        else:
            numbered = [f"{i}. {choice}" for i, choice in enumerate(question.choices, 1)]
            text = redact("\n".join([question.text, *numbered]))
            labels = [choice[:40] for choice in question.choices]
        buttons = tuple(Button(label, f"{asked.token}:{i}") for i, label in enumerate(labels))
        self._asked[asked.token] = asked
        content = Content(text, address.thread, buttons=buttons, in_group=address.in_group)
        asked.reply = await self._outbox.post(address.platform, address.chat, content)

    def find(self, data: str) -> tuple[Asked, int] | None:
        """The question that a button belongs to, and the number of the choice."""
        token, _, index = data.partition(":")
        asked = self._asked.get(token)
        return (asked, int(index)) if asked is not None and index.isdecimal() else None

    async def answer(self, asked: Asked, index: int, name: str, *, is_admin: bool) -> bool:
        """Choose an answer for a person of that name; False when it is too late."""
        question, interactions = asked.question, asked.session.interactions
        if index >= len(question.choices):
            return False
        if isinstance(question, Approval):
            choice: Answer = question.choices[index]
            if choice == "always" and not is_admin:
                choice = "session"  # a rule for everybody is the owner's
            if not interactions.answer_approval(question.id, choice):
                return False
            await self._close(asked, describe_answer(choice, name))
            return True
        if not interactions.answer_question(question.id, question.choices[index]):
            return False
        await self._close(asked, f"{name}: {question.choices[index]}")
        return True

    async def close_answered(self, session: Session, line: str = texts.NOBODY_ANSWERED) -> None:
        """Say below each question of the session that is not open any more how it ended."""
        for asked in list(self._asked.values()):
            if asked.session is session and not asked.is_pending:
                is_approval = isinstance(asked.question, Approval)
                await self._close(asked, line if is_approval else "")

    async def _close(self, asked: Asked, line: str) -> None:
        self._asked.pop(asked.token, None)
        if asked.reply is not None:
            content = asked.reply.content
            text = f"{content.text}\n{line}".rstrip()
            await self._outbox.revise(asked.reply, structs.replace(content, text=text, buttons=()))


def describe_answer(answer: str, name: str) -> str:
    if answer == "deny":
        return texts.DENIED_BY.format(name=name)
    return texts.ALLOWED_BY.format(answer=answer, name=name)

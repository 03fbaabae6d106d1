"""One open session as a page shows it: what is not recorded yet, and every change of it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from hermes.app.session import Session
from hermes.core import events
from hermes.core.events import Approval, Question, TurnEvent, TurnResult
from hermes.core.message import Message, Usage
from hermes.core.store import StoredMessage
from hermes.tools.todo import restore_todos, todo

Publish: TypeAlias = Callable[[str, str, Any], None]
"""Takes a session's id, the name of an event and its data."""
RECORDED = "recorded"
"""The event whose data is a StoredMessage."""
CHANGED_FILES = "changed_files"
"""The event whose data is what a call changed."""
LONGEST_DIFF = 64 * 1024
_LONGEST_PROGRESS = 4000


class PendingApproval(Struct, frozen=True):
    """An approval that waits, with what a person must see before they answer."""

    approval: Approval
    sandbox: str
    expires_at: float

    @property
    def digest(self) -> str:
        """Of everything that is approved: an answer with another one is about something else."""
        call = self.approval.call
        parts = [self.approval.id, call.name, call.args, self.approval.command, self.approval.diff]
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]

    def describe(self) -> dict[str, Any]:
        asked = self.approval
        return {
            "id": asked.id,
            "approval_id": asked.id,
            "tool": asked.call.name,
            "arguments": asked.call.args,
            "command": asked.command,
            "reason": asked.summary,
            "choices": list(asked.choices),
            "rules": list(asked.rules),
            "diff": asked.diff,
            "sandbox": self.sandbox,
            "expires_at": self.expires_at,
            "digest": self.digest,
        }


class LiveSession:
    """Follows a session from the step in which it is opened: its snapshot and the events published
    since then are together all that happened."""

    def __init__(self, session: Session, publish: Publish) -> None:
        self.session = session
        self.turns: list[dict[str, str]] = []
        """The messages that run or wait, for pages."""
        self.is_closed = False
        self.shown = (False, False)
        """Whether lists show it as busy and as waiting."""
        self.on_close: Callable[[LiveSession], None] = lambda live: None
        self.on_user_message: Callable[[], None] = lambda: None
        """Called when a message of the user is in the transcript."""
        self._publish_event = publish
        self._id = session.id
        self._is_over = True
        """Whether the end of the last turn was told; the session is busy a little longer."""
        self._step = 0
        self._began = 0.0
        self._cost = 0.0
        """Of the running turn so far."""
        self._ended: dict[str, Any] | None = None
        """How the last turn ended, until another begins."""
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._tools: dict[str, dict[str, Any]] = {}
        self._recorded_calls: set[str] = set()
        """Calls of this turn whose results are in the transcript."""
        self._approvals: dict[str, PendingApproval] = {}
        self._questions: dict[str, Question] = {}
        self._answered: dict[str, str] = {}
        """Who answered in a browser what is about to be resolved."""
        self._usage: dict[str, Any] = {}
        found = restore_todos(session.transcript.history.messages)
        self._todo: Any = [{"id": t.id, "content": t.content, "status": t.status} for t in found]
        session.attach_sink(self)
        session.interactions.on_resolved = self._resolve

    @property
    def id(self) -> str:
        return self._id

    @property
    def last_seq(self) -> int:
        return self.session.transcript.last_seq

    @property
    def approvals(self) -> tuple[PendingApproval, ...]:
        return tuple(self._approvals.values())

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a person."""
        return bool(self._approvals or self._questions)

    @property
    def activity(self) -> str:
        """What it does, in a few words; empty: nothing."""
        if not self.session.is_busy:
            return ""
        running = [t["name"] for t in self._tools.values() if "seconds" not in t]
        return f"runs {running[-1]}" if running else "writes the answer" if self._text else "thinks"

    def describe_activity(self) -> dict[str, Any]:
        """What it does, for how long, and what that cost."""
        seconds = time.time() - self._began if self._step else 0.0
        return {"doing": self.activity, "seconds": seconds, "cost_usd": self._cost}

    def describe(self) -> dict[str, Any]:
        """The snapshot: all that is not recorded."""
        return {
            "busy": not self._is_over or self.session.is_starting,
            "step": self._step,
            "turns": self.turns,
            "partial": {
                "text": "".join(self._text),
                "reasoning": "".join(self._reasoning),
                "tools": list(self._tools.values()),
            },
            "approvals": [pending.describe() for pending in self._approvals.values()],
            "questions": [_describe_question(question) for question in self._questions.values()],
            "todo": self._todo,
            "usage": self._usage,
            "ended": self._ended,
        }

    def publish(self, name: str, data: Any) -> None:
        self._publish_event(self._id, name, data)

    def show_turns(self, turns: list[dict[str, str]]) -> None:
        ids = {turn["id"] for turn in self.turns if turn["state"] == "running"}
        if any(turn["state"] == "running" and turn["id"] not in ids for turn in turns):
            self._is_over = False
        elif not turns and not self.session.is_busy:
            self._is_over = True
        self.turns = turns
        self.publish("turns", {"turns": turns})

    def answer_approval(self, approval_id: str, choice: str, digest: str, by: str) -> bool:
        """Whether the answer counts: the approval is open and is the one that was shown."""
        pending = self._approvals.get(approval_id)
        if pending is None or pending.digest != digest:
            return False
        if choice not in pending.approval.choices:
            return False
        self._answered[approval_id] = by
        return self.session.interactions.answer_approval(approval_id, choice)

    def answer_question(self, question_id: str, text: str | None, by: str) -> bool:
        """Whether the question was still open."""
        if question_id in self._questions:
            self._answered[question_id] = by
        return self.session.interactions.answer_question(question_id, text)

    def close(self) -> None:
        self.is_closed = True
        self.on_close(self)

    def follow_session(self) -> None:
        """Tell the watchers when the conversation goes on in another session."""
        if self.session.id != self._id:
            self.publish("moved", {"to": self.session.id})
            self._id = self.session.id

    def put(self, event: TurnEvent) -> None:
        self.follow_session()
        match event:
            case events.TextDelta(text):
                self._text.append(text)
                self.publish("delta", {"text": text})
            case events.ThinkingDelta(text):
                self._reasoning.append(text)
                self.publish("reasoning", {"text": text})
            case events.StepStart(n):
                if not self._step:
                    self._began, self._cost = time.time(), 0.0
                self._step, self._is_over, self._ended = n, False, None
                self.publish("step", {"step": n})
            case events.Recorded(message):
                self._note_message(message)
            case Approval() | Question():
                self._note_question(event)
            case events.Notice(code, text):
                self.publish("notice", {"code": code, "text": text})
            case events.Recovering(kind, action, wait):
                told = {"kind": kind, "action": action, "wait_seconds": wait}
                self.publish("recovering", told)
            case events.TurnEnd(result):
                self._end_turn(result)
            case _:
                self._note_tool(event)

    def _note_message(self, message: Message) -> None:
        if message.role == "user":
            self.on_user_message()
        if message.role == "assistant":
            self._text.clear()
            self._reasoning.clear()
        for part in message.parts:
            call_id = getattr(part, "call_id", "")
            if self._tools.pop(call_id, None) is not None:
                self._recorded_calls.add(call_id)
        if message.usage is not None:
            self._usage = describe_usage(message.usage, self.session)
            self._cost += message.usage.cost or 0.0
            self.publish("usage", self._usage)
        self.publish(RECORDED, StoredMessage(self._find_place(message), time.time(), message))

    def _find_place(self, message: Message) -> int:
        """Which place a message has; later ones may be stored by the time this one is told."""
        messages = self.session.transcript.history.messages
        places = range(len(messages) - 1, -1, -1)
        return next((n for n in places if messages[n] is message), self.last_seq)

    def _note_tool(self, event: TurnEvent) -> None:
        match event:
            case events.ToolStarted(call) if not call.name.startswith("_"):
                shown = {"id": call.id, "name": call.name, "arguments": call.args}
                self._tools[call.id] = {**shown, "progress": ""}
                self.publish("tool", shown)
            case events.ToolProgress(call_id, text) if call_id in self._tools:
                tool = self._tools[call_id]
                tool["progress"] = (tool["progress"] + text)[-_LONGEST_PROGRESS:]
                self.publish("progress", {"id": call_id, "text": text})
            case events.ToolDone(result, duration, data) if self._is_shown(result.call_id):
                ended: dict[str, Any] = {"error": result.error, "seconds": round(duration, 3)}
                if result.call_id in self._tools:
                    self._tools[result.call_id].update(ended)
                if isinstance(data, dict) and isinstance(diff := data.get("diff"), str) and diff:
                    ended["diff"] = self.session.agent.redactor.redact(diff)[:LONGEST_DIFF]
                    self.publish(CHANGED_FILES, {"call": result.call_id, "diff": ended["diff"]})
                self.publish("tool.done", {"id": result.call_id, **ended})
                if result.name == todo.name and isinstance(data, list):
                    self._todo = data
                    self.publish("todo", {"todo": data})
            case _:
                pass

    def _is_shown(self, call_id: str) -> bool:
        return call_id in self._tools or call_id in self._recorded_calls

    def _note_question(self, asked: Approval | Question) -> None:
        if isinstance(asked, Question):
            self._questions[asked.id] = asked
            self.publish("question", _describe_question(asked))
            return
        expires = time.time() + self.session.interactions.approval_seconds
        pending = PendingApproval(asked, self.session.host.workspace.sandbox, expires)
        self._approvals[asked.id] = pending
        self.publish("approval", pending.describe())

    def _resolve(self, question_id: str, answer: str | None) -> None:
        known = self._approvals.pop(question_id, None) or self._questions.pop(question_id, None)
        if known is not None:
            by = self._answered.pop(question_id, None)
            self.publish("resolved", {"id": question_id, "answer": answer, "by": by})

    def _end_turn(self, result: TurnResult) -> None:
        self._text.clear()
        self._reasoning.clear()
        self._tools.clear()
        self._recorded_calls.clear()
        self._step, self._is_over = 0, True
        data = {
            "status": result.status,
            "error": self.session.agent.redactor.redact(result.error),
            "usage": describe_usage(result.usage, self.session),
            "cost_usd": result.usage.cost,
        }
        self._ended = data
        self.publish("end", data)


def _describe_question(question: Question) -> dict[str, Any]:
    return {"id": question.id, "text": question.text, "choices": list(question.choices)}


def describe_usage(usage: Usage, session: Session) -> dict[str, Any]:
    providers = session.agent.providers
    window = providers[0].endpoint.context_length if providers else None
    return {
        "input": usage.input,
        "output": usage.output,
        "cached": usage.cache_read,
        "cost_usd": usage.cost,
        "context_length": window,
    }

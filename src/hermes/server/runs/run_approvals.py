"""What a run asks a person, and what the person answers."""

from collections.abc import Mapping
from typing import Any

from hermes.app.live.interactions import Interactions
from hermes.core.events import Answer, Approval
from hermes.server.http.errors import ApiError
from hermes.server.turns import turn_events
from hermes.server.turns.stored_runs import ApprovalAnswer, EarlyAnswer, StoredRun


class RunApprovals:
    """An answer counts once, for exactly what was shown. What was asked by a server that died or
    handed the run over is asked again; an answer that comes before counts then."""

    def __init__(self, state: StoredRun) -> None:
        self._state = state
        self._past: dict[str, Mapping[str, Any]] = {}
        """What another server has asked, by id, until it is asked again or its call has ended."""
        self._repeated: set[str] = set()
        """What was asked again just as it was."""
        self.interactions: Interactions | None = None
        """Those of the session while it is open."""

    def continue_after(self, asked: Mapping[str, Mapping[str, Any]]) -> None:
        self._past = dict(asked)

    @property
    def pending(self) -> tuple[Approval, ...]:
        return self.interactions.pending_approvals if self.interactions is not None else ()

    @property
    def waiting_calls(self) -> frozenset[str]:
        return frozenset(approval.call.id for approval in self.pending)

    def note_request(self, approval: Approval) -> dict[str, Any]:
        """What clients are shown of it."""
        self._state.status = "waiting_for_approval"
        shown = _describe_approval(approval)
        if self._past.pop(approval.id, None) == shown:
            self._repeated.add(approval.id)
        return shown

    def note_end(self, call_id: str) -> None:
        """The call needs no approval any more."""
        self._past.pop(call_id, None)

    def answer(
        self, choice: Answer, approval_id: str, *, saves: bool
    ) -> tuple[ApprovalAnswer, dict[str, Any] | None]:
        """Answer this approval, or the oldest one if no id is given. What can only be granted once
        is granted once, and what may not be saved (`saves`) for the session; the answer says so.
        Also what clients are shown; None: it is asked again first."""
        answered = {early.approval_id for early in self._state.answers}
        asked = {id: shown for id, shown in self._past.items() if id not in answered}
        asked |= {a.id: _describe_approval(a) for a in self.pending}
        id = approval_id or next(iter(asked), "")
        if id not in asked:
            raise ApiError(409, "No approval is pending.", code="nothing_to_approve")
        applied = choice if choice in asked[id]["choices"] else "once"
        if applied == "always" and not saves:
            applied = "session"
        early = EarlyAnswer(id, choice, applied)
        answer = ApprovalAnswer(self._state.run_id, choice, None if applied == choice else applied)
        if id in self._past:
            self._state.answers = (*self._state.answers, early)
            return answer, None
        return answer, self._give_answer(early)

    def give_early_answers(self) -> list[dict[str, Any]]:
        """Answer what was asked again and has been answered before; returns what clients are
        shown."""
        shown = []
        for early in self._state.answers:
            if early.approval_id in self._past:
                continue
            self._state.answers = tuple(a for a in self._state.answers if a != early)
            if early.approval_id in self._repeated & {a.id for a in self.pending}:
                shown.append(self._give_answer(early))
        return shown

    def _give_answer(self, early: EarlyAnswer) -> dict[str, Any]:
        assert self.interactions is not None
        self.interactions.answer_approval(early.approval_id, early.applied)
        self._state.status = "waiting_for_approval" if self.pending else "running"
        data = {"approval_id": early.approval_id, "choice": early.choice}
        return data if early.applied == early.choice else {**data, "applied": early.applied}


def _describe_approval(approval: Approval) -> dict[str, Any]:
    command = approval.command or approval.diff or turn_events.label_call(approval.call, full=True)
    return {
        "approval_id": approval.id,
        "command": command,
        "reason": approval.summary,
        "choices": list(approval.choices),
    }

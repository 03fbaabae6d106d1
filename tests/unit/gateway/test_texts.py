"""The sentences people read in chats, word for word."""

from __future__ import annotations

import re

import pytest

from hermes.app.commands import stop
from hermes.core.events import Approval
from hermes.core.message import ToolCall
from hermes.gateway import texts
from hermes.gateway.open_questions import describe_answer, redact_approval

TABLE = {
    texts.PAIRING_CODE.format(code="ABCD2345", platform="telegram"): (
        "I don't know you yet. Your pairing code is ABCD2345 (valid for one hour).\n"
        "The owner lets you in with: hermes pairing approve telegram ABCD2345"
    ),
    texts.PAIRING_FULL: "Too many people are waiting to be let in. Try again later.",
    texts.PAIRED: "You are in. Write to me.",
    texts.QUEUED: "⏳ Queued — I'll answer when the current task is done.",
    texts.STEERED: "⏩ Passed on to the running task.",
    texts.INTERRUPTING: "⚡ Interrupting the current task for your message.",
    texts.MANY_WAITING: "⏳ Many messages are waiting; I'll read the newest together.",
    texts.TURN_RUNNING: "A turn is running; /stop it first.",
    texts.STOPPED_STARTING: (
        "⚡ Force-stopped. The agent was still starting — your next message will start fresh."
    ),
    stop.STOPPED: (
        "⚡ Force-stopped. The session is suspended — your next message will start fresh."
    ),
    stop.IDLE: "No active task to stop.",
    texts.ADMINS_ONLY.format(name="model"): "/model is for administrators.",
    texts.RESTARTING: "♻️ Restarting.",
    texts.BACK_AGAIN: "♻️ Back again.",
    texts.CUT_OFF: ("⚠️ Interrupted by a restart. What was done is kept; write to me to continue."),
    texts.STALE.format(n=3): (
        "3 older messages were not answered; send them again if they still matter."
    ),
    texts.REPEATED: "♻️ Possibly repeated:",
    texts.DATABASE_DAMAGED.format(sessions=1, messages=2, lost=3, name="x.damaged"): (
        "⚠️ The session database was damaged. Kept: 1 sessions, 2 messages; 3 messages are lost. "
        "The damaged file is x.damaged."
    ),
    texts.NEW_SESSION.format(why=texts.WHY_SUSPENDED, id="ID"): (
        "◐ New session (the previous one was stopped or interrupted). /resume ID goes back."
    ),
    texts.WHY_IDLE.format(span=texts.format_span(1440)): "no message for 24 h",
    texts.WHY_DAILY.format(hour=4): "daily reset at 4:00",
    texts.FRESH_NOTE.format(reason=texts.REASON_IDLE): (
        "[System note: the user's previous session expired due to inactivity. This is a fresh "
        "conversation with no prior context.]"
    ),
    texts.REASON_SUSPENDED: "was stopped and suspended",
    texts.REASON_DAILY: "was reset by the daily schedule",
    texts.APPROVAL.format(reason="R", command="`C`", span=texts.format_span(5)): (
        "⚠️ Approval needed: R\n`C`\n/approve or /deny. No answer in 5 min means no."
    ),
    texts.ALWAYS_SAVES.format(rules="R"): "Always saves the rule: R",
    " ".join(texts.APPROVAL_LABELS.values()): "Allow once For this session Always Deny",
    texts.FAILED_TURN.format(error="It failed."): "⚠️ It failed.",
    texts.TOOL_LINE.format(tool="terminal", what="ls"): "⚙️ terminal: ls",
    describe_answer("once", "Ann"): "✅ Allowed (once) by Ann",
    describe_answer("deny", "Ann"): "❌ Denied by Ann",
    texts.NOBODY_ANSWERED: "❌ Nobody answered",
    texts.NOT_YOURS.format(name="Ann"): "Only Ann or an administrator can answer this.",
    texts.ATTACHMENT.format(path="/p", type="t", size=5, name="n"): (
        "[attachment: /p (t, 5 bytes), named n]"
    ),
    texts.VOICE.format(text="t"): "[voice] t",
    texts.ATTACHMENT_MISSING.format(name="n", why="w"): "[attachment n was not fetched: w]",
    texts.NOT_SENT.format(path="/p"): "(not sent: /p is outside this session's folder)",
}


OWN = frozenset(
    "INTERNAL_ERROR HOME_CHAT_SET NOT_DELIVERED CARRIED NO NOT_HERE UNDECRYPTED "
    "VOICE_UNREAD NO_SPEECH FOOTER LOOP".split()
)
"""Words that nobody but the gateway itself has to keep."""


def test_every_text_has_a_row() -> None:
    rows = list(TABLE)
    for name, text in vars(texts).items():
        if not name.isupper() or name in OWN or not isinstance(text, str):
            continue
        pattern = ".*".join(map(re.escape, re.split(r"\{\w+\}", text)))
        assert any(re.search(pattern, row, re.DOTALL) for row in rows), name


@pytest.mark.parametrize(("text", "expected"), TABLE.items())
def test_texts_are_exact(text: str, expected: str) -> None:
    assert text == expected


def test_hidden_characters_of_a_request_are_shown() -> None:
    """A person decides about what it says."""
    call = ToolCall("c1", "terminal", "{}")
    asked = Approval("a1", call, "why", command="echo a\u202eb\u200bc")
    text = redact_approval(asked, str, 5)
    assert "\u202e" not in text and "\u200b" not in text and "202e" in text.lower()

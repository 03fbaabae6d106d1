"""The sentences people read in chats, word for word."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from hermes.app.commands import stop
from hermes.cli.gateway import process
from hermes.core.events import Approval
from hermes.core.message import ToolCall
from hermes.gateway import texts
from hermes.gateway.adapter import ErrorCode
from hermes.gateway.open_questions import describe_answer, redact_approval
from hermes.gateway.process.state_file import GatewayState, PlatformState

NO_CONTEXT = "This is a fresh conversation with no prior context.]"
TABLE = {
    process.RUNNING: "gateway running",
    process.ALREADY_RUNNING.format(pid="N"): "already running (pid N)",
    texts.RESTARTING: "♻️ Restarting.",
    texts.BACK_AGAIN: "♻️ Back again.",
    texts.DATABASE_DAMAGED.format(sessions="N", messages="M", lost="K", name="NAME"): (
        "⚠️ The session database was damaged. Kept: N sessions, M messages; K messages are lost. "
        "The damaged file is NAME."
    ),
    texts.SENDER.format(name="NAME"): "[NAME] ",
    texts.PAIRING_CODE.format(code="CODE", platform="PLATFORM"): (
        "I don't know you yet. Your pairing code is CODE (valid for one hour).\n"
        "The owner lets you in with: hermes pairing approve PLATFORM CODE"
    ),
    texts.PAIRING_FULL: "Too many people are waiting to be let in. Try again later.",
    texts.PAIRED: "You are in. Write to me.",
    texts.FRESH_NOTE.format(reason="REASON"): (
        f"[System note: the user's previous session REASON. {NO_CONTEXT}"
    ),
    texts.REASON_SUSPENDED: "was stopped and suspended",
    texts.REASON_IDLE: "expired due to inactivity",
    texts.REASON_DAILY: "was reset by the daily schedule",
    texts.NEW_SESSION.format(why="WHY", id="ID"): "◐ New session (WHY). /resume ID goes back.",
    texts.WHY_SUSPENDED: "the previous one was stopped or interrupted",
    texts.WHY_IDLE.format(span=texts.format_span(1440)): "no message for 24 h",
    texts.format_span(30): "30 min",
    texts.WHY_DAILY.format(hour=4): "daily reset at 4:00",
    texts.CUT_OFF: "⚠️ Interrupted by a restart. What was done is kept; write to me to continue.",
    texts.STALE.format(n="N"): (
        "N older messages were not answered; send them again if they still matter."
    ),
    texts.REPEATED: "♻️ Possibly repeated:",
    texts.QUEUED: "⏳ Queued — I'll answer when the current task is done.",
    texts.STEERED: "⏩ Passed on to the running task.",
    texts.INTERRUPTING: "⚡ Interrupting the current task for your message.",
    texts.MANY_WAITING: "⏳ Many messages are waiting; I'll read the newest together.",
    texts.TURN_RUNNING: "A turn is running; /stop it first.",
    stop.STOPPED: (
        "⚡ Force-stopped. The session is suspended — your next message will start fresh."
    ),
    texts.STOPPED_STARTING: (
        "⚡ Force-stopped. The agent was still starting — your next message will start fresh."
    ),
    stop.IDLE: "No active task to stop.",
    texts.ADMINS_ONLY.format(name="NAME"): "/NAME is for administrators.",
    texts.PLATFORM_STATE.format(name="NAME", state="STATE"): "NAME: STATE",
    texts.TOOL_LINE.format(tool="TOOL", what="WHAT"): "⚙️ TOOL: WHAT",
    texts.FAILED_TURN.format(error="It failed."): "⚠️ It failed.",
    texts.ATTACHMENT.format(path="PATH", type="TYPE", size="SIZE", name="NAME"): (
        "[attachment: PATH (TYPE, SIZE bytes), named NAME]"
    ),
    texts.ATTACHMENT_MISSING.format(name="NAME", why="WHY"): (
        "[attachment NAME was not fetched: WHY]"
    ),
    texts.VOICE.format(text="TEXT"): "[voice] TEXT",
    texts.NOT_SENT.format(path="PATH"): "(not sent: PATH is outside this session's folder)",
    texts.APPROVAL.format(reason="REASON", command="`C`", span=texts.format_span(5)): (
        "⚠️ Approval needed: REASON\n`C`\n/approve or /deny. No answer in 5 min means no."
    ),
    texts.ALWAYS_SAVES.format(rules="R"): "Always saves the rule: R",
    texts.APPROVAL_LABELS["once"]: "Allow once",
    texts.APPROVAL_LABELS["session"]: "For this session",
    texts.APPROVAL_LABELS["always"]: "Always",
    texts.APPROVAL_LABELS["deny"]: "Deny",
    texts.NOT_YOURS.format(name="NAME"): "Only NAME or an administrator can answer this.",
    describe_answer("once", "NAME"): "✅ Allowed (once) by NAME",
    describe_answer("deny", "NAME"): "❌ Denied by NAME",
    texts.NOBODY_ANSWERED: "❌ Nobody answered",
    " ".join(get_args(PlatformState)): "connecting connected retrying fatal stopped",
    " ".join(get_args(GatewayState)): "starting running draining stopped",
    " ".join(get_args(ErrorCode)): (
        "unauthorized intents conflict unreachable unconfigured missing_dependency port_in_use "
        "error"
    ),
}
"""What is said, and the exact text that people and programs rely on."""


OWN = frozenset(
    "INTERNAL_ERROR HOME_CHAT_SET NOT_DELIVERED CARRIED NO NOT_HERE UNDECRYPTED "
    "VOICE_UNREAD NO_SPEECH FOOTER LOOP FILE_NOT_SENT".split()
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

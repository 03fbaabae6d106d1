"""Every sentence the gateway itself says in a chat."""

PAIRING_CODE = (
    "I don't know you yet. Your pairing code is {code} (valid for one hour).\n"
    "The owner lets you in with: hermes pairing approve {platform} {code}"
)
PAIRING_FULL = "Too many people are waiting to be let in. Try again later."
PAIRED = "You are in. Write to me."

QUEUED = "⏳ Queued — I'll answer when the current task is done."
STEERED = "⏩ Passed on to the running task."
INTERRUPTING = "⚡ Interrupting the current task for your message."
MANY_WAITING = "⏳ Many messages are waiting; I'll read the newest together."
TURN_RUNNING = "A turn is running; /stop it first."
LOOP = (
    "⚠️ The same message came more than 5 times in a minute, right after my answers. That looks "
    "like two programs talking to each other, so I stop answering here until it was quiet for a "
    "minute."
)

ADMINS_ONLY = "/{name} is for administrators."
NO = "no"

STOPPED_STARTING = (
    "⚡ Force-stopped. The agent was still starting — your next message will start fresh."
)
INTERNAL_ERROR = (
    "⚠️ Internal error. Everything recorded before it is kept; the log has the details. "
    "Send the message again."
)

RESTARTING = "♻️ Restarting."
BACK_AGAIN = "♻️ Back again."
CUT_OFF = "⚠️ Interrupted by a restart. What was done is kept; write to me to continue."
STALE = "{n} older messages were not answered; send them again if they still matter."
REPEATED = "♻️ Possibly repeated:"
DATABASE_DAMAGED = (
    "⚠️ The session database was damaged. Kept: {sessions} sessions, {messages} messages; "
    "{lost} messages are lost. The damaged file is {name}."
)

NOT_DELIVERED = "⚠️ The result of {job} was not delivered: {why}. See: hermes cron runs {id}"
CARRIED = "[The scheduled job {job} has sent this to the chat:]"

NEW_SESSION = "◐ New session ({why}). /resume {id} goes back."
WHY_SUSPENDED = "the previous one was stopped or interrupted"
WHY_IDLE = "no message for {span}"
WHY_DAILY = "daily reset at {hour}:00"
FRESH_NOTE = (
    "[System note: the user's previous session {reason}. This is a fresh conversation with no "
    "prior context.]"
)
REASON_SUSPENDED = "was stopped and suspended"
REASON_IDLE = "expired due to inactivity"
REASON_DAILY = "was reset by the daily schedule"

APPROVAL = (
    "⚠️ Approval needed: {reason}\n{command}\n/approve or /deny. No answer in {span} means no."
)
ALWAYS_SAVES = "Always saves the rule: {rules}"
APPROVAL_LABELS = {
    "once": "Allow once",
    "session": "For this session",
    "always": "Always",
    "deny": "Deny",
}
ALLOWED_BY = "✅ Allowed ({answer}) by {name}"
DENIED_BY = "❌ Denied by {name}"
NOBODY_ANSWERED = "❌ Nobody answered"
NOT_YOURS = "Only {name} or an administrator can answer this."

SENDER = "[{name}] "
PLATFORM_STATE = "{name}: {state}"
FAILED_TURN = "⚠️ {error}"
TOOL_MARK = "⚙️ "
TOOL_LINE = TOOL_MARK + "{tool}: {what}"
VOICE = "[voice] {text}"
VOICE_UNREAD = "[the voice note was not transcribed: {why}]"
ATTACHMENT = "[attachment: {path} ({type}, {size} bytes), named {name}]"
ATTACHMENT_MISSING = "[attachment {name} was not fetched: {why}]"
NOT_SENT = "(not sent: {path} is outside this session's folder)"
FILE_NOT_SENT = "(not sent: {name}: {why})"
UNDECRYPTED = "⚠️ I could not decrypt a message here, so I have not read it. Send it again."
NOT_HERE = "You cannot use this bot here."
FOOTER = "— {model}, {tokens} tokens of context"
NO_SPEECH = (
    "No model for speech is set. The owner names one with: hermes config set "
    "auxiliary.speech.provider openai, and auxiliary.speech.model."
)
SWITCHES = {"footer": "A line about the model below answers", "voice": "Answers by voice"}
HOME_CHAT_SET = "Notices for the owner will be sent to this chat."


def format_span(minutes: float) -> str:
    """A time without messages: whole hours from one hour on, otherwise minutes."""
    if minutes >= 60 and minutes % 60 == 0:
        return f"{minutes / 60:g} h"
    return f"{minutes:g} min"

"""Who may talk, and as what: decided by immutable ids alone."""

import re
from typing import Literal, TypeAlias

from hermes.config.platforms import PlatformSettings
from hermes.gateway import texts
from hermes.gateway.adapter import ChatType, Inbound

Role: TypeAlias = Literal["admin", "user", "guest", "stranger", "nobody"]
"""`stranger`: writes in a direct chat and could be let in; `nobody`: is ignored."""

_AUTHOR = re.compile(r"(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])(?=\[[^\[\]]{1,40}\] )")
"""Where a line begins as a message of somebody does."""
GUEST_COMMANDS = frozenset(
    "help commands whoami status version new reset stop steer queue retry".split()
)
ADMIN_COMMANDS = frozenset(
    "restart update sethome yolo model rollback debug plugins reload-mcp reload-skills cron".split()
)


def decide_role(settings: PlatformSettings, message: Inbound, *, is_paired: bool) -> Role:
    if message.is_bot:
        return "nobody"
    in_group = message.chat_type != "dm"
    if in_group and message.chat not in settings.allowed_chats:
        return "nobody"
    if message.user in (settings.admins or settings.allowed_users):
        return "admin"
    if settings.lets_in(message.user) or is_paired:
        return "user"
    if in_group:
        return "guest" if settings.group_members else "nobody"
    return "stranger"


def is_addressed(settings: PlatformSettings, message: Inbound) -> bool:
    """Whether the message is meant for the agent; in a direct chat everything is."""
    return (
        message.chat_type == "dm"
        or message.addressed
        or not settings.require_mention
        or message.chat in settings.free_response_chats
    )


def may_run_command(role: Role, name: str, *, admin_only: bool) -> bool:
    if role == "admin":
        return True
    if admin_only or name in ADMIN_COMMANDS:
        return False
    return role == "user" or (role == "guest" and name in GUEST_COMMANDS)


def may_answer(role: Role, user: str, requester: str) -> bool:
    """Whether this person may answer what a turn of `requester` asks."""
    return role == "admin" or (role in ("user", "guest") and user == requester)


def build_key(
    profile: str,
    platform: str,
    message: Inbound,
    *,
    group_per_user: bool,
    thread_per_user: bool,
) -> str:
    """The conversation of a message. Parts that could contain a colon are escaped."""
    parts = ["agent", profile, platform, message.chat_type, message.chat]
    if message.thread:
        parts.append(message.thread)
    elif message.session:
        parts.append(message.session)
    if is_per_user(message.chat_type, message.thread, group_per_user, thread_per_user):
        parts.append(message.user)
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)


def is_per_user(
    chat_type: ChatType, thread: str, group_per_user: bool, thread_per_user: bool
) -> bool:
    if chat_type == "dm":
        return False
    return thread_per_user if thread else group_per_user


def name_sender(name: str) -> str:
    """The name of a person as the agent sees it: one line, without brackets, 40 characters."""
    plain = "".join(c if c.isprintable() and c not in "[]" else " " for c in name)
    return " ".join(plain.split())[:40].strip()


def attribute_text(name: str, text: str) -> str:
    """A message of a shared session with its author. What looks like the beginning of another
    message inside it is indented, so that nobody speaks for somebody else."""
    return texts.SENDER.format(name=name) + _AUTHOR.sub(" ", text)

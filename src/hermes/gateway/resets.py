"""When a conversation starts afresh by itself."""

import time
from typing import Literal, TypeAlias

from msgspec import structs

from hermes.config.schema import ResetRule, ResetSection
from hermes.gateway import texts
from hermes.gateway.adapter import ChatType

ResetCause: TypeAlias = Literal["suspended", "idle", "daily"]


def find_policy(section: ResetSection, platform: str, chat_type: ChatType) -> ResetSection:
    """The policy of a chat: the general one, overridden for its type, then for its platform."""
    for rule in (section.by_type.get(chat_type), section.by_platform.get(platform)):
        if rule is not None:
            section = structs.replace(section, **_list_changes(rule))
    return section


def _list_changes(rule: ResetRule) -> dict[str, object]:
    return {name: value for name, value in structs.asdict(rule).items() if value is not None}


def find_cause(policy: ResetSection, used: float, now: float) -> ResetCause | None:
    """Why a conversation that was last used then starts afresh now; None: it continues."""
    if not used:
        return None
    if policy.mode in ("idle", "both") and now - used >= policy.idle_minutes * 60:
        return "idle"
    if policy.mode in ("daily", "both") and used < _last_reset(policy.at_hour, now):
        return "daily"
    return None


def _last_reset(hour: int, now: float) -> float:
    """The latest moment before now at which local clocks showed that hour."""
    local = time.localtime(now)
    days_back = 0 if local.tm_hour >= hour else 1
    day = local.tm_mday - days_back
    return time.mktime((local.tm_year, local.tm_mon, day, hour, 0, 0, 0, 0, -1))


def describe_cause(cause: ResetCause, policy: ResetSection) -> tuple[str, str]:
    """Why, for the user; and the reason, for the agent."""
    match cause:
        case "suspended":
            return texts.WHY_SUSPENDED, texts.REASON_SUSPENDED
        case "idle":
            span = texts.format_span(policy.idle_minutes)
            return texts.WHY_IDLE.format(span=span), texts.REASON_IDLE
        case "daily":
            return texts.WHY_DAILY.format(hour=policy.at_hour), texts.REASON_DAILY

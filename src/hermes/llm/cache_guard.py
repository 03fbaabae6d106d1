"""The guard of prompt caches: what a request begins with must be what the last one began with."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import Struct

from hermes.core.message import Target
from hermes.core.provider import Request, ToolSpec
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.message_buffer import SentMessages

log = logging.getLogger(__name__)

NOTICE_CODE = "prefix"
"""Of the notice."""
_PROMPT = frozenset(
    "tools toolConfig tool_choice response_format system systemInstruction instructions messages "
    "contents input".split()
)
"""Fields in front of the messages that a provider puts into the prompt, under any of their names;
the others change nothing in what it has cached."""
_SMALL_TAIL = 4096
"""Bytes at the end of messages that still may grow: less than any provider caches by itself."""


class PromptRecord(Struct, frozen=True):
    """One request as a cache sees it, and what it was made from."""

    sent: SentMessages
    system: str
    tools: tuple[ToolSpec, ...]
    quirks: Quirks


def record_prompt(
    request: Request, quirks: Quirks, sent: SentMessages | None
) -> PromptRecord | None:
    """None for requests that stand beside the conversation: the last call without tools, a repaired
    view of the history. The next ordinary one goes on where the last ordinary one was."""
    if sent is None or request.passing or request.settings.tool_choice != "auto":
        return None
    if request.tail:  # words for this request only, behind the history or in its last message
        sent = msgspec.structs.replace(sent, open=b"")
    return PromptRecord(sent, request.system, request.tools, quirks)


def explain_cache_loss(old: PromptRecord | None, new: PromptRecord, target: Target) -> str:
    """The sentence about a request that lost the cache of the one before it; empty: it did not."""
    if old is None or old is new:
        return ""
    before, after = old.sent, new.sent
    if before.head is not after.head and (at := _find_head_change(before.head, after.head)) >= 0:
        who = _name_cause(old, new)
        again = len(before.head) - at + before.settled + len(before.closed) + len(before.open)
    else:
        at = _find_message_change(before, after)
        if at < 0:
            return ""
        again = before.settled + len(before.closed) + len(before.open) - at
        number = _message_number(
            bytes(before.kept[: before.settled]) + before.closed + before.open, at
        )
        learned = _changed_quirks(old.quirks, new.quirks)
        who = f"message {number}" + (f", quirks learned: {learned}" if learned else "")
        at += len(before.head)
    text = (
        f"The request to {target.model} begins differently from the one before it, at byte {at:,} "
        f"({who}): about {again // 4:,} tokens are read again instead of from its cache. "
        "Nothing was lost."
    )
    log.warning("%s", text)
    return text


def _find_message_change(before: SentMessages, after: SentMessages) -> int:
    """The first byte among the messages that is another; -1: what came is what was there, with
    more behind it."""
    same = before.kept is after.kept
    start = before.settled if same else 0
    old = bytes(before.kept[start : before.settled]) + before.closed + before.open
    new = bytes(after.kept[start : after.settled]) + after.closed + after.open
    at = _common_prefix(old, new)
    if at == len(old):
        return -1
    fixed = len(old) - len(before.open)
    if at >= fixed and len(old) - at <= _SMALL_TAIL:
        return -1  # the message under way has grown: guidance behind a result, a second question
    return start + at


def _find_head_change(old: bytes, new: bytes) -> int:
    """The first byte that is another, where that changes the prompt; else -1."""
    if old == new:
        return -1
    one, two = _prompt_fields(old), _prompt_fields(new)
    return -1 if one == two else _common_prefix(old, new)


def _prompt_fields(head: bytes) -> dict[str, Any]:
    fields = msgspec.json.decode(head.removesuffix(b",") + b"]}")
    return {name: value for name, value in fields.items() if name in _PROMPT}


def _name_cause(old: PromptRecord, new: PromptRecord) -> str:
    if old.system != new.system:
        return "system"
    if old.tools != new.tools:
        return "tools"
    if learned := _changed_quirks(old.quirks, new.quirks):
        return f"quirks learned: {learned}"
    return "settings"


def _changed_quirks(old: Quirks, new: Quirks) -> str:
    names = [n for n in old.__struct_fields__ if getattr(old, n) != getattr(new, n)]
    return ", ".join(names)


def _common_prefix(one: bytes, two: bytes) -> int:
    """How many bytes they begin with alike, by halves: comparing is fast, looking is not."""
    low, high = 0, min(len(one), len(two))
    if one[:high] == two[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _message_number(messages: bytes, at: int) -> int:
    """Which message of the request that byte is in, counted from one."""
    end = 0
    items = msgspec.json.decode(b"[" + messages.removesuffix(b",") + b"]", type=list[msgspec.Raw])
    for number, item in enumerate(items, 1):
        end += len(bytes(item)) + 1
        if at < end:
            return number
    return len(items)

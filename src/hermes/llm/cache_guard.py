"""Guards prompt caches: each request must begin like the one before it."""

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
"""Code of the notice to the user."""
_PROMPT = frozenset(
    "tools toolConfig tool_choice response_format system systemInstruction instructions messages "
    "contents input".split()
)
"""Request fields that become part of the prompt, under all their names; the others do not affect
what a provider has cached."""
_SMALL_TAIL = 4096
"""Bytes of the last message that may change: less than any provider caches."""


class PromptRecord(Struct, frozen=True):
    """A request as a prompt cache sees it, and what it was made from."""

    sent: SentMessages
    system: str
    tools: tuple[ToolSpec, ...]
    quirks: Quirks


def record_prompt(
    request: Request, quirks: Quirks, sent: SentMessages | None
) -> PromptRecord | None:
    """The record of a request; None for one outside the conversation (the last call without tools,
    a repaired history), which later requests are not compared with."""
    if sent is None or request.passing or request.settings.tool_choice != "auto":
        return None
    if request.tail:  # text of this request only, after the history or in its last message
        sent = msgspec.structs.replace(sent, open=b"")
    return PromptRecord(sent, request.system, request.tools, quirks)


def explain_cache_loss(old: PromptRecord | None, new: PromptRecord, target: Target) -> str:
    """A notice about a request that lost the cache of the one before it; empty: it did not."""
    if old is None or old is new:
        return ""
    if old.quirks.calling != new.quirks.calling:
        return ""  # another prompt on purpose, as the notice of that recovery says
    before, after = old.sent, new.sent
    size = before.settled + len(before.closed) + len(before.open)
    if before.head is not after.head and (index := _find_head_change(old, new)) >= 0:
        cause = _name_cause(old, new)
        again = len(before.head) - index + size
    else:
        index = _find_message_change(before, after)
        if index < 0:
            return ""
        again = size - index
        messages = bytes(before.kept[: before.settled]) + before.closed + before.open
        learned = _changed_quirks(old.quirks, new.quirks)
        cause = f"message {_message_number(messages, index)}"
        cause += f", quirks learned: {learned}" if learned else ""
        index += len(before.head)
    text = (
        f"The request to {target.model} differs from the one before it at byte {index:,} "
        f"({cause}), so about {again // 4:,} tokens are read again instead of from the prompt "
        "cache. Nothing was lost."
    )
    log.warning("%s", text)
    return text


def _find_message_change(before: SentMessages, after: SentMessages) -> int:
    """Index of the first byte of the messages that changed; -1: messages were only added."""
    same = before.kept is after.kept
    start = before.settled if same else 0
    old = bytes(before.kept[start : before.settled]) + before.closed + before.open
    new = bytes(after.kept[start : after.settled]) + after.closed + after.open
    index = _common_prefix(old, new)
    if index == len(old):
        return -1
    fixed = len(old) - len(before.open)
    if index >= fixed and len(old) - index <= _SMALL_TAIL:
        return -1  # the last message has grown: guidance after a result, a second question
    return start + index


def _find_head_change(old: PromptRecord, new: PromptRecord) -> int:
    """Index of the first byte that changed, if that changes the prompt; else -1."""
    before, after = old.sent.head, new.sent.head
    same = before == after or _list_prompt_fields(old) == _list_prompt_fields(new)
    return -1 if same else _common_prefix(before, after)


def _list_prompt_fields(record: PromptRecord) -> dict[str, Any]:
    fields = msgspec.json.decode(record.sent.head.removesuffix(b",") + b"]}")
    # A schema that calls are forced into steers the choice of tokens; the prompt says it in words.
    forced = {"response_format"} if record.quirks.calling == "schema" else set()
    return {name: value for name, value in fields.items() if name in _PROMPT - forced}


def _name_cause(old: PromptRecord, new: PromptRecord) -> str:
    if old.system != new.system:
        return "system"
    if old.tools != new.tools:
        return "tools"
    learned = _changed_quirks(old.quirks, new.quirks)
    return f"quirks learned: {learned}" if learned else "settings"


def _changed_quirks(old: Quirks, new: Quirks) -> str:
    names = [n for n in old.__struct_fields__ if getattr(old, n) != getattr(new, n)]
    return ", ".join(names)


def _common_prefix(one: bytes, two: bytes) -> int:
    """Length of the common prefix, by bisection: comparing slices is fast, a loop is not."""
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


def _message_number(messages: bytes, index: int) -> int:
    """The message that contains this byte, counted from one."""
    end = 0
    items = msgspec.json.decode(b"[" + messages.removesuffix(b",") + b"]", type=list[msgspec.Raw])
    for number, item in enumerate(items, 1):
        end += len(bytes(item)) + 1
        if index < end:
            return number
    return len(items)

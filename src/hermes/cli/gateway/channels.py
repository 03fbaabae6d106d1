"""The chats that messages can be sent to from outside the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from hermes.core.errors import ToolError

if TYPE_CHECKING:
    from hermes.store.tables.mailbox import MessengerStore

_PREFIX = "agent:"


async def list_channels(store: MessengerStore) -> list[dict[str, str]]:
    """The chats that have written to the agent."""
    found: dict[str, dict[str, str]] = {}
    for key in await store.mailbox.list_keys(_PREFIX):
        platform, kind, chat = [*key.split(":")[2:5], "", "", ""][:3]
        if platform and chat:
            chat = chat.replace("%3A", ":").replace("%25", "%")
            target = f"{platform}:{chat}"
            found[target] = {"target": target, "platform": platform, "type": kind}
    return [found[target] for target in sorted(found)]


async def queue_message(store: MessengerStore, target: str, text: str) -> str:
    """Put a text into the outbox; the running gateway delivers it, or the next one does."""
    from hermes.gateway.content.reply import Content, make_entry
    from hermes.gateway.outbox import FOREIGN

    known = {row["target"] for row in await list_channels(store)}
    if target not in known:
        raise ToolError(f"There is no chat {target}; channels_list shows them.")
    if not text.strip():
        raise ToolError("The text is empty; nothing was sent.")
    platform, _, chat = target.partition(":")
    number = await store.mailbox.find_last_number() + 1
    entry = make_entry(number, platform, chat, Content(text))
    await store.mailbox.put_reply(structs.replace(entry, inbox=FOREIGN))
    return "queued"

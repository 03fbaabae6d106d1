"""After a start: what became of messages that an earlier process left unanswered."""

import time
from collections.abc import Mapping

import msgspec
from msgspec import structs

from hermes.app.commands import parse_command
from hermes.app.session_records import find_current_session, find_turn_starts
from hermes.core.store import InboxEntry
from hermes.gateway import texts
from hermes.gateway.content.reply import Reply
from hermes.gateway.conversations import Conversations, Group
from hermes.gateway.hub import Hub, Item
from hermes.gateway.router import Router, StoredMessage

SUSPEND_SECONDS = 120.0
MAX_STRIKES = 3


class Recovery:
    """Runs before anything is received, so that no message overtakes an older one."""

    def __init__(
        self,
        hub: Hub,
        conversations: Conversations,
        router: Router,
        drafts: Mapping[int, Reply],
        *,
        is_crash_loop: bool,
    ) -> None:
        self._hub = hub
        self._conversations = conversations
        self._router = router
        self._drafts = dict(drafts)
        self._is_crash_loop = is_crash_loop

    async def recover_messages(self) -> None:
        entries = await self._hub.mailbox.list_open_messages()
        entries = [entry for entry in entries if entry.platform in self._hub.platforms]
        cut_off: dict[str, list[InboxEntry]] = {}
        for entry in entries:
            if entry.state == "running":
                cut_off.setdefault(entry.key, []).append(entry)
        if cut_off and self._hub.settings.on_restart == "suspend":
            await self._hub.mailbox.suspend_used_since(time.time() - SUSPEND_SECONDS)
        for key, group in cut_off.items():
            await self._recover_turn(key, group)
        for draft in self._drafts.values():
            await self._close_draft(draft)
        for entry in entries:
            if entry.state == "waiting":
                await self._hub.outbox.revive_chat(entry.platform, entry.chat)
                await self._router.dispatch(_read_item(entry), entry.key, entry.received)

    async def _recover_turn(self, key: str, entries: list[InboxEntry]) -> None:
        items = [_read_item(entry) for entry in entries]
        numbers = tuple(item.n for item in items)
        row = await self._hub.mailbox.get_conversation(key)
        row = structs.replace(row, strikes=row.strikes + 1)
        is_command = parse_command(items[0].message.text) is not None and not entries[0].session
        had_tools = is_command or await self._has_begun_tools(entries[-1].session)
        policy = self._hub.settings.on_restart
        is_struck_out = row.strikes >= MAX_STRIKES
        resumes = not had_tools or policy == "resume"
        if resumes and not (is_struck_out or self._is_crash_loop or is_command):
            await self._hub.mailbox.put_conversation(row)
            draft = self._drafts.pop(numbers[0], None)
            group = Group(items, time.monotonic(), continues=True, draft=draft)
            self._conversations.get_actor(key).enqueue_group(group)
            return
        if is_struck_out or (policy == "suspend" and not is_command):
            row = structs.replace(row, suspended=True, strikes=0)
        await self._hub.mailbox.put_conversation(row)
        await self._hub.say(self._hub.find_address(items[-1]), texts.CUT_OFF, done=numbers)

    async def _has_begun_tools(self, session_id: str) -> bool:
        store = self._hub.runtime.store
        meta = await find_current_session(store, session_id)
        messages = await store.sessions.load_messages(meta.id) if meta is not None else []
        starts = find_turn_starts(messages)
        if not starts:
            return True  # nothing to run again from
        return any(message.calls for message in messages[starts[-1] :])

    async def _close_draft(self, draft: Reply) -> None:
        """Text stays as it is shown; a line about a tool goes."""
        draft.draft, draft.state = False, "delivered"
        is_tool_line = [text.startswith(texts.TOOL_MARK) for text in draft.progress.shown] == [True]
        if is_tool_line:
            draft.state = "pending"
        await self._hub.outbox.save(draft)
        if is_tool_line:
            self._hub.outbox.schedule(draft)


def _read_item(entry: InboxEntry) -> Item:
    stored = msgspec.msgpack.decode(entry.body, type=StoredMessage)
    return Item(entry.n, entry.platform, stored.message, stored.role)

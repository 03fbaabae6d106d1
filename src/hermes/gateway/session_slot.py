"""The session of a conversation: opened when it is needed, replaced when it starts afresh."""

import asyncio
import time
from pathlib import Path

import msgspec
from msgspec import structs

from hermes.app.session import Session
from hermes.core.store import Conversation
from hermes.gateway import resets, texts
from hermes.gateway.adapter import ServerHost
from hermes.gateway.hub import ConversationSettings, Hub, Item, OpenPlatform, decode_settings
from hermes.gateway.people.access import is_per_user
from hermes.tools._services import SERVERS
from hermes.tools.registry import select_tools

_STRANGERS = "webhook"
"""The platform whose toolset is harmless enough for strangers."""


class SessionSlot:
    """Holds the live session of one conversation; an idle conversation has none."""

    def __init__(self, hub: Hub, key: str) -> None:
        self.key = key
        self.session: Session | None = None
        self.row = Conversation(key)
        """The conversation as it was when the session was last opened."""
        self._hub = hub
        self._lock = asyncio.Lock()

    async def open_session(
        self, item: Item, *, arrived: float | None = None, needs_model: bool = True
    ) -> tuple[Session, str]:
        """The session that answers now, and a note for the agent if it is a fresh one. `arrived`:
        when the message came that may start afresh; None: the session stays the one there was."""
        async with self._lock:  # a message and a command must not open two
            return await self._open_session(item, arrived, needs_model)

    async def _open_session(
        self, item: Item, arrived: float | None, needs_model: bool
    ) -> tuple[Session, str]:
        hub = self._hub
        self.row = row = await hub.mailbox.get_conversation(self.key)
        message = item.message
        policy = resets.find_policy(hub.settings.reset, item.platform, message.chat_type)
        cause: resets.ResetCause | None = None
        if arrived is not None and row.suspended:
            cause = "suspended"
        elif arrived is not None and row.session:
            cause = resets.find_cause(policy, row.used, arrived)
        if cause is not None and cause != "suspended" and self.has_background_work():
            cause = None
        if self.session is not None and cause is None:
            return self.session, ""
        saved = self.update_settings(row, item)
        if cause is not None and self.session is not None:
            self.session.host.closing = "reset"
        await self._close_session()
        session = await self._load_session(item, "" if cause else row.session, saved, needs_model)
        self.session = session
        if cause is None:
            return session, ""
        if session.host.hooks is not None:
            await session.host.hooks.notify(
                "on_session_reset", session_id=row.session, new_session_id=session.id, reason=cause
            )
        why, reason = resets.describe_cause(cause, policy)
        old = await hub.runtime.store.sessions.get_meta(row.session) if row.session else None
        is_excluded = item.platform in policy.notify_exclude_platforms
        wants_notice = cause == "suspended" or (policy.notify and not is_excluded)
        if old is not None and old.messages and wants_notice:
            await hub.say(hub.find_address(item), texts.NEW_SESSION.format(why=why, id=old.id))
        self.row = await self._use_session(session)
        return session, texts.FRESH_NOTE.format(reason=reason) if old is not None else ""

    def update_settings(self, row: Conversation, item: Item) -> ConversationSettings:
        message = item.message
        return structs.replace(
            decode_settings(row),
            platform=item.platform,
            chat=message.chat,
            thread=message.thread,
            chat_type=message.chat_type,
        )

    async def _load_session(
        self, item: Item, resume: str, saved: ConversationSettings, needs_model: bool
    ) -> Session:
        hub = self._hub
        found = hub.platforms[item.platform]
        message = item.message
        is_alone = message.chat_type == "dm" or is_per_user(
            message.chat_type,
            message.thread,
            hub.settings.group_sessions_per_user,
            hub.settings.thread_sessions_per_user,
        )
        options = structs.replace(
            saved.options,
            toolsets=self._choose_toolsets(item, found),
            user=message.user if is_alone else "",
            is_admin=is_alone and item.role == "admin",
        )
        if resume and await hub.runtime.store.sessions.get_meta(resume) is None:
            resume = ""  # it was opened, and nothing was said in it
        session = await hub.runtime.open_session(
            resume=resume,
            source=item.platform,
            key=self.key,
            cwd=Path(hub.runtime.working_folder),
            options=options,
            needs_model=needs_model,
        )
        interactions = session.interactions
        interactions.user_present = found.platform.capabilities.attended
        interactions.approval_seconds = hub.settings.approval_seconds
        default = found.settings.busy_input_mode or hub.settings.busy_input_mode
        interactions.busy_mode = saved.busy_mode or default
        user = f"{item.platform}:{item.message.user}"
        if item.role == "admin" and self._is_alone(item) and isinstance(found.platform, ServerHost):
            session.services.set(SERVERS, found.platform.servers)
        session.host.account = structs.replace(session.host.account, user=user)
        return session

    def _is_alone(self, item: Item) -> bool:
        """Whether nobody else talks in this conversation."""
        message, settings = item.message, self._hub.settings
        return message.chat_type == "dm" or is_per_user(
            message.chat_type,
            message.thread,
            settings.group_sessions_per_user,
            settings.thread_sessions_per_user,
        )

    def _choose_toolsets(self, item: Item, found: OpenPlatform) -> tuple[str, ...] | None:
        settings = found.settings
        chosen = item.message.toolsets or settings.toolsets
        if chosen is None and settings.group_members and item.message.chat_type != "dm":
            tools = self._hub.runtime.setup.config.tools
            chosen = tuple(select_tools(None, platform=_STRANGERS, settings=tools))
        return chosen

    def has_background_work(self) -> bool:
        runtime, session = self._hub.runtime, self.session
        if session is None:
            return False
        commands = runtime.background_commands.list_running(session.transcript.meta)
        prompts = runtime.background_prompts.list_prompts(session)
        return bool(commands or prompts or runtime.delegations.list_children(session))

    async def adopt_session(self, session: Session, item: Item) -> None:
        """Continue in another session from now on."""
        old, self.session = self.session, session
        await self._use_session(session)
        if old is not None and old is not session:
            await old.close()

    async def _use_session(self, session: Session) -> Conversation:
        return await self._hub.change_conversation(
            self.key,
            lambda row: structs.replace(row, session=session.id, suspended=False, used=time.time()),
        )

    async def save_settings(self, item: Item) -> None:
        """Keep what a command has set for this conversation."""
        session = self.session
        if session is None:
            return
        found = self._hub.platforms[item.platform].settings
        default = found.busy_input_mode or self._hub.settings.busy_input_mode
        mode = session.interactions.busy_mode

        def replace_settings(row: Conversation) -> Conversation:
            saved = structs.replace(
                self.update_settings(row, item),
                choice=session.options.choice,
                effort=session.options.effort,
                fast=session.options.fast,
                personality=session.options.personality,
                busy_mode=None if mode == default else mode,
            )
            return structs.replace(row, settings=msgspec.msgpack.encode(saved))

        await self._hub.change_conversation(self.key, replace_settings)

    async def set_switch(self, item: Item, name: str, *, on: bool | None) -> bool:
        """Whether a setting of this conversation is on, after setting it unless `on` is None."""

        def replace_switch(row: Conversation) -> Conversation:
            if on is None:
                return row
            saved = structs.replace(self.update_settings(row, item), **{name: on})
            return structs.replace(row, settings=msgspec.msgpack.encode(saved))

        row = await self._hub.change_conversation(self.key, replace_switch)
        return bool(getattr(decode_settings(row), name))

    async def drop_session(self) -> None:
        async with self._lock:
            await self._close_session()

    async def _close_session(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            await session.close()

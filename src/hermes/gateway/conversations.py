"""Conversations as actors: each answers its messages one at a time, in order."""

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from hermes.app.session import Session
from hermes.core.errors import HermesError, StoreError
from hermes.core.events import Approval, Question, ToolDone, TurnEnd, TurnEvent, TurnResult
from hermes.core.message import Media, Message, user_message
from hermes.core.store import Conversation
from hermes.gateway import resets, texts
from hermes.gateway.access import is_per_user, name_sender
from hermes.gateway.adapter import Inbound, SendFailure, Target
from hermes.gateway.hub import ConversationSettings, Hub, Item, OpenPlatform, decode_settings
from hermes.gateway.outbox import Reply
from hermes.gateway.render import count_units
from hermes.gateway.turn_reply import ReplyStyle, TurnReply
from hermes.tools.registry import select_tools

log = logging.getLogger(__name__)

JOIN_SECONDS = 1.5
CUT_UNITS = 4000
"""A text of this length was probably cut by the client."""
ACK_SECONDS = 30.0
STOP_SECONDS = 3.0
LONGEST_QUOTE = 500
_STRANGERS = "webhook"
"""The platform whose toolset is harmless enough for strangers."""


class Group(Struct):
    """Messages that are answered together."""

    items: list[Item]
    joined: float
    """When the last one came."""
    prompt: Message | None = None
    """What to answer instead of their text."""
    continues: bool = False
    """The turn that answers them was cut off and runs again."""
    draft: Reply | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(item.n for item in self.items if item.n)

    def accepts(self, item: Item) -> bool:
        """Whether a message belongs to this one: the same album, or the rest of a cut text."""
        last = self.items[-1].message
        if self.prompt is not None or self.continues or last.user != item.message.user:
            return False
        if last.album or item.message.album:
            return last.album == item.message.album
        is_cut = count_units(last.text) >= CUT_UNITS
        return is_cut and time.monotonic() - self.joined < JOIN_SECONDS

    @property
    def may_grow(self) -> bool:
        last = self.items[-1].message
        return bool(last.album) or count_units(last.text) >= CUT_UNITS


class ConversationActor:
    """One conversation of one key. Its worker lives only while there is something to answer."""

    def __init__(self, hub: Hub, key: str) -> None:
        self.key = key
        self.session: Session | None = None
        self.last_used = time.monotonic()
        self._hub = hub
        self._groups: deque[Group] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._reply: TurnReply | None = None
        """Of the running turn."""
        self._requester = ("", "")
        self._last_ack = -ACK_SECONDS
        self._said_many = False

    @property
    def is_busy(self) -> bool:
        return self._worker is not None

    @property
    def has_turn(self) -> bool:
        return self._reply is not None

    # -- messages in -------------------------------------------------------------------------------

    async def enqueue(self, item: Item) -> None:
        """Answer a message, now or when its turn comes."""
        self.last_used = time.monotonic()
        if await self._answer_question(item):
            return
        if self._groups and self._groups[-1].accepts(item):
            self._groups[-1].items.append(item)
            self._groups[-1].joined = time.monotonic()
            return
        ack = ""
        if self.is_busy:
            ack = self._take_while_busy(item)
            if ack == texts.STEERED:
                await self._acknowledge(item, ack)
                return
        if len(self._groups) >= self._hub.settings.max_queued:
            self._groups[-1].items.append(item)
            ack = "" if self._said_many else texts.MANY_WAITING
            if ack:
                self._said_many = True
                await self._hub.say(item.address, ack)
            return
        self.enqueue_group(Group([item], time.monotonic()))
        if ack:
            await self._acknowledge(item, ack)

    def enqueue_group(self, group: Group) -> None:
        self._groups.append(group)
        if self._worker is None:
            self._worker = self._hub.runtime.spawn_task(self._run_worker(), f"chat {self.key}")

    def _take_while_busy(self, item: Item) -> str:
        """Apply the busy mode; returns what to say about it."""
        session, reply = self.session, self._reply
        match self._busy_mode(item):
            case "steer" if session is not None and reply is not None and session.is_steerable:
                if not item.message.attachments:
                    reply.steered.append(item.n)
                    session.submit(user_message(self._write_text(item)), "steer")
                    return texts.STEERED
            case "interrupt" if session is not None:
                session.interrupt()
                return texts.INTERRUPTING
        return texts.QUEUED

    def _busy_mode(self, item: Item) -> str:
        chosen = self.session.interactions.busy_mode if self.session is not None else None
        settings = self._hub.platforms[item.platform].settings
        return chosen or settings.busy_input_mode or self._hub.settings.busy_input_mode

    async def _acknowledge(self, item: Item, text: str) -> None:
        now = time.monotonic()
        if self._hub.settings.busy_ack and now - self._last_ack >= ACK_SECONDS:
            self._last_ack = now
            await self._hub.say(item.address, text)

    async def _answer_question(self, item: Item) -> bool:
        """Whether the message answered a question of the agent."""
        session = self.session
        if session is None or not session.interactions.pending_questions:
            return False
        question = session.interactions.pending_questions[0]
        text = item.message.text.strip()
        if text.isdecimal() and 1 <= int(text) <= len(question.choices):
            text = question.choices[int(text) - 1]
        session.interactions.answer_question(question.id, text)
        await self._hub.questions.close_answered(session)
        await self._hub.mailbox.set_state([item.n], "done")
        return True

    @property
    def requester(self) -> tuple[str, str]:
        """The id and the name of the person whose message is being answered."""
        return self._requester

    def replace_message(self, id: str, message: Inbound) -> None:
        """An edited message that still waits is answered as it is now."""
        for group in self._groups:
            for index, item in enumerate(group.items):
                if item.message.id == id:
                    group.items[index] = structs.replace(item, message=message)

    # -- the worker --------------------------------------------------------------------------------

    async def _run_worker(self) -> None:
        try:
            while self._groups and not self._hub.is_draining:
                await self._wait_until_complete(self._groups[0])
                async with self._hub.slots:
                    if self._groups and not self._hub.is_draining:
                        group = self._groups.popleft()
                        self._said_many = self._said_many and bool(self._groups)
                        await self._answer_group(group)
        finally:
            self._worker = None
            self.last_used = time.monotonic()

    async def _wait_until_complete(self, group: Group) -> None:
        """Until the rest of an album or of a cut text must have come."""
        wait = JOIN_SECONDS if group.may_grow else 0.0
        while wait > 0:
            await asyncio.sleep(wait)
            wait = group.joined + JOIN_SECONDS - time.monotonic()

    async def _answer_group(self, group: Group) -> None:
        item = group.items[-1]
        try:
            session, note = await self.open_session(item, continues=group.continues)
            prompt = None if group.continues else await self._build_prompt(session, group, note)
            await self._run_turn(session, group, prompt)
        except HermesError as error:
            log.warning("a message on %s was not answered: %s", item.platform, error)
            with suppress(StoreError):
                await self._hub.mailbox.set_state(group.numbers, "done")
                await self._hub.say(item.address, texts.FAILED_TURN.format(error=error))

    async def _run_turn(self, session: Session, group: Group, prompt: Message | None) -> None:
        item = group.items[-1]
        row = await self._hub.mailbox.get_conversation(self.key)
        row = structs.replace(
            row,
            session=session.id,
            suspended=False,
            used=time.time(),
            settings=msgspec.msgpack.encode(self._update_settings(row, item)),
        )
        reply = self._reply = self._open_reply(session, group, item, row)
        self._requester = (item.message.user, item.message.user_name)
        session.transcript.on_record = reply.compose_change
        events = session.subscribe_events()
        spawn = self._hub.runtime.spawn_task
        side_tasks = [spawn(self._keep_typing(item), "typing indicator")]
        drafts = spawn(reply.show_drafts(), "drafts") if self._streams(item) else None
        answer = session.continue_turn() if prompt is None else session.submit(prompt)
        answer.add_done_callback(lambda done: events.close() if done.cancelled() else None)
        try:
            async for event in events:
                reply.handle_event(event)
                await self._handle_event(session, item, event)
                if isinstance(event, TurnEnd) and not event.result.pending_steer:
                    await self._close_turn(reply, event.result)
                    break
            else:  # stopped before it began
                await self._hub.mailbox.set_state(group.numbers, "done")
        finally:
            self._reply = None
            reply.end()
            events.close()
            for task in side_tasks:
                task.cancel()
            if drafts is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(drafts), STOP_SECONDS)

    async def _close_turn(self, reply: TurnReply, result: TurnResult) -> None:
        if not reply.is_closed or result.error_code == "internal":
            await self._hub.mailbox.apply(reply.compose_failure(result.error))
            reply.schedule_complete()

    async def _handle_event(self, session: Session, item: Item, event: TurnEvent) -> None:
        match event:
            case Approval() | Question():
                minutes = self._hub.settings.approval_seconds / 60
                await self._hub.questions.ask(
                    session, event, item.address, self._requester, minutes=minutes
                )
            case ToolDone() | TurnEnd():
                await self._hub.questions.close_answered(session)

    async def _keep_typing(self, item: Item) -> None:
        found = self._hub.platforms[item.platform]
        seconds = found.platform.capabilities.typing_seconds
        target = Target(item.message.chat, item.message.thread)
        while seconds and found.settings.typing:
            with suppress(SendFailure):
                await found.platform.show_typing(target)
            await asyncio.sleep(seconds)

    def _streams(self, item: Item) -> bool:
        found = self._hub.platforms[item.platform]
        chosen = found.settings.streaming
        wanted = self._hub.settings.streaming if chosen is None else chosen
        return wanted and found.platform.capabilities.edits and not item.message.deliver

    def _open_reply(
        self, session: Session, group: Group, item: Item, row: Conversation
    ) -> TurnReply:
        address = item.address
        if item.message.deliver:
            address = self._hub.parse_address(item.message.deliver)
        style = ReplyStyle(
            session.agent.redactor.redact,
            (session.host.workspace.cwd, self._hub.media.folder),
            streams=self._streams(item),
            shows_tools=self._hub.settings.tool_progress and self._streams(item),
        )
        return TurnReply(self._hub.outbox, address, style, row, group.numbers, group.draft)

    # -- the prompt --------------------------------------------------------------------------------

    async def _build_prompt(self, session: Session, group: Group, note: str) -> Message:
        if group.prompt is not None:
            return group.prompt
        lines = [note] if note else []
        media: list[Media] = []
        for item in group.items:
            lines.append(self._write_text(item))
            platform = self._hub.platforms[item.platform].platform
            for attachment in item.message.attachments:
                line, picture = await self._hub.media.fetch(platform, attachment)
                lines.append(line)
                media += [picture] if picture is not None else []
        if group.items[-1].role == "guest":
            session.transcript.absorb_taint({"untrusted"})
        return user_message("\n".join(filter(None, lines)), *media)

    def _write_text(self, item: Item) -> str:
        message = item.message
        quote = message.quote[:LONGEST_QUOTE]
        quoted = "\n".join(f"> {line}" for line in quote.splitlines())
        settings = self._hub.settings
        is_shared = message.chat_type != "dm" and not is_per_user(
            message.chat_type,
            message.thread,
            settings.group_sessions_per_user,
            settings.thread_sessions_per_user,
        )
        name = f"[{name_sender(message.user_name) or message.user}] " if is_shared else ""
        return "\n".join(filter(None, (quoted, f"{name}{message.text}".rstrip())))

    # -- the session -------------------------------------------------------------------------------

    async def open_session(
        self, item: Item, *, continues: bool = False, needs_model: bool = True
    ) -> tuple[Session, str]:
        """The session that answers now, and a note for the agent if it is a fresh one."""
        hub = self._hub
        row = await hub.mailbox.get_conversation(self.key)
        message = item.message
        policy = resets.find_policy(hub.settings.reset, item.platform, message.chat_type)
        cause: resets.ResetCause | None = "suspended" if row.suspended else None
        if cause is None and not continues and row.session:
            cause = resets.find_cause(policy, row.used, time.time())
        if cause is not None and cause != "suspended" and self._has_background_work():
            cause = None
        if self.session is not None and cause is None:
            return self.session, ""
        saved = self._update_settings(row, item)
        await self.drop_session()
        session = await self._load_session(item, "" if cause else row.session, saved, needs_model)
        self.session = session
        if cause is None:
            return session, ""
        why, reason = resets.describe_cause(cause, policy)
        old = await hub.runtime.store.sessions.get_meta(row.session) if row.session else None
        is_excluded = item.platform in policy.notify_exclude_platforms
        wants_notice = cause == "suspended" or (policy.notify and not is_excluded)
        if old is not None and old.messages and wants_notice:
            await hub.say(item.address, texts.NEW_SESSION.format(why=why, id=old.id))
        await hub.mailbox.put_conversation(
            structs.replace(row, session=session.id, suspended=False, used=time.time())
        )
        return session, texts.FRESH_NOTE.format(reason=reason) if old is not None else ""

    def _update_settings(self, row: Conversation, item: Item) -> ConversationSettings:
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
        options = structs.replace(saved.options, toolsets=self._choose_toolsets(item, found))
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
        session.host.account = structs.replace(session.host.account, user=user)
        return session

    def _choose_toolsets(self, item: Item, found: OpenPlatform) -> tuple[str, ...] | None:
        settings = found.settings
        chosen = item.message.toolsets or settings.toolsets
        if chosen is None and settings.group_members and item.message.chat_type != "dm":
            tools = self._hub.runtime.setup.config.tools
            chosen = tuple(select_tools(None, platform=_STRANGERS, settings=tools))
        return chosen

    def _has_background_work(self) -> bool:
        runtime, session = self._hub.runtime, self.session
        if session is None:
            return False
        commands = runtime.background_commands.list_running(session.transcript.meta)
        return bool(commands or runtime.background_prompts.list_prompts(session))

    async def adopt_session(self, session: Session, item: Item) -> None:
        """Continue in another session from now on."""
        old, self.session = self.session, session
        row = await self._hub.mailbox.get_conversation(self.key)
        await self._hub.mailbox.put_conversation(
            structs.replace(row, session=session.id, suspended=False, used=time.time())
        )
        if old is not None and old is not session:
            await old.close()

    async def save_settings(self, item: Item) -> None:
        """Keep what a command has set for this conversation."""
        session = self.session
        if session is None:
            return
        row = await self._hub.mailbox.get_conversation(self.key)
        found = self._hub.platforms[item.platform].settings
        default = found.busy_input_mode or self._hub.settings.busy_input_mode
        mode = session.interactions.busy_mode
        saved = structs.replace(
            self._update_settings(row, item),
            choice=session.options.choice,
            effort=session.options.effort,
            busy_mode=None if mode == default else mode,
        )
        body = msgspec.msgpack.encode(saved)
        if body != row.settings:
            await self._hub.mailbox.put_conversation(structs.replace(row, settings=body))

    async def suspend(self) -> None:
        """After /stop: drop what is queued, free the session, and start afresh next time."""
        groups, self._groups = self._groups, deque()
        numbers = [n for group in groups for n in group.numbers]
        await self._hub.mailbox.set_state(numbers, "done")
        row = await self._hub.mailbox.get_conversation(self.key)
        await self._hub.mailbox.put_conversation(structs.replace(row, suspended=True))
        worker = self._worker
        if worker is not None:
            await asyncio.wait({worker}, timeout=STOP_SECONDS)
        if worker is not None and not worker.done():
            await self._abandon_turn(worker)

    async def _abandon_turn(self, worker: asyncio.Task[None]) -> None:
        """Let go of a turn that hangs; its session is never used again."""
        reply, session = self._reply, self.session
        if session is not None:
            session.transcript.on_record = None
        self.session = self._reply = self._worker = None
        worker.cancel()
        if reply is not None:
            await self._hub.mailbox.apply(reply.compose_failure(""))
            reply.schedule_complete()

    async def drop_session(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            await session.close()

    @property
    def is_evictable(self) -> bool:
        return (
            not self.is_busy
            and not self._groups
            and not self._has_background_work()
            and not (self.session is not None and self.session.is_busy)
        )


class Conversations:
    """All conversations that live in this process; idle ones are let go."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._actors: dict[str, ConversationActor] = {}

    def get_actor(self, key: str) -> ConversationActor:
        actor = self._actors.pop(key, None) or ConversationActor(self._hub, key)
        self._actors[key] = actor  # the most recently used is the last
        return actor

    def find_actor(self, key: str) -> ConversationActor | None:
        return self._actors.get(key)

    @property
    def active_count(self) -> int:
        return sum(actor.has_turn for actor in self._actors.values())

    @property
    def live_count(self) -> int:
        return sum(actor.session is not None for actor in self._actors.values())

    async def evict_idle(self) -> None:
        """Let go of conversations that were not used for a while, and of the oldest when there are
        too many."""
        settings = self._hub.settings
        limit = time.monotonic() - settings.idle_evict_minutes * 60
        surplus = len(self._actors) - settings.max_live_sessions
        for key, actor in list(self._actors.items()):
            if (actor.last_used < limit or surplus > 0) and actor.is_evictable:
                del self._actors[key]
                surplus -= 1
                await actor.drop_session()

    def rename_keys(self, keys: dict[str, str]) -> None:
        for old, new in keys.items():
            if (actor := self._actors.pop(old, None)) is not None:
                actor.key = new
                self._actors[new] = actor

    async def wait_until_idle(self, seconds: float) -> bool:
        """Whether all turns ended in time."""
        deadline = time.monotonic() + seconds
        while self.active_count:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.02)
        return True

"""Conversations as actors: each answers its messages one at a time, in order."""

import asyncio
import logging
import time
import weakref
from collections import deque
from contextlib import AsyncExitStack, suppress
from functools import partial

import msgspec
from msgspec import Struct, structs

from hermes.app.session import Session
from hermes.app.transcript import Transcript
from hermes.core.errors import OWN_FAILURES, HermesError, StoreError, ToolError
from hermes.core.events import (
    Answer,
    Approval,
    Question,
    Recorded,
    StepStart,
    ToolDone,
    TurnEnd,
    TurnEvent,
    TurnResult,
)
from hermes.core.message import Message, user_message
from hermes.core.store import Conversation
from hermes.gateway import texts
from hermes.gateway.adapter import Inbound, SendFailure, Target
from hermes.gateway.content.prompt import build_prompt, quote_result, write_text
from hermes.gateway.content.render import count_units
from hermes.gateway.content.reply import Content, Reply
from hermes.gateway.content.voice import LONGEST_SPEECH, speak_text
from hermes.gateway.hub import CarriedResult, Hub, Item, decode_settings
from hermes.gateway.open_questions import describe_answer
from hermes.gateway.outbox import FIRST_WAIT, LONGEST_WAIT
from hermes.gateway.people.access import may_answer, name_sender
from hermes.gateway.people.loop_breaker import LONG_AGO, LastAnswer
from hermes.gateway.session_slot import SessionSlot
from hermes.gateway.turn_reply import ReplyStyle, TurnReply

log = logging.getLogger(__name__)

JOIN_SECONDS = 1.5
CUT_UNITS = 4000
"""A text of this length was probably cut by the client."""
ACK_SECONDS = 30.0
STOP_SECONDS = 2.5
"""What a turn has to end in when it is stopped; then its conversation goes on without it."""
_PLAIN_ANSWERS: dict[str, Answer] = {"yes": "once", "y": "once", "no": "deny", "n": "deny"}


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
    has_begun: bool = False
    """The turn that answers them is in the transcript."""
    arrived: float = msgspec.field(default_factory=time.time)
    """When the first one came, in Unix seconds."""

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(item.n for item in self.items if item.n)

    def accepts(self, item: Item) -> bool:
        """Whether a message belongs to this one: the same album, or the rest of a cut text."""
        last = self.items[-1].message
        if not self.has_texts or last.user != item.message.user:
            return False
        if last.album or item.message.album:
            return last.album == item.message.album
        is_cut = count_units(last.text) >= CUT_UNITS
        return is_cut and time.monotonic() - self.joined < JOIN_SECONDS

    @property
    def has_texts(self) -> bool:
        """Whether its messages themselves are what is answered: further ones can join them."""
        return self.prompt is None and not self.continues

    @property
    def may_grow(self) -> bool:
        last = self.items[-1].message
        return bool(last.album) or count_units(last.text) >= CUT_UNITS


class ConversationActor:
    """One conversation of one key. Its worker lives only while there is something to answer."""

    def __init__(self, hub: Hub, key: str) -> None:
        self.key = key
        self.slot = SessionSlot(hub, key)
        self.last_used = time.monotonic()
        self.unfinished: set[asyncio.Task[None]] = set()
        """Commands that later messages wait for."""
        self.last_answer = LastAnswer()
        self._hub = hub
        self._groups: deque[Group] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._current: Group | None = None
        """What is being answered."""
        self._reply: TurnReply | None = None
        """Of the running turn."""
        self._requester = ("", "")
        self._last_ack = -ACK_SECONDS
        self._said_many = False
        """The last turn ended for a message that waits."""

    @property
    def session(self) -> Session | None:
        return self.slot.session

    @property
    def is_busy(self) -> bool:
        return self._worker is not None

    @property
    def is_starting(self) -> bool:
        """Whether messages wait, and no turn has begun."""
        return self._worker is not None and self._reply is None

    @property
    def has_turn(self) -> bool:
        return self._reply is not None

    async def enqueue(self, item: Item) -> None:
        """Answer a message, now or when its turn comes."""
        self.last_used = time.monotonic()
        self.last_answer.time = LONG_AGO
        if await answer_in_words(self._hub, self.session, item, self._requester[0]):
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
        if len(self._groups) >= self._hub.settings.max_queued and self._groups[-1].has_texts:
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
        match choose_busy_mode(self._hub, session, item):
            case "steer" if session is not None and reply is not None and session.is_steerable:
                if not item.message.attachments:
                    reply.steered.append(item.n)
                    session.submit(user_message(write_text(self._hub.settings, item)), "steer")
                    return texts.STEERED
            case "interrupt" if session is not None:
                session.interrupt()
                return texts.INTERRUPTING
        return texts.QUEUED

    async def _acknowledge(self, item: Item, text: str) -> None:
        now = time.monotonic()
        if self._hub.settings.busy_ack and now - self._last_ack >= ACK_SECONDS:
            self._last_ack = now
            await self._hub.say(item.address, text)

    @property
    def requester(self) -> tuple[str, str]:
        """The id and the name of the person whose message is being answered."""
        return self._requester

    def holds(self, item: Item) -> bool:
        """Whether the item is being answered, or waits for it."""
        groups = (*self._groups, self._current)
        return any(group is not None and item in group.items for group in groups)

    def replace_message(self, id: str, message: Inbound) -> None:
        """An edited message that still waits is answered as it is now."""
        for group in self._groups:
            for index, item in enumerate(group.items):
                if item.message.id == id:
                    group.items[index] = structs.replace(item, message=message)

    async def _run_worker(self) -> None:
        try:
            while self._groups and not self._hub.is_draining:
                await self._wait_until_complete(self._groups[0])
                async with self._hub.slots:
                    if self._groups and not self._hub.is_draining:
                        self._current = group = self._groups.popleft()
                        self._said_many = self._said_many and bool(self._groups)
                        await self._answer_group(group)
                        self._current = None
        finally:
            if self._worker is asyncio.current_task():  # otherwise it was abandoned
                self._worker = self._current = None
            self.last_used = time.monotonic()

    async def _wait_until_complete(self, group: Group) -> None:
        """Until the rest of an album or of a cut text must have come."""
        wait = JOIN_SECONDS if group.may_grow else 0.0
        while wait > 0:
            await asyncio.sleep(wait)
            wait = group.joined + JOIN_SECONDS - time.monotonic()

    async def _answer_group(self, group: Group) -> None:
        item = group.items[-1]
        wait = FIRST_WAIT
        while True:
            try:
                if await self._try_answer(group, item):
                    return
            except HermesError as error:
                log.warning("a message on %s was not answered: %s", item.platform, error)
                if self._hub.note_error(error):
                    return  # it is answered after the repair
                if group.has_begun or not (isinstance(error, StoreError) and error.is_passing):
                    await self._give_up(group, texts.FAILED_TURN.format(error=error))
                    return
                await asyncio.sleep(wait)  # until the database takes it
                wait = min(LONGEST_WAIT, 2 * wait)
            except Exception:
                log.exception("a message on %s was not answered", item.platform)
                await self._give_up(group, texts.INTERNAL_ERROR)
                return

    async def _try_answer(self, group: Group, item: Item) -> bool:
        """Answer in the session there is; False when a command has replaced it before the turn
        could begin, as /new may while attachments are fetched."""
        revision = self._hub.mailbox.revision
        arrived = None if group.continues else group.arrived
        session, note = await self.slot.open_session(item, arrived=arrived)
        prompt = group.prompt
        carried: tuple[CarriedResult, ...] = ()
        if group.has_texts:
            carried = decode_settings(self.slot.row).carried
            results = [quote_result(session, result) for result in carried]
            prompt = await build_prompt(self._hub, session, group.items, [note, *results])
        async with AsyncExitStack() as until_begun:
            # The turn stores the conversation with its first record.
            await until_begun.enter_async_context(self._hub.lock_conversation(self.key))
            if self.slot.session is not session:
                return False
            row = self.slot.row
            if revision != self._hub.mailbox.revision:  # it was changed after it was read
                row = await self._hub.mailbox.get_conversation(self.key)
            row = self._update_row(row, session, item, carried)
            await self._run_turn(session, group, prompt, row, until_begun)
        return True

    async def _give_up(self, group: Group, text: str) -> None:
        address = self._hub.find_address(group.items[-1])
        say = partial(self._hub.say, address, text, done=group.numbers)
        await self._hub.store_patiently(say)

    def _update_row(
        self, row: Conversation, session: Session, item: Item, carried: tuple[CarriedResult, ...]
    ) -> Conversation:
        """The conversation once a message has brought along what was carried."""
        saved = self.slot.update_settings(row, item)
        left = tuple(result for result in saved.carried if result not in carried)
        settings = msgspec.msgpack.encode(structs.replace(saved, carried=left))
        return structs.replace(
            row, session=session.id, suspended=False, used=time.time(), settings=settings
        )

    async def _run_turn(
        self,
        session: Session,
        group: Group,
        prompt: Message | None,
        row: Conversation,
        until_begun: AsyncExitStack,
    ) -> None:
        item = group.items[-1]
        reply = self._reply = self._open_reply(session, group, item, row)
        self._requester = (item.message.user, name_sender(item.message.user_name))
        session.transcript.on_record = reply.compose_change
        events = session.subscribe_events()
        spawn = self._hub.runtime.spawn_task
        spawn(keep_typing(self._hub, item, reply), "typing indicator")
        if streams_drafts(self._hub, item):
            reply.start_drafts(spawn)
        answer = session.continue_turn(self._hub.cut) if prompt is None else session.submit(prompt)
        answer.add_done_callback(lambda done: events.close() if done.cancelled() else None)
        try:
            async for event in events:
                if isinstance(event, (Recorded, StepStart, TurnEnd)):
                    group.has_begun = group.has_begun or not isinstance(event, TurnEnd)
                    await until_begun.aclose()
                reply.handle_event(event)
                if reply.is_closed:
                    self.last_answer.time = time.monotonic()
                await self._handle_event(session, item, event)
                if isinstance(event, TurnEnd) and not event.result.pending_steer:
                    self.last_answer.digest = hash(event.result.text.strip())
                    await self._close_turn(reply, event.result, has_begun=group.has_begun)
                    await self._hub.note_done(reply.steered)  # it was stopped
                    if decode_settings(row).voice and event.result.text.strip():
                        spawn(speak_answer(self._hub, session, item, event.result.text), "voice")
                    break
            else:  # stopped before it began
                await self._hub.note_done((*group.numbers, *reply.steered))
        finally:
            await until_begun.aclose()
            if self._reply is reply:
                self._reply = None
            events.close()
            await reply.end(STOP_SECONDS)

    async def _close_turn(self, reply: TurnReply, result: TurnResult, *, has_begun: bool) -> None:
        """A turn that did not even begin because the database failed is tried again by the
        caller."""
        if result.error_code in OWN_FAILURES and self._hub.note_error(
            self._hub.runtime.store.maintenance.find_problem()
        ):
            return  # the turn is recovered after the repair
        if not reply.is_closed or result.error_code in OWN_FAILURES:
            store = partial(self._hub.mailbox.apply, reply.compose_failure(result.error))
            await (self._hub.store_patiently(store) if has_begun else store())
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

    def _open_reply(
        self, session: Session, group: Group, item: Item, row: Conversation
    ) -> TurnReply:
        address = self._hub.find_address(item)
        style = ReplyStyle(
            session.agent.redactor,
            session.host.workspace,
            self._hub.media.folder,
            shows_tools=self._hub.settings.tool_progress and streams_drafts(self._hub, item),
            is_steered=partial(has_untrusted_words, weakref.ref(session.transcript)),
            footer=describe_use if decode_settings(row).footer else None,
        )
        return TurnReply(self._hub.outbox, address, style, row, group.numbers, group.draft)

    async def suspend(self) -> None:
        """After /stop: drop what is queued, free the session, and start afresh next time."""
        groups, self._groups = self._groups, deque()
        numbers = [n for group in groups for n in group.numbers]
        await self._hub.mailbox.set_state(numbers, "done")
        worker = self._worker
        if worker is not None and self.has_turn:
            await asyncio.wait({worker}, timeout=STOP_SECONDS)
        if worker is not None and not worker.done():
            await self._abandon_turn(worker)
        await self._hub.change_conversation(
            self.key, lambda row: structs.replace(row, suspended=True)
        )

    async def _abandon_turn(self, worker: asyncio.Task[None]) -> None:
        """Let go of a turn that hangs; its session is never used again."""
        reply, session, group = self._reply, self.session, self._current
        if session is not None:
            session.transcript.on_record = None
        self.slot.session = self._reply = self._worker = self._current = None
        worker.cancel()
        if group is not None:
            await self._hub.mailbox.set_state(group.numbers, "done")
        if reply is not None:
            await self._hub.mailbox.apply(reply.compose_failure(""))
            reply.schedule_complete()

    @property
    def is_evictable(self) -> bool:
        return (
            not self.is_busy
            and not self._groups
            and not self.unfinished
            and not self.slot.has_background_work()
            and not (self.session is not None and self.session.is_busy)
        )


def has_untrusted_words(transcript: weakref.ref[Transcript]) -> bool:
    """Whether it holds words of others. A transcript holds its reply: a strong reference back
    would keep both alive until the garbage collector comes by."""
    found = transcript()
    return found is not None and found.taint.untrusted


def choose_busy_mode(hub: Hub, session: Session | None, item: Item) -> str:
    chosen = session.interactions.busy_mode if session is not None else None
    settings = hub.platforms[item.platform].settings
    return chosen or settings.busy_input_mode or hub.settings.busy_input_mode


async def answer_in_words(hub: Hub, session: Session | None, item: Item, requester: str) -> bool:
    """Whether the message answered what the agent has asked; approvals only where there are no
    buttons."""
    if session is None:
        return False
    interactions, text = session.interactions, item.message.text.strip()
    if interactions.pending_approvals:
        answer = _PLAIN_ANSWERS.get(text.lower().rstrip(".!"))
        has_buttons = hub.platforms[item.platform].platform.capabilities.buttons
        if answer is None or has_buttons or item.message.user != requester:
            return False
        interactions.answer_approval(interactions.pending_approvals[0].id, answer)
        name = name_sender(item.message.user_name) or item.message.user
        await hub.questions.close_answered(session, describe_answer(answer, name))
    elif interactions.pending_questions:
        if not may_answer(item.role, item.message.user, requester):
            return False
        question = interactions.pending_questions[0]
        if text.isdecimal() and 1 <= int(text) <= len(question.choices):
            text = question.choices[int(text) - 1]
        interactions.answer_question(question.id, text)
        await hub.questions.close_answered(session)
    else:
        return False
    await hub.mailbox.set_state([item.n], "done")
    return True


def describe_use(message: Message) -> str:
    """Which model has answered, and how much it has read."""
    model = message.origin.model if message.origin is not None else "?"
    tokens = f"{message.usage.input:,}" if message.usage is not None else "?"
    return texts.FOOTER.format(model=model, tokens=tokens)


async def speak_answer(hub: Hub, session: Session, item: Item, text: str) -> None:
    """Send an answer as speech, too."""
    if item.message.deliver or len(text) > LONGEST_SPEECH:
        return
    address = item.address
    try:
        async with hub.lock_voice(item.platform, item.message.chat):
            sound = await speak_text(session, session.agent.redactor.redact(text))
        path = hub.media.store(sound, ".mp3")
    except (ToolError, OSError) as error:
        await hub.say(address, texts.FAILED_TURN.format(error=error))
        return
    content = Content("", address.thread, files=(str(path),), in_group=address.in_group)
    await hub.outbox.post(address.platform, address.chat, content)


async def keep_typing(hub: Hub, item: Item, reply: TurnReply) -> None:
    """Show the typing indicator until the turn has ended, but not while the chat must be left
    alone. A call is never cut off: its connection would be lost with it."""
    found, chat = hub.platforms[item.platform], item.message.chat
    seconds = found.platform.capabilities.typing_seconds
    while seconds and found.settings.typing and not reply.has_ended:
        wait = seconds
        if not hub.outbox.lanes.must_wait(item.platform, chat):
            try:
                await found.platform.show_typing(Target(chat, item.message.thread))
            except SendFailure as failure:
                wait = max(seconds, failure.wait)
        await reply.wait_for_end(wait)


def streams_drafts(hub: Hub, item: Item) -> bool:
    """Whether the answer to this message is shown while it is written."""
    found = hub.platforms[item.platform]
    chosen = found.settings.streaming
    wanted = hub.settings.streaming if chosen is None else chosen
    return wanted and found.platform.capabilities.edits and not item.message.deliver


class Conversations:
    """All conversations that live in this process; idle ones are let go."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._actors: dict[str, ConversationActor] = {}
        self._is_crowded = asyncio.Event()

    def get_actor(self, key: str) -> ConversationActor:
        actor = self._actors.pop(key, None) or ConversationActor(self._hub, key)
        self._actors[key] = actor  # the most recently used is the last
        if len(self._actors) > self._hub.settings.max_live_sessions:
            self._is_crowded.set()
        return actor

    def find_actor(self, key: str) -> ConversationActor | None:
        return self._actors.get(key)

    @property
    def active_count(self) -> int:
        return sum(actor.has_turn for actor in self._actors.values())

    @property
    def live_count(self) -> int:
        return sum(actor.session is not None for actor in self._actors.values())

    async def keep_evicting(self, seconds: float) -> None:
        """Evict so often, and as soon as there are too many conversations."""
        while True:
            with suppress(StoreError):
                await self._evict_idle()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._is_crowded.wait()

    async def _evict_idle(self) -> None:
        """Let go of conversations that were not used for a while, and of the oldest when there are
        too many."""
        self._is_crowded.clear()
        settings = self._hub.settings
        limit = time.monotonic() - settings.idle_evict_minutes * 60
        surplus = len(self._actors) - settings.max_live_sessions
        for key, actor in list(self._actors.items()):
            if (actor.last_used < limit or surplus > 0) and actor.is_evictable:
                surplus -= 1
                await actor.slot.drop_session()
                self._forget_unused(key)

    def _forget_unused(self, key: str) -> None:
        actor = self._actors.get(key)
        if actor is not None and actor.is_evictable and actor.session is None:
            del self._actors[key]

    def rename_keys(self, keys: dict[str, str]) -> None:
        for old, new in keys.items():
            if (actor := self._actors.pop(old, None)) is not None:
                actor.key = actor.slot.key = new
                self._actors[new] = actor

    async def wait_until_idle(self, seconds: float) -> bool:
        """Whether all turns ended in time."""
        deadline = time.monotonic() + seconds
        while self.active_count:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.02)
        return True

"""Delivers replies: in order per chat, again until they arrive, and twice only with a mark."""

import asyncio
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from msgspec import Struct, structs

from hermes.core.store import MailboxChange, OutboxEntry, OutboxState, RunDelivery
from hermes.gateway import texts
from hermes.gateway.adapter import Button, Capabilities, Part, Platform, SendFailure, Target
from hermes.gateway.content.render import split_text
from hermes.store.tables.mailbox import SqlMailbox

log = logging.getLogger(__name__)

FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0
GIVE_UP_SECONDS = 86400.0
MAX_REPEATS = 3
"""How often a part is sent whose arrival nobody can tell."""


FOREIGN = -1
"""Stands for the message it answers in a reply that another process has posted."""


class Content(Struct, frozen=True, omit_defaults=True):
    """What a reply says."""

    text: str
    thread: str = ""
    reply_to: str = ""
    files: tuple[str, ...] = ()
    buttons: tuple[Button, ...] = ()
    in_group: bool = False
    plain: bool = False
    """The text is no Markdown."""
    run: tuple[str, int] | None = None
    """The job and the due time of the run whose result this is."""


class Progress(Struct):
    """What has reached the chat."""

    ids: list[str] = []
    """The ids of the messages sent so far, one per part and file."""
    shown: list[str] = []
    """The text each of them shows."""
    uncertain: int = 0
    """How often the next part was sent without an answer."""
    plain: bool = False
    """The platform rejected the markup."""
    alone: bool = False
    """The message or thread to answer to is gone."""
    part_limit: int = 0
    """The platform rejected longer parts."""


class Reply:
    """A reply while it is not delivered: the row in the store, and what is known of its way."""

    def __init__(self, entry: OutboxEntry) -> None:
        self.n = entry.n
        self.platform, self.chat, self.inbox = entry.platform, entry.chat, entry.inbox
        self.created, self.due, self.tries, self.error = (
            entry.created,
            entry.due,
            entry.tries,
            entry.error,
        )
        self.state: OutboxState = entry.state
        self.draft = entry.draft
        self.content = msgspec.msgpack.decode(entry.body, type=Content)
        self.progress = (
            msgspec.msgpack.decode(entry.progress, type=Progress) if entry.progress else Progress()
        )
        self.last_write = 0.0

    @property
    def entry(self) -> OutboxEntry:
        return OutboxEntry(
            self.n,
            self.platform,
            self.chat,
            msgspec.msgpack.encode(self.content),
            self.state,
            self.draft,
            self.inbox,
            self.created,
            self.due,
            self.tries,
            self.error,
            msgspec.msgpack.encode(self.progress),
        )

    def list_parts(self, capabilities: Capabilities, text: str | None = None) -> list[str]:
        measure = capabilities.measure
        text = self.content.text if text is None else text
        parts = split_text(text, capabilities.longest_part, measure)
        if parts == [""]:
            parts = []
        smaller = self.progress.part_limit
        if smaller:
            sent = len(self.progress.ids)
            parts = parts[:sent] + [
                q for p in parts[sent:] for q in split_text(p, smaller, measure)
            ]
        return parts


class OpenResults:
    """The results of scheduled jobs that are on their way, each perhaps to several chats."""

    def __init__(self) -> None:
        self._replies: Counter[tuple[str, int]] = Counter()

    def holds_run(self, job: str, due: int) -> bool:
        return self._replies[job, due] > 0

    def add_reply(self, reply: Reply) -> None:
        if reply.content.run is not None:
            self._replies[reply.content.run] += 1

    def remove_reply(self, reply: Reply) -> None:
        if reply.content.run is not None:
            self._replies[reply.content.run] -= 1

    def judge_run(self, reply: Reply) -> RunDelivery | None:
        """What becomes of a run with the state of this reply; None: nothing yet."""
        run = reply.content.run
        if run is None or (reply.state == "delivered" and self._replies[run] > 1):
            return None
        if reply.state == "delivered" or reply.state == "failed":
            return RunDelivery(*run, reply.state)
        return None


class DeliveryEvents(Protocol):
    """Who learns about deliveries."""

    async def handle_gone_chat(self, platform: str, chat: str, why: str) -> None: ...

    async def follow_chat(self, platform: str, old: str, new: str) -> None: ...

    async def handle_lost_result(self, job: str, due: int, why: str) -> None: ...

    def note_delivery(self, platform: str) -> None: ...


class _Lane:
    """The way to one chat: one call at a time."""

    def __init__(self) -> None:
        self.replies: deque[Reply] = deque()
        self.lock = asyncio.Lock()
        self.wake = asyncio.Event()
        self.until = 0.0
        self.worker: asyncio.Task[None] | None = None


class Outbox:
    """Replies to a chat are delivered in the order in which they were posted; a reply that is still
    a draft is shown as it grows and keeps no other back."""

    def __init__(
        self,
        mailbox: SqlMailbox,
        platforms: Mapping[str, Platform],
        events: DeliveryEvents,
        spawn: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"],
    ) -> None:
        self._mailbox = mailbox
        self._platforms = platforms
        self._events = events
        self._spawn = spawn
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._blocked: dict[tuple[str, str], float] = {}
        self._dead: set[tuple[str, str]] = set()
        self._last_number = 0
        self.results = OpenResults()

    async def restore(self) -> dict[int, Reply]:
        """Load what was not delivered; returns the drafts by the message they answer. A send that
        had begun when the process ended counts as uncertain."""
        self._last_number = await self._mailbox.find_last_number()
        now = time.time()
        for platform, chat, dead, until in await self._mailbox.list_blocked_chats():
            if dead:
                self._dead.add((platform, chat))
            elif until > now:
                self._blocked[platform, chat] = until
        drafts: dict[int, Reply] = {}
        for entry in await self._mailbox.list_open_replies():
            reply = Reply(entry)
            if reply.draft:
                drafts[reply.inbox] = reply
            elif reply.inbox != FOREIGN:
                self.schedule(reply)
        return drafts

    async def adopt_foreign(self) -> None:
        """Deliver what another process has put into the outbox."""
        for entry in await self._mailbox.list_open_replies():
            if entry.inbox == FOREIGN:
                reply = Reply(structs.replace(entry, inbox=0))
                await self.save(reply)
                self.schedule(reply)

    def create_reply(
        self, platform: str, chat: str, content: Content, *, inbox: int = 0, draft: bool = False
    ) -> Reply:
        """A reply that is not stored yet."""
        self._last_number = max(self._last_number + 1, time.time_ns() // 1000)
        entry = make_entry(self._last_number, platform, chat, content)
        return Reply(structs.replace(entry, inbox=inbox, draft=draft))

    async def post(self, platform: str, chat: str, content: Content, *, inbox: int = 0) -> Reply:
        """Store a reply and deliver it."""
        reply = self.create_reply(platform, chat, content, inbox=inbox)
        await self.save(reply)
        self.schedule(reply)
        return reply

    async def save(self, reply: Reply) -> None:
        change = MailboxChange(replies=(reply.entry,), run=self.results.judge_run(reply))
        await self._mailbox.apply(change)

    def schedule(self, reply: Reply) -> None:
        """Deliver a reply that is stored."""
        self.results.add_reply(reply)
        lane = self._open_lane(reply.platform, reply.chat)
        lane.replies.append(reply)
        lane.wake.set()
        if lane.worker is None or lane.worker.done():
            lane.worker = self._spawn(self._run_lane(lane), f"outbox {reply.platform}")

    async def revive_chat(self, platform: str, chat: str) -> None:
        """A chat that writes again can be written to."""
        if (platform, chat) in self._dead:
            self._dead.discard((platform, chat))
            await self._mailbox.unblock_chat(platform, chat)

    async def revise(self, reply: Reply, content: Content) -> None:
        """Change what a reply says, also when it is delivered already. Where messages cannot be
        changed, what was added is a message of its own."""
        platform = self._platforms.get(reply.platform)
        has_left = bool(reply.progress.ids) or reply.state == "attempting"
        if platform is not None and not platform.capabilities.edits and has_left:
            added = content.text.removeprefix(reply.content.text).strip()
            if added:
                content = structs.replace(content, text=added, reply_to="", files=())
                await self.post(reply.platform, reply.chat, content)
            return
        reply.content, reply.state = content, "pending"
        await self.save(reply)
        lane = self._open_lane(reply.platform, reply.chat)
        if reply not in lane.replies:
            self.schedule(reply)

    async def wait_until_sent(self, seconds: float) -> bool:
        """Whether everything was delivered in time."""
        lanes = [lane.worker for lane in self._lanes.values() if lane.worker is not None]
        if not lanes:
            return True
        _, waiting = await asyncio.wait(lanes, timeout=seconds)
        return not waiting

    def _open_lane(self, platform: str, chat: str) -> _Lane:
        key = (platform, chat)
        if key not in self._lanes:
            lane = self._lanes[key] = _Lane()
            lane.until = self._blocked.pop(key, 0.0)
        return self._lanes[key]

    async def _run_lane(self, lane: _Lane) -> None:
        while lane.replies:
            reply = lane.replies[0]
            wait = max(reply.due, lane.until) - time.time()
            if wait > 0:
                lane.wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await lane.wake.wait()
                continue
            async with lane.lock:
                closed = await self._deliver(reply, lane)
            if closed:
                lane.replies.remove(reply)
                self.results.remove_reply(reply)
        self._forget_lane(lane)

    def _forget_lane(self, lane: _Lane) -> None:
        for key, other in list(self._lanes.items()):
            if other is lane and not lane.lock.locked():
                del self._lanes[key]

    async def _deliver(self, reply: Reply, lane: _Lane) -> bool:
        """One try; whether the reply is closed."""
        platform = self._platforms.get(reply.platform)
        if platform is None:
            return await self._put_off(reply, "the platform is not running")
        if (reply.platform, reply.chat) in self._dead:
            return await self._give_up(reply, "the chat is gone")
        try:
            content = None
            while content is not reply.content:  # it may be revised meanwhile
                content = reply.content
                await self._send_rest(reply, platform)
        except SendFailure as failure:
            return await self._handle_failure(reply, lane, failure)
        reply.state, reply.error = "delivered", ""
        await self.save(reply)
        self._events.note_delivery(reply.platform)
        return True

    async def _send_rest(self, reply: Reply, platform: Platform) -> None:
        capabilities = platform.capabilities
        parts, files = reply.list_parts(capabilities), reply.content.files
        for index, text in enumerate(parts):
            last = index == len(parts) - 1
            buttons = reply.content.buttons if last else ()
            # The end of the last one is stored as the end of the reply.
            await self._write_part(reply, platform, index, text, buttons, saves=not last)
        while not files and len(reply.progress.ids) > len(parts):  # a tool line without an answer
            await platform.delete_part(_make_target(reply, 0), reply.progress.ids[-1])
            reply.progress.ids.pop()
            reply.progress.shown.pop()
        for index, path in enumerate(files, len(parts)):
            if index >= len(reply.progress.ids):
                await self._begin_send(reply)
                id = await platform.send_file(_make_target(reply, index), path, _base_name(path))
                self._note_sent(reply, id, path)
                await self.save(reply)

    async def _write_part(
        self,
        reply: Reply,
        platform: Platform,
        index: int,
        text: str,
        buttons: tuple[Button, ...] = (),
        *,
        saves: bool = True,
    ) -> None:
        progress, capabilities = reply.progress, platform.capabilities
        is_plain = progress.plain or reply.content.plain
        shown = text + "".join(f"\0{button.data}" for button in buttons)
        if index < len(progress.ids):
            if progress.shown[index] != shown:
                await _wait_for_pace(reply, capabilities)
                part = make_part(text, capabilities, plain=is_plain, buttons=buttons)
                target = _make_target(reply, index)
                await platform.edit_part(target, progress.ids[index], part)
                progress.shown[index] = shown
                reply.last_write = time.monotonic()
            return
        marked = f"{texts.REPEATED}\n{text}" if progress.uncertain else text
        part = make_part(marked, capabilities, plain=is_plain, buttons=buttons)
        await self._begin_send(reply)
        id = await platform.send_part(_make_target(reply, index), part)
        self._note_sent(reply, id, shown)
        if saves:
            await self.save(reply)

    async def _begin_send(self, reply: Reply) -> None:
        """From here on it may have arrived."""
        reply.state = "attempting"
        reply.progress.uncertain += 1
        await self.save(reply)

    def _note_sent(self, reply: Reply, id: str, shown: str) -> None:
        reply.progress.uncertain = 0
        reply.progress.ids.append(id)
        reply.progress.shown.append(shown)
        reply.last_write = time.monotonic()

    async def show_draft(self, reply: Reply, text: str) -> float:
        """Show how far a draft has come; returns the seconds until the next time. While something
        else is sent to the chat, this time is left out."""
        platform = self._platforms.get(reply.platform)
        lane = self._open_lane(reply.platform, reply.chat)
        if platform is None or lane.lock.locked() or lane.until > time.time():
            return 0.2
        capabilities = platform.capabilities
        pace = find_pace(reply, capabilities)
        if reply.last_write and (wait := reply.last_write + pace - time.monotonic()) > 0:
            return wait
        async with lane.lock:
            if not reply.draft:
                return pace
            try:
                for index, part in enumerate(reply.list_parts(capabilities, text)):
                    await self._write_part(reply, platform, index, part)
            except SendFailure as failure:
                await self._note_draft_failure(reply, lane, failure)
                return max(failure.wait, pace)
        return pace

    async def _note_draft_failure(self, reply: Reply, lane: _Lane, failure: SendFailure) -> None:
        """The whole reply comes at the end, whatever happened to a draft."""
        progress = reply.progress
        match failure.kind:
            case "ambiguous":
                return
            case "wait":
                await self._block_lane(reply, lane, failure.wait)
            case "markup":
                progress.plain = True
            case "target":
                progress.alone = True
            case "edit_lost":
                progress.ids, progress.shown = [], []
        progress.uncertain = 0

    async def _handle_failure(self, reply: Reply, lane: _Lane, failure: SendFailure) -> bool:
        """What follows from a failed try; whether the reply is closed."""
        progress = reply.progress
        if failure.kind == "ambiguous":
            if progress.uncertain >= MAX_REPEATS:
                return await self._give_up(reply, str(failure))
            return await self._put_off(reply, str(failure))
        progress.uncertain = max(0, progress.uncertain - 1)
        match failure.kind:
            case "wait":
                await self._block_lane(reply, lane, failure.wait)
                return False
            case "gone":
                self._dead.add((reply.platform, reply.chat))
                await self._mailbox.block_chat(reply.platform, reply.chat, dead=True, until=0.0)
                await self._give_up(reply, str(failure))
                await self._events.handle_gone_chat(reply.platform, reply.chat, str(failure))
                return True
            case "markup" if not progress.plain:
                progress.plain = True
            case "target" if not progress.alone:
                progress.alone = True
            case "too_long":
                progress.part_limit = max(1, _longest_rest(reply, progress) // 2)
            case "edit_lost":
                progress.ids, progress.shown = [], []
            case "moved" if failure.chat:
                await self._events.follow_chat(reply.platform, reply.chat, failure.chat)
            case "rejected" | "markup" | "target":
                return await self._give_up(reply, str(failure))
            case _:
                return await self._put_off(reply, str(failure))
        return False

    async def _block_lane(self, reply: Reply, lane: _Lane, seconds: float) -> None:
        lane.until = time.time() + seconds
        await self._mailbox.block_chat(reply.platform, reply.chat, dead=False, until=lane.until)

    async def _put_off(self, reply: Reply, why: str) -> bool:
        if time.time() - reply.created > GIVE_UP_SECONDS:
            return await self._give_up(reply, why)
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2**reply.tries) * (0.5 + random.random() / 2)
        reply.tries, reply.due, reply.error = reply.tries + 1, time.time() + wait, why
        reply.state = "pending"
        await self.save(reply)
        return False

    async def _give_up(self, reply: Reply, why: str) -> bool:
        reply.state, reply.error = "failed", why
        log.warning("a reply on %s was given up: %s", reply.platform, why)
        await self.save(reply)
        if reply.content.run is not None:
            await self._events.handle_lost_result(*reply.content.run, why)
        return True

    def rename_chat(self, platform: str, old: str, new: str) -> None:
        """Send what waits for a chat to its new id."""
        lane = self._lanes.pop((platform, old), None)
        if lane is not None:
            self._lanes[platform, new] = lane
            for reply in lane.replies:
                reply.chat = new


def find_pace(reply: Reply, capabilities: Capabilities) -> float:
    """Seconds between two edits of this reply."""
    return capabilities.group_pace if reply.content.in_group else capabilities.pace


async def _wait_for_pace(reply: Reply, capabilities: Capabilities) -> None:
    wait = reply.last_write + find_pace(reply, capabilities) - time.monotonic()
    if reply.last_write and wait > 0:
        await asyncio.sleep(wait)


def make_entry(number: int, platform: str, chat: str, content: Content) -> OutboxEntry:
    body = msgspec.msgpack.encode(content)
    return OutboxEntry(number, platform, chat, body, created=time.time())


def make_part(
    text: str, capabilities: Capabilities, *, plain: bool, buttons: tuple[Button, ...] = ()
) -> Part:
    render = None if plain else capabilities.render_markup
    shown = buttons if capabilities.buttons else ()
    return Part(text, render(text) if render is not None else "", shown)


def _make_target(reply: Reply, index: int) -> Target:
    content = reply.content
    if reply.progress.alone:
        return Target(reply.chat)
    return Target(reply.chat, content.thread, content.reply_to if index == 0 else "")


def _longest_rest(reply: Reply, progress: Progress) -> int:
    if progress.part_limit:
        return progress.part_limit
    parts = split_text(reply.content.text, 4096)[len(progress.ids) :]
    return max(map(len, parts), default=2)


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]

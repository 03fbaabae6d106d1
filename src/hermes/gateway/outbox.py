"""Delivers replies: in order per chat, again until they arrive, and twice only with a mark."""

import asyncio
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Protocol

from msgspec import structs

from hermes.core.errors import StoreError
from hermes.core.store import MailboxChange, RunDelivery
from hermes.gateway import texts
from hermes.gateway.adapter import Button, Capabilities, Part, Platform, SendFailure, Target
from hermes.gateway.content.markup import BARE_LINKS
from hermes.gateway.content.media import clean_name, read_sent_file
from hermes.gateway.content.reply import Content, Reply, make_entry
from hermes.store.tables.mailbox import SqlMailbox

log = logging.getLogger(__name__)

FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0
_MAX_DOUBLINGS = 10
GIVE_UP_SECONDS = 86400.0
_LONG_TEXT = 2000
"""Rendered in a thread from this length on."""
MAX_REPEATS = 3
"""How often a part is sent whose arrival nobody can tell."""


FOREIGN = -1
"""Stands for the message it answers in a reply that another process has posted."""


class OpenResults:
    """The results of scheduled jobs that are on their way, each perhaps to several chats."""

    def __init__(self) -> None:
        self._replies: Counter[tuple[str, int]] = Counter()
        self._delivered: set[tuple[tuple[str, int], int]] = set()
        """Those of the replies that have arrived while that is being stored."""

    def holds_run(self, job: str, due: int) -> bool:
        return self._replies[job, due] > 0

    def add_reply(self, reply: Reply) -> None:
        if reply.content.run is not None:
            self._replies[reply.content.run] += 1

    def remove_reply(self, reply: Reply) -> None:
        if (run := reply.content.run) is not None:
            self._replies[run] -= 1
            self._delivered.discard((run, reply.n))

    def judge_run(self, reply: Reply) -> RunDelivery | None:
        """What becomes of a run with the state of this reply; None: nothing yet."""
        run = reply.content.run
        if run is None or not reply.is_closed:
            return None
        if reply.state == "failed":
            return RunDelivery(*run, "failed")
        self._delivered.add((run, reply.n))
        arrived = sum(found == run for found, _ in self._delivered)
        return RunDelivery(*run, "delivered") if arrived >= self._replies[run] else None


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
        self.heard = 0
        """How many messages came from there while it was open."""
        self.worker: asyncio.Task[None] | None = None


class Lanes:
    """The ways to chats. One is open while something is on its way."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], _Lane] = {}
        self._held: dict[tuple[str, str], float] = {}
        """Until when chats whose lane is not open must be left alone."""

    def hold_chat(self, platform: str, chat: str, until: float) -> None:
        """Write nothing there before that time; known from an earlier process."""
        self._held[platform, chat] = until

    def must_wait(self, platform: str, chat: str) -> bool:
        """Whether the platform has asked to write nothing more to this chat for now."""
        lane = self.find_lane(platform, chat)
        until = lane.until if lane is not None else self._held.get((platform, chat), 0.0)
        return until > time.time()

    def find_lane(self, platform: str, chat: str) -> _Lane | None:
        return self._open.get((platform, chat))

    def open_lane(self, platform: str, chat: str) -> _Lane:
        key = (platform, chat)
        if key not in self._open:
            lane = self._open[key] = _Lane()
            lane.until = self._held.pop(key, 0.0)
        return self._open[key]

    def close_lane(self, lane: _Lane) -> None:
        for key, other in list(self._open.items()):
            if other is lane and not lane.lock.locked():
                del self._open[key]

    def list_workers(self) -> "list[asyncio.Task[None]]":
        return [lane.worker for lane in self._open.values() if lane.worker is not None]

    def rename_chat(self, platform: str, old: str, new: str) -> None:
        """Send what waits for a chat to its new id."""
        lane = self._open.pop((platform, old), None)
        if lane is not None:
            self._open[platform, new] = lane
            for reply in lane.replies:
                reply.chat = new


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
        self.lanes = Lanes()
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
                self.lanes.hold_chat(platform, chat, until)
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

    async def post(
        self, platform: str, chat: str, content: Content, *, done: tuple[int, ...] = ()
    ) -> Reply:
        """Store a reply and deliver it. `done`: the messages that it is the answer to."""
        reply = self.create_reply(platform, chat, content)
        await self.save(reply, done)
        self.schedule(reply)
        return reply

    async def save(self, reply: Reply, done: tuple[int, ...] = ()) -> None:
        run = self.results.judge_run(reply)
        await self._mailbox.apply(MailboxChange(done=done, replies=(reply.entry,), run=run))

    def schedule(self, reply: Reply) -> None:
        """Deliver a reply that is stored."""
        self.results.add_reply(reply)
        lane = self.lanes.open_lane(reply.platform, reply.chat)
        lane.replies.append(reply)
        lane.wake.set()
        if lane.worker is None or lane.worker.done():
            lane.worker = self._spawn(self._run_lane(lane), f"outbox {reply.platform}")

    async def revive_chat(self, platform: str, chat: str) -> bool:
        """A chat that writes again can be written to; whether it was gone."""
        if (lane := self.lanes.find_lane(platform, chat)) is not None:
            lane.heard += 1
        if (platform, chat) not in self._dead:
            return False
        self._dead.discard((platform, chat))
        await self._mailbox.unblock_chat(platform, chat)
        return True

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
        lane = self.lanes.open_lane(reply.platform, reply.chat)
        if reply not in lane.replies:
            self.schedule(reply)

    async def wait_until_sent(self, seconds: float) -> bool:
        """Whether everything was delivered in time."""
        workers = self.lanes.list_workers()
        if not workers:
            return True
        _, waiting = await asyncio.wait(workers, timeout=seconds)
        return not waiting

    async def _run_lane(self, lane: _Lane) -> None:
        while lane.replies:
            reply = lane.replies[0]
            now = time.time()
            wait = max(min(reply.due - now, LONGEST_WAIT), lane.until - now)  # clocks are set back
            if wait > 0:
                lane.wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await lane.wake.wait()
                continue
            async with lane.lock:
                await self._try_delivery(reply, lane)
            if reply.is_closed:  # and was not revised meanwhile
                lane.replies.remove(reply)
                self.results.remove_reply(reply)
        self.lanes.close_lane(lane)

    async def _try_delivery(self, reply: Reply, lane: _Lane) -> None:
        """One try; the state of the reply says what became of it."""
        heard = lane.heard
        try:
            failure = await self._find_failure(reply)
            if failure is not None:
                if failure.kind == "gone" and lane.heard != heard:  # it wrote after the try began
                    failure = SendFailure("certain", str(failure))
                await self._handle_failure(reply, lane, failure)
        except StoreError as error:
            log.warning("a reply on %s waits for the database: %s", reply.platform, error)
            _delay_reply(reply, str(error))

    async def _find_failure(self, reply: Reply) -> SendFailure | None:
        try:
            await self._deliver(reply)
        except SendFailure as failure:
            return failure
        except StoreError:
            raise
        except Exception as error:
            log.exception("a reply on %s could not be sent", reply.platform)
            return SendFailure("ambiguous", type(error).__name__)
        return None

    async def _deliver(self, reply: Reply) -> None:
        platform = self._platforms.get(reply.platform)
        if platform is None:
            await self._put_off(reply, "the platform is not running")
            return
        if (reply.platform, reply.chat) in self._dead:
            await self._give_up(reply, "the chat is gone")
            return
        content = None
        while content is not reply.content:  # it may be revised meanwhile
            content = reply.content
            await self._send_rest(reply, platform)
        reply.state, reply.error = "delivered", ""
        await self.save(reply)
        self._events.note_delivery(reply.platform)

    async def _send_rest(self, reply: Reply, platform: Platform) -> None:
        capabilities = platform.capabilities
        reply.mark_next()
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
                reply.note_sent(await _send_file(reply, platform, index, path), path)
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
        options: dict[str, Any] = {
            "plain": progress.plain or reply.content.plain,
            "bare_links": reply.content.bare_links,
            "buttons": buttons,
        }
        shown = text + "".join(f"\0{button.data}" for button in buttons)
        reply.current = index
        if index < len(progress.ids):
            if progress.shown[index] != shown:
                await _wait_for_pace(reply, capabilities)
                marked = reply.mark_part(index, text)
                part = await render_part(marked, capabilities, **options)
                target = _make_target(reply, index)
                try:
                    await platform.edit_part(target, progress.ids[index], part)
                finally:
                    reply.last_write = time.monotonic()
                progress.shown[index] = shown
            return
        marked = reply.mark_part(index, text)
        part = await render_part(marked, capabilities, **options)
        await self._begin_send(reply)
        try:
            id = await platform.send_part(_make_target(reply, index), part)
        finally:  # a refused one counts for the pace as well
            reply.last_write = time.monotonic()
        reply.note_sent(id, shown)
        if saves:
            await self.save(reply)

    async def _begin_send(self, reply: Reply) -> None:
        """From here on it may have arrived."""
        reply.state = "attempting"
        reply.progress.uncertain += 1
        try:
            await self.save(reply)
        except StoreError:
            reply.progress.uncertain -= 1  # nothing was sent
            raise

    async def show_draft(self, reply: Reply, text: str) -> float:
        """Show how far a draft has come; returns the seconds until the next time. It overtakes
        nothing that waits for the same chat."""
        platform = self._platforms.get(reply.platform)
        lane = self.lanes.open_lane(reply.platform, reply.chat)
        is_busy = lane.replies or lane.lock.locked() or lane.until > time.time()
        is_dead = (reply.platform, reply.chat) in self._dead
        if platform is None or is_busy or is_dead or reply.progress.uncertain > 1:
            return 0.2
        capabilities = platform.capabilities
        pace = find_pace(reply, capabilities)
        if reply.last_write and (wait := reply.last_write + pace - time.monotonic()) > 0:
            return wait
        async with lane.lock:
            if not reply.draft:
                return pace
            reply.mark_next()
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
                reply.drop_target()
            case "edit_lost":
                await _forget_lost(reply, self._platforms[reply.platform])
        progress.uncertain = 0

    async def _handle_failure(self, reply: Reply, lane: _Lane, failure: SendFailure) -> None:
        """Prepare the next try, or give the reply up."""
        progress = reply.progress
        if failure.kind == "ambiguous":
            if progress.uncertain >= MAX_REPEATS:
                await self._give_up(reply, str(failure))
            else:
                await self._put_off(reply, str(failure))
            return
        progress.uncertain = max(0, progress.uncertain - 1)
        match failure.kind:
            case "wait":
                reply.state = "pending"
                await self.save(reply)
                await self._block_lane(reply, lane, failure.wait)
            case "gone":
                self._dead.add((reply.platform, reply.chat))
                await self._mailbox.block_chat(reply.platform, reply.chat, dead=True, until=0.0)
                await self._give_up(reply, str(failure))
                await self._events.handle_gone_chat(reply.platform, reply.chat, str(failure))
            case "markup" | "rejected" if not (progress.plain or reply.content.plain):
                progress.plain = True
            case "target" if reply.drop_target():
                pass
            case "too_long" if reply.halve_parts(self._platforms[reply.platform].capabilities):
                pass
            case "edit_lost":
                await _forget_lost(reply, self._platforms[reply.platform])
            case "moved" if failure.chat:
                await self._events.follow_chat(reply.platform, reply.chat, failure.chat)
            case "rejected" | "markup" | "target" | "too_long":
                await self._give_up(reply, str(failure))
            case _:
                await self._put_off(reply, str(failure))

    async def _block_lane(self, reply: Reply, lane: _Lane, seconds: float) -> None:
        lane.until = time.time() + seconds
        await self._mailbox.block_chat(reply.platform, reply.chat, dead=False, until=lane.until)

    async def _put_off(self, reply: Reply, why: str) -> None:
        if time.time() - reply.created > GIVE_UP_SECONDS:
            await self._give_up(reply, why)
            return
        _delay_reply(reply, why)
        await self.save(reply)

    async def _give_up(self, reply: Reply, why: str) -> None:
        reply.state, reply.error = "failed", why
        log.warning("a reply on %s was given up: %s", reply.platform, why)
        await self.save(reply)
        if reply.content.run is not None:
            await self._events.handle_lost_result(*reply.content.run, why)


def find_pace(reply: Reply, capabilities: Capabilities) -> float:
    """Seconds between two edits of this reply."""
    return capabilities.group_pace if reply.content.in_group else capabilities.pace


async def _wait_for_pace(reply: Reply, capabilities: Capabilities) -> None:
    wait = reply.last_write + find_pace(reply, capabilities) - time.monotonic()
    if reply.last_write and wait > 0:
        await asyncio.sleep(wait)


async def render_part(text: str, capabilities: Capabilities, **options: Any) -> Part:
    """A part as it is sent. Markdown can be written so that rendering much of it takes seconds."""
    if len(text) < _LONG_TEXT:
        return make_part(text, capabilities, **options)
    return await asyncio.to_thread(make_part, text, capabilities, **options)


def make_part(
    text: str,
    capabilities: Capabilities,
    *,
    plain: bool,
    bare_links: bool = False,
    buttons: tuple[Button, ...] = (),
) -> Part:
    render = None if plain else capabilities.render_markup
    shown = buttons if capabilities.buttons else ()
    token = BARE_LINKS.set(bare_links)
    try:
        return Part(text, render(text) if render is not None else "", shown)
    finally:
        BARE_LINKS.reset(token)


def _make_target(reply: Reply, index: int) -> Target:
    content, lost = reply.content, reply.progress.lost_targets
    thread = "" if "thread" in lost else content.thread
    reply_to = "" if "reply_to" in lost or index else content.reply_to
    return Target(reply.chat, thread, reply_to)


async def _forget_lost(reply: Reply, platform: Platform) -> None:
    """Send again what cannot be changed any more, and what came after it."""
    for id in reply.forget_sent():
        with suppress(SendFailure):
            await platform.delete_part(_make_target(reply, 0), id)


def _delay_reply(reply: Reply, why: str) -> None:
    wait = FIRST_WAIT * 2 ** min(reply.tries, _MAX_DOUBLINGS) * (1 + random.random() / 2)
    wait = min(LONGEST_WAIT, wait)
    reply.tries, reply.due, reply.error = reply.tries + 1, time.time() + wait, why
    reply.state = "pending"


async def _send_file(reply: Reply, platform: Platform, index: int, path: str) -> str:
    """The id of the message with the file, or of the one that says why there is none."""
    target, name = _make_target(reply, index), path.rpartition("/")[2]
    try:
        content = await asyncio.to_thread(read_sent_file, path)
        return await platform.send_file(target, content, name)
    except SendFailure as failure:
        if failure.kind != "rejected":
            raise
        note = texts.FILE_NOT_SENT.format(name=clean_name(name), why=failure)
        return await platform.send_part(target, Part(note))

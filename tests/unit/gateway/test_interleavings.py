"""What happens to replies while they are on their way: each still arrives, whole and once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.app.live.interactions import Interactions
from hermes.config.platforms import PlatformSettings
from hermes.core.errors import StoreError
from hermes.core.events import Answer, Approval, Recorded, TextDelta
from hermes.core.message import Message, Text, ToolCall
from hermes.core.redaction.redactor import Redactor
from hermes.core.store import Conversation, MailboxChange, RunDelivery
from hermes.gateway import outbox, texts, turn_reply
from hermes.gateway.adapter import Inbound, SendFailure, Target
from hermes.gateway.content.reply import Content
from hermes.gateway.conversations import keep_typing
from hermes.gateway.hub import Item, OpenPlatform
from hermes.gateway.open_questions import OpenQuestions
from hermes.gateway.turn_reply import ReplyAddress, ReplyStyle, TurnReply
from tests.unit.gateway.gated_platform import (
    CHAT,
    NAME,
    delivery,
    fail_once,
    make_workspace,
    refuse,
)

ADDRESS = ReplyAddress(NAME, CHAT)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "FIRST_WAIT", 0.01)


async def test_a_chat_that_writes_during_a_refused_send_is_not_gone(tmp_path: Path) -> None:
    async with delivery(tmp_path) as d:
        d.platform.gate.clear()
        d.platform.fail = refuse("gone")
        await d.outbox.post(NAME, CHAT, Content("first"))
        await d.platform.calls.get()
        await d.outbox.revive_chat(NAME, CHAT)  # a message came before the answer to the send
        d.platform.gate.set()
        await d.outbox.post(NAME, CHAT, Content("second"))
        assert await d.until_sent() == ["first", "second"]
        assert not d.events.gone.is_set()


async def test_a_reply_that_failed_thousands_of_times_still_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "LONGEST_WAIT", 0.01)
    async with delivery(tmp_path) as d:
        waiting = d.outbox.create_reply(NAME, CHAT, Content("at last"))
        waiting.tries = 5000
        await d.outbox.save(waiting)
        d.platform.fail = fail_once(SendFailure("certain", "not yet"))
        await d.outbox.restore()
        assert await d.until_sent() == ["at last"]


async def test_a_reply_revised_while_it_is_given_up_arrives(tmp_path: Path) -> None:
    async with delivery(tmp_path) as d:
        d.platform.fail = refuse("gone")
        d.events.gate.clear()
        reply = await d.outbox.post(NAME, CHAT, Content("May I?"))
        await d.events.gone.wait()
        await d.outbox.revive_chat(NAME, CHAT)
        await d.outbox.revise(reply, Content("May I?\nDenied"))
        d.events.gate.set()
        assert await d.until_sent() == ["May I?\nDenied"]


async def test_a_reply_revised_while_its_end_is_stored_arrives(tmp_path: Path) -> None:
    def hold_end(change: MailboxChange) -> None:
        if change.replies[0].state == "delivered":
            d.mailbox.gate.clear()
            ending.set()

    ending = asyncio.Event()
    async with delivery(tmp_path) as d:
        d.mailbox.fail = hold_end
        reply = await d.outbox.post(NAME, CHAT, Content("May I?"))
        await ending.wait()
        d.mailbox.fail = lambda change: None
        revising = asyncio.create_task(d.outbox.revise(reply, Content("May I?\nDenied")))
        await asyncio.sleep(0)
        d.mailbox.gate.set()
        await revising
        assert await d.until_sent() == ["May I?\nDenied"]
        assert not await d.store.mailbox.list_open_replies()


@pytest.mark.parametrize("state", ["attempting", "delivered"])
async def test_a_full_disk_holds_a_reply_back_and_repeats_nothing(
    tmp_path: Path, state: str
) -> None:
    errors = [StoreError("The disk is full.")]

    def fail_state(change: MailboxChange) -> Exception | None:
        return errors.pop() if errors and change.replies[0].state == state else None

    async with delivery(tmp_path) as d:
        d.mailbox.fail = fail_state
        await d.outbox.post(NAME, CHAT, Content("hello"))
        assert await d.until_sent() == ["hello"]
        assert not errors and not await d.store.mailbox.list_open_replies()


async def test_a_reply_outlives_an_error_of_the_platform(tmp_path: Path) -> None:
    async with delivery(tmp_path) as d:
        d.platform.fail = fail_once(KeyError("result"))
        await d.outbox.post(NAME, CHAT, Content("hello"))
        assert await d.until_sent() == [f"{texts.REPEATED}\nhello"]


async def test_a_repeated_part_keeps_its_mark_when_it_is_changed(tmp_path: Path) -> None:
    async with delivery(tmp_path) as d:
        d.platform.fail = refuse("ambiguous")
        reply = await d.outbox.post(NAME, CHAT, Content("May I?"))
        assert await d.until_sent() == [f"{texts.REPEATED}\nMay I?"]
        await d.outbox.revise(reply, Content("May I?\nDenied"))
        assert await d.until_sent() == [f"{texts.REPEATED}\nMay I?\nDenied"]


async def test_a_long_part_has_room_for_its_mark(tmp_path: Path) -> None:
    async with delivery(tmp_path, longest_part=100) as d:
        d.platform.fail = refuse("ambiguous")
        words = " ".join(f"word{n}" for n in range(40))
        await d.outbox.post(NAME, CHAT, Content(words))
        shown = await d.until_sent()
        assert max(map(len, shown)) <= 100
        assert " ".join(shown).removeprefix(texts.REPEATED).split() == words.split()


async def test_parts_that_are_too_long_after_all_are_halved_also_between_failures(
    tmp_path: Path,
) -> None:
    failures = {3: "certain", 5: "certain"}
    calls = 0

    def judge(text: str) -> Exception | None:
        nonlocal calls
        calls += 1
        if len(text) > 60:
            return SendFailure("too_long", "too long")
        return SendFailure("certain", "no") if failures.pop(calls, None) else None

    async with delivery(tmp_path, longest_part=200) as d:
        d.platform.fail = judge
        words = " ".join(f"word{n}" for n in range(80))
        await d.outbox.post(NAME, CHAT, Content(words))
        assert " ".join(await d.until_sent()).split() == words.split()
        assert not failures


async def test_an_edit_that_is_too_long_is_cut(tmp_path: Path) -> None:
    async with delivery(tmp_path, longest_part=200) as d:
        reply = await d.outbox.post(NAME, CHAT, Content("word0"))
        assert await d.until_sent() == ["word0"]
        d.platform.fail = lambda text: (
            SendFailure("too_long", "too long") if len(text) > 60 else None
        )
        words = " ".join(f"word{n}" for n in range(20))
        await d.outbox.revise(reply, Content(words))
        assert " ".join(await d.until_sent()).split() == words.split()


async def test_only_the_part_that_is_lost_is_sent_again(tmp_path: Path) -> None:
    async with delivery(tmp_path, longest_part=20) as d:
        reply = await d.outbox.post(NAME, CHAT, Content("the first part here the second"))
        assert await d.until_sent() == ["the first part here", "the second"]
        d.platform.fail = refuse("edit_lost")
        await d.outbox.revise(reply, Content("the first part here the second, changed"))
        assert await d.until_sent() == [
            "the first part here",
            "the second",  # the platform says that it is gone
            "the second, changed",
        ]


async def test_a_repeated_part_has_room_for_its_mark_when_it_grows(tmp_path: Path) -> None:
    async with delivery(tmp_path, longest_part=60) as d:
        d.platform.fail = refuse("ambiguous")
        reply = await d.outbox.post(NAME, CHAT, Content("word0"))
        assert await d.until_sent() == [f"{texts.REPEATED}\nword0"]
        words = " ".join(f"word{n}" for n in range(20))
        await d.outbox.revise(reply, Content(words))
        shown = await d.until_sent()
        assert max(map(len, shown)) <= 60
        assert " ".join(shown).removeprefix(texts.REPEATED).split() == words.split()


async def test_what_can_never_be_short_enough_is_given_up(tmp_path: Path) -> None:
    async with delivery(tmp_path) as d:
        d.platform.fail = lambda text: SendFailure("too_long", "too long")
        await d.outbox.post(NAME, CHAT, Content("hello"))
        assert await d.until_sent() == []
        assert (await d.store.mailbox.count_open()).failed == 1


async def test_a_draft_does_not_overtake_a_reply_that_waits(tmp_path: Path) -> None:
    async with delivery(tmp_path) as d:
        d.platform.fail = refuse("certain")
        await d.outbox.post(NAME, CHAT, Content("first"))
        assert await d.platform.calls.get() == "first"
        draft = d.outbox.create_reply(NAME, CHAT, Content(""), draft=True)
        while await d.outbox.show_draft(draft, "second"):
            await asyncio.sleep(0.01)
        assert d.platform.shown == ["first", "second"]


async def test_a_flood_wait_leaves_no_doubt_for_the_next_process(tmp_path: Path) -> None:
    async with delivery(tmp_path) as d:
        failure = SendFailure("wait", "slow down", wait=300)
        d.platform.fail = lambda text: failure
        await d.outbox.post(NAME, CHAT, Content("hello"))
        while not await d.store.mailbox.list_blocked_chats():
            await asyncio.sleep(0.01)
        for task in d.tasks:
            task.cancel()
        await d.store.mailbox.unblock_chat(NAME, CHAT)
        d.platform.fail = lambda text: None
        d.outbox = type(d.outbox)(d.mailbox, {NAME: d.platform}, d.events, d.spawn)
        await d.outbox.restore()
        assert await d.until_sent() == ["hello"]


async def test_markup_that_takes_long_holds_up_nothing_else(tmp_path: Path) -> None:
    went_on = threading.Event()

    def render(text: str) -> str:
        assert went_on.wait(20), "nothing else ran meanwhile"
        return text

    async with delivery(tmp_path, render_markup=render) as d:
        await d.outbox.post(NAME, CHAT, Content("[" * 3000))
        asyncio.get_running_loop().call_later(0.01, went_on.set)
        assert await d.until_sent() == ["[" * 3000]


class EndingReply:
    """A turn that ends when it was waited for so often."""

    def __init__(self, waits: int) -> None:
        self.waits = waits

    @property
    def has_ended(self) -> bool:
        return self.waits == 0

    async def wait_for_end(self, seconds: float) -> None:
        self.waits -= 1


async def test_f81_a_chat_that_must_be_left_alone_sees_no_typing(tmp_path: Path) -> None:
    async with delivery(tmp_path, typing_seconds=4.0) as d:
        shown: list[str] = []

        async def show_typing(target: Target) -> None:
            shown.append(target.chat)

        d.platform.show_typing = show_typing
        found = OpenPlatform(NAME, PlatformSettings(), d.platform)
        hub: Any = SimpleNamespace(outbox=d.outbox, platforms={NAME: found})
        item = Item(1, NAME, Inbound(CHAT, "dm", CHAT, "m1"), "user")
        await keep_typing(hub, item, EndingReply(2))  # type: ignore[arg-type]
        assert shown == [CHAT, CHAT]
        d.platform.fail = lambda _: SendFailure("wait", "flood", wait=3600)
        await d.outbox.post(NAME, CHAT, Content("hello"))
        while not d.outbox.lanes.must_wait(NAME, CHAT):
            await asyncio.sleep(0)
        await keep_typing(hub, item, EndingReply(3))  # type: ignore[arg-type]
        assert shown == [CHAT, CHAT] and not d.outbox.lanes.must_wait(NAME, "bob")


async def test_a_result_that_reaches_two_chats_at_once_is_delivered(tmp_path: Path) -> None:
    ends: list[RunDelivery | None] = []
    both = asyncio.Event()

    def hold_end(change: MailboxChange) -> None:
        if change.replies[0].state == "delivered":
            d.mailbox.gate.clear()
            ends.append(change.run)
            if len(ends) == 2:
                both.set()

    async with delivery(tmp_path) as d:
        d.mailbox.fail = hold_end
        d.platform.gate.clear()
        for chat in ("alice", "bob"):
            await d.outbox.post(NAME, chat, Content("report", run=("job", 1)))
        for _ in range(2):
            await d.platform.calls.get()
        d.platform.gate.set()
        await both.wait()
        assert d.outbox.results.holds_run("job", 1)
        d.mailbox.gate.set()
        await d.until_sent()
        assert ends == [None, RunDelivery("job", 1, "delivered")]
        assert not d.outbox.results.holds_run("job", 1)


class Asking:
    """A session that asks for approval, as far as questions look at it."""

    def __init__(self) -> None:
        self.emitted: asyncio.Queue[Approval] = asyncio.Queue()
        self.interactions = Interactions(self.emitted.put_nowait)  # type: ignore[arg-type]
        self.interactions.user_present = True
        self.agent = SimpleNamespace(redactor=SimpleNamespace(redact=str))

    def request(self) -> asyncio.Task[Answer | None]:
        approval = Approval("1", ToolCall("1", "terminal", "{}"), "it writes", command="rm x")
        return asyncio.create_task(self.interactions.request_approval(approval))


async def test_an_answer_before_the_question_is_stored_is_shown_below_it(tmp_path: Path) -> None:
    async with delivery(tmp_path) as d:
        asking: Any = Asking()
        questions = OpenQuestions(d.outbox, d.spawn)
        request = asking.request()
        approval = await asking.emitted.get()
        d.mailbox.gate.clear()
        ask = asyncio.create_task(
            questions.ask(asking, approval, ADDRESS, ("1", "Alice"), minutes=5)
        )
        await asyncio.sleep(0)
        asking.interactions.answer_approval("1", "once")
        await questions.close_answered(asking, texts.ALLOWED_BY.format(answer="once", name="Bob"))
        d.mailbox.gate.set()
        await ask
        assert await request == "once"
        assert [text.splitlines()[-1] for text in await d.until_sent()] == [
            "✅ Allowed (once) by Bob"
        ]


async def test_a_question_that_is_answered_already_is_not_asked(tmp_path: Path) -> None:
    async with delivery(tmp_path) as d:
        asking: Any = Asking()
        questions = OpenQuestions(d.outbox, d.spawn)
        request = asking.request()
        approval = await asking.emitted.get()
        asking.interactions.answer_approval("1", "deny")
        assert await request == "deny"
        await questions.ask(asking, approval, ADDRESS, ("1", "Alice"), minutes=5)
        assert await d.until_sent() == []


async def test_text_that_is_read_after_its_message_was_stored_is_not_shown_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_reply, "FIRST_DRAFT_SECONDS", 0.0)
    async with delivery(tmp_path) as d:
        style = ReplyStyle(Redactor(), make_workspace(tmp_path), tmp_path, shows_tools=True)
        reply = TurnReply(d.outbox, ADDRESS, style, Conversation("key"), (1,))
        reply.start_drafts(d.spawn)
        reply.handle_event(TextDelta("All is"))
        await d.platform.calls.get()
        message = Message("assistant", (Text("All is well, as it was."),))
        change = reply.compose_change(message, "idle", "")
        reply.handle_event(TextDelta(" well, as it was."))  # it was still in the queue
        assert change is not None
        await d.mailbox.apply(change)
        reply.handle_event(Recorded(message))
        await reply.end(90)
        assert await d.until_sent() == ["All is well, as it was."]

"""The replies of one running turn: shown while they are written, stored when they are complete."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from hermes.core.errors import OWN_FAILURES
from hermes.core.events import Recorded, TextDelta, ToolDone, ToolStarted, TurnEnd, TurnEvent
from hermes.core.message import Message
from hermes.core.redaction.redactor import Redactor
from hermes.core.store import Conversation, MailboxChange, SessionState
from hermes.core.tool import Workspace
from hermes.gateway import texts
from hermes.gateway.content.media import extract_files
from hermes.gateway.content.render import describe_call, hold_back_secrets
from hermes.gateway.content.reply import Content, Reply
from hermes.gateway.outbox import Outbox

deliveries = logging.getLogger("hermes.gateway.deliveries")
"""Answers that go to the log."""
FIRST_DRAFT_SECONDS = 0.3
"""An answer that is complete by then is sent at once, without a draft."""
_ENDED: frozenset[SessionState | None] = frozenset({"idle", "interrupted", "partial", "failed"})


class ReplyAddress(Struct, frozen=True):
    """Where the replies of a turn go; without a platform they are only stored."""

    platform: str
    chat: str = ""
    thread: str = ""
    reply_to: str = ""
    in_group: bool = False


class ReplyStyle(Struct, frozen=True):
    """How a turn's text is shown."""

    redactor: Redactor
    workspace: Workspace
    """Files may be sent from here, as far as the agent may read them."""
    cache: Path
    """The attachments, which may be sent too."""
    shows_tools: bool
    is_steered: Callable[[], bool] = lambda: False
    """Whether others than the user may have told the model what to write."""
    footer: Callable[[Message], str] | None = None
    """What stands below the last message of a turn."""


class TurnReply:
    """`compose_change` is called for every record of the transcript: what it returns is committed
    together with that record. Everything else follows the events of the turn."""

    def __init__(
        self,
        outbox: Outbox,
        address: ReplyAddress,
        style: ReplyStyle,
        conversation: Conversation,
        numbers: tuple[int, ...],
        draft: Reply | None = None,
    ) -> None:
        self.numbers = numbers
        """The messages that the turn answers."""
        self.steered: list[int] = []
        """Messages passed on to the turn that it has not read yet."""
        self.conversation = conversation
        self.is_closed = False
        self._outbox = outbox
        self._address = address
        self._style = style
        self._draft = draft
        self._begun = False
        self._is_recorded = False
        """The message whose text comes in is complete and stored, or on its way there."""
        self._text = ""
        self._tool_line = ""
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._drafts: asyncio.Task[None] | None = None
        self._first_draft: asyncio.TimerHandle | None = None
        self._complete: list[Reply] = []
        """Composed, and to be scheduled once their record is committed."""
        self._is_first = True

    def compose_change(
        self, message: Message | None, state: SessionState | None, error: str
    ) -> MailboxChange | None:
        running: tuple[int, ...] = ()
        done: list[int] = []
        conversation = None
        if state == "running":
            if self._begun:  # guidance that came too late is answered in a turn of its own
                self.numbers, self.steered = tuple(self.steered), []
            else:
                conversation = self.conversation
            self._begun, running = True, self.numbers
        elif message is not None and message.kind == "steer":
            done, self.steered = self.steered, []
        replies: tuple[Reply, ...] = ()
        if message is not None and message.role == "assistant":
            self._is_recorded = True
            if message.text.strip() or error or not message.calls:
                describe = self._style.footer if state == "idle" else None
                footer = describe(message) if describe is not None else ""
                replies = self._finish_reply(message.text, error, footer)
        elif state in _ENDED:
            replies = self._finish_reply("", error)
        if state in _ENDED:
            done += self.numbers
            self.is_closed = True
        self._complete += replies
        entries = tuple(reply.entry for reply in replies)
        finished = self.conversation.key if state in _ENDED else ""
        if not (running or done or entries or finished or conversation):
            return None
        session = self.conversation.session
        return MailboxChange(
            running, tuple(done), session, entries, conversation, finished, ended=time.time()
        )

    def compose_failure(self, error: str) -> MailboxChange:
        """The end of a turn that could not record it itself. What it had composed for that is
        delivered all the same."""
        if self._complete:
            last = self._complete[-1]
            last.content = structs.replace(
                last.content, text=self._add_failure(last.content.text, error)
            )
            replies = tuple(self._complete)
        else:
            replies = self._finish_reply("", error)
            self._complete += replies
        self.is_closed = True
        entries = tuple(reply.entry for reply in replies)
        done = (*self.numbers, *self.steered)
        return MailboxChange(
            done=done, replies=entries, finished=self.conversation.key, ended=time.time()
        )

    def _finish_reply(self, text: str, error: str, footer: str = "") -> tuple[Reply, ...]:
        whole = self._add_failure(self._style.redactor.redact(text), error)
        whole, files = extract_files(whole, self._style.workspace, self._style.cache)
        if footer and whole.strip():
            whole = f"{whole.rstrip()}\n\n{footer}"
        draft, self._draft = self._draft, None
        self._text = self._tool_line = ""
        has_content = bool(whole.strip() or files)
        if not self._address.platform:
            deliveries.info("%s", whole)
            return ()
        if draft is None and not has_content:
            return ()
        content = structs.replace(self._make_content(), text=whole, files=files)
        reply = draft or self._create_reply(draft=False)
        if draft is not None:
            content = structs.replace(content, reply_to=draft.content.reply_to)
        reply.content, reply.draft, reply.state = content, False, "pending"
        return (reply,)

    def _add_failure(self, text: str, error: str) -> str:
        if not error:
            return text
        failure = texts.FAILED_TURN.format(error=self._style.redactor.redact(error))
        return f"{text.rstrip()}\n\n{failure}" if text.strip() else failure

    def _make_content(self) -> Content:
        address = self._address
        reply_to = address.reply_to if address.in_group and self._is_first else ""
        bare = self._style.is_steered()
        return Content("", address.thread, reply_to, in_group=address.in_group, bare_links=bare)

    def _create_reply(self, *, draft: bool) -> Reply:
        content = self._make_content()
        self._is_first = False
        number = self.numbers[0] if self.numbers else 0
        address = self._address
        return self._outbox.create_reply(
            address.platform, address.chat, content, inbox=number, draft=draft
        )

    def handle_event(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text=text) if not self._is_recorded:
                self._text += text
                self._tool_line = ""
                self._changed.set()
            case ToolStarted(call=call) if self._style.shows_tools:
                what = describe_call(call.args, self._style.redactor.redact)
                self._tool_line = texts.TOOL_LINE.format(tool=call.name, what=what)
                self._changed.set()
            case ToolDone():
                self._tool_line = ""
            case TurnEnd(result=result) if result.error_code in OWN_FAILURES:
                self._is_recorded = False  # nor is its end recorded
            case Recorded() | TurnEnd():
                self._is_recorded = False
                self.schedule_complete()

    def schedule_complete(self) -> None:
        complete, self._complete = self._complete, []
        for reply in complete:
            self._outbox.schedule(reply)

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    async def end(self, seconds: float) -> None:
        """Show nothing more of drafts. What is being sent has so long to be sent to its end."""
        self._ended.set()
        self._changed.set()
        if self._first_draft is not None:
            self._first_draft.cancel()
        if self._drafts is not None:
            await asyncio.wait({self._drafts}, timeout=seconds)

    def start_drafts(
        self, spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    ) -> None:
        """Show drafts beside the turn, from soon on until `end`."""

        def spawn_drafts() -> None:
            self._drafts = spawn(self._show_drafts(), "drafts")

        loop = asyncio.get_running_loop()
        self._first_draft = loop.call_later(FIRST_DRAFT_SECONDS, spawn_drafts)

    async def _show_drafts(self) -> None:
        while not self._ended.is_set():
            await self._changed.wait()
            self._changed.clear()
            shown = "\n\n".join(filter(str.strip, (self._visible_text(), self._tool_line)))
            if not shown or self._ended.is_set():
                continue
            if self._draft is None:
                self._draft = self._create_reply(draft=True)
            wait = await self._outbox.show_draft(self._draft, shown)
            if wait:
                self._changed.set()  # show what came meanwhile
                await self.wait_for_end(wait)

    def _visible_text(self) -> str:
        return hold_back_secrets(self._text, self._style.redactor)

    async def wait_for_end(self, seconds: float) -> None:
        """Until the end of the turn, but no longer than that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

"""A reply: what it says, and how much of it has reached the chat."""

import time
from typing import Literal

import msgspec
from msgspec import Struct

from hermes.core.store import OutboxEntry, OutboxState
from hermes.gateway import texts
from hermes.gateway.adapter import Button, Capabilities
from hermes.gateway.content.render import split_text


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
    bare_links: bool = False
    """Links are text that says where they lead."""
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
    lost_targets: list[Literal["reply_to", "thread"]] = []
    """Of what it answers to: what is gone, the message or also the thread."""
    cuts: list[tuple[int, int]] = []
    """From which part on, and to what length, parts were cut that the platform finds too long."""
    marked: list[int] = []
    """The parts that begin with the mark of what is sent again."""


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
        self.current = 0
        """The part that was written last, or is being written."""

    @property
    def is_closed(self) -> bool:
        return self.state == "delivered" or self.state == "failed"

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

        def split(part: str, limit: int) -> list[str]:
            return split_text(part, max(1, limit), measure)

        parts = split(text, capabilities.longest_part)
        if parts == [""]:
            parts = []
        for start, limit in self.progress.cuts:
            rest = [piece for part in parts[start:] for piece in split(part, limit)]
            parts = parts[:start] + rest
        room = capabilities.longest_part - measure(f"{texts.REPEATED}\n")
        for index in self.progress.marked:  # the mark takes some of it
            marked = [piece for part in parts[index : index + 1] for piece in split(part, room)]
            parts[index : index + 1] = marked
        return parts

    def halve_parts(self, capabilities: Capabilities) -> bool:
        """Cut the parts from the current one on in halves; whether that is possible."""
        rest = self.list_parts(capabilities)[self.current :]
        longest = max(map(capabilities.measure, rest), default=0)
        self.progress.cuts.append((self.current, max(1, longest // 2)))
        return longest > 1

    def drop_target(self) -> bool:
        """Answer to the thread alone, without the message, or to neither; False when nothing is
        left to drop."""
        lost = self.progress.lost_targets
        if self.content.reply_to and "reply_to" not in lost:
            lost.append("reply_to")
        elif self.content.thread and "thread" not in lost:
            lost.append("thread")
        else:
            return False
        return True

    def mark_next(self) -> None:
        """The next part was perhaps sent before: it is to say so."""
        index = len(self.progress.ids)
        if self.progress.uncertain and index not in self.progress.marked:
            self.progress.marked.append(index)

    def mark_part(self, index: int, text: str) -> str:
        return f"{texts.REPEATED}\n{text}" if index in self.progress.marked else text

    def note_sent(self, id: str, shown: str) -> None:
        self.progress.uncertain = 0
        self.progress.ids.append(id)
        self.progress.shown.append(shown)
        self.last_write = time.monotonic()

    def forget_sent(self) -> list[str]:
        """Send it again from the current part on; the ids of what was sent of that."""
        progress, first = self.progress, self.current
        lost = progress.ids[first:]
        progress.ids, progress.shown = progress.ids[:first], progress.shown[:first]
        return lost


def make_entry(number: int, platform: str, chat: str, content: Content) -> OutboxEntry:
    body = msgspec.msgpack.encode(content)
    return OutboxEntry(number, platform, chat, body, created=time.time())

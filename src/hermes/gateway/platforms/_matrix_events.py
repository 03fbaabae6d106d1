"""Events of Matrix in the gateway's words, and messages as Matrix wants them."""

import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import msgspec
from msgspec import Struct

from hermes.gateway.adapter import Attachment, ChatType, Inbound, Part, Target
from hermes.gateway.transport.payload import read_number

LARGEST_CONTENT = 40_000
"""Bytes of a message; encrypted it grows by a third, and an event may have 65,536."""
_FILES = frozenset({"m.image", "m.file", "m.audio", "m.video"})
_UNREAD = frozenset({"mx-reply", "blockquote", "code", "pre"})
"""A mention inside these does not address anybody."""
_REPLY_FALLBACK = re.compile(r"\A(> [^\n]*\n)+\n")
_LONGEST_SHORT_BODY = 200


class MediaRef(Struct, frozen=True, omit_defaults=True):
    """Where an attachment is, and how it is decrypted."""

    mxc: str
    key: str = ""
    hash: str = ""
    iv: str = ""


class RoomView(Struct, frozen=True):
    """What is known of the room of an event."""

    me: str
    my_name: str
    chat_type: ChatType
    sender_name: str = ""


class Relation(Struct, frozen=True):
    """How a message refers to others; each is the id of an event, or empty."""

    replaces: str = ""
    thread: str = ""
    replies_to: str = ""


def read_relation(content: Mapping[str, Any]) -> Relation:
    relates = content.get("m.relates_to")
    if not isinstance(relates, Mapping):
        return Relation()
    kind, target = relates.get("rel_type"), str(relates.get("event_id") or "")
    if kind == "m.replace":
        return Relation(replaces=target)
    answered = relates.get("m.in_reply_to")
    replies_to = str(answered.get("event_id") or "") if isinstance(answered, Mapping) else ""
    if kind == "m.thread":
        return Relation(
            thread=target, replies_to="" if relates.get("is_falling_back") else replies_to
        )
    return Relation(replies_to=replies_to)


def read_event(
    event: Mapping[str, Any], room_id: str, view: RoomView, answered: tuple[str, str] = ("", "")
) -> Inbound | None:
    """A message in the gateway's words; None when it says nothing to anybody. `answered`: the
    sender and the text of the message that it replies to."""
    content = event["content"]
    relation = read_relation(content)
    if relation.replaces:
        content = content.get("m.new_content") or content
    kind = content.get("msgtype")
    attachments = _read_attachments(content) if kind in _FILES else ()
    text = _read_text(content, is_reply=bool(relation.replies_to)) if kind != "m.emote" else ""
    if kind == "m.emote":
        text = f"{view.sender_name or event['sender']} {content.get('body', '')}"
    if kind not in (*_FILES, "m.text", "m.notice", "m.emote") or not (text or attachments):
        return None
    is_mentioned = _is_mentioned(content, text, view.me)
    return Inbound(
        chat=room_id,
        chat_type=view.chat_type,
        user=str(event["sender"]),
        id=relation.replaces or str(event["event_id"]),
        text=_strip_mention(text, view) if is_mentioned else text,
        thread=relation.thread,
        user_name=view.sender_name,
        # Bots write notices, so that nobody answers them.
        is_bot=event["sender"] == view.me or kind == "m.notice",
        addressed=is_mentioned or answered[0] == view.me,
        sent=read_number(event.get("origin_server_ts")) / 1000,
        quote=answered[1],
        attachments=attachments,
        edited=bool(relation.replaces),
    )


def _read_text(content: Mapping[str, Any], *, is_reply: bool) -> str:
    body = str(content.get("body") or "")
    if content.get("msgtype") in _FILES:  # then it is a caption only beside a name
        name = content.get("filename")
        return body if name and name != body else ""
    return (_REPLY_FALLBACK.sub("", body) if is_reply else body).strip()


def _read_attachments(content: Mapping[str, Any]) -> tuple[Attachment, ...]:
    info = content.get("info") or {}
    encrypted = content.get("file") or {}
    mxc = str(encrypted.get("url") or content.get("url") or "")
    ref = MediaRef(mxc)
    if encrypted:
        key = str((encrypted.get("key") or {}).get("k") or "")
        digest = str((encrypted.get("hashes") or {}).get("sha256") or "")
        ref = MediaRef(mxc, key, digest, str(encrypted.get("iv") or ""))
    return (
        Attachment(
            msgspec.json.encode(ref).decode(),
            str(content.get("filename") or content.get("body") or ""),
            str(info.get("mimetype") or ""),
            int(read_number(info.get("size"))),
            "org.matrix.msc3245.voice" in content,
        ),
    )


class _PillReader(HTMLParser):
    """Finds links to a user outside of quotations and code."""

    def __init__(self, user: str) -> None:
        super().__init__()
        self.is_mentioned = False
        self._user = user
        self._unread = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNREAD:
            self._unread += 1
        elif tag == "a" and not self._unread:
            target = dict(attrs).get("href") or ""
            place = target.removeprefix("https://matrix.to/#/").replace("%40", "@")
            self.is_mentioned |= place.replace("%3A", ":") == self._user

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNREAD and self._unread:
            self._unread -= 1


def _is_mentioned(content: Mapping[str, Any], text: str, me: str) -> bool:
    mentions = content.get("m.mentions")
    if isinstance(mentions, Mapping):  # the client says whom it means
        users = mentions.get("user_ids")
        return isinstance(users, list) and me in users
    html = content.get("formatted_body")
    if isinstance(html, str):
        reader = _PillReader(me)
        reader.feed(html)
        return reader.is_mentioned
    # Older clients without markup: the whole id, outside of quoted lines and code.
    plain = "\n".join(line for line in text.splitlines() if not line.startswith(">"))
    return me in re.sub(r"`[^`]*`", "", plain)


def _strip_mention(text: str, view: RoomView) -> str:
    names = {view.me, f"@{view.my_name}", view.me[1:].partition(":")[0], view.my_name} - {"", "@"}
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    either = "|".join(map(re.escape, longest_first))
    at_start = re.sub(rf"\A@?(?:{either})(?!\w)[:,]?\s*", "", text)
    whole = "|".join(re.escape(name) for name in longest_first if name.startswith("@"))
    return re.sub(rf"\s*(?:{whole})(?!\w)", "", at_start).strip()


def make_content(part: Part, target: Target | None = None, edited: str = "") -> dict[str, Any]:
    """A message with its HTML; without it when both together are too long. Nobody is mentioned,
    whatever the text says."""
    content: dict[str, Any] = {"msgtype": "m.text", "body": part.text, "m.mentions": {}}
    if part.markup and _count_json(part.markup) + _count_json(part.text) <= LARGEST_CONTENT:
        content |= {"format": "org.matrix.custom.html", "formatted_body": part.markup}
    if edited:
        # Whoever cannot show edits gets the beginning: the whole text twice may be too long.
        short = f"* {part.text[:_LONGEST_SHORT_BODY]}"
        relates = {"rel_type": "m.replace", "event_id": edited}
        return {
            "msgtype": "m.text",
            "body": short,
            "m.mentions": {},
            "m.new_content": content,
            "m.relates_to": relates,
        }
    return content | (make_relation(target) if target is not None else {})


def _count_json(text: str) -> int:
    """The length as nio sends it: what is not ASCII is escaped."""
    return len(json.dumps(text))


def make_relation(target: Target) -> dict[str, Any]:
    reply = {"m.in_reply_to": {"event_id": target.reply_to}} if target.reply_to else {}
    if target.thread:
        falling_back = {"m.in_reply_to": {"event_id": target.thread}, "is_falling_back": True}
        thread = {"rel_type": "m.thread", "event_id": target.thread}
        return {"m.relates_to": {**thread, **(reply or falling_back)}}
    return {"m.relates_to": reply} if reply else {}

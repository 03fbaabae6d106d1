"""What services send is not always what they describe: nothing of it may hold up the rest."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import imap_tools
import pytest

from hermes.gateway.adapter import Inbound
from hermes.gateway.platforms import (
    _matrix_events,
    _signal_events,
    _whatsapp_messages,
    slack,
    telegram,
)
from hermes.gateway.platforms.email import read_content
from hermes.gateway.router import encode_message
from hermes.gateway.transport.payload import MALFORMED, read_number
from tests.kit.telegram import BOT

ODD: tuple[Any, ...] = (
    None, "", "x", -1, 0, True, 1.5, 1e308, 10**400, -(10**30), "9" * 5000, [], [1], [None], {},
    {"a": 1},
)  # fmt: skip
FILE = {"file_id": "f", "file_name": "n", "mime_type": "t", "file_size": 9}
TELEGRAM = {
    "message_id": 5,
    "from": {"id": 7, "is_bot": False, "first_name": "A"},
    "chat": {"id": -5, "type": "supergroup"},
    "date": 1700000000,
    "text": "hi @kit_bot",
    "entities": [{"type": "mention", "offset": 3, "length": 8}],
    "reply_to_message": {"from": {"id": BOT["id"]}, "text": "x"},
    "photo": [FILE, FILE],
    "document": FILE,
    "message_thread_id": 4,
    "is_topic_message": True,
    "media_group_id": "m",
}
SLACK = {
    "type": "message",
    "channel": "C1",
    "user": "U1",
    "text": "<@UB> hi",
    "ts": "1700000000.0001",
    "files": [{"url_private": "u", "name": "n", "mimetype": "m", "size": 4}],
}
WHATSAPP = {
    "metadata": {"display_phone_number": "49"},
    "contacts": [{"wa_id": "7", "profile": {"name": "N"}}],
    "messages": [
        {
            "from": "7",
            "id": "w1",
            "timestamp": "1700000000",
            "type": "image",
            "image": {"id": "i", "mime_type": "m", "caption": "c"},
            "context": {"from": "49"},
        }
    ],
}
SIGNAL = {
    "envelope": {
        "sourceUuid": "u-1",
        "sourceNumber": "+43",
        "dataMessage": {
            "timestamp": 1700000000000,
            "message": "\ufffc hi",
            "mentions": [{"start": 0, "length": 1, "uuid": "me", "name": "n"}],
            "attachments": [{"id": "a", "filename": "f", "contentType": "c", "size": 4}],
            "groupInfo": {"groupId": "g"},
        },
    }
}
MATRIX = {
    "type": "m.room.message",
    "sender": "@a:b",
    "event_id": "$1",
    "origin_server_ts": 1700000000000,
    "content": {
        "msgtype": "m.image",
        "body": "b",
        "filename": "f",
        "url": "mxc://a/b",
        "info": {"size": 3, "mimetype": "m"},
        "m.mentions": {"user_ids": ["@me:b"]},
        "m.relates_to": {"rel_type": "m.thread", "event_id": "$0"},
    },
}
ROOM = _matrix_events.RoomView("@me:b", "me", "group", "S")
ME = _signal_events.SignalSelf("+49", "me")


def read_whatsapp(payload: Any) -> Any:
    message, *_ = payload["messages"]
    return _whatsapp_messages.read_message(message, payload, ())


READERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "telegram": (TELEGRAM, lambda p: telegram.read_message(p, BOT, edited=False)),
    "slack": (SLACK, lambda p: slack.read_message(p, "UB")),
    "whatsapp": (WHATSAPP, read_whatsapp),
    "signal": (SIGNAL, lambda p: _signal_events.read_event(p, ME, ())),
    "matrix": (MATRIX, lambda p: _matrix_events.read_event(p, "!r", ROOM)),
}


def list_places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, found in inner:
        yield (*place, key)
        if isinstance(found, dict | list):
            yield from list_places(found, (*place, key))


def replace(value: Any, place: tuple[Any, ...], odd: Any) -> Any:
    changed = inside = copy.deepcopy(value)
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = odd
    return changed


@pytest.mark.parametrize("name", READERS)
def test_odd_values_are_read_or_known_as_malformed(name: str) -> None:
    payload, read = READERS[name]
    assert isinstance(read(payload), Inbound)
    for place in list_places(payload):
        for odd in ODD:
            try:
                found = read(replace(payload, place, odd))
            except MALFORMED:
                continue
            if isinstance(found, Inbound):
                encode_message(found, "user")  # it can be stored


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("telegram", ("date",)),
        ("telegram", ("document", "file_size")),
        ("telegram", ("photo", 0, "file_size")),
        ("slack", ("ts",)),
        ("slack", ("files", 0, "size")),
        ("whatsapp", ("messages", 0, "timestamp")),
        ("signal", ("envelope", "dataMessage", "attachments", 0, "size")),
        ("matrix", ("origin_server_ts",)),
        ("matrix", ("content", "info", "size")),
    ],
)
def test_an_odd_size_or_time_keeps_no_message_away(name: str, place: tuple[Any, ...]) -> None:
    payload, read = READERS[name]
    for odd in ODD:
        found = read(replace(payload, place, odd))
        assert isinstance(found, Inbound) and found.text == read(payload).text
        encode_message(found, "user")


@pytest.mark.parametrize("odd", ["x", None, [], -1, 1e300, 10**400, "nan", "inf"])
def test_what_is_no_size_is_none(odd: Any) -> None:
    assert read_number(odd) == 0
    assert (read_number("12"), read_number(1.5)) == (12, 1.5)


@pytest.mark.parametrize("charset", ["idna", "undefined", "a\0b", "none-of-these"])
def test_a_mail_in_an_impossible_encoding_is_still_a_mail(charset: str) -> None:
    raw = f"Subject: s\r\nContent-Type: text/plain; charset={charset}\r\n\r\n\xe9".encode("latin-1")
    subject, text, attachments = read_content(
        imap_tools.MailMessage.from_bytes(raw), 1, is_first=True
    )
    assert subject == "s" and text.startswith("Subject: s") and attachments == ()

"""Events of Slack in the gateway's words."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.gateway.platforms.slack import read_message

ME = "U7"


def event(text: str, **more: Any) -> dict[str, Any]:
    base = {"type": "message", "channel": "C1", "channel_type": "channel"}
    return {**base, "user": "U1", "text": text, "ts": "1700000000.000100", **more}


@pytest.mark.parametrize(
    ("raw", "text", "addressed"),
    [
        (event("hello"), "hello", False),
        (event(f"<@{ME}> hi"), "hi", True),
        (event(f"<@{ME}|hermes> hi"), "hi", True),
        (event("<@U5> hi"), "@U5 hi", False),
        (event(f"```<@{ME}>``` x"), f"```@{ME}``` x", False),
        (event("yes", thread_ts="1.1", parent_user_id=ME), "yes", True),
        (event("<https://e.x> <https://e.x/a|here>"), "https://e.x here (https://e.x/a)", False),
        (event("<http://e.x|e.x> <#C2|dev> <!here>"), "http://e.x #dev @here", False),
        (event("1 &lt; 2 &amp;amp; 3"), "1 < 2 &amp; 3", False),
    ],
)
def test_g5_a_message_is_read_with_its_mentions(
    raw: dict[str, Any], text: str, addressed: bool
) -> None:
    found = read_message(raw, ME)
    assert found is not None and (found.text, found.addressed) == (text, addressed)


def test_threads_and_direct_chats() -> None:
    top = read_message(event("a"), ME)
    inside = read_message(event("a", thread_ts="1.1"), ME)
    direct = read_message(event("a", channel="D1", channel_type="im"), ME)
    assert top is not None and inside is not None and direct is not None
    assert (top.chat_type, top.thread) == ("group", top.id)
    assert inside.thread == "1.1" and (direct.chat_type, direct.thread) == ("dm", "")


@pytest.mark.parametrize(
    "raw",
    [
        event("joined", subtype="channel_join"),
        event("", subtype="message_deleted"),
        event("", subtype="message_changed", message=event("a"), previous_message=event("a")),
        {"type": "reaction_added", "user": "U1"},
    ],
)
def test_what_is_no_message_is_left_out(raw: dict[str, Any]) -> None:
    assert read_message(raw, ME) is None


def test_bots_are_known_as_bots() -> None:
    for more in ({"bot_id": "B1"}, {"user": ME}, {"user": "USLACKBOT"}):
        found = read_message(event("a", **more), ME)
        assert found is not None and found.is_bot

"""Which mail counts and to which conversation it belongs; events of Matrix; both as HTML."""

from __future__ import annotations

import html
import re
from email import message_from_string
from email.message import Message
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.adapter import Part, Target
from hermes.gateway.content.web_markup import render_web_html
from hermes.gateway.hub import Hub
from hermes.gateway.platforms._email_rules import (
    find_thread,
    is_authenticated,
    is_automatic,
    join_text,
    list_references,
    read_html_text,
    read_sender,
    shorten_references,
    strip_quote,
)
from hermes.gateway.platforms._matrix_events import (
    LARGEST_CONTENT,
    RoomView,
    make_content,
    read_event,
)

MX = "mx.example.org"
ME = "@bot:kit"
VIEW = RoomView(ME, "bot", "group", "Ann")


def parse(*lines: str) -> Message:
    return message_from_string("\n".join(lines) + "\n\n")


@pytest.mark.parametrize(
    ("lines", "counts"),
    [
        ([f"{MX}; dmarc=pass (p=reject) header.from=example.com"], True),
        ([f"{MX} 1; spf=pass smtp.mailfrom=a@example.com"], True),
        ([f"{MX}; dkim=pass header.i=@example.com header.s=x"], True),
        ([f"{MX}; dkim=pass header.d=com.example"], False),
        ([f"{MX}; dkim=pass header.d=notexample.com"], False),
        ([f"{MX}; dkim=pass header.d=mail.example.com"], False),
        ([f"{MX}; dmarc=pass header.from=evil.org"], False),
        ([f"{MX}; dmarc=none header.from=example.com"], False),
        ([f"{MX}; spf=pass (a dmarc=pass header.from=example.com) smtp.mailfrom=evil.org"], False),
        ([f"{MX}; spf=fail (a (b) ; dmarc=pass header.from=example.com)"], False),
        ([f'{MX}; spf=fail smtp.mailfrom="a; dmarc=pass header.from=example.com"@evil.org'], False),
        ([f'{MX}; spf=pass smtp.mailfrom="a@example.com x"@evil.org'], False),
        ([f"{MX}; spf=fail (\\) ; dmarc=pass header.from=example.com) x"], False),
        ([f'{MX}; spf=fail smtp.mailfrom="\\"; dmarc=pass header.from=example.com'], False),
        ([f'{MX}; dkim=fail reason="bad (" ; dmarc=pass header.from=example.com'], True),
        ([f'{MX}; spf=pass smtp.mailfrom="a b"@example.com'], True),
        ([f"{MX}; none", f"{MX}; dmarc=pass header.from=example.com"], False),
        (["mx.evil; dmarc=pass header.from=example.com"], False),
        (["mx.evil; none", f"{MX}; dmarc=pass header.from=example.com"], True),
        ([], False),
    ],
)
def test_only_the_topmost_result_of_our_own_server_counts(lines: list[str], counts: bool) -> None:
    mail = parse(*[f"Authentication-Results: {line}" for line in lines], "From: a@example.com")
    assert is_authenticated(mail, "example.com", MX) is counts
    assert not is_authenticated(mail, "example.com", "")


@pytest.mark.parametrize(
    ("line", "automatic"),
    [
        ("X-Nothing: x", False),
        ("Auto-Submitted: no", False),
        ("Auto-Submitted: auto-generated; x=y", True),
        ("X-Auto-Response-Suppress: None", False),
        ("X-Auto-Response-Suppress: DR, OOF", True),
        ("Precedence: first-class", False),
        ("Precedence: Junk", True),
        ("List-Id: a list <l.example.com>", True),
        ("Return-Path: <>", True),
        ("Return-Path: <a@example.com>", False),
    ],
)
def test_what_programs_and_lists_send(line: str, automatic: bool) -> None:
    assert is_automatic(parse(line), "ann@example.com") is automatic


@pytest.mark.parametrize(
    ("sender", "automatic"),
    [
        ("no-reply@x.y", True),
        ("noreply+5@x.y", True),
        ("team.do-not-reply@x.y", True),
        ("MAILER-DAEMON@x.y", True),
        ("arno.reply@x.y", False),
        ("noreplying@x.y", False),
    ],
)
def test_addresses_that_nobody_reads(sender: str, automatic: bool) -> None:
    assert is_automatic(parse("X: y"), sender) is automatic


def test_a_mail_has_one_sender() -> None:
    assert read_sender(parse("From: Ann <Ann@Example.com>")) == ("ann@example.com", "Ann")
    assert read_sender(parse("From: a@x.y, b@x.y")) == ("", "")
    assert read_sender(parse("From: a@x.y", "From: b@x.y")) == ("", "")
    assert read_sender(parse("From: nobody")) == ("", "")


def test_a_thread_is_that_of_its_root_or_of_our_mail() -> None:
    root = find_thread("<1@x>", ())
    later = parse("References: <1@x> <2@x>", "In-Reply-To: <2@x>")
    assert list_references(later) == ("<1@x>", "<2@x>")
    assert find_thread("<3@x>", list_references(later)) == root
    only_ours = list_references(parse(f"In-Reply-To: <hermes.{root}.abc123@kit.example>"))
    assert find_thread("<9@x>", only_ours) == root
    many = tuple(f"<{n}@x>" for n in range(50))
    short = shorten_references(many)
    assert len(short) == 20 and short[0] == many[0] and short[-1] == many[-1]


def test_the_quoted_mail_is_left_out() -> None:
    assert strip_quote("yes\r\n\r\nOn Mon, 1 Jan\r\nAnn wrote:\r\n> a\r\n> b\r\n") == "yes"
    assert strip_quote("> quoted\nbelow it") == "> quoted\nbelow it"
    assert join_text("Hi", "text", is_first=True) == "Subject: Hi\n\ntext"
    assert join_text("Hi", "/new", is_first=True) == "/new"
    assert join_text("Re: Hi", "text", is_first=False) == "text"
    assert read_html_text("<style>x</style><p>a&lt;b</p>c<br>d") == "a<b\nc\nd"


@given(st.text(alphabet=st.sampled_from("ab12 \n*_#->.)!|\\+\"'"), max_size=200))
def test_web_markup_loses_no_letter_and_no_number(text: str) -> None:
    shown = html.unescape(re.sub(r"<[^>]*>", "", render_web_html(text)))
    assert "".join(filter(str.isalnum, shown)) == "".join(filter(str.isalnum, text))


def test_g18_lines_indents_and_code_stay_and_nothing_else_is_markup() -> None:
    shown = render_web_html("- a\n  - <img src=x>\n\n```\nx\n  y\n```\n![p](https://e.x/p.png)")
    assert shown == (
        "• a<br>&nbsp;&nbsp;• &lt;img src=x&gt;<br><br><pre>x\n  y</pre><br><br>"
        '<a href="https://e.x/p.png">p</a>'
    )


def event(body: str, **content: Any) -> dict[str, Any]:
    whole = {"msgtype": "m.text", "body": body, **content}
    return {"sender": "@ann:kit", "event_id": "$1", "origin_server_ts": 5000, "content": whole}


@pytest.mark.parametrize(
    ("body", "content", "text", "addressed"),
    [
        ("bot: hi", {"m.mentions": {"user_ids": [ME]}}, "hi", True),
        ("hi bot", {"m.mentions": {"user_ids": [ME]}}, "hi bot", True),
        ("hi @bot:kit", {"m.mentions": {}}, "hi @bot:kit", False),
        ("hi @bot:kit!", {}, "hi!", True),
        ("> @bot:kit\nhi", {}, "> @bot:kit\nhi", False),
        ("`@bot:kit`", {}, "`@bot:kit`", False),
        (
            "bot hi",
            {"formatted_body": "<code><a href='https://matrix.to/#/@bot:kit'>b</a></code>"},
            "bot hi",
            False,
        ),
        ("robot: hi", {"m.mentions": {"user_ids": ["@x:kit"]}}, "robot: hi", False),
    ],
)
def test_g5_who_is_mentioned(body: str, content: Any, text: str, addressed: bool) -> None:
    message = read_event(event(body, **content), "!r", VIEW)
    assert message is not None
    assert (message.text, message.addressed) == (text, addressed)


def test_notices_are_of_bots_and_unknown_kinds_say_nothing() -> None:
    notice = read_event(event("x", msgtype="m.notice"), "!r", VIEW)
    assert notice is not None and notice.is_bot
    assert read_event(event("x", msgtype="m.poll"), "!r", VIEW) is None


def test_an_edit_is_not_twice_as_long_and_html_that_is_too_long_stays_away() -> None:
    long = Part("x" * 20_000, "<b>" + "y" * LARGEST_CONTENT)
    assert "formatted_body" not in make_content(long, Target("!r"))
    edit = make_content(Part("x" * 20_000, "z" * 19_000), edited="$1")
    assert len(str(edit)) < LARGEST_CONTENT + 1000
    assert edit["m.new_content"]["body"] == "x" * 20_000


def test_an_answer_can_be_delivered_to_a_room_whose_id_has_colons() -> None:
    hub = cast(Hub, None)
    room = Hub.parse_address(hub, "matrix:!a:example.org:8448")
    assert (room.platform, room.chat, room.thread) == ("matrix", "!a:example.org:8448", "")
    thread = Hub.parse_address(hub, "matrix:!a:example.org:$event")
    assert (thread.chat, thread.thread) == ("!a:example.org", "$event")
    topic = Hub.parse_address(hub, "telegram:-100:7")
    assert (topic.chat, topic.thread) == ("-100", "7")

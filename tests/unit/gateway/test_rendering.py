"""Text as messages: split, marked up and held back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.core.redaction.redactor import Redactor
from hermes.gateway.content.markup import render_html
from hermes.gateway.content.media import clean_name
from hermes.gateway.content.render import (
    count_bytes,
    count_units,
    describe_call,
    fence_code,
    hold_back_secrets,
    split_text,
)
from hermes.gateway.platforms.telegram import read_message
from tests.kit.telegram import BOT, read_html

PLAIN = st.text(alphabet=st.sampled_from("ab c\n.é😀👍🏽e\u0301漢"), max_size=400)
MARKDOWN = st.text(alphabet=st.sampled_from("ab \n*_`~[]()<>&#->1.!|\\\"'😀"), max_size=200)
CODE = st.lists(st.sampled_from(["x = 1", "  y", "text", "```py", "```", "", "~~~"]), max_size=40)


def squeeze(text: str) -> str:
    return "".join(text.split())


@given(PLAIN, st.integers(8, 60))
def test_parts_keep_every_character_and_the_limit(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    assert all(count_units(part) <= limit for part in parts)
    assert squeeze("".join(parts)) == squeeze(text)
    assert all(part.strip() for part in parts) or not text.strip()


@given(PLAIN, st.integers(12, 60))
def test_parts_are_as_short_in_bytes_as_a_platform_wants(text: str, limit: int) -> None:
    parts = split_text(text, limit, count_bytes)
    assert all(count_bytes(part) <= limit for part in parts)
    assert squeeze("".join(parts)) == squeeze(text)


@given(CODE, st.integers(30, 80))
def test_a_cut_code_block_is_closed_and_opened_again(lines: list[str], limit: int) -> None:
    text = "\n".join(lines)
    parts = split_text(text, limit)
    assert all(count_units(part) <= limit for part in parts)

    def squeeze_code(value: str) -> str:
        return squeeze(re.sub(r"```(py)?|~~~", "", value))

    assert squeeze_code("".join(parts)) == squeeze_code(text)


@pytest.mark.parametrize(
    "text",
    [
        "`" * 20_000,
        "~" * 20_000,
        "`" * 390 + "\n" + "a line\n" * 500,
        "```" + "x" * 390 + "\n" + "a line\n" * 500,
        "```" + "x" * 20_000,
        "```py\n" + "x = 1\n" * 2000,
        "\u200d" * 5000,
    ],
)
def test_no_text_becomes_a_flood_of_messages(text: str) -> None:
    parts = split_text(text, 400)
    assert max(map(len, parts)) <= 400
    assert len(parts) <= 4 * len(text) // 400
    assert set("".join(parts)) == set(text), "nothing but the text"


@given(PLAIN, PLAIN, st.integers(8, 60))
def test_finished_parts_do_not_change_while_a_text_grows(one: str, two: str, limit: int) -> None:
    before, after = split_text(one, limit), split_text(one + two, limit)
    assert after[: len(before) - 1] == before[:-1]


def test_a_part_ends_at_a_paragraph_a_line_a_word() -> None:
    assert split_text("one two\n\nthree four", 15) == ["one two", "three four"]
    assert split_text("one two\nthree four", 15) == ["one two", "three four"]
    assert split_text("one two three four", 15) == ["one two three", "four"]
    assert split_text("😀" * 10, 8) == ["😀" * 4, "😀" * 4, "😀" * 2]
    assert split_text("e\u0301" * 6, 5) == ["e\u0301" * 2] * 3
    text = "```py\n" + "x = 1\n" * 6 + "```"
    assert split_text(text, 30)[0] == "```py\nx = 1\nx = 1\nx = 1\n```"
    assert split_text("", 10) == [""]


@given(MARKDOWN)
def test_any_markdown_becomes_html_that_telegram_takes(text: str) -> None:
    read_html(render_html(text))


@given(st.text(alphabet=st.sampled_from("ab12 \n*_#->.)!|\\+\"'"), max_size=200))
def test_markup_loses_no_letter_and_no_number(text: str) -> None:
    def keep_words(value: str) -> str:
        return "".join(c for c in value if c.isalnum())

    assert keep_words(read_html(render_html(text))) == keep_words(text)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**b** *i* ~~s~~ `c<d`", "<b>b</b> <i>i</i> <s>s</s> <code>c&lt;d</code>"),
        ("# Title\ntext", "<b>Title</b>\n\ntext"),
        ("- a\n- b\n  - c", "• a\n• b\n  • c"),
        ("3. x\n7. y", "3. x\n7. y"),
        ("1) a\n\n[1]: https://e.x", "1) a\n\n[1]: https://e.x"),
        ("> q\n> r\n\nend", "<blockquote>q\nr</blockquote>\n\nend"),
        ("```py\na < b\n```", '<pre><code class="language-py">a &lt; b</code></pre>'),
        ("[x](https://a.b/?c&d)", '<a href="https://a.b/?c&amp;d">x</a>'),
        ("[x](javascript:alert)", "[x](javascript:alert)"),
        ("![p](https://e.x/p.png)", '<a href="https://e.x/p.png">p</a>'),
        ("<script>x</script> <b>", "&lt;script&gt;x&lt;/script&gt; &lt;b&gt;"),
    ],
)
def test_g18_markup_is_rendered_and_everything_else_is_data(text: str, html: str) -> None:
    assert render_html(text) == html


SECRET = "sk-live-0123456789abcdefghij"


@given(st.lists(st.sampled_from(["a word ", SECRET[:7], SECRET[7:], SECRET, "\n"]), max_size=12))
def test_no_version_of_a_growing_text_shows_a_secret(pieces: list[str]) -> None:
    redactor = Redactor((SECRET,))
    text = ""
    for piece in pieces:
        text += piece
        assert SECRET not in hold_back_secrets(text, redactor)
    assert SECRET[:9] not in hold_back_secrets(f"it is {SECRET[:9]}", redactor)


@pytest.mark.parametrize(
    "secret", [SECRET, "p@ss (w0rd)! & #9", "Ünï cödé wörds 12", "a b a b a b c", '"quoted\\" it']
)
def test_nothing_of_a_secret_is_shown_while_it_is_written(secret: str) -> None:
    redactor, whole = Redactor((secret,)), f"it is {secret}, and so on."
    for end in range(len(whole)):
        assert "it is [redacted], and so on.".startswith(hold_back_secrets(whole[:end], redactor))
    assert hold_back_secrets(f"{whole} Done. ", redactor) == "it is [redacted], and so on. Done. "


def test_nothing_in_a_command_ends_its_code_block() -> None:
    shown = read_html(render_html(f"Approve:\n{fence_code('a ``` [b](https://e.x)')}\nend"))
    assert "a ``` [b](https://e.x)" in shown


def test_a_tool_line_is_short_and_redacted() -> None:
    redact = Redactor((SECRET,)).redact
    shown = describe_call(f'{{"n": 1, "command": "echo {SECRET} {"x" * 90}"}}', redact)
    assert len(shown) <= 60 and SECRET not in shown and shown.startswith("echo [redacted] xxx")
    assert describe_call("not json", redact) == "not json" and describe_call("{}", redact) == ""


def test_g15_names_are_text_and_never_paths() -> None:
    assert clean_name("../../etc/passwd\0\n]") == "../../etc/passwd___"
    assert clean_name("") == "unnamed" and len(clean_name("x" * 300)) == 100


def telegram_message(
    text: str, *entities: tuple[str, int, int], **more: object
) -> dict[str, object]:
    rows = [{"type": t, "offset": o, "length": n} for t, o, n in entities]
    return {
        "message_id": 5,
        "from": {"id": 7, "is_bot": False, "first_name": "Ann", "last_name": "B"},
        "chat": {"id": -9, "type": "supergroup"},
        "date": 1000,
        "text": text,
        "entities": rows,
        **more,
    }


@pytest.mark.parametrize(
    ("raw", "text", "addressed"),
    [
        (telegram_message("hello"), "hello", False),
        (telegram_message("😀 @kit_bot hi", ("mention", 3, 8)), "😀  hi", True),
        (telegram_message("@other hi", ("mention", 0, 6)), "@other hi", False),
        (telegram_message("@kit_bot hi", ("mention", 0, 8), ("pre", 0, 11)), "@kit_bot hi", False),
        (telegram_message("@kit_bot hi", ("mention", 0, 8), forward_origin={}), "hi", False),
        (telegram_message("/new@kit_bot x", ("bot_command", 0, 12)), "/new x", True),
        (
            telegram_message("yes", reply_to_message={"from": {"id": BOT["id"]}, "text": "q?"}),
            "yes",
            True,
        ),
    ],
)
def test_g5_a_message_of_telegram_is_read_with_its_mentions(
    raw: dict[str, object], text: str, addressed: bool
) -> None:
    found = read_message(raw, BOT, edited=False)
    assert found is not None and (found.text, found.addressed) == (text, addressed)
    assert (found.chat, found.user, found.user_name) == ("-9", "7", "Ann B")


def test_messages_for_others_and_service_messages_are_left_out() -> None:
    foreign = telegram_message("/new@other_bot", ("bot_command", 0, 14))
    assert read_message(foreign, BOT, edited=False) is None
    service = {**telegram_message(""), "new_chat_members": []}
    assert read_message(service, BOT, edited=False) is None

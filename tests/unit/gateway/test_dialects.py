"""Markdown in the dialects of Discord and Slack: what is shown is the model's text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.content.discord_markup import escape_discord, render_discord
from hermes.gateway.content.markup import BARE_LINKS, render_html
from hermes.gateway.content.signal_markup import render_signal
from hermes.gateway.content.slack_markup import count_slack, escape_slack, render_slack
from hermes.gateway.content.web_markup import render_web_html
from hermes.gateway.content.whatsapp_markup import render_whatsapp
from tests.kit.discord import read_discord
from tests.kit.slack import read_slack
from tests.kit.telegram import read_html

WORDS = st.sampled_from(
    [
        "word",
        "a_b_c",
        "2 * 3 * 4",
        "**bold**",
        "*it*",
        "~~gone~~",
        "`code`",
        "`a_b*c`",
        "@everyone",
        "<@123>",
        "<!channel>",
        "<b>x</b>",
        "1 < 2 & 3 > 2",
        "[text](https://e.x/a_b)",
        "![p](https://e.x/p.png)",
        "https://e.x/a_b?c=d",
        "||hidden||",
        "~tilde~",
        "under _line_ d",
        "*star",
        "`tick",
        "back\\slash",
        "😀",
        "\n",
        "\n\n",
        "\n- item ",
        "\n3. third ",
        "\n\n> quote ",
        "\n\n# Title\n\n",
        "\n\n```py\nx = a*b*c # <c>\n```\n\n",
    ]
)
TEXT = st.lists(WORDS, max_size=12).map(" ".join)
RAW = st.text(alphabet=st.sampled_from("ab12 \n*_~`#->.)!|\\+<>&[]()"), max_size=120)


def squeeze(text: str) -> str:
    """Without white space and the marks of lists."""
    return "".join(text.replace("•", "").replace("- ", "").split())


@given(TEXT)
def test_discord_shows_the_text_of_the_model(text: str) -> None:
    assert squeeze(read_discord(render_discord(text))) == squeeze(read_html(render_html(text)))


@given(TEXT)
def test_slack_shows_the_text_of_the_model(text: str) -> None:
    shown, expected = read_slack(render_slack(text)), read_html(render_html(text))
    assert squeeze(shown) == squeeze(expected)


@given(RAW)
def test_plain_text_stays_plain(text: str) -> None:
    assert read_discord(escape_discord(text)) == text
    assert read_slack(escape_slack(text)) == text


def keep_words(text: str) -> str:
    return "".join(character for character in text if character.isalnum())


@given(RAW)
def test_no_letter_is_lost_whatever_the_text_is(text: str) -> None:
    expected = keep_words(read_html(render_html(text)))
    assert keep_words(read_discord(render_discord(text))) == expected
    assert keep_words(read_slack(render_slack(text))) == expected


@given(TEXT | RAW)
def test_plain_lines_are_written_like_all_text(text: str) -> None:
    for render in (render_html, render_discord, render_slack, render_signal, render_whatsapp):
        assert render(text) == render(f"\n{text}")


@pytest.mark.parametrize(
    ("text", "discord", "slack"),
    [
        ("**b** *i* ~~s~~ `c`", "**b** *i* ~~s~~ `c`", "*b* _i_ ~s~ `c`"),
        ("# T\nx", "# T\n\nx", "*T*\n\nx"),
        ("- a\n- b\n  - c", "- a\n- b\n  - c", "• a\n• b\n  • c"),
        ("3. x\n7. y", "3\\. x\n7\\. y", "3. x\n7. y"),
        ("> q\n> r\n\nend", "> q\n> r\n\nend", "> q\n> r\n\nend"),
        ("```py\na < b\n```", "```py\na < b\n```", "```\na &lt; b\n```"),
        ("[x](https://a.b/?c&d)", "[x](<https://a.b/?c&d>)", "<https://a.b/?c&amp;d|x>"),
        ("![p](https://e.x/p.png)", "[p](<https://e.x/p.png>)", "<https://e.x/p.png|p>"),
        ("<@1> <!here>", "\\<@1> \\<!here>", "&lt;@1&gt; &lt;!here&gt;"),
        ("[http://good.x](http://bad.x)", "http://good.x (<http://bad.x>)", None),
        ("-# small", "\\-# small", "-# small"),
    ],
)
def test_g18_markup_is_rendered_and_everything_else_is_data(
    text: str, discord: str, slack: str | None
) -> None:
    assert render_discord(text) == discord
    assert slack is None or render_slack(text) == slack


@pytest.mark.parametrize(
    "render", [render_html, render_discord, render_slack, render_whatsapp, render_web_html]
)
def test_g18_bare_links_say_where_they_lead(render: Callable[[str], str]) -> None:
    token = BARE_LINKS.set(True)
    try:
        for text in (
            "[a b](https://e.x/a_b)",
            "[a b](<https://e.x/a_b>)",
            '[a b](https://e.x/a_b "t")',
            "![a b](https://e.x/a_b)",
            "**[a b](https://e.x/a_b)**",
        ):
            shown = render(text)
            assert "a b" in shown and "(https://e.x/a_b)" in shown.replace("\\", ""), shown
            assert "<a " not in shown and "|" not in shown and "](" not in shown
        assert render("<https://e.x/a_b>").count("e.x") == 1
    finally:
        BARE_LINKS.reset(token)


def test_slack_counts_entities() -> None:
    for text in ("a & b", "<x>", "plain"):
        assert count_slack(text) == len(escape_slack(text))


def test_g18_a_link_of_telegram_mentions_nobody() -> None:
    assert render_html("[you](tg://user?id=1001) there") == "you there"

"""Reasoning tags in text: what is reasoning, what is prose, whatever the chunking."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.llm.think_tags import TAG_NAMES, ThinkFilter


def split(*pieces: str) -> tuple[str, str]:
    """(visible text, reasoning)"""
    tags = ThinkFilter()
    out = [p for piece in pieces for p in tags.feed(piece)] + tags.close()
    return "".join(t for r, t in out if not r), "".join(t for r, t in out if r)


@pytest.mark.parametrize("name", [*TAG_NAMES, *(n.upper() for n in TAG_NAMES), "ThInK"])
def test_every_tag_in_any_case(name: str) -> None:
    assert split(f"<{name}>why</{name}>\n\nAnswer.") == ("Answer.", "why")
    assert split(f"<{name}>why</{name.swapcase()}>Answer.") == ("Answer.", "why")


@pytest.mark.parametrize(
    ("text", "visible", "reasoning"),
    [
        ("plain", "plain", ""),
        ("Sure. <think>hm</think>Yes.", "Sure. Yes.", "hm"),
        ("one\n<think>two</think>\nthree", "one\n\nthree", "two"),
        ("<think>never closed", "", "never closed"),
        ("line\n  <thinking>never closed", "line\n  ", "never closed"),
        ("The tag <think> is prose.", "The tag <think> is prose.", ""),
        ("Write `<think>` first, `</think>` last.", "Write `<think>` first, `</think>` last.", ""),
        ('Say "<think>x</think>".', 'Say "<think>x</think>".', ""),
        ("a < b and b > c <thin", "a < b and b > c <thin", ""),
        ("<think>a</think><think>b</think>c", "c", "ab"),
        ("<think>a</thinking>b</think>c", "c", "a</thinking>b"),
        ("<think></think>\n\nhi", "hi", ""),
        ("<thinker>x</thinker>", "<thinker>x</thinker>", ""),
        ("<think >x", "<think >x", ""),
        ("<thin\u212a>x</thin\u212a>", "<thin\u212a>x</thin\u212a>", ""),
        ("<think>\u0130\u0130\u0130</think>ok", "ok", "\u0130\u0130\u0130"),
        ("</think>orphan", "</think>orphan", ""),
        ("", "", ""),
    ],
)
def test_shapes(text: str, visible: str, reasoning: str) -> None:
    assert split(text) == (visible, reasoning)
    assert split(*text) == (visible, reasoning)


TAGS = "<think> </think> <Thinking> </thinking> <THOUGHT> </thought> <th ink> </ < >".split()
PIECES = st.sampled_from([*TAGS, "`", '"', "\n", " ", "word", "é😀", "\u0130", "\u212a", "a\nb"])


@given(st.lists(PIECES, max_size=20).map("".join), st.lists(st.integers(0, 120), max_size=15))
@settings(max_examples=200, deadline=None)
def test_every_cutting_gives_one_result(text: str, marks: list[int]) -> None:
    points = sorted({min(m, len(text)) for m in marks})
    cuts = [text[a:b] for a, b in zip([0, *points], [*points, len(text)], strict=True)]
    assert split(*cuts) == split(text) == split(*text)


@given(st.lists(PIECES, max_size=20).map("".join))
@settings(max_examples=150, deadline=None)
def test_nothing_but_tags_and_white_space_is_lost(text: str) -> None:
    visible, reasoning = split(text)
    tag = re.compile(r"</?(?:" + "|".join(TAG_NAMES) + r")>", re.I | re.A)

    def letters(value: str) -> list[str]:
        return sorted("".join(tag.sub("", value).split()))

    kept = letters(visible) + letters(reasoning)
    for char in letters(text):
        assert char in kept or char in "<>/thinkougTHOUGHT"


def test_text_is_shown_as_it_comes_when_it_cannot_be_a_tag() -> None:
    tags = ThinkFilter()
    assert tags.feed("Hello ") == [(False, "Hello ")]
    assert tags.feed("a <b") == [(False, "a <b")]
    assert tags.feed(" <th") == [(False, " ")]
    assert tags.feed("e") == [(False, "<the")]
    assert tags.feed("\n<think>") == [(False, "\n")]
    assert tags.feed("secret") == [(True, "secret")]

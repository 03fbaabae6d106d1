"""A continuation joins what it continues, whatever it repeats and however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.continuation import OverlapFilter, strip_overlap


@pytest.mark.parametrize(
    ("before", "after", "joined"),
    [
        ("The quick brown ", "fox jumps.", "The quick brown fox jumps."),
        ("one two three four", "three four five", "one two three four five"),
        ("ha ha ha ", "ha ha", "ha ha ha ha ha"),
        ("abc", "", "abc"),
        ("", "abc", "abc"),
    ],
)
def test_join(before: str, after: str, joined: str) -> None:
    assert before + strip_overlap(before, after) == joined


@given(st.text("ab ", max_size=60), st.text("ab ", max_size=60), st.lists(st.integers(1, 7)))
def test_the_live_form_equals_the_stored_one(before: str, after: str, cuts: list[int]) -> None:
    seam, out, at = OverlapFilter(before), [], 0
    for cut in [*cuts, len(after)]:
        out.append(seam.feed(after[at : at + cut]))
        at += cut
    out.append(seam.feed(after[at:]) if at < len(after) else "")
    out.append(seam.finish())
    assert "".join(out) == strip_overlap(before, after)

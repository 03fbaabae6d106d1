"""A diff turns the old text into the new one, whichever way it was found."""

import random
import re

import pytest

from hermes.tools._edit.diff import make_diff


def apply_diff(old: list[str], diff: str) -> list[str]:
    new: list[str] = []
    at = 0
    for row in diff.split("\n")[2:]:
        if hunk := re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+.* @@", row):
            start = int(hunk[1]) - (hunk[2] != "0")
            new += old[at:start]
            at = start
        elif row[0] == "+":
            new.append(row[1:])
        else:
            assert old[at] == row[1:]
            new += [row[1:]] if row[0] == " " else []
            at += 1
    return new + old[at:]


@pytest.mark.parametrize("seed", range(40))
def test_it_says_what_to_do(seed: int) -> None:
    chance = random.Random(seed)
    old = [chance.choice("abcdefgh") for _ in range(chance.randrange(1, 40))]
    new = list(old)
    for _ in range(chance.randrange(6)):
        place = chance.randrange(len(new))
        match chance.randrange(4):
            case 0:
                new[place] = chance.choice("abcdXYZ")
            case 1:
                new.insert(place, new[-place])
            case 2 if len(new) > 1:
                new.pop(place)
            case _:
                new[place], new[-1] = new[-1], new[place]
    diff = make_diff("\n".join([*old, ""]), "\n".join([*new, ""]), ("a", "b"))
    assert apply_diff(old, diff.text) == new
    assert diff.added - diff.removed == len(new) - len(old)


def test_lines_that_kept_their_places_are_shown_as_replaced() -> None:
    old, new = "a\nb\nc\nd\n", "a\nB\nc\nD\n"
    assert make_diff(old, new, ("a", "b")).text.split("\n")[2:] == [
        "@@ -1,4 +1,4 @@", " a", "-b", "+B", " c", "-d", "+D",
    ]  # fmt: skip


def test_a_line_that_was_moved_is_shown_as_moved() -> None:
    rows = [str(n) for n in range(9)]
    diff = make_diff("\n".join([*rows, ""]), "\n".join([*rows[1:], "0", ""]), ("a", "b"))
    assert (diff.added, diff.removed) == (1, 1)

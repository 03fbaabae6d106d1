"""Edits change what they say and nothing else, byte for byte."""

from __future__ import annotations

import codecs
import difflib
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext
from hermes.tools._edit.replace import replace_text
from hermes.tools._edit.text_file import Lines, decode_text
from hermes.tools._edit.v4a import apply_hunks, parse_patch
from tests.unit.tools.edits import refused, run, v4a


@pytest.mark.parametrize(
    "encode",
    [
        pytest.param(lambda t: t.encode(), id="utf-8"),
        pytest.param(lambda t: t.encode("utf-8-sig"), id="utf-8 with mark"),
        pytest.param(lambda t: codecs.BOM_UTF16_LE + t.encode("utf-16-le"), id="utf-16-le"),
        pytest.param(lambda t: codecs.BOM_UTF16_BE + t.encode("utf-16-be"), id="utf-16-be"),
        pytest.param(lambda t: t.encode("latin-1"), id="latin-1"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
async def test_encodings_and_line_ends_stay(ctx: ToolContext, encode: Any, end: str) -> None:
    text = "grün\n\tb\\n \\\\ c\x85d\x0ce\n\nlast"
    (ctx.workspace.cwd / "f").write_bytes(encode(text.replace("\n", end)))
    await run(ctx, path="f", old="\n\n", new="\nöne\ntwo\n")
    wanted = text.replace("\n\n", "\nöne\ntwo\n").replace("\n", end)
    assert (ctx.workspace.cwd / "f").read_bytes() == encode(wanted)
    await run(ctx, patch=v4a("*** Update File: f", " öne", "-two", "+2"))
    assert (ctx.workspace.cwd / "f").read_bytes() == encode(wanted.replace("two", "2"))


async def test_what_an_encoding_cannot_hold(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "f").write_bytes("grün".encode("latin-1"))
    assert "Latin-1, which cannot hold" in await refused(ctx, path="f", old="g", new="→")


async def test_unicode_is_not_normalised(ctx: ToolContext) -> None:
    composed, apart = "\u00e9", "e\u0301"
    (ctx.workspace.cwd / "f").write_text(f"{composed} {apart} \u212b\n")
    await run(ctx, path="f", old=f" {apart}", new=f" {apart}{apart}")
    assert (ctx.workspace.cwd / "f").read_text() == f"{composed} {apart}{apart} \u212b\n"


def test_mixed_line_ends_stay_where_nothing_changes() -> None:
    text = "a\r\nb\nc\r\nd\n"
    assert replace_text(text, "b\nc", "b\nC").text == "a\r\nb\nC\r\nd\n"
    assert replace_text(text, "b\nc\nd", "x").text == "a\r\nx\n"
    assert replace_text(text, "c\r\n", "c\n").text == "a\r\nb\nc\nd\n"
    assert apply_hunks(text, parse_patch(v4a("*** Update File: f", " b", "-c", "+C"))[0]).text == (
        "a\r\nb\nC\r\nd\n"
    )


PIECES = [
    "a",
    "b",
    "foo(x)",
    "\t",
    "    ",
    " ",
    "é",
    "e\u0301",
    "漢",
    "🙂",
    "\\n",
    "\\",
    "$1",
    "\\g<0>",
]
PIECES += ["\u2028", "\x85", "\x0b", "“", "-", "}", "return", "\u200b", "\ufeff", "%s", "\x1b[0m"]


def a_line(rng: random.Random) -> str:
    return "".join(rng.choices(PIECES, k=rng.randrange(6)))


def a_text(rng: random.Random, end: str) -> str:
    rows = [a_line(rng) for _ in range(rng.randrange(1, 12))]
    return end.join(rows) + end * rng.randrange(2)


def encoded(text: str, kind: int) -> bytes:
    marks = (b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE)
    return marks[kind] + text.encode(("utf-8", "utf-8", "utf-16-le")[kind])


def edit_bytes(data: bytes, old: str, new: str) -> bytes:
    text, encoding = decode_text(data, Path("f"))
    return encoding.encode(replace_text(text, old, new).text, Path("f"))


def test_ten_thousand_edits_and_their_reverse(capsys: pytest.CaptureFixture[str]) -> None:
    """A unique span of a random file is replaced as a model would (line feeds only): the result
    is exactly that, and the reverse edit gives the very bytes back."""
    rng = random.Random(20_240_501)
    done = corrupt = 0
    while done < 10_000:
        end = rng.choice(["\n", "\r\n", "\r"])
        text, kind = a_text(rng, end), rng.randrange(3)
        if not 0 <= (span := _span(rng, text, end))[0] < span[1]:
            continue
        start, stop = span
        old, new = text[start:stop], end.join(a_line(rng) for _ in range(rng.randrange(1, 4)))
        result = text[:start] + new + text[stop:]
        shown = text.replace(end, "\n")
        if "\ufeff" in (text[:1], result[:1]):
            continue  # at the start of a file that is a mark
        if old == new or not (once(text, old) and once(shown, old.replace(end, "\n"))):
            continue
        data = encoded(text, kind)
        has_end = Lines.split(text).ends
        given = [t.replace(end, "\n") if has_end else t for t in (old, new)]
        forward = edit_bytes(data, *given)
        corrupt += forward != encoded(result, kind)
        if new and once(result, new) and once(result.replace(end, "\n"), new.replace(end, "\n")):
            corrupt += edit_bytes(forward, new, old) != data
        done += 1
    with capsys.disabled():
        print(f"\n[patch: {done} generated replacements, {corrupt} corrupted]", end=" ")
    assert not corrupt


def once(text: str, piece: str) -> bool:
    at = text.find(piece)
    return at >= 0 and text.find(piece, at + 1) < 0


def _span(rng: random.Random, text: str, end: str) -> tuple[int, int]:
    """Two places of a text, neither inside a line end."""
    places = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    inside = [end == "\r\n" and text[p - 1 : p + 1] == "\r\n" for p in places]
    return (-1, -1) if any(inside) else (places[0], places[1])


def hunk(rng: random.Random, rows: list[str], fresh: list[str]) -> tuple[list[str], list[str]]:
    """A patch of the whole file that replaces random lines, and the lines it makes."""
    script: list[str] = []
    made: list[str] = []
    for row in rows:
        choice = rng.randrange(4)
        if choice == 0 and fresh:
            new = fresh.pop()
            script.append(f"+{new}")
            made.append(new)
        if choice == 1:
            script.append(f"-{row}")
        else:
            script.append(f" {row}")
            made.append(row)
    return script, made


def reverse(script: list[str]) -> list[str]:
    swap = {"+": "-", "-": "+"}
    return [swap.get(row[0], row[0]) + row[1:] for row in script]


def test_patches_and_their_reverse(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(77)
    done = 0
    while done < 2_500:
        end = rng.choice(["\n", "\r\n", "\r"])
        rows = [a_line(rng) for _ in range(rng.randrange(1, 10))]
        finished = rng.random() < 0.5
        script, made = hunk(rng, rows, [a_line(rng) for _ in range(3)])
        if made == rows or not (rows[-1] or finished) or (made and not (made[-1] or finished)):
            continue  # an unfinished empty line is no line
        text = end.join(rows) + (end if finished else "")
        wanted = end.join(made) + (end if finished and made else "")
        if end not in text or (made and end not in wanted):
            continue  # which line end a text has must be visible in it
        forth = apply_hunks(text, parse_patch(v4a("*** Update File: f", *script))[0]).text
        assert forth == wanted, (text, script)
        back = [*reverse(script), *([] if finished or made else ["\\ No newline at end of file"])]
        patched = v4a("*** Update File: f", *back)
        if not made and end == "\r\n":
            patched = patched.replace("\n", "\r\n")
        elif not made and end == "\r":
            continue
        assert apply_hunks(forth, parse_patch(patched)[0]).text == text, (forth, back)
        done += 1
    with capsys.disabled():
        print(f"\n[patch: {done} generated V4A patches]", end=" ")


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("ab \t\n\r\\é"), max_size=30))
def test_lines_join_to_what_they_were_cut_from(text: str) -> None:
    lines = Lines.split(text)
    assert lines.join() == text
    assert lines.plain_text.count("\n") == len(lines.ends)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(["a", "  a", "b ", "\tc", "", "a b", "a  b", "x = f(y)"]), max_size=12
    ),
    st.lists(
        st.sampled_from(["a", "a ", " b", "c", "", "a b", "x = f(z)"]), min_size=1, max_size=4
    ),
    st.lists(st.sampled_from(["N1", "  N2", "a", "b"]), max_size=3),
)
def test_whatever_is_found_only_its_lines_change(
    rows: list[str], old: list[str], new: list[str]
) -> None:
    """Lines before and after the place, and lines that stay, are the file's own."""
    text = "".join(f"{row}\n" for row in rows)
    try:
        edited = replace_text(text, "".join(f"{r}\n" for r in old), "".join(f"{r}\n" for r in new))
    except ToolError:
        return
    if not edited.match_note:
        return  # exactly what was said
    result = edited.text.split("\n")
    strip = [row.strip() for row in new]
    for row in result[:-1]:
        assert row in rows or row.strip() in strip or row.strip() in [o.strip() for o in old]
    head = next((i for i, (x, y) in enumerate(zip(rows, result, strict=False)) if x != y), 0)
    assert len(result) - 1 - len(rows) in range(-len(old) - 2, len(new) + 1)
    assert rows[:head] == result[:head]


def careless(rng: random.Random, rows: list[str]) -> list[str]:
    """A block as somebody writes it down who did not look closely."""
    margin = min((len(row) - len(row.lstrip()) for row in rows if row.strip()), default=0)
    match rng.randrange(4):
        case 0:
            return [row[margin:] for row in rows]
        case 1:
            return [re.sub(r"^(    )+", lambda m: "\t" * (len(m[0]) // 4), row) for row in rows]
        case 2:
            at = rng.randrange(len(rows))
            spot = rng.randrange(len(rows[at]) + 1)
            typed = rows[at][:spot] + rng.choice("abcxyz") + rows[at][spot + 1 :]
            return [*rows[:at], typed, *rows[at + 1 :]]
        case _:
            gone = rng.randrange(len(rows))
            return [row for at, row in enumerate(rows) if at != gone or not at]


def test_a_careless_edit_is_made_where_it_was_meant_or_not_at_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line of a block of real code is changed; the block is given with other indentation, a
    typing error or a line missing. Every other line of the file must stay as it is."""
    rng = random.Random(11)
    texts = [Path(module.__file__ or "").read_text() for module in (difflib, random, codecs)]
    made = refusals = 0
    for _ in range(250):
        rows = rng.choice(texts).split("\n")
        size = rng.randrange(2, 12)
        at = rng.randrange(len(rows) - size)
        block = rows[at : at + size]
        old = careless(rng, block)
        if old == block or not (old[0].strip() and old[-1].strip()):
            continue
        spot = rng.randrange(len(old))
        line = old[spot]
        changed = [
            *old[:spot],
            f"{line[: len(line) - len(line.lstrip())]}CHANGED",
            *old[spot + 1 :],
        ]
        try:
            text = replace_text("\n".join(rows), "\n".join(old), "\n".join(changed)).text
        except ToolError:
            refusals += 1
            continue
        result = text.split("\n")
        differ = [n for n, (x, y) in enumerate(zip(rows, result, strict=True)) if x != y]
        assert len(differ) == 1 and at <= differ[0] < at + size
        assert result[differ[0]].strip() == "CHANGED"
        if rows[differ[0]].strip():
            assert result[differ[0]].index("C") == len(rows[differ[0]]) - len(
                rows[differ[0]].lstrip()
            )
        made += 1
    with capsys.disabled():
        print(f"\n[patch: {made} careless edits made, {refusals} refused, 0 wrong]", end=" ")
    assert made > 2 * refusals

"""read_file: windows, encodings, images and what is no text."""

import os
import socket
import sys

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.message import Media, Text
from hermes.core.tool import ToolContext
from hermes.tools.read_file import MAX_IMAGE_BYTES, MAX_LINE_CHARS, MAX_RESULT_BYTES, read_file
from tests.kit.tools import tool_context
from tests.unit.tools.calls import call, refusal, text

ROOT = os.geteuid() == 0
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100


async def test_lines_are_numbered(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "f").write_text("one\n\nthree")
    assert await text(read_file, ctx, path="f") == "1|one\n2|\n3|three"
    assert await text(read_file, ctx, path="f", offset=0) == "1|one\n2|\n3|three"
    assert await text(read_file, ctx, path=str(ctx.workspace.cwd / "f"), offset=3) == "3|three"
    (ctx.workspace.home.parent / "g").write_text("x\n")
    assert await text(read_file, ctx, path="~/g") == "1|x"


async def test_reading_on(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "f").write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    first = await text(read_file, ctx, path="f")
    assert first.startswith("1|line 1\n")
    assert first.endswith("2000|line 2000\n[lines 1-2000 of 5000; continue with offset=2001]")
    assert (await text(read_file, ctx, path="f", offset=2001, limit=2)) == (
        "2001|line 2001\n2002|line 2002\n[lines 2001-2002 of 5000; continue with offset=2003]"
    )
    assert (await text(read_file, ctx, path="f", offset=5000)) == "5000|line 5000"
    assert "the file has 5000 lines" in await text(read_file, ctx, path="f", offset=5001)
    assert "the file has 5000 lines" in await text(read_file, ctx, path="f", offset=10**9)


@settings(deadline=None)
@given(
    lines=st.lists(
        st.text(
            st.characters(exclude_characters="\n\r\0\ufeff", exclude_categories=("Cs",)), max_size=8
        ),
        max_size=30,
    ),
    ending=st.booleans(),
    offset=st.integers(1, 40),
    limit=st.integers(1, 40),
)
async def test_any_window_of_any_text(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    ending: bool,
    offset: int,
    limit: int,
) -> None:
    folder = tmp_path_factory.getbasetemp()
    content = "\n".join(lines) + "\n" * (ending and bool(lines))
    (folder / "window").write_text(content, encoding="utf-8", newline="")
    context = tool_context(folder, folder / "h")
    shown = (await text(read_file, context, path="window", offset=offset, limit=limit)).split("\n")
    real = content.split("\n")[: -1 if content.endswith("\n") else None] if content else []
    wanted = [f"{n}|{line}" for n, line in enumerate(real, 1)][offset - 1 :][:limit]
    if not wanted:
        assert shown[0].startswith("[")
    else:
        after = offset + limit
        note = f"[lines {offset}-{after - 1} of {len(real)}; continue with offset={after}]"
        assert shown == wanted + ([note] if after <= len(real) else [])


async def test_a_large_file_is_read_in_pieces_that_join_up(ctx: ToolContext) -> None:
    lines = [f"{n} " + "x" * (n % 300) for n in range(1, 3001)]
    (ctx.workspace.cwd / "big").write_text("\n".join(lines))
    seen: list[str] = []
    offset = 1
    while offset:
        content = await text(read_file, ctx, path="big", offset=offset)
        assert len(content) <= MAX_RESULT_BYTES + 200
        rows = content.split("\n")
        note = rows.pop() if rows[-1].startswith("[") else ""
        seen += [row.partition("|")[2] for row in rows]
        offset = int(note.rpartition("offset=")[2].removesuffix("]")) if note else 0
    assert seen == lines


async def test_a_line_longer_than_any_answer(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "min.js").write_text("é" * 2_000_000 + "\nend\n")
    content = await text(read_file, ctx, path="min.js")
    assert content.startswith("1|éé")
    assert "\ufffd" not in content
    assert content.endswith("\n2|end\n[line 1 is too long and cut here]")
    assert len(content.encode()) <= MAX_RESULT_BYTES + 200
    assert await text(read_file, ctx, path="min.js", offset=2) == "2|end"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", "[empty file]"),
        (b"\n", "1|"),
        ("grün\n".encode("utf-8-sig"), "1|grün\n[UTF-8 with BOM]"),
        ("grün\nx".encode("utf-16"), "1|grün\n2|x\n[UTF-16]"),
        (b"\xfe\xff" + "grün".encode("utf-16-be"), "1|grün\n[UTF-16]"),
        ("grün\n".encode("latin-1"), "1|grün\n[not UTF-8, read as Latin-1]"),
        ("grün\nx".encode("utf-32"), "1|grün\n2|x\n[UTF-32]"),
        (b"a\r\nb\r\n", "1|a\n2|b\n[lines end in CRLF]"),
        (b"a\r\nb", "1|a\n2|b\n[lines end in CRLF]"),
        (b"a\r\nb\nc\r\n", "1|a\n2|b\n3|c\n[some lines end in CRLF]"),
        (b"a\rb\r", "1|a\n2|b\n[lines end in CR]"),
    ],
)
async def test_encodings(ctx: ToolContext, data: bytes, shown: str) -> None:
    (ctx.workspace.cwd / "f").write_bytes(data)
    assert await text(read_file, ctx, path="f") == shown


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b"a\0b", "binary data (3 bytes)"), (b"%PDF-1.7", "a PDF"), (b"PK\x03\x04", "a ZIP archive")],
)
async def test_binary_files_are_named_not_shown(ctx: ToolContext, data: bytes, kind: str) -> None:
    (ctx.workspace.cwd / "f").write_bytes(data)
    assert kind in await refusal(read_file, ctx, path="f")


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 20, "image/jpeg"),
        (b"GIF89a" + b"\0" * 20, "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
async def test_images_are_shown(ctx: ToolContext, data: bytes, mime: str) -> None:
    (ctx.workspace.cwd / "picture").write_bytes(data)
    result = await call(read_file, ctx, path="picture")
    label, media = result.content
    assert isinstance(label, Text)
    assert media == Media(mime, data, name="picture")


async def test_an_image_no_provider_takes(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "huge.png").write_bytes(PNG + b"\0" * MAX_IMAGE_BYTES)
    assert "make it smaller" in await refusal(read_file, ctx, path="huge.png")


async def test_what_is_no_file(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "folder" / "inner").mkdir(parents=True)
    (ctx.workspace.cwd / "folder" / "file.py").touch()
    os.mkfifo(ctx.workspace.cwd / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(ctx.workspace.cwd / "socket"))
        for name in ("pipe", "socket"):
            assert "not a file" in await refusal(read_file, ctx, path=name)
    assert "is a directory with 2 entries: file.py, inner/" in await refusal(
        read_file, ctx, path="folder"
    )
    assert "not a file" in await refusal(read_file, ctx, path="/dev/zero")
    assert "empty" in await refusal(read_file, ctx, path=" ")
    assert "usable" in await refusal(read_file, ctx, path="a\0b")
    assert await refusal(read_file, ctx, path="x" * 5000)
    (ctx.workspace.cwd / "loop").symlink_to("loop")
    assert await refusal(read_file, ctx, path="loop")


@pytest.mark.parametrize("limit", [0, -1])
async def test_windows_that_are_none(ctx: ToolContext, limit: int) -> None:
    (ctx.workspace.cwd / "f").write_text("x")
    assert "at least 1" in await refusal(read_file, ctx, path="f", limit=limit)


async def test_counting_from_the_end(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "f").write_text("one\ntwo\nthree\nfour")
    assert await text(read_file, ctx, path="f", offset=-2) == "3|three\n4|four"
    assert await text(read_file, ctx, path="f", offset=-9, limit=1) == (
        "1|one\n[lines 1-1 of 4; continue with offset=2]"
    )
    (ctx.workspace.cwd / "f").write_text("one\ntwo\n")
    assert await text(read_file, ctx, path="f", offset=-1) == "2|two"
    (ctx.workspace.cwd / "f").write_text("")
    assert await text(read_file, ctx, path="f", offset=-1) == "[empty file]"


async def test_long_lines_are_cut_one_by_one(ctx: ToolContext) -> None:
    rows = [
        "short",
        "ä" * (MAX_LINE_CHARS + 1),
        "漢" * 100_000,
        "y" * MAX_LINE_CHARS,
        "z" * 9000,
        "🙂" * MAX_LINE_CHARS,
        "end",
    ]
    (ctx.workspace.cwd / "f").write_text("\n".join(rows))
    shown = (await text(read_file, ctx, path="f")).split("\n")
    assert shown[:7] == [f"{n}|{row[:MAX_LINE_CHARS]}" for n, row in enumerate(rows, 1)]
    assert shown[7:] == ["[lines 2, 3, 5 are too long and cut here]"]
    (ctx.workspace.cwd / "f").write_bytes(b"\xfc" * 50_000 + b"\nend\n")
    content = await text(read_file, ctx, path="f")
    assert content.startswith("1|üüü") and "2|end" in content and "Latin-1" in content


async def test_a_notebook_is_shown_as_its_cells(ctx: ToolContext) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "source": "1 + 1\n",
            "outputs": [
                {"output_type": "execute_result", "data": {"text/plain": ["2"], "image/png": "x"}},
                {"output_type": "stream", "text": ["said\n", "so\n"]},
                {"output_type": "error", "ename": "ValueError", "evalue": "no"},
                {"output_type": "display_data", "data": {"image/png": "abc"}},
            ],
        },
    ]
    (ctx.workspace.cwd / "n.ipynb").write_bytes(orjson.dumps({"cells": cells, "nbformat": 4}))
    assert (await text(read_file, ctx, path="n.ipynb")).split("\n") == [
        "1|# %% cell 1 (markdown)",
        "2|# Title",
        "3|text",
        "4|# %% cell 2 (code)",
        "5|1 + 1",
        "6|# output: 2",
        "7|# output: said",
        "8|so",
        "9|# output: ValueError: no",
        "10|# output: [image/png]",
        "[the cells of a notebook; the file is JSON]",
    ]
    assert "continue with offset=3" in await text(read_file, ctx, path="n.ipynb", offset=2, limit=1)


@pytest.mark.parametrize("data", ["{}", "[1]", '{"cells": 3}', '{"cells": ["x"]}', "{", "[" * 9999])
async def test_what_only_bears_the_name_of_a_notebook(ctx: ToolContext, data: str) -> None:
    (ctx.workspace.cwd / "n.ipynb").write_text(data)
    assert await text(read_file, ctx, path="n.ipynb") == f"1|{data[:MAX_LINE_CHARS]}" + (
        "\n[line 1 is too long and cut here]" if len(data) > MAX_LINE_CHARS else ""
    )


async def test_a_missing_file_names_its_neighbours(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "Config.toml").touch()
    assert "Similar: Config.toml" in await refusal(read_file, ctx, path="config.tml")
    missing = await refusal(read_file, ctx, path="a/b/c.txt")
    assert missing.endswith(f"nearest existing folder is {ctx.workspace.cwd}.")


async def test_a_file_one_may_not_read(ctx: ToolContext) -> None:
    path = "/proc/sys/vm/compact_memory" if ROOT else "f"  # can only be written, by root too
    (ctx.workspace.cwd / "f").touch(mode=0o000)
    assert "Permission denied" in await refusal(read_file, ctx, path=path)


async def test_files_without_a_size_are_read(ctx: ToolContext) -> None:
    if sys.platform == "linux":
        assert "1|" in await text(read_file, ctx, path="/proc/version")
        said = await text(read_file, ctx, path="/proc/self/maps", limit=1)
        assert said.endswith("[lines 1-1; continue with offset=2]"), "it has no end to count to"

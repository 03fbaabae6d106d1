import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from hermes.core.errors import ConfigError, ToolError
from hermes.core.message import Media, Text, ToolCall
from hermes.core.tool import Tool, ToolContext, ToolResult, Verdict
from hermes.tools import registry
from hermes.tools._edit import atomic_write as _writing
from hermes.tools.patch import patch
from hermes.tools.read_file import LIMIT, LINE, MAX_IMAGE, read_file
from hermes.tools.registry import select
from hermes.tools.terminal import terminal
from hermes.tools.write_file import write_file
from tests.kit.tools import in_workspace, tool_context

ROOT = os.geteuid() == 0
RawDatabase = Callable[[], AbstractContextManager[None]]
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100


async def nobody(call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...]) -> Verdict:
    return Verdict(False)


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToolContext:
    """A working folder, the agent's home and the user's, apart from one another."""
    for name in ("work", "user"):
        (tmp_path / name).mkdir()
    home = tmp_path / "user" / ".hermes"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path / "user")}
    return tool_context(tmp_path / "work", home, env=env)


async def call(tool: Tool[Any], ctx: ToolContext, **args: Any) -> ToolResult:
    result = await tool.run(tool.parse(args), ctx)
    assert isinstance(result, ToolResult)
    return result


async def text(tool: Tool[Any], ctx: ToolContext, **args: Any) -> str:
    result = await call(tool, ctx, **args)
    assert isinstance(result.content, str)
    return result.content


async def refusal(tool: Tool[Any], ctx: ToolContext, **args: Any) -> str:
    with pytest.raises(ToolError) as error:
        await call(tool, ctx, **args)
    return str(error.value)


# -- registry ------------------------------------------------------------------------------


def test_core_is_declared_in_a_stable_order() -> None:
    names = list(select(["core"]))
    assert {"read_file", "terminal", "write_file"} <= set(names)
    assert names == sorted(names) == [spec.name for spec in select(None).offered()]
    assert all(t.name == name and t.toolset == "core" for name, t in select(["core"]).items())


def test_tools_by_name_in_an_order_that_is_not_the_askers() -> None:
    assert list(select(["write_file", "read_file"])) == ["read_file", "write_file"]
    assert list(select(["read_file", "read_file"])) == ["read_file"]
    assert set(select(["all"])) >= set(select(None))
    assert list(select(["file"])) == ["patch", "read_file", "search_files", "write_file"]


def test_none_is_none() -> None:
    assert select(["none"]) == select([]) == {}


@pytest.mark.parametrize(("word", "hint"), [("cor", "'core'"), ("Read_File", "'read_file'")])
def test_an_unknown_toolset_names_the_nearest(word: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"{word}.*Did you mean {hint}"):
        select([word])


def test_an_unknown_toolset_far_from_all_lists_them() -> None:
    with pytest.raises(ConfigError, match=r"Valid: core, .*terminal"):
        select(["xyzzy"])


def test_a_folder_is_a_toolset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in ("a.py", "_private.py", "registry.py", "notes.txt", "web/search.py", "_x/y.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "registry.py"))
    assert registry.catalog.__wrapped__() == {
        "core": {"a": "hermes.tools.a"},
        "web": {"search": "hermes.tools.web.search"},
    }


def test_only_what_is_selected_is_imported_and_it_is_light() -> None:
    code = (
        "import sys; from hermes.tools.registry import select; select(['read_file']);"
        "assert 'hermes.tools.terminal' not in sys.modules; select(None).offered();"
        "heavy = {'tempfile', 'shutil', 'difflib', 'mimetypes', 'ctypes'};"
        "heavy.add('hermes.exec.process.local');"
        "print(sorted(heavy & set(sys.modules)))"
    )
    env = {"PYTHONPATH": str(Path(registry.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_schemas_are_short_and_say_only_what_works() -> None:
    sizes = {
        tool.name: len(orjson.dumps([tool.name, tool.spec.description, tool.spec.parameters]))
        for tool in select(["core"]).values()
    }
    room = {"process": 550, "terminal": 820}  # with what a command may ask for
    assert {n: size for n, size in sizes.items() if size >= room.get(n, 350)} == {}
    assert sum(sizes.values()) < 3.5 * 1024
    shown = select(["terminal"])["terminal"].spec.parameters["properties"]
    assert set(shown) == {"command", "timeout", "workdir", "background", "pty", "escalate"}


# -- terminal ------------------------------------------------------------------------------


async def test_a_command_runs_in_the_working_folder(ctx: ToolContext) -> None:
    assert await text(terminal, ctx, command="pwd") == str(ctx.workspace.cwd)


async def test_a_command_fails(ctx: ToolContext) -> None:
    result = await call(terminal, ctx, command="echo out; echo err >&2; exit 7")
    assert result.content == "out\nerr\n[exit status 7]"
    assert not result.error


async def test_silence(ctx: ToolContext) -> None:
    assert await text(terminal, ctx, command="true") == "(no output)"
    assert await text(terminal, ctx, command="false") == "[exit status 1]"
    assert await text(terminal, ctx, command="kill -9 $$") == "[killed by SIGKILL]"


async def test_out_of_time(ctx: ToolContext) -> None:
    result = await call(terminal, ctx, command="echo so far; sleep 60", timeout="1.5")
    assert result.content == "so far\n[timed out after 1.5 s (killed)]"
    assert result.error


async def test_the_configured_time_is_the_default(ctx: ToolContext) -> None:
    brief = in_workspace(ctx, terminal_timeout=0.1)
    assert "timed out after 0.1 s" in await text(terminal, brief, command="sleep 9")


async def test_another_folder(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "sub").mkdir()
    (ctx.workspace.cwd / "file").touch()
    assert await text(terminal, ctx, command="pwd", workdir="sub") == str(ctx.workspace.cwd / "sub")
    assert await text(terminal, ctx, command="pwd", workdir="~") == str(ctx.workspace.home.parent)
    assert "does not exist" in await refusal(terminal, ctx, command="pwd", workdir="gone")
    assert "is not a directory" in await refusal(terminal, ctx, command="pwd", workdir="file")
    assert "does not exist" in await refusal(terminal, ctx, command="pwd", workdir="a\0b")


@pytest.mark.parametrize("args", [{"background": True}, {"timeout": 0}, {"timeout": -1}])
async def test_what_is_not_possible_is_said_and_not_run(ctx: ToolContext, args: Any) -> None:
    assert await refusal(terminal, ctx, command="touch ran", **args)
    assert not (ctx.workspace.cwd / "ran").exists()


async def test_progress_is_shown_while_it_runs(ctx: ToolContext) -> None:
    seen = asyncio.Event()
    words: list[str] = []

    def progress(update: str) -> None:
        words.append(update)
        seen.set()

    os.mkfifo(ctx.workspace.cwd / "gate")
    watched = structs.replace(ctx, progress=progress)
    running = asyncio.create_task(call(terminal, watched, command="echo one; cat gate"))
    async with asyncio.timeout(10):
        await seen.wait()
        assert words == ["one\n"]
        assert not running.done()
        await asyncio.to_thread((ctx.workspace.cwd / "gate").write_text, "two\n")
        assert (await running).content == "one\ntwo"


async def test_a_flood_stays_below_the_cap_and_says_where_it_is(ctx: ToolContext) -> None:
    content = await text(terminal, ctx, command="seq 30000")
    assert len(content) < 42_000
    path = Path(content.partition("full output: ")[2].partition(" …]")[0])
    assert path.parent == ctx.workspace.outputs
    assert path.read_text().endswith("\n30000\n")
    assert "29999|29999" in await text(read_file, ctx, path=str(path), offset=29_000)


def test_terminal_runs_alone() -> None:
    assert terminal.exclusive
    assert terminal.risk == "exec"


# -- read_file -----------------------------------------------------------------------------


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
    assert first.endswith("2000|line 2000\n[lines 1-2000 of 5000; go on with offset=2001]")
    assert (await text(read_file, ctx, path="f", offset=2001, limit=2)) == (
        "2001|line 2001\n2002|line 2002\n[lines 2001-2002 of 5000; go on with offset=2003]"
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
        note = f"[lines {offset}-{after - 1} of {len(real)}; go on with offset={after}]"
        assert shown == wanted + ([note] if after <= len(real) else [])


async def test_a_large_file_is_read_in_pieces_that_join_up(ctx: ToolContext) -> None:
    lines = [f"{n} " + "x" * (n % 300) for n in range(1, 3001)]
    (ctx.workspace.cwd / "big").write_text("\n".join(lines))
    seen: list[str] = []
    offset = 1
    while offset:
        content = await text(read_file, ctx, path="big", offset=offset)
        assert len(content) <= LIMIT + 200
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
    assert len(content.encode()) <= LIMIT + 200
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
    (ctx.workspace.cwd / "huge.png").write_bytes(PNG + b"\0" * MAX_IMAGE)
    assert "make it smaller" in await refusal(read_file, ctx, path="huge.png")


async def test_what_is_no_file(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "folder" / "inner").mkdir(parents=True)
    (ctx.workspace.cwd / "folder" / "file.py").touch()
    os.mkfifo(ctx.workspace.cwd / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(ctx.workspace.cwd / "socket"))
        for name in ("pipe", "socket"):
            assert "not a file" in await refusal(read_file, ctx, path=name)
    assert "is a directory of 2: file.py, inner/" in await refusal(read_file, ctx, path="folder")
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
        "1|one\n[lines 1-1 of 4; go on with offset=2]"
    )
    (ctx.workspace.cwd / "f").write_text("one\ntwo\n")
    assert await text(read_file, ctx, path="f", offset=-1) == "2|two"
    (ctx.workspace.cwd / "f").write_text("")
    assert await text(read_file, ctx, path="f", offset=-1) == "[empty file]"


async def test_long_lines_are_cut_one_by_one(ctx: ToolContext) -> None:
    rows = ["short", "ä" * (LINE + 1), "漢" * 100_000, "y" * LINE, "z" * 9000, "🙂" * LINE, "end"]
    (ctx.workspace.cwd / "f").write_text("\n".join(rows))
    shown = (await text(read_file, ctx, path="f")).split("\n")
    assert shown[:7] == [f"{n}|{row[:LINE]}" for n, row in enumerate(rows, 1)]
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
    assert "go on with offset=3" in await text(read_file, ctx, path="n.ipynb", offset=2, limit=1)


@pytest.mark.parametrize("data", ["{}", "[1]", '{"cells": 3}', '{"cells": ["x"]}', "{", "[" * 9999])
async def test_what_only_bears_the_name_of_a_notebook(ctx: ToolContext, data: str) -> None:
    (ctx.workspace.cwd / "n.ipynb").write_text(data)
    assert await text(read_file, ctx, path="n.ipynb") == f"1|{data[:LINE]}" + (
        "\n[line 1 is too long and cut here]" if len(data) > LINE else ""
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
        assert said.endswith("[lines 1-1; go on with offset=2]"), "it has no end to count to"


# -- write_file ----------------------------------------------------------------------------


async def test_a_file_is_created_then_replaced(ctx: ToolContext) -> None:
    path = ctx.workspace.cwd / "a" / "b" / "f.txt"
    assert await text(write_file, ctx, path="a/b/f.txt", content="héllo\r\n") == (
        f"Created {path} (8 bytes)"
    )
    assert path.read_bytes() == "héllo\r\n".encode()
    assert await text(write_file, ctx, path=str(path), content="") == f"Replaced {path} (0 bytes)"
    assert path.read_bytes() == b""
    assert [p.name for p in path.parent.iterdir()] == ["f.txt"]


async def test_the_mode_of_a_file_is_kept_and_a_new_one_follows_the_umask(ctx: ToolContext) -> None:
    path = ctx.workspace.cwd / "run.sh"
    path.write_text("old")
    path.chmod(0o751)
    await call(write_file, ctx, path="run.sh", content="new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    before = os.umask(0o027)
    try:
        await call(write_file, ctx, path="new", content="")
    finally:
        os.umask(before)
    assert stat.S_IMODE((ctx.workspace.cwd / "new").stat().st_mode) == 0o640


async def test_a_reader_of_the_old_file_keeps_it(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "f").write_text("old")
    with (ctx.workspace.cwd / "f").open() as old:
        await call(write_file, ctx, path="f", content="new and longer")
        assert old.read() == "old"


async def test_a_failed_write_changes_nothing(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ctx.workspace.cwd / "f").write_text("old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device. Nothing was changed" in await refusal(
        write_file, ctx, path="f", content="new"
    )
    assert (ctx.workspace.cwd / "f").read_text() == "old"
    assert [p.name for p in ctx.workspace.cwd.iterdir()] == ["f"]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("a.py", "x = '\\d'\n", "def f(:\n"),
        ("a.json", "[1]", "[1,]"),
        ("a.toml", "a = 1", "a = = 1"),
        ("a.yml", "a: 1\n---\nb: *x\n", "a: b: c\n"),
        ("tsconfig.json", "{} // comment", None),
        ("chart.yaml", "a: {{ .Values.a }}\n", None),
        ("a.txt", "def f(:", None),
        ("a.sh", "#!/bin/sh\nfor i in !(a|b); do echo $i; done\n", "if true; then\necho\n"),
        ("zsh.sh", "#!/bin/zsh\nx=(${(f)y})\n", None),
        ("a.js", "import a from 'b';\nawait a?.b;\n", "let x = {\n"),
        ("c.cjs", "#!/bin/node\nreturn require('a')\n", "f(;\n"),
        ("jsx.js", "const a = <div/>;\n", None),
    ],
)
async def test_broken_syntax_is_a_warning_and_no_failure(
    ctx: ToolContext, name: str, good: str, bad: str | None
) -> None:
    playwright = find_spec("playwright")  # brings a node of its own
    assert playwright and playwright.submodule_search_locations
    node = f"{playwright.submodule_search_locations[0]}/driver"
    path = os.pathsep.join([ctx.workspace.child_env["PATH"], node])
    ctx = in_workspace(ctx, child_env={"PATH": path})
    assert "warning" not in await text(write_file, ctx, path=name, content=good)
    if bad is not None:
        result = await call(write_file, ctx, path=name, content=bad)
        assert "[warning: the syntax is wrong: " in str(result.content) and not result.error
        assert (ctx.workspace.cwd / name).read_text() == bad


async def test_folders_made_for_nothing_do_not_stay(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    assert "Nothing was changed" in await refusal(write_file, ctx, path="a/b/f", content="x")
    assert not list(ctx.workspace.cwd.iterdir())


async def test_what_is_not_replaced(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "folder").mkdir()
    os.mkfifo(ctx.workspace.cwd / "pipe")
    (ctx.workspace.cwd / "file").write_text("x")
    assert "is a directory" in await refusal(write_file, ctx, path="folder", content="x")
    assert "not replaced" in await refusal(write_file, ctx, path="pipe", content="x")
    assert "Nothing was changed" in await refusal(write_file, ctx, path="file/f", content="x")
    assert (ctx.workspace.cwd / "file").read_text() == "x"


async def test_links_are_followed_inside_and_not_out(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "real").write_text("old")
    (ctx.workspace.cwd / "link").symlink_to("real")
    outside = ctx.workspace.home.parent / "outside"
    (ctx.workspace.cwd / "out").symlink_to(outside)
    (ctx.workspace.cwd / "dir").symlink_to(ctx.workspace.home.parent)
    await call(write_file, ctx, path="link", content="new")
    assert (ctx.workspace.cwd / "link").is_symlink()
    assert (ctx.workspace.cwd / "real").read_text() == "new"
    for path in ("out", "dir/outside"):
        assert f"link to {outside}" in await refusal(write_file, ctx, path=path, content="x")
    assert not outside.exists()
    await call(write_file, ctx, path=str(outside), content="meant")
    assert outside.read_text() == "meant"


async def test_a_folder_swapped_for_a_link_at_the_last_moment(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = ctx.workspace.home.parent / "outside"
    (outside / "b").mkdir(parents=True)
    (ctx.workspace.cwd / "a" / "b").mkdir(parents=True)
    real = _writing._make_folders

    def swapped(folder: Path) -> list[Path]:
        (ctx.workspace.cwd / "a").rename(ctx.workspace.cwd / "was")
        (ctx.workspace.cwd / "a").symlink_to(outside)
        return real(folder)

    monkeypatch.setattr(_writing, "_make_folders", swapped)
    assert "became a link" in await refusal(write_file, ctx, path="a/b/f", content="x")
    assert not list((outside / "b").iterdir())


def test_one_file_has_one_key_whatever_it_is_called(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "link").symlink_to("f")
    assert write_file.key
    names = ["f", "./f", "x/../f", "link", str(ctx.workspace.cwd / "f")]
    keys = {
        write_file.key(write_file.parse({"path": n, "content": ""}), ctx.workspace.cwd)
        for n in names
    }
    assert keys == {str(ctx.workspace.cwd / "f")}


# -- what file tools may not touch ---------------------------------------------------------

SECRETS = ["~/.ssh/id_ed25519", "~/.aws/credentials", "~/.netrc", "~/.config/gh/hosts.yml"]
SECRETS += ["~/.gnupg/key", "~/.docker/config.json", "~/.mozilla/x", "~/.SSH/id", "/etc/shadow"]
OWN = ["~/.hermes/config.yaml", "~/.hermes/.env", "~/.hermes/hermes.db", "~/.hermes/hermes.db-wal"]
OWN += ["~/.hermes/skills/x.md", "~/.hermes/anything", "~/.hermes/profiles/second/.env"]
RUN = ["~/.bashrc", "~/.profile", "~/.zshenv", "~/.config/systemd/user/x.service", "~/.gitconfig"]
RUN += [".git/hooks/pre-commit", ".git/config", "sub/.git/modules/m/hooks/x", "/etc/cron.d/x"]
RUN += ["/usr/bin/x", "/var/spool/cron/x", "/proc/sys/x", ".git", ".git/commondir", "sub/.GIT"]


@pytest.mark.parametrize("path", SECRETS + OWN)
async def test_secrets_and_the_agents_own_files_are_neither_read_nor_written(
    ctx: ToolContext, path: str, raw_database: RawDatabase
) -> None:
    file = Path(path).expanduser()
    made = not file.is_absolute() or file.is_relative_to(ctx.workspace.home.parent)
    if made:
        file.parent.mkdir(parents=True, exist_ok=True)
        with raw_database():
            file.write_text("secret")
    assert "Denied" in await refusal(read_file, ctx, path=path)
    assert "Denied" in await refusal(write_file, ctx, path=path, content="x")
    (ctx.workspace.cwd / "innocent").symlink_to(file)
    assert "Denied" in await refusal(read_file, ctx, path="innocent")
    assert await refusal(write_file, ctx, path="innocent", content="x")
    with raw_database():
        assert not made or file.read_text() == "secret"


@pytest.mark.parametrize("path", RUN)
async def test_what_others_run_is_not_written(ctx: ToolContext, path: str) -> None:
    assert "Denied" in await refusal(write_file, ctx, path=path, content="x")
    assert not (ctx.workspace.cwd / Path(path).expanduser()).exists()


async def test_what_looks_alike_is_allowed(ctx: ToolContext, raw_database: RawDatabase) -> None:
    for path in (
        "dotfiles/.bashrc",
        ".env",
        "config.yaml",
        "state.db",
        ".gitignore",
        "ssh/id",
        "hooks/x",
    ):
        with raw_database():
            await call(write_file, ctx, path=path, content="x")
            assert await text(read_file, ctx, path=path) == "1|x"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/1/environ", "/proc/self/task/{}/environ"]
)
async def test_no_environment_of_a_process(ctx: ToolContext, path: str) -> None:
    assert "Denied" in await refusal(read_file, ctx, path=path.format(os.getpid()))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
async def test_no_way_around_through_proc(ctx: ToolContext) -> None:
    secret = ctx.workspace.home / ".env"
    secret.write_text("KEY=1")
    with secret.open() as file:
        for way in (f"/proc/self/root{secret}", f"/proc/self/fd/{file.fileno()}"):
            assert "Denied" in await refusal(read_file, ctx, path=way)


async def test_no_way_around_through_a_second_name(ctx: ToolContext) -> None:
    (ctx.workspace.home / ".env").write_text("KEY=1")
    os.link(ctx.workspace.home / ".env", ctx.workspace.cwd / "notes.txt")
    assert "Denied" in await refusal(read_file, ctx, path="notes.txt")


async def test_a_second_name_of_the_database_is_not_even_opened(
    ctx: ToolContext, raw_database: Any
) -> None:
    with raw_database():
        (ctx.workspace.home / "state.db").write_text("rows")
    os.link(ctx.workspace.home / "state.db", ctx.workspace.cwd / "copy.db")
    assert "another name" in await refusal(read_file, ctx, path="copy.db")
    assert "another name" in await refusal(patch, ctx, path="copy.db", old="rows", new="x")


@pytest.mark.parametrize(
    "path", ["trust.json", "active_profile", "cache/sandbox.json", "skills/x.md", "config.yaml"]
)
async def test_what_steers_the_agent_is_not_written_by_one_who_works_in_its_home(
    ctx: ToolContext, path: str
) -> None:
    at_home = in_workspace(ctx, cwd=ctx.workspace.home)
    assert "Denied" in await refusal(write_file, at_home, path=path, content="x")
    await call(write_file, at_home, path="notes.txt", content="x")


async def test_saved_outputs_are_read_and_not_written(ctx: ToolContext) -> None:
    ctx.workspace.outputs.mkdir()
    (ctx.workspace.outputs / "s1.txt").write_text("long output")
    assert await text(read_file, ctx, path=str(ctx.workspace.outputs / "s1.txt")) == "1|long output"
    assert "Denied" in await refusal(
        write_file, ctx, path=str(ctx.workspace.outputs / "s1.txt"), content=""
    )


async def test_working_inside_the_agents_home_touches_only_ones_own_files(ctx: ToolContext) -> None:
    inside = in_workspace(ctx, cwd=ctx.workspace.home)
    await call(write_file, inside, path="work/notes.txt", content="x")
    for path in ("config.yaml", ".env", "state.db-wal", "skills/x", "auth.json", "CONFIG.YAML"):
        assert "Denied" in await refusal(write_file, inside, path=path, content="x")

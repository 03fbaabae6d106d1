"""terminal: one command, its output and its limits."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hermes.core.tool import ToolContext
from hermes.tools.read_file import read_file
from hermes.tools.terminal import terminal
from tests.kit.tools import in_workspace
from tests.unit.tools.calls import call, refusal, text


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
    async with asyncio.timeout(90):
        await seen.wait()
        assert words == ["one\n"]
        assert not running.done()
        await asyncio.to_thread((ctx.workspace.cwd / "gate").write_text, "two\n")
        assert (await running).content == "one\ntwo"


async def test_progress_is_shown_in_whole_lines(ctx: ToolContext) -> None:
    """Half a secret is not recognised as one."""
    seen = asyncio.Event()
    words: list[str] = []

    def progress(update: str) -> None:
        words.append(update)
        seen.set()

    os.mkfifo(ctx.workspace.cwd / "gate")
    watched = structs.replace(ctx, progress=progress)
    command = "printf 'one\\nzebra cross'; cat gate; sleep 0.3; printf 'ing\\ntwo\\nthr'"
    running = asyncio.create_task(call(terminal, watched, command=command))
    async with asyncio.timeout(90):
        await seen.wait()
        await asyncio.to_thread((ctx.workspace.cwd / "gate").write_text, "-")
        assert (await running).content == "one\nzebra cross-ing\ntwo\nthr"
    assert words[0] == "one\n"
    assert "".join(words) in ("one\n", "one\nzebra cross-ing\n", "one\nzebra cross-ing\ntwo\n")


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

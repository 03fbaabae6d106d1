"""What file tools may not touch, under whatever name."""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from hermes.core.tool import ToolContext, Workspace
from hermes.tools._files.paths import find_interpreter, find_program
from hermes.tools.patch import patch
from hermes.tools.read_file import read_file
from hermes.tools.write_file import write_file
from tests.kit.tools import in_workspace
from tests.unit.tools.calls import call, refusal, text

RawDatabase = Callable[[], AbstractContextManager[None]]
SECRETS = ["~/.ssh/id_ed25519", "~/.aws/credentials", "~/.netrc", "~/.config/gh/hosts.yml"]
SECRETS += ["~/.gnupg/key", "~/.docker/config.json", "~/.mozilla/x", "~/.SSH/id", "/etc/shadow"]
OWN = ["~/.hermes/config.yaml", "~/.hermes/.env", "~/.hermes/hermes.db", "~/.hermes/hermes.db-wal"]
OWN += ["~/.hermes/skills/x.md", "~/.hermes/anything", "~/.hermes/profiles/second/.env"]
RUN = ["~/.bashrc", "~/.profile", "~/.zshenv"]
RUN += ["~/.config/systemd/user/x.service", "~/.config/autostart/x.desktop", "~/.gitconfig"]
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
    assert "hard link" in await refusal(read_file, ctx, path="copy.db")
    assert "hard link" in await refusal(patch, ctx, path="copy.db", old="rows", new="x")


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


def test_programs_that_commands_can_replace_are_not_run(tmp_path: Path) -> None:
    inside, linked, outside = (tmp_path / name for name in ("work/.venv/bin", "linked", "outside"))
    for folder in (inside, linked, outside):
        folder.mkdir(parents=True)
    for folder in (inside, outside):
        (folder / "rg").write_text("#!/bin/sh\n")
        (folder / "rg").chmod(0o755)
    (linked / "rg").symlink_to(inside / "rg")
    path = os.pathsep.join(map(str, (inside, linked, outside)))
    workspace = Workspace(tmp_path / "work", tmp_path / "home", tmp_path / "out", {"PATH": path})
    assert find_program("rg", workspace) == str(outside / "rg")


def test_the_interpreter_is_not_one_that_commands_can_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "work/.venv/bin/python"
    monkeypatch.setattr(sys, "executable", str(own))
    workspace = Workspace(tmp_path / "work", tmp_path / "home", tmp_path / "out", {})
    assert not Path(find_interpreter(workspace)).is_relative_to(tmp_path)

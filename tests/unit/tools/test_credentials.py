"""Credentials of a home stay closed to file tools, wherever they work and whoever agrees."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hermes.core.errors import ToolError
from hermes.core.tool import Tool, ToolContext, UserAccess, Verdict
from hermes.tools.browser.browser_cdp import browser_cdp
from hermes.tools.patch import patch
from hermes.tools.read_file import read_file
from hermes.tools.search_files import search_files
from hermes.tools.vision.vision_analyze import vision_analyze
from hermes.tools.write_file import write_file
from tests.kit.credential_files import CANARY, KINDS, fill_home
from tests.kit.tools import in_workspace
from tests.unit.tools.calls import refusal, text


@pytest.fixture(params=["beside", "inside", "home"])
def agreeable(request: pytest.FixtureRequest, ctx: ToolContext) -> ToolContext:
    """A session beside, inside or at the home, of a user who says yes to everything."""
    user = Path(ctx.workspace.child_env["HOME"])
    (user / "project").mkdir()
    folders = {"beside": ctx.workspace.cwd, "inside": user / "project", "home": user}

    async def approve(*_: Any) -> Verdict:
        return Verdict(True)

    asking = structs.replace(ctx, user=UserAccess(approve))
    return in_workspace(asking, sandbox="workspace-write", cwd=folders[request.param])


def attempts(path: str) -> list[tuple[Tool[Any], dict[str, Any]]]:
    change = f"*** Begin Patch\n*** Update File: {path}\n-word x\n+word y\n*** End Patch"
    return [
        (read_file, {"path": path}),
        (search_files, {"pattern": "canary", "path": path}),
        (patch, {"path": path, "old": "GIF89a", "new": "GIF89b"}),
        (patch, {"patch": change}),
        (write_file, {"path": path, "content": "mine"}),
        (vision_analyze, {"image": path}),
    ]


def test_there_are_enough_kinds() -> None:
    assert len(set(KINDS)) >= 87


async def test_no_tool_reads_or_changes_one(agreeable: ToolContext) -> None:
    through: list[str] = []
    files = fill_home(Path(agreeable.workspace.child_env["HOME"]))
    link = agreeable.workspace.cwd / "notes.txt"
    for file in files:
        link.symlink_to(file)
        relative = os.path.relpath(file, agreeable.workspace.cwd)
        for path in (str(file), relative, str(link), f"~/{file.relative_to(files[0].parents[1])}"):
            for tool, args in attempts(path):
                try:
                    await text(tool, agreeable, **args)
                    through.append(f"{tool.name} {path}")
                except ToolError as error:
                    through += [str(error)] if CANARY in str(error) else []
        link.unlink()
        if file.read_text() != f"GIF89a\nword {CANARY}\n":
            through.append(f"{file} was changed")
    assert through == []


@pytest.mark.parametrize("engine", ["ripgrep", "fallback"])
async def test_no_search_finds_one(agreeable: ToolContext, engine: str) -> None:
    user = Path(agreeable.workspace.child_env["HOME"])
    files = fill_home(user)
    (user / "project" / "ordinary.txt").write_text("canary of the miners\n")
    if engine == "fallback":
        env = {**agreeable.workspace.child_env, "PATH": "/nowhere"}
        agreeable = in_workspace(agreeable, child_env=env)
    folders = {user, *(parent for file in files for parent in file.parents if parent > user)}
    for folder in sorted(folders):
        try:
            assert CANARY not in await text(
                search_files, agreeable, pattern="canar[y]", path=str(folder), limit=2000
            )
        except ToolError as error:
            assert CANARY not in str(error)
    found = await text(search_files, agreeable, pattern="canary", path=str(user / "project"))
    assert "miners" in found


@pytest.mark.parametrize("method", ["DOM.setFileInputFiles", "Input.dispatchDragEvent"])
async def test_the_browser_uploads_no_file(ctx: ToolContext, method: str) -> None:
    params = {"files": ["/etc/passwd"], "data": {"files": ["/etc/passwd"]}}
    assert "not sent" in await refusal(browser_cdp, ctx, method=method, params=params)

"""What a person granted is what a command gets, whoever exchanges the path meanwhile."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from hermes.core.errors import ToolError
from hermes.exec.process import local
from hermes.exec.sandbox import (
    SandboxPolicy,
    SandboxTier,
    add_grants,
    build_policy,
    explain_ungrantable,
)
from tests.unit.exec.sandbox.sandbox_shell import linux, sh


class Folders:
    """A granted folder, and a secret one that somebody puts in its place."""

    def __init__(self, base: Path) -> None:
        self.granted = base / "shared" / "granted"
        self.secret = base / "home" / "granted"
        for folder, text in ((self.granted, "approved"), (self.secret, "secret")):
            folder.mkdir(parents=True)
            (folder / "file").write_text(text)
        self.policy = SandboxPolicy("workspace-write", base / "workspace", hidden=(base / "home",))

    def give(self, *, write: bool) -> SandboxPolicy:
        return structs.replace(self.policy, **{"writable" if write else "granted": (self.granted,)})

    def exchange(self, *, parent: bool) -> None:
        path, target = self.granted, self.secret
        if parent:
            path, target = path.parent, target.parent
        path.rename(path.with_name("away"))
        path.symlink_to(target)


@linux
@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
@pytest.mark.parametrize("parent", [False, True], ids=["itself", "parent"])
@pytest.mark.parametrize("planned", [False, True], ids=["before", "after"])
async def test_a_link_in_place_of_a_granted_folder_runs_nothing(
    workspace: Path,
    tier: SandboxTier,
    write: bool,
    parent: bool,
    planned: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The exchange comes before the launch is planned, or after that and before it is made."""
    folders = Folders(workspace.parent)
    build: Callable[..., bytes] = local.build_request

    def exchange_and_build(command: local.CommandSpec) -> bytes:
        request = build(command) if planned else b""
        folders.exchange(parent=parent)
        return request or build(command)

    monkeypatch.setattr(local, "build_request", exchange_and_build)
    policy = folders.give(write=write)
    text = f"touch ran; cat {folders.granted}/file; echo x > {folders.granted}/made"
    with pytest.raises(ToolError, match="replaced after it was approved"):
        await sh(text, policy, tier)
    assert not (workspace / "ran").exists() and not (folders.secret / "made").exists()


@linux
async def test_what_was_granted_is_given(workspace: Path, tier: SandboxTier) -> None:
    folders = Folders(workspace.parent)
    text = f"cat {folders.granted}/file; echo x > {folders.granted}/made"
    _, output = await sh(text, folders.give(write=False), tier)
    assert output.startswith("approved") and not (folders.granted / "made").exists()
    _, output = await sh(text, folders.give(write=True), tier)
    assert output == "approved" and (folders.granted / "made").read_text() == "x\n"
    one = structs.replace(folders.policy, granted=(folders.granted / "file",))
    assert (await sh(f"cat {folders.granted}/file; ls {folders.granted}", one, tier))[1].startswith(
        "approved"
    )


@linux
async def test_a_granted_path_is_found_by_its_name_in_the_home(
    tmp_path: Path, tier: SandboxTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, data = tmp_path / "user", tmp_path / "disk" / "data"
    for folder in (home / "plain", data, tmp_path / "workspace"):
        folder.mkdir(parents=True)
        (folder / "file").write_text(folder.name)
    (home / "linked").symlink_to(data)
    (home / "chained").symlink_to("linked")
    (home / "elsewhere").symlink_to("/nowhere")
    (home / ".volta").symlink_to(tmp_path / "disk" / "volta")
    (tmp_path / "disk" / "volta").mkdir()
    (tmp_path / "disk" / "volta" / "node").write_text("tool")
    policy = build_policy("workspace-write", tmp_path / "workspace", tmp_path / "agent", home)
    policy = add_grants(policy, home, read=(data,), write=(home / "plain",))
    text = "cat ~/linked/file ~/chained/file ~/plain/file ~/.volta/node; ls ~/elsewhere; :"
    _, output = await sh(text, policy, tier, HOME=os.fspath(home))
    assert output.startswith("datadataplaintool"), output
    assert not (data / "linked").exists()


@linux
async def test_nested_grants_are_both_given(tmp_path: Path, tier: SandboxTier) -> None:
    home = tmp_path / "user"
    (home / "a" / "b").mkdir(parents=True)
    (tmp_path / "workspace").mkdir()
    policy = build_policy("workspace-write", tmp_path / "workspace", tmp_path / "agent", home)
    policy = add_grants(policy, home, read=(home / "a",), write=(home / "a" / "b",))
    text = "echo x > ~/a/b/made; echo x > ~/a/made; cat ~/a/b/made"
    _, output = await sh(text, policy, tier, HOME=os.fspath(home))
    assert output.endswith("x\n") and not (home / "a" / "made").exists()
    assert sorted(os.listdir(home / "a")) == ["b"]


@pytest.mark.parametrize("count", [500, 5000])
def test_credentials_do_not_hide_among_many_folders(tmp_path: Path, count: int) -> None:
    for number in range(count):
        (tmp_path / "shared" / f"{number:04}").mkdir(parents=True)
    agent, user = tmp_path / "agent", tmp_path / "user"
    refused = explain_ungrantable(tmp_path / "shared", agent, user, write=False)
    assert ("too many folders" in refused) == (count == 5000)
    (tmp_path / "shared" / f"{count // 2:04}" / ".netrc").touch()
    assert explain_ungrantable(tmp_path / "shared", agent, user, write=False)

"""What the settings of a repository refer to is known as they stand, however often they change."""

import time
from pathlib import Path

import pytest

from hermes.exec.sandbox.planted_files import find_git_references


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "work" / ".git").mkdir(parents=True)
    return tmp_path / "work"


def set_hooks(repository: Path, folder: str) -> None:
    (repository / ".git" / "config").write_text(f"[core]\n\thooksPath = {folder}\n")


def is_reference(repository: Path, name: str) -> bool:
    return str(repository / name) in find_git_references(repository, repository.parent)


def test_a_change_that_follows_at_once_is_seen(repository: Path) -> None:
    for number in range(200):
        set_hooks(repository, f"h{number:03}")
        assert is_reference(repository, f"h{number:03}")


def test_settings_that_rested_are_known_until_they_change(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_hooks(repository, "first")
    later = time.time_ns() + 60 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    assert is_reference(repository, "first")
    assert is_reference(repository, "first")
    set_hooks(repository, "another")
    assert is_reference(repository, "another")
    assert not is_reference(repository, "first")
    (repository / ".git" / "config").unlink()
    assert not is_reference(repository, "another")


def test_what_a_link_leads_to_is_meant_too(repository: Path) -> None:
    set_hooks(repository, "hooks")
    (repository / "real").mkdir()
    (repository / "hooks").symlink_to("real")
    assert is_reference(repository, "real")


def test_links_that_rested_are_known_until_their_folder_changes(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = repository / ".git" / "hooks"
    hooks.mkdir()
    (repository / "script").touch()
    later = time.time_ns() + 60 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    assert not is_reference(repository, "script")
    (hooks / "pre-commit").symlink_to("../../script")
    assert is_reference(repository, "script")
    (hooks / "pre-commit").unlink()
    assert not is_reference(repository, "script")


@pytest.mark.parametrize(
    "setting",
    [
        "[diff \"x\"]\n\ttextconv = sh tool",
        "[diff \"x\"]\n\ttextconv = \"sh tool\"",
        "[filter \"x\"]\n\tclean = \"tool %f\" # why",
        "[filter \"x\"]\n\tsmudge = tool;why",
        "[alias]\n\tx = \"!sh tool\"",
        "[alias]\n\tx = \"!sh \\\"tool\\\"\"",
        "[core]\n\thooksPath = \"tool\" ; why",
        "[core] hooksPath = tool#why",
        "[include]\n\tpath = ../tool",
    ],
)  # fmt: skip
def test_the_words_of_a_setting_are_read_as_git_reads_them(repository: Path, setting: str) -> None:
    (repository / "tool").touch()
    (repository / ".git" / "config").write_text(f"{setting}\n")
    assert is_reference(repository, "tool")


@pytest.mark.parametrize("value", ["two words", '"two words"', 'two" words"', "two words # why"])
def test_a_folder_of_hooks_may_have_spaces_in_its_name(repository: Path, value: str) -> None:
    set_hooks(repository, value)
    assert is_reference(repository, "two words")

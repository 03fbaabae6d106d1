"""Patches of repositories: whatever was done in the folder, they apply at the base commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.batch import checkout
from hermes.batch.checkout import check_out, take_patch
from hermes.core.errors import ConfigError
from tests.kit.repositories import make_repository, run_git


def test_text_in_another_encoding_and_a_repository_inside(tmp_path: Path) -> None:
    source, _ = make_repository(tmp_path / "source", "gold")
    (source / "old.txt").write_bytes("caf\xe9\nline\n".encode("latin-1"))
    run_git(source, "commit", "-q", "-am", "another encoding")
    base = run_git(source, "rev-parse", "HEAD")
    work = tmp_path / "work"
    check_out(str(source), base, work)
    (work / "old.txt").write_bytes("caf\xe9 au lait\nline\n".encode("latin-1"))
    (work / 'n\xe4me "x".txt').write_text("new")
    (work / "inner").mkdir()
    run_git(work / "inner", "init", "-q")
    (work / "inner" / "file").write_text("in a repository without a commit")
    (work / ".git" / "config").write_text("[diff]\n\texternal = /bin/false\n")
    patch = take_patch(work, base)
    fresh = tmp_path / "fresh"
    run_git(tmp_path, "clone", "-q", str(source), str(fresh))
    run_git(fresh, "checkout", "-q", base)
    run_git(fresh, "apply", "-", given=patch)
    assert (fresh / "old.txt").read_bytes() == "caf\xe9 au lait\nline\n".encode("latin-1")
    assert (fresh / 'n\xe4me "x".txt').read_text() == "new"


def test_what_was_built_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, base = make_repository(tmp_path / "source", "gold")
    work = tmp_path / "work"
    check_out(str(source), base, work)
    monkeypatch.setattr(checkout, "MOST_BYTES", 2**20)
    (work / ":1 2 3 4 A").write_text("a name like a line of git's")
    (work / "old.txt").unlink()
    (work / "big").write_bytes(b"x" * 2**20)
    with pytest.raises(ConfigError, match="The change has 1 MB in files"):
        take_patch(work, base)
    (work / "big").write_bytes(b"x" * 2**10)
    assert "+" + "x" * 2**10 in take_patch(work, base)

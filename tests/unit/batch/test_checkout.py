"""Patches of repositories: whatever was done in the folder, they apply at the base commit."""

from __future__ import annotations

from pathlib import Path

from hermes.batch.checkout import check_out, take_patch
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

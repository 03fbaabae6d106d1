"""Placeholders of protected names."""

import os
from pathlib import Path

import pytest

from hermes.exec.launcher import placeholders


def test_a_placeholder_has_its_mode_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command that sees it with another mode takes it for a real folder."""
    monkeypatch.setattr(os, "chmod", lambda *_: None)
    path = os.fsencode(tmp_path / "name")
    before = os.umask(0o077)
    try:
        lock = placeholders.hold_name(path)
    finally:
        os.umask(before)
    assert os.lstat(path).st_mode == placeholders.PLACEHOLDER
    placeholders.release_name(path, lock)
    assert not os.path.lexists(path)

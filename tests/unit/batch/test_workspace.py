"""Folders of items: gone afterwards, also those of processes that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hermes.batch.workspace import open_workspaces

KILLED = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from hermes.batch.workspace import open_workspaces
with open_workspaces("first") as place:
    (place / "secret.txt").write_text("of an item")
    print(place, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_is_removed_by_the_next_of_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    place = Path(process.stdout.readline().strip())
    with open_workspaces("second") as own:
        assert (place / "secret.txt").exists() and own.parent == place.parent
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()
    assert place.exists()
    with open_workspaces("second") as own:
        assert not place.exists() and list(own.parent.iterdir()) == [own]
    assert not own.exists()


CLOSED = """
import os
from pathlib import Path

import pytest
from hermes.batch.workspace import remove_folder
if os.geteuid() == 0:  # nothing is closed for root
    os.setgroups([])
    os.setuid(65534)
folder = Path("item")
(folder / "a" / "b").mkdir(parents=True)
(folder / "a" / "b" / "c").write_text("x")
(folder / "link").symlink_to("..")
(folder / "a" / "b").chmod(0)
(folder / "a").chmod(0o500)
folder.chmod(0o500)
remove_folder(folder)
print(os.listdir("."), oct(Path(".").stat().st_mode))
"""


def test_folders_that_a_model_closed_are_removed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, 65534)
    command = [sys.executable, "-c", CLOSED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "[] 0o40755\n", done

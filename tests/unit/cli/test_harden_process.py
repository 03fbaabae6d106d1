"""The process that holds the keys."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, os, sys
import hermes.config.load as load
from hermes.cli.main import main

def load_setup(*args, **kwargs):
    print("dumpable:", ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)
    os._exit(0)

load.load_setup = load_setup
main(sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="PR_GET_DUMPABLE is Linux's")
@pytest.mark.parametrize(
    "words", ["chat -q hi", "chat", "serve", "gateway run", "demo", "model test"]
)
def test_nobody_can_read_its_memory_once_it_holds_keys(tmp_path: Path, words: str) -> None:
    ours, theirs = pty.openpty()
    env = {"PATH": os.defpath, "HERMES_HOME": str(tmp_path / "home"), "TERM": "xterm"}
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words.split()], env=env, stdin=theirs, timeout=60,
        stdout=subprocess.PIPE if words != "chat" else theirs, stderr=theirs, cwd=tmp_path,
        check=False,
    )  # fmt: skip
    os.close(theirs)
    said = child.stdout or os.read(ours, 65536)
    os.close(ours)
    assert b"dumpable: 0" in said

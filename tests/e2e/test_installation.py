"""`make run` and `make install` in a fresh copy of the project."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PROJECT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9/simple"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in ("src", "scripts", "requirements"):
        shutil.copytree(PROJECT / name, folder / name)
    for file in ("Makefile", "pyproject.toml", "README.md", "LICENSE"):
        if (PROJECT / file).exists():
            shutil.copy(PROJECT / file, folder / file)
    return folder


def run_make(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *args],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_without_a_network_it_ends_in_one_sentence(copy: Path) -> None:
    ran = run_make(copy, "run", PIP_INDEX_URL=NOWHERE, UV_DEFAULT_INDEX=NOWHERE)
    lines = [line for line in ran.stderr.splitlines() if not line.startswith("make")]
    assert ran.returncode != 0 and lines[-1].startswith(
        "The installer (uv) could not be downloaded"
    )
    assert len(lines) == 3 and "Setting up" in lines[0], ran.stderr


def test_it_is_installed_for_the_user(copy: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
    ran = run_make(copy, "install", HOME=str(home), UV_CACHE_DIR=cache)
    assert ran.returncode == 0, ran.stderr
    program = ran.stderr.rpartition("Installed: ")[2].splitlines()[0]
    assert program.startswith(str(home)) and "PATH" in ran.stderr
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    assert told.stdout.startswith("hermes ")

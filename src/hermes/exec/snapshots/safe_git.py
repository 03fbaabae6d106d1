"""Runs git on files that commands may have written, so that it runs nothing that they configure."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO, Literal, TypeAlias

from hermes.core.text import WordLists

Purpose: TypeAlias = Literal["checkpoints", "merging"]
_GIT_PATHS = (
    "/usr/bin/git /usr/local/bin/git /opt/homebrew/bin/git /run/current-system/sw/bin/git".split()
)
_LISTS = WordLists(Path(__file__).with_suffix(".txt"))


@cache
def find_git() -> str:
    """The absolute path of git; empty when it is not installed."""
    usual = next((p for p in _GIT_PATHS if os.access(p, os.X_OK)), None)
    found = usual or shutil.which("git") or ""
    return found if found.startswith("/") else ""


def run_safe_git(  # noqa: PLR0913 - as subprocess.run
    *words: str,
    purpose: Purpose,
    failure: type[Exception],
    cwd: Path,
    env: Mapping[str, str],
    settings: tuple[str, ...] = (),
    seconds: float,
    data: bytes = b"",
    out: IO[bytes] | None = None,
    accepted: tuple[int, ...] = (0,),
) -> bytes:
    """The output of a git command. Raises `failure` unless its exit status is in `accepted`."""
    chosen = (*_list_safe("settings", purpose), *settings)
    argv = [find_git(), *(word for setting in chosen for word in ("-c", setting)), *words]
    safe = dict(row.split("=", 1) for row in _list_safe("environment", purpose))
    try:
        done = subprocess.run(
            argv,
            input=data,
            stdout=out or subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**safe, **env},
            cwd=cwd,
            timeout=seconds,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise failure(f"git {words[0]} took longer than {seconds:g} s.") from None
    except OSError as error:
        raise failure(f"git cannot be run: {error.strerror}.") from None
    if done.returncode not in accepted:
        why = " ".join(done.stderr.decode("utf-8", "replace").split())[:300]
        raise failure(f"git {words[0]} failed ({done.returncode}): {why}")
    return done.stdout or b""


@cache
def _list_safe(kind: str, purpose: Purpose) -> tuple[str, ...]:
    tables = dict(_LISTS.list_tables())
    rows = (*tables[kind], *tables.get(f"{kind} for {purpose}", ()))
    return tuple(" ".join(rows).split())

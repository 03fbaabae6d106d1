"""`--worktree NAME`: a git worktree beside the repository, on a branch of its own."""

import os
import re
import subprocess
from pathlib import Path

from hermes.cli.main import print_stderr
from hermes.core.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


def enter_worktree(name: str) -> None:
    """Makes the worktree if there is none of this name, and works in it from now on."""
    if not _NAME.match(name) or ".." in name or name.endswith(".lock"):
        raise ConfigError(
            f"{name!r} cannot be the name of a worktree: use letters, digits, - and _."
        )
    top = Path(_run_git("rev-parse", "--path-format=absolute", "--git-common-dir")).parent
    folder = top.parent / f"{top.name}-{name}"
    if not folder.exists():
        known = _run_git("branch", "--list", name)
        words = [str(folder), name] if known else ["-b", name, str(folder)]
        _run_git("worktree", "add", *words)
        print_stderr(f"made the worktree {folder} on the branch {name}")
    os.chdir(folder)


def _run_git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ConfigError("--worktree needs git, which is not installed.") from None
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise ConfigError(f"--worktree: git {words[0]} failed: {reason}. Nothing was changed.")
    return done.stdout.strip()

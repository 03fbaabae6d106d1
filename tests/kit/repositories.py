"""A small repository with a bug, its fix in a later commit, and tasks about it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path


def run_git(folder: Path, *words: str, given: str = "") -> str:
    env = {
        **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "T"),
        **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "t@example.org"),
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
    }
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env=env,
        input=given,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def make_repository(folder: Path, secret: str) -> tuple[Path, str]:
    """The folder and the commit before the fix; the fix says `secret`."""
    folder.mkdir(parents=True)
    run_git(folder, "init", "-q", "-b", "main")
    (folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (folder / "old.txt").write_text("goes away\n" * 5)
    (folder / "name.txt").write_text("is renamed\n" * 20)
    (folder / "picture.bin").write_bytes(bytes(range(256)) * 4)
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-q", "-m", "base")
    base = run_git(folder, "rev-parse", "HEAD")
    (folder / "calc.py").write_text(f"# {secret}\ndef add(a, b):\n    return a + b\n")
    run_git(folder, "commit", "-qam", f"fix: {secret}")
    run_git(folder, "tag", "later")
    return folder, base


def write_tasks(place: Path, base: str, secret: str) -> Path:
    """A file of two tasks, with patches that nobody may see."""
    tasks = [
        {
            "instance_id": f"acme__calc-{n}",
            "repo": "acme/calc",
            "base_commit": base,
            "problem_statement": "add subtracts",
            "patch": secret,
            "test_patch": secret,
        }
        for n in (1, 2)
    ]
    file = place / "tasks.jsonl"
    file.write_text("\n".join(map(json.dumps, tasks)))
    return file

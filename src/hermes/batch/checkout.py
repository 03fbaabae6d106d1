"""Checks repositories out at a commit, without what came later, and takes the change as a patch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hermes.core.errors import ConfigError

MOST_BYTES = 256 * 2**20
"""More than that in the files of a change is something that was built or loaded."""
_SECONDS = 600.0
_SPECIAL, _ESCAPED = re.compile(r"([\\*?\[ ])"), r"\\\1"
"""What has a meaning in patterns of git."""
_COMMIT = re.compile(r"\w[\w./~^-]*", re.ASCII)
_SETTINGS = {
    "uploadpack.allowAnySHA1InWant": "true",  # a commit that no branch names any more
    "protocol.file.allow": "always",
    "safe.directory": "*",
    "core.hooksPath": os.devnull,
    "core.autocrlf": "false",
    "gc.auto": "0",
}


def find_repository(repos: Path, name: str) -> Path | None:
    """The local copy of owner/name: DIR/owner__name or DIR/owner__name.git."""
    stem = name.replace("/", "__")
    if stem in (".", ".."):
        return None
    found = (repos / stem, repos / f"{stem}.git")
    return next((path for path in found if path.is_dir()), None)


def is_commit_name(text: str) -> bool:
    """Whether git takes it for a commit and for nothing else, such as an option."""
    return _COMMIT.fullmatch(text) is not None


def check_out(source: str, commit: str, folder: Path) -> None:
    """A repository of its own with the commit and its past: no later commit, no remote."""
    _run_git("init", "-q", "--initial-branch=main", str(folder))
    _run_git("-C", str(folder), "fetch", "-q", "--no-tags", "--no-write-fetch-head", source, commit)
    _run_git("-C", str(folder), "checkout", "-q", "-B", "main", commit)
    shutil.copytree(folder / ".git", _pristine_copy(folder))


def adopt_checkout(folder: Path, commit: str) -> None:
    """Give a working tree that came from elsewhere a repository of its own with the commit and its
    past. What the tree has beside the commit, such as built files, is no part of a patch."""
    fresh = folder.with_name(f"{folder.name}.new")
    _run_git("init", "-q", "--initial-branch=main", str(fresh))
    try:
        fetch = ("fetch", "-q", "--no-tags", "--no-write-fetch-head", str(folder), commit)
        _run_git("-C", str(fresh), *fetch)
        _run_git("-C", str(fresh), "update-ref", "refs/heads/main", commit)
        shutil.rmtree(folder / ".git")
        (fresh / ".git").rename(folder / ".git")
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    _run_git("-C", str(folder), "reset", "-q")
    found = _run_git("-C", str(folder), "ls-files", "-z", "--others", "--exclude-standard")
    names = [name for name in found.split("\0") if name and "\n" not in name]
    exclude = folder / ".git" / "info" / "exclude"
    exclude.parent.mkdir(exist_ok=True)
    with exclude.open("a", encoding="utf-8") as out:
        out.writelines(f"/{_SPECIAL.sub(_ESCAPED, name)}\n" for name in names)
    shutil.copytree(folder / ".git", _pristine_copy(folder))


def take_patch(folder: Path, commit: str) -> str:
    """What was changed since the commit, new, deleted and binary files included. Nothing that was
    done to the repository inside the folder takes effect here."""
    where = ("--git-dir", str(_pristine_copy(folder)), "--work-tree", str(folder))
    try:
        _run_git(*where, "add", "-A")
    except ConfigError:  # such as a repository without a commit in a folder: the rest is added
        with suppress(ConfigError):
            _run_git(*where, "add", "-A", "--ignore-errors")
    options = ("--cached", "--binary", "--no-ext-diff", "--no-textconv", "--no-color")
    if (size := _measure_change(where, commit)) > MOST_BYTES:
        raise ConfigError(
            f"The change has {size // 2**20} MB in files; patches are made of at most "
            f"{MOST_BYTES // 2**20} MB."
        )
    try:
        return _run_git_bytes(*where, "diff", *options, commit).decode()
    except UnicodeDecodeError:  # text in another encoding: JSON can only carry it as binary
        attributes = _pristine_copy(folder) / "info" / "attributes"
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text("* -diff\n", encoding="utf-8")
        return _run_git(*where, "diff", *options, commit)


def _measure_change(where: Sequence[str], commit: str) -> int:
    """How many bytes the new and changed files have."""
    options = ("--cached", "--raw", "--no-abbrev", "--no-renames", "-z", "--diff-filter=d")
    rows = _run_git(*where, "diff", *options, commit).split("\0")
    ids = [words[3] for row in rows if len(words := row.split(" ")) == 5 and row.startswith(":")]
    found = _run_git(*where, "cat-file", "--batch-check=%(objectsize)", given="\n".join(ids))
    return sum(int(line) for line in found.splitlines() if line.isdigit())


def remove_checkout(folder: Path) -> None:
    shutil.rmtree(_pristine_copy(folder), ignore_errors=True)


def has_commit(source: Path, commit: str) -> bool:
    try:
        _run_git("-C", str(source), "cat-file", "-e", f"{commit}^{{commit}}")
    except ConfigError:
        return False
    return True


def _pristine_copy(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.git")


def _run_git(*words: str, given: str = "") -> str:
    return _run_git_bytes(*words, given=given).decode("utf-8", "replace")


def _run_git_bytes(*words: str, given: str = "") -> bytes:
    env = {
        "PATH": os.defpath,
        "HOME": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
        "LC_ALL": "C",
    }
    for number, (key, value) in enumerate(_SETTINGS.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    try:
        done = subprocess.run(
            ["git", *words],
            capture_output=True,
            check=True,
            env=env,
            input=given.encode(),
            timeout=_SECONDS,
        )
    except FileNotFoundError:
        raise ConfigError("git is not installed; repositories need it.") from None
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        raise ConfigError(f"git failed: {said[-1] if said else 'no answer'}") from None
    return done.stdout

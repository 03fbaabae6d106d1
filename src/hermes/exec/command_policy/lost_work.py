"""Commands that lose work which no checkpoint covers: in `.git`, ignored files, other machines."""

from __future__ import annotations

import re

from hermes.exec.command_policy.paths import PathZones
from hermes.exec.command_policy.types import Argv, SimpleCommand
from hermes.exec.command_policy.wrappers import program_name, simplify_command

_GIT: dict[str, tuple[str, str]] = {
    "branch": (r"-[a-zA-Z]*D[a-zA-Z]*", "deletes a branch even if its commits are nowhere else"),
    "stash": (r"drop|clear", "deletes stashed changes"),
    "reflog": (r"expire|delete", "deletes the record that lost commits are found by"),
    "update-ref": (r"-d|--delete|--stdin", "deletes branches or tags"),
    "tag": (r"-[a-zA-Z]*d|--delete", "deletes a tag"),
    "gc": (r"--prune(?:=.*)?", "deletes commits that no branch names"),
    "worktree": (r"-f|--force", "deletes a working folder with uncommitted changes"),
    "clean": (r"-[a-zA-Z]*[xX][a-zA-Z]*", "deletes ignored files, which no checkpoint has"),
    "push": (
        r"-[a-zA-Z]*[fd][a-zA-Z]*|--(?:force.*|delete|mirror|prune)|[+:].*",
        "overwrites or deletes branches on another machine",
    ),
}
"""Options and words of a subcommand that discard something, and what they do."""
_GIT_WRITES = frozenset(
    "init add stage commit checkout switch restore stash merge cherry-pick revert tag branch reset "
    "rm mv apply notes update-ref update-index symbolic-ref read-tree write-tree commit-tree "
    "hash-object mktree rebase am pull fetch gc prune repack pack-refs reflog replace".split()
)
_DRY_RUN = re.compile(r"-[a-zA-Z]*n[a-zA-Z]*|--dry-run")


def writes_repository(argv: Argv) -> bool:
    """Whether git writes to the repository."""
    words = simplify_command(argv)
    return words[:1] == ("git",) and not _GIT_WRITES.isdisjoint(words[1:2])


def explain_lost_work(simple: SimpleCommand, path_zones: PathZones) -> str:
    """What work a command would lose for good; empty when a checkpoint covers it."""
    name, args = program_name(simple.argv), simple.argv[1:]
    if name == "git":
        return _explain_git(simplify_command(simple.argv)[1:])
    recursive = any(re.fullmatch(r"-\w*[rR]\w*|--recursive", word) for word in args)
    deletes = (name == "rm" and recursive) or (name == "find" and args[1:] == ("-delete",))
    if not (deletes and any(path_zones.is_whole_workspace(a, simple.folder) for a in args)):
        return ""
    return "it deletes the whole project folder, ignored files included"


def _explain_git(words: Argv) -> str:
    name, args = "".join(words[:1]), words[1:]
    if name in ("prune", "filter-branch"):
        return f"git {name} deletes commits for good"
    pattern, effect = _GIT.get(name, ("(?!)", ""))
    if name == "clean" and any(map(_DRY_RUN.fullmatch, args)):
        return ""
    return f"it {effect}" if any(re.fullmatch(pattern, arg) for arg in args) else ""

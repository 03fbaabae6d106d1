"""Uses of git that need approval."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hermes.exec.command_policy.programs.call import ProgramCall
from hermes.exec.command_policy.programs.file_writers import is_outside
from hermes.exec.command_policy.shell.words import is_vague, literal_text
from hermes.exec.command_policy.types import Certainty, Finding, ask_finding

_SAFE_KEYS = re.compile(
    r"(?:user\.(?:name|email|signingkey)|color\.[\w.]+|core\.(?:quotepath|autocrlf|safecrlf|"
    r"filemode|abbrev)|advice\.\w+|init\.defaultbranch|(?:commit|tag)\.gpgsign|diff\.(?:renames|"
    r"context|algorithm|mnemonicprefix|noprefix)|log\.\w+|pull\.(?:rebase|ff)|merge\.(?:ff|"
    r"conflictstyle)|rebase\.(?:autostash|autosquash)|fetch\.prune|push\.default|grep\.\w+|"
    r"column\.\w+|status\.\w+|branch\.sort|tag\.sort)",
    re.IGNORECASE,
)
_RUNNING_OPTIONS = (
    "--upload-pack --receive-pack --exec --open-files-in-pager --ext-diff --extcmd --template "
    "--tree-filter --index-filter --msg-filter --env-filter --commit-filter --tag-name-filter "
    "--to-cmd --cc-cmd --smtp-server --strategy-option-exec"
).split()


_WRITING_SUBCOMMANDS = frozenset(
    "init add stage commit checkout switch restore stash merge cherry-pick revert tag branch reset "
    "rm mv apply notes update-ref update-index symbolic-ref read-tree write-tree commit-tree "
    "hash-object mktree rebase am pull fetch gc prune repack pack-refs reflog replace".split()
)
"""Subcommands that write to the repository."""


def check_git(call: ProgramCall) -> Iterator[Finding]:
    at = 0
    if not all(folder and call.path_zones.in_workspace(folder) for folder in call.simple.folders):
        call.alters = True
    while at < len(call.args) and call.words[at].startswith("-"):
        word = call.words[at]
        if word in ("-c", "--config-env") or word.startswith("--config-env"):
            key, _, value = (call.words[at + 1] if at + 1 < len(call.words) else "").partition("=")
            if not _SAFE_KEYS.fullmatch(key) or value.startswith("!"):
                yield ask_finding("git -c can make git run any program")
            at += 1
        elif word.startswith("--exec-path="):
            yield ask_finding("git would use its programs from another folder")
        elif word in ("-C", "--git-dir", "--work-tree", "--namespace"):
            call.alters = True  # another repository may tell git to run something
            at += 1
        at += 1
    if at >= len(call.args):
        return
    if at:  # the rules see prefixes, and options hide the subcommand from them
        call.words = call.words[at:]
        call.args = call.args[at:]
    if is_vague(call.args[0]):
        yield ask_finding("what git does is known only at run time", Certainty.UNCERTAIN)
        return
    yield from _check_subcommand(call, call.words[0])


def _check_subcommand(call: ProgramCall, name: str) -> Iterator[Finding]:
    args = call.words[1:]
    call.commits = name in _WRITING_SUBCOMMANDS
    if any(arg.partition("=")[0] in _RUNNING_OPTIONS for arg in args):
        yield ask_finding(f"git {name} is given a program to run")
    if any("ext::" in arg or arg.startswith("fd::") for arg in args):
        yield ask_finding("git would run a program as its transport")
    if name == "archive" and any(arg.startswith("--remote") for arg in args):
        yield ask_finding("git archive connects to another machine")
    if name == "grep" and any(re.match(r"-[a-zA-Z]*O", arg) for arg in args):
        yield ask_finding("git grep is given a program to run")
    if name == "rebase" and any(re.match(r"-[a-zA-Z]*x|--exec", arg) for arg in args):
        yield ask_finding("git rebase is given a command to run")
    if name in ("clone", "fetch", "pull") and any(re.match(r"-u|-c|--config", arg) for arg in args):
        yield ask_finding(f"git {name} is given a program to run")
    output = call.option_value("--output", "--output-directory")
    if output is not None:
        call.alters = True
        if is_outside(call, output):
            yield ask_finding("git writes outside the project folder")
    yield from _check_special(call, name, args)


_DISCARDING_OPTIONS: dict[str, str] = {
    "reset": r"--hard|--merge|--keep",
    "branch": r"-[a-zA-Z]*[Df][a-zA-Z]*|--force",
    "checkout": r"-[a-zA-Z]*[fB][a-zA-Z]*|--force|--orphan",
    "switch": r"-[a-zA-Z]*[fC][a-zA-Z]*|--force|--force-create|--discard-changes|--orphan",
    "stash": r"clear|drop",
    "reflog": r"expire|delete",
    "update-ref": r"-d|--delete|--stdin",
    "symbolic-ref": r"-d|--delete",
    "tag": r"-[a-zA-Z]*[df][a-zA-Z]*|--delete|--force",
    "notes": r"remove|prune",
    "gc": r"--prune(?:=.*)?",
    "prune": r".*",
    "rebase": r"--root",
    "worktree": r"-f|--force",
    "submodule": r"deinit",
    "lfs": r"prune|migrate",
    "replace": r".*",
}
"""Options and words that make a subcommand discard something."""
_EVERYTHING = frozenset((".", "./", ":/", "*", ":/*", "./*", "**"))


def _discards_work(call: ProgramCall, name: str, args: list[str]) -> bool:
    pattern = _DISCARDING_OPTIONS.get(name)
    if pattern is not None and (
        any(re.fullmatch(pattern, arg) for arg in args) or (name == "prune" and not args)
    ):
        return True
    whole = any(literal_text(arg) in _EVERYTHING for arg in args)
    if name == "restore":
        return whole and not any(arg in ("-S", "--staged") for arg in args)
    if name == "rm":
        return whole and "--cached" not in args
    return name == "checkout" and whole


def _check_special(call: ProgramCall, name: str, args: list[str]) -> Iterator[Finding]:
    words = [arg for arg in args if not arg.startswith("-")]
    if _discards_work(call, name, args):
        yield ask_finding(f"git {name} discards saved or uncommitted work")
    if name == "remote" and words[:1] in (["add"], ["set-url"], ["rename"], ["rm"], ["remove"]):
        yield ask_finding("git remote changes which machine work is sent to")
    if name == "config" and not any(
        arg in ("--get", "--list", "-l", "--get-all", "--get-regexp", "list", "get") for arg in args
    ):
        if len(words) != 1 and not (words and _SAFE_KEYS.fullmatch(words[0])):
            yield ask_finding("git config can make git run any program")
        if any(arg in ("--global", "--system", "-e", "--edit") or arg.startswith(("-f", "--file"))
               for arg in args):  # fmt: skip
            yield ask_finding("git config changes settings outside the project folder")
    elif name == "push" and (
        any(re.match(r"-[a-zA-Z]*[fd]|--(?:force|delete|mirror|prune|all|tags)", a) for a in args)
        or any(re.match(r"[+:]|[\w.-]+@|\w+://|[./~]", word) for word in words)
    ):
        yield ask_finding(
            "git push overwrites or deletes remote branches, or sends to another repository"
        )
    elif name == "submodule" and words[:1] == ["foreach"]:
        yield ask_finding("git submodule foreach runs a command in every submodule")
    elif name == "clean" and not any(re.match(r"-[a-z]*n|--dry-run", arg) for arg in args):
        yield ask_finding("git clean deletes untracked files")
    elif name in ("filter-branch", "difftool", "mergetool", "instaweb", "web--browse", "hook"):
        yield ask_finding(f"git {name} runs other programs")
    elif name in ("clone", "worktree", "init"):
        yield from _check_target(call, name, words)


def _check_target(call: ProgramCall, name: str, words: list[str]) -> Iterator[Finding]:
    if name == "worktree" and words[:1] != ["add"]:
        return
    target = words[1:2] if name != "init" else words[:1]
    if target and is_outside(call, target[0]):
        yield ask_finding(
            f"git {name} writes to {literal_text(target[0])}, outside the project folder"
        )

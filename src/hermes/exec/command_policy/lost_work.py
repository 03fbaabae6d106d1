"""Commands that lose work which no checkpoint covers: in `.git`, ignored files, other machines."""

import re

from hermes.exec.command_policy.paths import PathZones
from hermes.exec.command_policy.types import Argv, SimpleCommand
from hermes.exec.command_policy.words import LISTS
from hermes.exec.command_policy.wrappers import abbreviates_option, program_name, simplify_command

_GIT = {name: row for name, *row in LISTS.get_table("git discards")}
"""Letters or words, and long options, of a subcommand that discard something; what they do."""
_FIND_ALL = re.compile(
    r"(?s)(?: -(?:delete|depth|xdev|m..depth \d+|type \w|i?name \*|exec(?:dir)? (?:\S*/)?rm .*))+"
)
_GIT_WRITES = LISTS.get_words("git writes")
_DRY_RUN = re.compile(r"-[a-zA-Z]*n[a-zA-Z]*|--dry-run")


def writes_repository(argv: Argv) -> bool:
    words = simplify_command(argv)
    return words[:1] == ("git",) and not _GIT_WRITES.isdisjoint(words[1:2])


def explain_lost_work(simple: SimpleCommand, path_zones: PathZones) -> str:
    """What work a command would lose for good; empty when a checkpoint covers it."""
    name, args = program_name(simple.argv), simple.argv[1:]
    if name == "git":
        return _explain_git(simplify_command(simple.argv)[1:])
    if name == "rm":
        deletes = any(re.match(r"-\w*[rR]", a) or abbreviates_option(a, "recursive") for a in args)
    else:
        args = args if args and not args[0].startswith("-") else (".", *args)
        tests = "".join(f" {word}" for word in args[1:]) if name == "find" else ""
        deletes = bool(_FIND_ALL.fullmatch(tests)) and ("-delete" in tests or "rm " in tests)
    whole = deletes and any(path_zones.is_whole_workspace(arg, simple.folder) for arg in args)
    return "it deletes the whole project folder, ignored files included" if whole else ""


def _explain_git(argv: Argv) -> str:
    name, args = "".join(argv[:1]), argv[1:]
    if name in ("prune", "filter-branch"):
        return f"git {name} deletes commits for good"
    if name not in _GIT or (name == "clean" and any(map(_DRY_RUN.fullmatch, args))):
        return ""
    words, options, effect = _GIT[name]
    given = {f"-{letter}" for arg in args if re.match(r"-\w", arg) for letter in arg[1:]}
    given.update(f"-{o[0]}" for o in ("delete", "force") for a in args if abbreviates_option(a, o))
    loses = (
        not {*words.split()}.isdisjoint({*given, *args[:1]})
        or any(abbreviates_option(arg, *options.split()) for arg in args)
        or (name == "branch" and given >= {"-d", "-f"})
        or (name == "push" and any(arg.startswith(("+", ":")) for arg in args))
    )
    return f"it {effect}" if loses else ""

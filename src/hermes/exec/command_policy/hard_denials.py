"""Hard denials: commands that no mode and no answer allows, recognised by their literal words."""

import re

from hermes.exec.command_policy import wrappers
from hermes.exec.command_policy.paths import PathZones
from hermes.exec.command_policy.types import Argv
from hermes.exec.command_policy.words import LISTS
from hermes.exec.command_policy.wrappers import abbreviates_option, find_values, program_name

_READ_ONLY_OPTIONS = frozenset("-l --list -h --help -V --version -i -I print -d --dump".split())
_NEVER = {
    name: (set(words.split()), effect)
    for names, words, effect in LISTS.get_table("programs that never run")
    for name in names.split()
}
_DISK_PROGRAMS = LISTS.get_words("programs for images of disks")
_EFFECTS = dict(LISTS.get_table("effects on vital folders"))
_WRITERS = frozenset("cp install ln tee truncate dd unlink".split())
_OUTPUT_OPTIONS = {n: o.split() for n, o in LISTS.get_table("options that name a written file")}
_EVERY_PROCESS = frozenset((".", ".*", "", "*", "^", "$"))
_NAME = re.compile(r"(?<![\w.-])([a-z][a-z0-9.]*)(?![\w.=-])")
_OPTION = re.compile("-.")
_EDITING = frozenset(("sed", "perl", "unlink", *_OUTPUT_OPTIONS))
"""They are denied only what nobody may overwrite."""
_BY_NAME = re.compile(r"^-i?(?:name|path)\n.*\w", re.MULTILINE)
_SYSTEM = LISTS.get_words("vital folders") - {"/root"} | {""}
"""In these, what find deletes by its name is vital too."""
_NAMES = frozenset(("kill", "pkill", "killall")).union(_NEVER, _EFFECTS, _WRITERS, _EDITING)


def explain_denial(argv: Argv, folder: str | None, path_zones: PathZones) -> str:
    """Why this simple command is always denied; empty when it is not."""
    name, args = program_name(argv), argv[1:]
    if name not in _NAMES:
        return ""
    reason = _explain_program(name, args)
    if reason and not (name in _DISK_PROGRAMS and _are_files(args, folder, path_zones)):
        return reason
    vital, written = _find_targets(name, args)
    reasons = [f"{_EFFECTS[name]} {w}" for w in vital if path_zones.is_vital(w, folder)]
    reasons += [path_zones.explain_denied_write(word, folder) for word in written]
    return next(filter(None, reasons), "")


def _are_files(args: Argv, folder: str | None, path_zones: PathZones) -> bool:
    """Whether words are given, and each could name a file: an image of a disk, but no device."""
    words = [word for word in args if not word.startswith("-")]
    return bool(words) and all(
        path_zones.resolve_path(word, folder) and not path_zones.explain_denied_write(word, folder)
        for word in words
    )


def find_hard_program(text: str) -> str:
    """A program with hard denials that a text names, or empty."""
    return next((n for n in _NAME.findall(text) if n in _NAMES and n not in _EDITING), "")


def _explain_program(name: str, args: Argv) -> str:
    """Denials that do not depend on paths."""
    flags, words = _split_flags(args)
    if name in _NEVER:
        words_of_it, effect = _NEVER[name]
        never = not words_of_it or any(arg.lower() in words_of_it for arg in args)
        if never or ("!reads" in words_of_it and args and _READ_ONLY_OPTIONS.isdisjoint(args)):
            return f"{name} {effect}"
    if name == "rm" and any(abbreviates_option(flag, "no-preserve-root") for flag in flags):
        return "rm --no-preserve-root"
    named = args[:1] in (("-s",), ("-n",), ("--signal",))
    ids = args[2:] if named else args[len(args) > 1 and args[0][:1] == "-" :]
    every = name == "kill" and not {"-1", "1"}.isdisjoint(ids) and args[0] not in ("-l", "-L")
    if name in ("pkill", "killall"):
        by_user = len(words) <= 1 and bool(flags & {"u", "U"})
        every = by_user or not _EVERY_PROCESS.isdisjoint(words)
    return "kills every process" if every else ""


def _find_targets(name: str, args: Argv) -> tuple[list[str], list[str]]:
    """The words that must not be vital folders, and the files that are written."""
    flags, words = _split_flags(args)
    recursive = any(abbreviates_option(flag, "recursive") for flag in flags)
    recursive = recursive or bool(flags & {"r", "R"})
    match name:
        case "rm":
            return [w for w in words if recursive or set(w) & set("*?[")], words
        case "chmod" | "chown" | "chgrp" | "chattr" | "setfacl":
            return words if recursive else [], []
        case "mv" | "cp" | "install" | "ln" | "rsync":
            into = [*find_values(args, ["-t", "--target-directory"])]
            moved = [word for word in words if word not in into] if into else words[:-1]
            written = into or words[-1:]
            written += [f"{folder}/{program_name((w,))}" for folder in written for w in moved]
            replaced = words[-1:] if any(f.startswith("--del") for f in flags) else []
            return (moved, [*moved, *written]) if name == "mv" else (replaced, written)
        case "dd":
            return [], [arg[3:] for arg in args if arg.startswith("of=")]
        case "shred" | "srm" | "wipe":
            return words, words
        case "find":
            return _find_deleted(args), []
        case "sed" | "perl":
            in_place = "i" in flags or any(abbreviates_option(f, "in-place") for f in flags)
            return [], [w for w in words if in_place and not re.search("/[a-z]$", w)]  # no script
        case "curl" | "wget" | "sort":
            return [], list(find_values(args, _OUTPUT_OPTIONS[name]))
    return [], words if name in _WRITERS else []


def _find_deleted(args: Argv) -> list[str]:
    run = {program_name(argv) for argv in wrappers.unwrap_command(("find", *args)).commands}
    deletes = "-delete" in args or not run.isdisjoint(("rm", "shred", "unlink"))
    named = _BY_NAME.search("\n".join(args)) and {"!", "-not", "-o", "-or", ","}.isdisjoint(args)
    starts = wrappers.find_starts(args) if deletes else ()
    return [folder for folder in starts if not named or folder.rstrip("/") in _SYSTEM]


def _split_flags(args: Argv) -> tuple[set[str], list[str]]:
    """Single letters and long names of the options, and the other words."""
    end = args.index("--") if "--" in args else len(args)
    options = list(filter(_OPTION.match, args[:end]))
    flags = {letter for o in options if not o.startswith("--") for letter in o[1:]}
    flags.update(o.partition("=")[0] for o in options if o.startswith("--"))
    return flags, [*(arg for arg in args[:end] if not _OPTION.match(arg)), *args[end + 1 :]]

"""Hard denials: commands that no mode and no answer allows, recognised by their literal words."""

import re
from collections.abc import Iterator
from itertools import chain

from hermes.exec.command_policy.paths import PathZones
from hermes.exec.command_policy.types import Argv
from hermes.exec.command_policy.words import LISTS, expand_braces
from hermes.exec.command_policy.wrappers import abbreviates_option, program_name

_STOPS = "stops the machine"
_STOPPING = frozenset("shutdown reboot halt poweroff telinit killall5 kexec".split())
_FORMATTING = frozenset("mke2fs mkswap mkntfs mkdosfs newfs wipefs blkdiscard".split())
_DISKS = frozenset("fdisk sfdisk cfdisk gdisk sgdisk parted hdparm badblocks".split())
_READ_ONLY_OPTIONS = frozenset("-l --list -h --help -V --version -i -I print -d --dump".split())
_SYSTEMCTL = LISTS.get_words("systemctl stops")
_DISK_WORDS = {name: words.split() for name, words in LISTS.get_table("disk words")}
_EFFECTS = dict(LISTS.get_table("effects on vital folders"))
_WRITERS = frozenset("cp install ln tee truncate dd unlink".split())
_OUTPUT_OPTIONS = {n: o.split() for n, o in LISTS.get_table("options that name a written file")}
_EVERY_PROCESS = frozenset((".", ".*", "", "*", "^", "$"))
_NAME = re.compile(r"(?<![\w.-])([a-z][a-z0-9.]*)(?![\w.=-])")
_EDITING = frozenset(("sed", "unlink", *_OUTPUT_OPTIONS))
"""They are denied only what nobody may overwrite."""
_NAMES = LISTS.get_words("other programs with denials").union(
    _STOPPING, _FORMATTING, _DISKS, _DISK_WORDS, _EFFECTS, _WRITERS, _EDITING
)


def explain_denial(argv: Argv, folder: str | None, path_zones: PathZones) -> str:
    """Why this simple command is always denied; empty when it is not."""
    name, args = program_name(argv), argv[1:]
    if name not in _NAMES:
        return ""
    if reason := _explain_program(name, args):
        return reason
    vital, written = _find_targets(name, args)
    for word in chain.from_iterable(map(expand_braces, vital)):
        if path_zones.is_vital(word, folder):
            return f"{_EFFECTS[name]} {word}"
    reasons = (path_zones.explain_denied_write(word, folder) for word in written)
    return next(filter(None, reasons), "")


def find_hard_program(text: str) -> str:
    """A program with hard denials that a text names, or empty."""
    return next((n for n in _NAME.findall(text) if n in _NAMES and n not in _EDITING), "")


def _explain_program(name: str, args: Argv) -> str:
    """Denials that do not depend on paths."""
    flags, words = _split_flags(args)
    if name in _STOPPING or (name == "init" and args[:1] in (("0",), ("1",), ("6",))):
        return _STOPS
    if name in ("systemctl", "loginctl") and not _SYSTEMCTL.isdisjoint(args):
        return _STOPS
    if name in _FORMATTING or (name.startswith("mkfs") and args):
        return f"{name} destroys a file system"
    if name in _DISKS and args and _READ_ONLY_OPTIONS.isdisjoint(args):
        return f"{name} changes disks"
    if name in _DISK_WORDS and any(arg.lower() in _DISK_WORDS[name] for arg in args):
        return f"{name} destroys a disk"
    if name == "rm" and any(abbreviates_option(flag, "no-preserve-root") for flag in flags):
        return "rm --no-preserve-root"
    every = name == "kill" and not {"-1", "1"}.isdisjoint(_find_process_ids(args))
    if name in ("pkill", "killall"):
        by_user = len(words) <= 1 and bool(flags & {"u", "U"})
        every = by_user or not _EVERY_PROCESS.isdisjoint(words)
    return "kills every process" if every else ""


def _find_process_ids(args: Argv) -> Argv:
    if args[:1] in (("-l",), ("-L",)):
        return ()
    if args[:1] in (("-s",), ("-n",), ("--signal",)):
        return args[2:]
    return args[1:] if len(args) > 1 and args[0].startswith("-") else args


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
        case "mv" | "cp" | "install" | "ln":
            into = [*_find_outputs(args, ["-t", "--target-directory"])]
            moved = [word for word in words if word not in into] if into else words[:-1]
            written = [f"{folder}/{program_name((w,))}" for folder in into for w in moved]
            return moved if name == "mv" else [], written or words[-1:]
        case "dd":
            return [], [arg[3:] for arg in args if arg.startswith("of=")]
        case "shred" | "srm" | "wipe":
            return words, words
        case "find":
            return _find_deleted(args), []
        case "rsync":
            return words[-1:] if any(f.startswith("--del") for f in flags) else [], []
        case "sed":
            in_place = "i" in flags or any(abbreviates_option(f, "in-place") for f in flags)
            return [], [w for w in words if in_place and not re.search("/[a-z]$", w)]  # no script
        case "curl" | "wget" | "sort":
            return [], list(_find_outputs(args, _OUTPUT_OPTIONS[name]))
    return [], words if name in _WRITERS else []


def _find_outputs(args: Argv, options: list[str]) -> Iterator[str]:
    """The values of these options: `-o FILE`, `-oFILE`, `--output FILE`, `--output=FILE`."""
    letters = "".join(option[1:] for option in options if len(option) == 2)
    for at, arg in enumerate(args):
        name, _, value = arg.partition("=")
        if short := re.fullmatch(f"-[A-Za-z]*?[{letters}](.*)", arg):
            value = short[1]
        elif name not in options:
            continue
        yield from [value] if value else args[at + 1 : at + 2]


def _find_deleted(args: Argv) -> list[str]:
    runs = {at + 1 for at, arg in enumerate(args) if arg in ("-exec", "-execdir", "-ok", "-okdir")}
    run = {program_name(args[at : at + 1]) for at in runs}
    if "-delete" not in args and run.isdisjoint(("rm", "shred", "unlink")):
        return []
    end = next((at for at, arg in enumerate(args) if arg.startswith(("-", "(", "!"))), len(args))
    return list(args[:end])


def _split_flags(args: Argv) -> tuple[set[str], list[str]]:
    """Single letters and long names of the options, and the other words."""
    flags: set[str] = set()
    words: list[str] = []
    for at, arg in enumerate(args):
        if arg == "--":
            return flags, [*words, *args[at + 1 :]]
        if arg.startswith("--"):
            flags.add(arg.partition("=")[0])
        elif arg.startswith("-") and len(arg) > 1:
            flags.update(arg[1:])
        else:
            words.append(arg)
    return flags, words

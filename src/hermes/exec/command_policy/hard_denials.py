"""The hard list: what no mode and no answer makes runnable, told from a command's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from hermes.exec.command_policy.paths import Places, blocked_write
from hermes.exec.command_policy.shell.words import literal, vague, wild

Folders = tuple[str | None, ...]

_ALWAYS = {
    "shutdown reboot halt poweroff telinit killall5 kexec": "stops the machine",
    "mkfs mke2fs mkswap mkntfs mkdosfs newfs wipefs blkdiscard mkfs.ext2 mkfs.ext3 mkfs.ext4 "
    "mkfs.xfs mkfs.btrfs mkfs.vfat mkfs.fat mkfs.ntfs mkfs.f2fs": "destroys a file system",
}
_STOPS = {name: why for names, why in _ALWAYS.items() for name in names.split()}
_DISKS = frozenset("fdisk sfdisk cfdisk gdisk sgdisk parted hdparm badblocks".split())
_LOOKING = frozenset("-l --list -h --help -V --version -i -I print -d --dump".split())
_SYSTEMCTL = frozenset(
    "poweroff reboot halt kexec suspend hibernate hybrid-sleep rescue emergency isolate "
    "soft-reboot exit".split()
)


def blocked(argv: tuple[str, ...], folders: Folders, places: Places) -> str:
    """Why this simple command is never run, or empty."""
    name = literal(argv[0]).rpartition("/")[2]
    args = argv[1:]
    if name in _STOPS and not (name == "mkfs" and not args):
        return f"{name} {_STOPS[name]}"
    if name in _DISKS and args and not any(literal(arg) in _LOOKING for arg in args):
        return f"{name} changes disks"
    check = _CHECKS.get(name)
    return check(args, folders, places) if check else ""


def named(text: str) -> str:
    """A program of the hard list that a text names which could not be read, or empty."""
    return next((name for _, name in names_in(text)), "")


def names_in(text: str) -> Iterator[tuple[int, str]]:
    """Where a text names programs of the hard list."""
    names = _names(text)
    if not names:
        return iter(())
    pattern = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, names))})(?![\w.=-])")
    return ((found.start(1), found[1]) for found in pattern.finditer(text))


@lru_cache(8)
def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted(_NAMES.intersection(_NAME.findall(text))))


def _flags(args: tuple[str, ...]) -> tuple[set[str], list[str]]:
    """Single letters and long names of the options, and the other words."""
    short: set[str] = set()
    rest: list[str] = []
    for at, arg in enumerate(args):
        if arg == "--":
            rest += args[at + 1 :]
            break
        if arg.startswith("--"):
            short.add(literal(arg).partition("=")[0])
        elif arg.startswith("-") and len(arg) > 1:
            short.update(literal(arg[1:]))
        else:
            rest.append(arg)
    return short, rest


def _recursive(flags: set[str]) -> bool:
    return bool(flags & {"r", "R"}) or any(
        flag.startswith("--rec") and "--recursive".startswith(flag) for flag in flags
    )


def _vital(words: list[str], folders: Folders, places: Places) -> str:
    for word in words:
        text = literal(word)
        if not vague(word) and re.fullmatch(r"(?:\./)*\.\.(?:/+\.\.?)*/*(?:\*|\.\*)?", text):
            return text
        if "vital" in places.zones(word, folders, follow=not wild(word)):
            return text
    return ""


def _rm(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    flags, words = _flags(args)
    if "--no-preserve-root" in flags:
        return "rm --no-preserve-root"
    if not _recursive(flags):
        words = [word for word in words if wild(word)]
    target = _vital(words, folders, places)
    return f"deletes {target}" if target else _devices(words, folders, places)


def _change_all(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    flags, words = _flags(args)
    target = _vital(words, folders, places) if _recursive(flags) else ""
    return f"changes all of {target}" if target else ""


def _move(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    _, words = _flags(args)
    target = _vital(words[:-1], folders, places)
    return f"moves {target} away" if target else _devices(words[-1:], folders, places)


def _devices(words: list[str], folders: Folders, places: Places) -> str:
    for word in words:
        if reason := blocked_write(word, folders, places):
            return reason
    return ""


def _written(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    return _devices(_flags(args)[1], folders, places)


def _last_written(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    return _devices(_flags(args)[1][-1:], folders, places)


def _dd(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    return _devices([a[3:] for a in args if a.startswith("of=")], folders, places)


def _shred(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    words = _flags(args)[1]
    target = _vital(words, folders, places)
    return f"destroys {target}" if target else _devices(words, folders, places)


def _find(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    starts = []
    for arg in args:
        if arg.startswith(("-", "(", "!")):
            break
        starts.append(arg)
    deletes = "-delete" in args or any(
        literal(word).rpartition("/")[2] in ("rm", "shred", "unlink")
        for at, word in enumerate(args)
        if at and args[at - 1] in ("-exec", "-execdir", "-ok", "-okdir")
    )
    target = _vital(starts, folders, places) if deletes else ""
    return f"deletes what is in {target}" if target else ""


def _kill(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    words = [literal(arg) for arg in args]
    if words[:1] in (["-l"], ["-L"]):
        return ""
    targets = words
    if words and words[0] in ("-s", "-n", "--signal"):
        targets = words[2:]
    elif words and words[0].startswith("-") and words[0] != "--":
        targets = words[1:] if len(words) > 1 else words
    if any(target in ("-1", "1") for target in targets if target != "--"):
        return "kills every process"
    return ""


def _pkill(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    flags, words = _flags(args)
    whole = {".", ".*", "", "*", "^", "$"}
    if any(literal(word) in whole for word in words) or (len(words) <= 1 and flags & {"u", "U"}):
        return "kills every process"
    return ""


def _init(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    return "stops the machine" if args[:1] in (("0",), ("6",), ("1",)) else ""


def _systemctl(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    return "stops the machine" if any(literal(arg) in _SYSTEMCTL for arg in args) else ""


def _rsync(args: tuple[str, ...], folders: Folders, places: Places) -> str:
    flags, words = _flags(args)
    deletes = any(flag.startswith("--del") for flag in flags)
    target = _vital(words[-1:], folders, places) if deletes else ""
    return f"replaces all of {target}" if target else ""


def _subcommand(*names: str) -> Callable[[tuple[str, ...], Folders, Places], str]:
    def check(args: tuple[str, ...], folders: Folders, places: Places) -> str:
        found = [arg for arg in args if literal(arg).lower() in names]
        return f"{found[0]} destroys a disk" if found else ""

    return check


_CHECKS: dict[str, Callable[[tuple[str, ...], Folders, Places], str]] = {
    "rm": _rm,
    "chmod": _change_all,
    "chown": _change_all,
    "chgrp": _change_all,
    "chattr": _change_all,
    "setfacl": _change_all,
    "mv": _move,
    "cp": _last_written,
    "install": _last_written,
    "ln": _last_written,
    "tee": _written,
    "truncate": _written,
    "dd": _dd,
    "shred": _shred,
    "srm": _shred,
    "wipe": _shred,
    "find": _find,
    "kill": _kill,
    "pkill": _pkill,
    "killall": _pkill,
    "init": _init,
    "systemctl": _systemctl,
    "loginctl": _systemctl,
    "rsync": _rsync,
    "cryptsetup": _subcommand("luksformat", "erase", "lukserase"),
    "zpool": _subcommand("destroy", "labelclear"),
    "zfs": _subcommand("destroy"),
    "diskutil": _subcommand("erasedisk", "erasevolume", "partitiondisk", "zerodisk"),
    "pvremove": _subcommand("-y", "-f", "-ff", "--force"),
    "vgremove": _subcommand("-y", "-f", "--force"),
    "lvremove": _subcommand("-y", "-f", "--force"),
    "nvme": _subcommand("format", "sanitize"),
    "mdadm": _subcommand("--zero-superblock"),
}
_NAME = re.compile(r"(?<![\w.-])([a-z][a-z0-9.]*)(?![\w.=-])")
HARD = (*_STOPS, *_DISKS, *_CHECKS)
"""The programs of the hard list."""
_NAMES = frozenset(HARD)

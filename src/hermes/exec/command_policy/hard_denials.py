"""Hard denials: commands that no mode and no answer allows, recognised by their words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from hermes.exec.command_policy.paths import PathZones, explain_denied_write
from hermes.exec.command_policy.shell.words import has_wildcard, is_vague, literal_text

Folders = tuple[str | None, ...]

_ALWAYS_DENIED = {
    "shutdown reboot halt poweroff telinit killall5 kexec": "stops the machine",
    "mkfs mke2fs mkswap mkntfs mkdosfs newfs wipefs blkdiscard mkfs.ext2 mkfs.ext3 mkfs.ext4 "
    "mkfs.xfs mkfs.btrfs mkfs.vfat mkfs.fat mkfs.ntfs mkfs.f2fs": "destroys a file system",
}
_DENIED_REASONS = {name: why for names, why in _ALWAYS_DENIED.items() for name in names.split()}
_DISKS = frozenset("fdisk sfdisk cfdisk gdisk sgdisk parted hdparm badblocks".split())
_READ_ONLY_OPTIONS = frozenset("-l --list -h --help -V --version -i -I print -d --dump".split())
_SYSTEMCTL = frozenset(
    "poweroff reboot halt kexec suspend hibernate hybrid-sleep rescue emergency isolate "
    "soft-reboot exit".split()
)


def explain_denial(argv: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    """Why this simple command is always denied; empty when it is not."""
    name = literal_text(argv[0]).rpartition("/")[2]
    args = argv[1:]
    if name in _DENIED_REASONS and not (name == "mkfs" and not args):
        return f"{name} {_DENIED_REASONS[name]}"
    if name in _DISKS and args and not any(literal_text(arg) in _READ_ONLY_OPTIONS for arg in args):
        return f"{name} changes disks"
    check = _CHECKS.get(name)
    return check(args, folders, path_zones) if check else ""


def find_hard_program(text: str) -> str:
    """A program with hard denials that a text names, or empty."""
    return next((name for _, name in locate_hard_programs(text)), "")


def locate_hard_programs(text: str) -> Iterator[tuple[int, str]]:
    """Positions and names of programs with hard denials in a text."""
    names = _intersect_names(text)
    if not names:
        return iter(())
    pattern = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, names))})(?![\w.=-])")
    return ((found.start(1), found[1]) for found in pattern.finditer(text))


@lru_cache(8)
def _intersect_names(text: str) -> tuple[str, ...]:
    return tuple(sorted(_NAMES.intersection(_NAME.findall(text))))


def _split_flags(args: tuple[str, ...]) -> tuple[set[str], list[str]]:
    """Single letters and long names of the options, and the other words."""
    short: set[str] = set()
    rest: list[str] = []
    for at, arg in enumerate(args):
        if arg == "--":
            rest += args[at + 1 :]
            break
        if arg.startswith("--"):
            short.add(literal_text(arg).partition("=")[0])
        elif arg.startswith("-") and len(arg) > 1:
            short.update(literal_text(arg[1:]))
        else:
            rest.append(arg)
    return short, rest


def _is_recursive(flags: set[str]) -> bool:
    return bool(flags & {"r", "R"}) or any(
        flag.startswith("--rec") and "--recursive".startswith(flag) for flag in flags
    )


def _find_vital(words: list[str], folders: Folders, path_zones: PathZones) -> str:
    for word in words:
        text = literal_text(word)
        if not is_vague(word) and re.fullmatch(r"(?:\./)*\.\.(?:/+\.\.?)*/*(?:\*|\.\*)?", text):
            return text
        if "vital" in path_zones.classify_word(word, folders, follow=not has_wildcard(word)):
            return text
    return ""


def _check_rm(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    flags, words = _split_flags(args)
    if "--no-preserve-root" in flags:
        return "rm --no-preserve-root"
    if not _is_recursive(flags):
        words = [word for word in words if has_wildcard(word)]
    target = _find_vital(words, folders, path_zones)
    return f"deletes {target}" if target else _check_writes(words, folders, path_zones)


def _check_recursive_change(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    flags, words = _split_flags(args)
    target = _find_vital(words, folders, path_zones) if _is_recursive(flags) else ""
    return f"changes all of {target}" if target else ""


def _check_move(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    _, words = _split_flags(args)
    target = _find_vital(words[:-1], folders, path_zones)
    return f"moves {target} away" if target else _check_writes(words[-1:], folders, path_zones)


def _check_writes(words: list[str], folders: Folders, path_zones: PathZones) -> str:
    for word in words:
        if reason := explain_denied_write(word, folders, path_zones):
            return reason
    return ""


def _check_all_targets(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    return _check_writes(_split_flags(args)[1], folders, path_zones)


def _check_last_target(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    return _check_writes(_split_flags(args)[1][-1:], folders, path_zones)


def _check_dd(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    return _check_writes([a[3:] for a in args if a.startswith("of=")], folders, path_zones)


def _check_shred(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    words = _split_flags(args)[1]
    target = _find_vital(words, folders, path_zones)
    return f"destroys {target}" if target else _check_writes(words, folders, path_zones)


def _check_find(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    starts = []
    for arg in args:
        if arg.startswith(("-", "(", "!")):
            break
        starts.append(arg)
    deletes = "-delete" in args or any(
        literal_text(word).rpartition("/")[2] in ("rm", "shred", "unlink")
        for at, word in enumerate(args)
        if at and args[at - 1] in ("-exec", "-execdir", "-ok", "-okdir")
    )
    target = _find_vital(starts, folders, path_zones) if deletes else ""
    return f"deletes what is in {target}" if target else ""


def _check_kill(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    words = [literal_text(arg) for arg in args]
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


def _check_pkill(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    flags, words = _split_flags(args)
    whole = {".", ".*", "", "*", "^", "$"}
    if any(literal_text(word) in whole for word in words) or (
        len(words) <= 1 and flags & {"u", "U"}
    ):
        return "kills every process"
    return ""


def _check_init(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    return "stops the machine" if args[:1] in (("0",), ("6",), ("1",)) else ""


def _check_systemctl(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    return "stops the machine" if any(literal_text(arg) in _SYSTEMCTL for arg in args) else ""


def _check_rsync(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
    flags, words = _split_flags(args)
    deletes = any(flag.startswith("--del") for flag in flags)
    target = _find_vital(words[-1:], folders, path_zones) if deletes else ""
    return f"replaces all of {target}" if target else ""


def _forbid_words(*names: str) -> Callable[[tuple[str, ...], Folders, PathZones], str]:
    def check(args: tuple[str, ...], folders: Folders, path_zones: PathZones) -> str:
        found = [arg for arg in args if literal_text(arg).lower() in names]
        return f"{found[0]} destroys a disk" if found else ""

    return check


_CHECKS: dict[str, Callable[[tuple[str, ...], Folders, PathZones], str]] = {
    "rm": _check_rm,
    "chmod": _check_recursive_change,
    "chown": _check_recursive_change,
    "chgrp": _check_recursive_change,
    "chattr": _check_recursive_change,
    "setfacl": _check_recursive_change,
    "mv": _check_move,
    "cp": _check_last_target,
    "install": _check_last_target,
    "ln": _check_last_target,
    "tee": _check_all_targets,
    "truncate": _check_all_targets,
    "dd": _check_dd,
    "shred": _check_shred,
    "srm": _check_shred,
    "wipe": _check_shred,
    "find": _check_find,
    "kill": _check_kill,
    "pkill": _check_pkill,
    "killall": _check_pkill,
    "init": _check_init,
    "systemctl": _check_systemctl,
    "loginctl": _check_systemctl,
    "rsync": _check_rsync,
    "cryptsetup": _forbid_words("luksformat", "erase", "lukserase"),
    "zpool": _forbid_words("destroy", "labelclear"),
    "zfs": _forbid_words("destroy"),
    "diskutil": _forbid_words("erasedisk", "erasevolume", "partitiondisk", "zerodisk"),
    "pvremove": _forbid_words("-y", "-f", "-ff", "--force"),
    "vgremove": _forbid_words("-y", "-f", "--force"),
    "lvremove": _forbid_words("-y", "-f", "--force"),
    "nvme": _forbid_words("format", "sanitize"),
    "mdadm": _forbid_words("--zero-superblock"),
}
_NAME = re.compile(r"(?<![\w.-])([a-z][a-z0-9.]*)(?![\w.=-])")
HARD_PROGRAMS = (*_DENIED_REASONS, *_DISKS, *_CHECKS)
"""Programs with hard denials."""
_NAMES = frozenset(HARD_PROGRAMS)

"""Programs that write, move or delete the files they are given: where those files are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hermes.exec.command_policy.programs.builtin_rules import NETWORK
from hermes.exec.command_policy.programs.call import Call
from hermes.exec.command_policy.shell.words import literal, vague, wild, written
from hermes.exec.command_policy.types import Certainty, Finding, objection

_BAD = frozenset(("outside", "vital", "secret", "git", "device", "network"))


def outside(call: Call, word: str) -> bool:
    """Not surely in the workspace, as far as can be told."""
    return bool(call.zones(word) & _BAD)


def _targets(call: Call, words: list[str], verb: str, *, strict: bool) -> Iterator[Finding]:
    """`strict`: what is not known, and the workspace itself, need a human."""
    for word in words:
        zones = call.zones(word)
        if zones & _BAD:
            yield objection(f"{call.name} {verb} {written(word)}, outside what it may change")
        elif strict and "top" in zones:
            yield objection(f"{call.name} {verb} the whole workspace")
        elif strict and (vague(word) or "unknown" in zones):
            yield objection(
                f"what {call.name} {verb} is only known when it runs", Certainty.UNCERTAIN
            )


def _remove(call: Call) -> Iterator[Finding]:
    words = call.rest()
    if any(word.startswith("\x1e") for word in call.args) and not words:
        yield objection(f"what {call.name} deletes is only known when it runs", Certainty.UNCERTAIN)
    yield from _targets(call, words, "deletes", strict=True)


def _move(call: Call) -> Iterator[Finding]:
    target = call.value("-t", "--target-directory")
    words = call.rest("-t --target-directory -S --suffix")
    sources = words if target is not None else words[:-1]
    yield from _targets(call, sources, "moves", strict=True)
    yield from _targets(
        call, [target] if target is not None else words[-1:], "replaces", strict=False
    )


def _copy(call: Call) -> Iterator[Finding]:
    target = call.value("-t", "--target-directory")
    words = call.rest("-t --target-directory -S --suffix -m --mode -o --owner -g --group")
    ends = [target] if target is not None else words[-1:]
    if ends == ["\x1e"]:  # as with xargs, which may add nothing
        ends = words[-2:]
    if len(words) > 1 and ends and literal(ends[0]).rstrip("/") in ("/tmp", "/var/tmp"):
        ends = [f"{literal(ends[0])}/{literal(words[0]).rpartition('/')[2] or 'x'}"]
    yield from _targets(call, ends, "writes", strict=False)


def _link(call: Call) -> Iterator[Finding]:
    words = call.rest("-t --target-directory -S --suffix")
    for word in words:
        if not vague(word) and outside(call, word):
            yield objection(f"ln links {written(word)}, outside the workspace")


def _receive(call: Call) -> Iterator[Finding]:
    """What comes through a pipe from the network stays suspect in the file."""
    if {source.rpartition("/")[2] for source in call.simple.sources} & NETWORK:
        for word in call.rest():
            call.downloads += call.paths(word)
    yield from _all(call)


def _all(call: Call) -> Iterator[Finding]:
    yield from _targets(call, call.rest("-m --mode -d --date -r --reference -s --size"), "writes",
                        strict=False)  # fmt: skip


def _mode(call: Call) -> Iterator[Finding]:
    words = call.rest("--reference")
    if words and re.search(r"[ugo]*\+[rwxX]*s|^[2467]\d{3}$|^0[2467]\d{3}$", words[0]):
        yield objection("chmod gives a program the rights of its owner")
    yield from _targets(call, words[1:], "changes", strict=call.has("-R", "--recursive"))


def _owner(call: Call) -> Iterator[Finding]:
    yield from _targets(call, call.rest("--reference --from")[1:], "changes", strict=True)


def _dd(call: Call) -> Iterator[Finding]:
    for arg in call.args:
        if arg.startswith("of="):
            yield from _targets(call, [arg[3:]], "writes", strict=True)


def _tar(call: Call) -> Iterator[Finding]:
    words = call.words
    for option in ("-C", "--directory", "--one-top-level"):
        folder = call.value(option)
        if folder is not None:
            yield from _targets(call, [folder], "unpacks to", strict=False)
    if any(re.fullmatch(r"-?[a-zA-Z]*P[a-zA-Z]*", w) for w in words[:1]) or "-P" in words:
        yield objection("tar uses absolute paths")
    creates = any(re.match(r"-?[a-zA-Z]*[cru]", w) for w in words[:1] if not w.startswith("--"))
    if creates or call.has("--create", "--append", "--update"):
        rest = call.rest("-C --directory --exclude -X")
        bundled = words and not words[0].startswith("-")
        archive = rest[1:2] if bundled else [a] if (a := call.value("-f", "--file")) else rest[:1]
        yield from _targets(call, archive, "writes", strict=False)


def _unzip(call: Call) -> Iterator[Finding]:
    for option in ("-d", "-o", "-O"):
        folder = call.value(option)
        if folder is not None and option == "-d":
            yield from _targets(call, [folder], "unpacks to", strict=False)


def _output(*options: str) -> Callable[[Call], Iterator[Finding]]:
    def check(call: Call) -> Iterator[Finding]:
        for option in options:
            target = call.value(option)
            if target is not None and target:
                yield from _targets(call, [target], "writes", strict=False)

    return check


def _rsync(call: Call) -> Iterator[Finding]:
    if call.has("-e", "--rsh", "--rsync-path"):
        yield objection("rsync is told to run a program")
    words = call.rest("--exclude --include -e --filter -f")
    if any(re.match(r"[\w.@-]+:", w) or "::" in w for w in words):
        yield objection("rsync copies to or from another machine")
    yield from _targets(call, words[-1:], "writes", strict=call.has("--delete"))


def _shred(call: Call) -> Iterator[Finding]:
    yield objection(f"{call.name} destroys files for good")


def _kill(call: Call) -> Iterator[Finding]:
    if any(wild(arg) for arg in call.args):
        yield objection("what it ends is only known when it runs", Certainty.UNCERTAIN)


WRITING: dict[str, Callable[[Call], Iterator[Finding]]] = {
    "rm": _remove,
    "unlink": _remove,
    "rmdir": _all,
    "mv": _move,
    "cp": _copy,
    "install": _copy,
    "ln": _link,
    "link": _link,
    "touch": _all,
    "mkdir": _all,
    "mkfifo": _all,
    "tee": _receive,
    "sponge": _receive,
    "truncate": _all,
    "chmod": _mode,
    "chown": _owner,
    "chgrp": _owner,
    "dd": _dd,
    "tar": _tar,
    "unzip": _unzip,
    "zip": _output("-O", "--out"),
    "gcc": _output("-o"),
    "g++": _output("-o"),
    "clang": _output("-o"),
    "clang++": _output("-o"),
    "cc": _output("-o"),
    "c++": _output("-o"),
    "rustc": _output("-o", "--out-dir"),
    "go": _output("-o"),
    "pandoc": _output("-o", "--output", "--filter", "--lua-filter"),
    "ffmpeg": _output(),
    "patch": _output("-o", "-d", "--output", "--directory"),
    "split": _output(),
    "sort": _output("-o", "--output"),
    "rsync": _rsync,
    "shred": _shred,
    "srm": _shred,
    "kill": _kill,
    "pkill": _kill,
    "killall": _kill,
    "cmake": _output("-B", "--install-prefix"),
    "mktemp": _output("-p", "--tmpdir"),
    "7z": _output("-o"),
}

"""Programs that write, move or delete files: whether those are inside the workspace."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hermes.exec.command_policy.programs.builtin_rules import NETWORK_PROGRAMS
from hermes.exec.command_policy.programs.call import ProgramCall
from hermes.exec.command_policy.shell.words import (
    display_word,
    has_wildcard,
    is_vague,
    literal_text,
)
from hermes.exec.command_policy.types import Certainty, Finding, ask_finding

_OUTSIDE_ZONES = frozenset(("outside", "vital", "secret", "git", "device", "network"))


def is_outside(call: ProgramCall, word: str) -> bool:
    """Whether a path may be outside the workspace, or is protected."""
    return bool(call.classify_word(word) & _OUTSIDE_ZONES)


def _check_targets(
    call: ProgramCall, words: list[str], verb: str, *, strict: bool
) -> Iterator[Finding]:
    """`strict`: unknown paths, and the workspace as a whole, need approval."""
    for word in words:
        zones = call.classify_word(word)
        if zones & _OUTSIDE_ZONES:
            yield ask_finding(
                f"{call.name} {verb} {display_word(word)}, outside the project folder"
            )
        elif strict and "top" in zones:
            yield ask_finding(f"{call.name} {verb} the whole project folder")
        elif strict and (is_vague(word) or "unknown" in zones):
            yield ask_finding(
                f"what {call.name} {verb} is known only at run time", Certainty.UNCERTAIN
            )


def _check_remove(call: ProgramCall) -> Iterator[Finding]:
    words = call.positional_words()
    if any(word.startswith("\x1e") for word in call.args) and not words:
        yield ask_finding(
            f"what {call.name} deletes is known only at run time", Certainty.UNCERTAIN
        )
    yield from _check_targets(call, words, "deletes", strict=True)


def _check_move(call: ProgramCall) -> Iterator[Finding]:
    target = call.option_value("-t", "--target-directory")
    words = call.positional_words("-t --target-directory -S --suffix")
    sources = words if target is not None else words[:-1]
    yield from _check_targets(call, sources, "moves", strict=True)
    yield from _check_targets(
        call, [target] if target is not None else words[-1:], "replaces", strict=False
    )


def _check_copy(call: ProgramCall) -> Iterator[Finding]:
    target = call.option_value("-t", "--target-directory")
    words = call.positional_words(
        "-t --target-directory -S --suffix -m --mode -o --owner -g --group"
    )
    ends = [target] if target is not None else words[-1:]
    if ends == ["\x1e"]:  # as with xargs, which may add nothing
        ends = words[-2:]
    if len(words) > 1 and ends and literal_text(ends[0]).rstrip("/") in ("/tmp", "/var/tmp"):
        ends = [f"{literal_text(ends[0])}/{literal_text(words[0]).rpartition('/')[2] or 'x'}"]
    yield from _check_targets(call, ends, "writes", strict=False)


def _check_link(call: ProgramCall) -> Iterator[Finding]:
    words = call.positional_words("-t --target-directory -S --suffix")
    for word in words:
        if not is_vague(word) and is_outside(call, word):
            yield ask_finding(
                f"ln creates a link to {display_word(word)}, outside the project folder"
            )


def _check_tee(call: ProgramCall) -> Iterator[Finding]:
    """Data piped from the network makes the file a download."""
    if {source.rpartition("/")[2] for source in call.simple.sources} & NETWORK_PROGRAMS:
        for word in call.positional_words():
            call.downloads += call.resolve_paths(word)
    yield from _check_all_words(call)


def _check_all_words(call: ProgramCall) -> Iterator[Finding]:
    words = call.positional_words("-m --mode -d --date -r --reference -s --size")
    yield from _check_targets(call, words, "writes", strict=False)


def _check_chmod(call: ProgramCall) -> Iterator[Finding]:
    words = call.positional_words("--reference")
    if words and re.search(r"[ugo]*\+[rwxX]*s|^[2467]\d{3}$|^0[2467]\d{3}$", words[0]):
        yield ask_finding("chmod lets a program run with the rights of its owner")
    yield from _check_targets(
        call, words[1:], "changes", strict=call.has_option("-R", "--recursive")
    )


def _check_chown(call: ProgramCall) -> Iterator[Finding]:
    yield from _check_targets(
        call, call.positional_words("--reference --from")[1:], "changes", strict=True
    )


def _check_dd(call: ProgramCall) -> Iterator[Finding]:
    for arg in call.args:
        if arg.startswith("of="):
            yield from _check_targets(call, [arg[3:]], "writes", strict=True)


def _check_tar(call: ProgramCall) -> Iterator[Finding]:
    words = call.words
    for option in ("-C", "--directory", "--one-top-level"):
        folder = call.option_value(option)
        if folder is not None:
            yield from _check_targets(call, [folder], "unpacks to", strict=False)
    if any(re.fullmatch(r"-?[a-zA-Z]*P[a-zA-Z]*", w) for w in words[:1]) or "-P" in words:
        yield ask_finding("tar reads or writes absolute paths")
    creates = any(re.match(r"-?[a-zA-Z]*[cru]", w) for w in words[:1] if not w.startswith("--"))
    if creates or call.has_option("--create", "--append", "--update"):
        rest = call.positional_words("-C --directory --exclude -X")
        bundled = words and not words[0].startswith("-")
        archive = (
            rest[1:2] if bundled else [a] if (a := call.option_value("-f", "--file")) else rest[:1]
        )
        yield from _check_targets(call, archive, "writes", strict=False)


def _check_unzip(call: ProgramCall) -> Iterator[Finding]:
    for option in ("-d", "-o", "-O"):
        folder = call.option_value(option)
        if folder is not None and option == "-d":
            yield from _check_targets(call, [folder], "unpacks to", strict=False)


def _check_output_options(*options: str) -> Callable[[ProgramCall], Iterator[Finding]]:
    def check(call: ProgramCall) -> Iterator[Finding]:
        for option in options:
            target = call.option_value(option)
            if target is not None and target:
                yield from _check_targets(call, [target], "writes", strict=False)

    return check


def _check_rsync(call: ProgramCall) -> Iterator[Finding]:
    if call.has_option("-e", "--rsh", "--rsync-path"):
        yield ask_finding("rsync is given a program to run")
    words = call.positional_words("--exclude --include -e --filter -f")
    if any(re.match(r"[\w.@-]+:", w) or "::" in w for w in words):
        yield ask_finding("rsync copies to or from another machine")
    yield from _check_targets(call, words[-1:], "writes", strict=call.has_option("--delete"))


def _check_shred(call: ProgramCall) -> Iterator[Finding]:
    yield ask_finding(f"{call.name} destroys files irrecoverably")


def _check_kill(call: ProgramCall) -> Iterator[Finding]:
    if any(has_wildcard(arg) for arg in call.args):
        yield ask_finding(f"what {call.name} ends is known only at run time", Certainty.UNCERTAIN)


WRITER_CHECKS: dict[str, Callable[[ProgramCall], Iterator[Finding]]] = {
    "rm": _check_remove,
    "unlink": _check_remove,
    "rmdir": _check_all_words,
    "mv": _check_move,
    "cp": _check_copy,
    "install": _check_copy,
    "ln": _check_link,
    "link": _check_link,
    "touch": _check_all_words,
    "mkdir": _check_all_words,
    "mkfifo": _check_all_words,
    "tee": _check_tee,
    "sponge": _check_tee,
    "truncate": _check_all_words,
    "chmod": _check_chmod,
    "chown": _check_chown,
    "chgrp": _check_chown,
    "dd": _check_dd,
    "tar": _check_tar,
    "unzip": _check_unzip,
    "zip": _check_output_options("-O", "--out"),
    "gcc": _check_output_options("-o"),
    "g++": _check_output_options("-o"),
    "clang": _check_output_options("-o"),
    "clang++": _check_output_options("-o"),
    "cc": _check_output_options("-o"),
    "c++": _check_output_options("-o"),
    "rustc": _check_output_options("-o", "--out-dir"),
    "go": _check_output_options("-o"),
    "pandoc": _check_output_options("-o", "--output", "--filter", "--lua-filter"),
    "ffmpeg": _check_output_options(),
    "patch": _check_output_options("-o", "-d", "--output", "--directory"),
    "split": _check_output_options(),
    "sort": _check_output_options("-o", "--output"),
    "rsync": _check_rsync,
    "shred": _check_shred,
    "srm": _check_shred,
    "kill": _check_kill,
    "pkill": _check_kill,
    "killall": _check_kill,
    "cmake": _check_output_options("-B", "--install-prefix"),
    "mktemp": _check_output_options("-p", "--tmpdir"),
    "7z": _check_output_options("-o"),
}

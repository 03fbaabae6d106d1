"""Scripts of sed and awk: whether they only edit their input."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hermes.exec.command_policy.programs.call import ProgramCall
from hermes.exec.command_policy.programs.file_writers import is_outside
from hermes.exec.command_policy.shell.words import UNKNOWN, is_vague, literal_text
from hermes.exec.command_policy.types import Certainty, Finding, ask_finding

_REGEX = r"/(?:[^/\\\n]|\\.)*/[IM]*"
_ADDRESS = rf"(?:(?:\d+(?:~\d+)?|\$|{_REGEX})(?:\s*,\s*(?:[+~]?\d+|\$|{_REGEX}))?\s*!?\s*)?"
_SUBSTITUTE = (
    r"(?:s|y)([^\w\s\\])(?:(?!\{n})[^\\\n]|\\.)*\{n}(?:(?!\{n})[^\\]|\\.)*\{n}[gpiImM0-9]*"
)
_SED_STEP = re.compile(
    r"\s*" + _ADDRESS + r"(?:[{}]|[dDgGhHlnNpPqQxzF=]\s*\d*|[btT:]\s*\w*|[aic]\s*\\?[^\n]*|"
    + _SUBSTITUTE.replace("{n}", "1") + r")\s*(?:[;\n}]\s*|\s*#[^\n]*\n?|(?=\Z|[}\w/$]))",
    re.DOTALL,
)  # fmt: skip


def is_harmless_sed(script: str) -> bool:
    """Whether a script only edits: it runs no command and uses no other file."""
    at = 0
    while at < len(script):
        found = _SED_STEP.match(script, at)
        if not found or found.end() == at:
            return not script[at:].strip("} ;\n")
        at = found.end()
    return True


def check_sed(call: ProgramCall) -> Iterator[Finding]:
    scripts, files, from_file = _split_sed_words(call)
    if from_file:
        yield ask_finding("sed reads its commands from a file")
    for script in scripts:
        if is_vague(script):
            if not _is_harmless_template(script):
                yield ask_finding(
                    "the commands of sed are known only at run time", Certainty.UNCERTAIN
                )
        elif not is_harmless_sed(literal_text(script)):
            yield ask_finding("sed runs a command or writes another file")
    if call.has_option("-i", "--in-place"):
        for file in files:
            if not is_vague(file) and is_outside(call, file):
                yield ask_finding(f"sed changes {literal_text(file)}, outside the project folder")


def _split_sed_words(call: ProgramCall) -> tuple[list[str], list[str], bool]:
    """Its scripts, its files, and whether there is a file of scripts."""
    scripts: list[str] = []
    files: list[str] = []
    from_file = False
    at = 0
    while at < len(call.args):
        word = call.words[at]
        if word in ("-e", "--expression") or re.fullmatch(r"-[nErszu]+e", word):
            scripts += call.args[at + 1 : at + 2]
            at += 1
        elif word.startswith("--expression="):
            scripts.append(call.args[at].partition("=")[2])
        elif word.startswith(("-f", "--file")) or re.fullmatch(r"-[nErszu]+f", word):
            from_file = True
            at += 1
        elif not word.startswith("-") or word == "-":
            files.append(call.args[at])
        at += 1
    if not scripts and not from_file:
        scripts, files = files[:1], files[1:]
    return scripts, files, from_file


def _is_harmless_template(script: str) -> bool:
    """Unknown parts stand only inside quotes, in an otherwise ordinary script."""
    return "\x1e" not in script and is_harmless_sed(literal_text(script).replace(UNKNOWN, "1"))


_AWK_RUNS = re.compile(
    r"system|getline|/inet|@load|@include|\|&|printf?\b[^;}\n]*(?:(?<!\|)\|(?!\|)|>)|close\s*\("
)


_AWK_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')


def check_awk(call: ProgramCall) -> Iterator[Finding]:
    if call.has_option("-i", "--include", "-l", "--load", "-E", "--exec", "-f", "--file"):
        yield ask_finding(f"{call.name} reads its program from a file")
    programs = [w for w in call.positional_words("-F -v --field-separator --assign")]
    for program in programs[:1]:
        if is_vague(program):
            yield ask_finding(
                f"the program of {call.name} is known only at run time", Certainty.UNCERTAIN
            )
        elif _AWK_RUNS.search(literal_text(program)) or _AWK_RUNS.search(
            _AWK_STRINGS.sub('""', literal_text(program))
        ):
            yield ask_finding(f"{call.name} runs a command or writes a file")

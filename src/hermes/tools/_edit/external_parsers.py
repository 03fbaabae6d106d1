"""Programs of the machine that parse a text without running it, and what they complain about."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

_TIMEOUT = 5.0
_MODULE_OR_SCRIPT = """
const vm = require('vm');
const text = require('fs').readFileSync(0, 'utf8').replace(/^#!.*/, '');
const module = /^\\s*(import|export)\\b/m.test(text);
let said;
for (const [make, telling] of [
    [() => new vm.Script(text), !module],
    [() => new vm.Script('(function(){' + text + '\\n})'), false],
    [() => new vm.SourceTextModule(text), module],
]) {
    try { make(); process.exit(0); } catch (error) { if (telling) said = error; }
}
const line = /:(\\d+)/.exec((said.stack || '').split('\\n')[0]);
process.stderr.write('line ' + (line ? line[1] : '?') + ': ' + said.message);
process.exit(1);
"""


class ExternalParser(Struct, frozen=True):
    """A program that reads the text from its input."""

    argv: tuple[str, ...]
    error_pattern: re.Pattern[str]
    """What it prints: the line, and what is wrong there."""
    expected_start: re.Pattern[bytes] | None = None
    """How a text must begin that is meant for it."""
    ignored_errors: re.Pattern[str] = re.compile(r"(?!)")
    """Complaints about dialects that it does not know."""


_BASH = ExternalParser(
    ("bash", "--norc", "-O", "extglob", "-n"),
    re.compile(r"line (\d+): (.+)"),
    expected_start=re.compile(rb"(?!#!)|#!.*\b(?:ba|da)?sh\b"),
)
_NODE = ExternalParser(
    ("node", "--no-warnings", "--experimental-vm-modules", "-e", _MODULE_OR_SCRIPT),
    re.compile(r"line (\S+): (.+)"),
    ignored_errors=re.compile(r"token '<'|token ':'|token '@'|Invalid or unexpected token"),
)
PARSERS: Mapping[str, ExternalParser] = {
    ".sh": _BASH,
    ".bash": _BASH,
    ".js": _NODE,
    ".mjs": _NODE,
    ".cjs": _NODE,
}


def find_error(parser: ExternalParser, data: bytes, path: str) -> str:
    """What is wrong with the text, or nothing; nothing too when the program is not on `path`."""
    program = _find_program(parser.argv[0], path)
    if not program or (parser.expected_start and not parser.expected_start.match(data)):
        return ""
    try:
        done = subprocess.run(
            [program, *parser.argv[1:]],
            input=data,
            capture_output=True,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            cwd="/",
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    said = parser.error_pattern.search(done.stderr.decode("utf-8", "replace"))
    if not done.returncode or said is None or parser.ignored_errors.search(said[2]):
        return ""
    return f"{said[2]} (line {said[1]})"


def _find_program(name: str, path: str) -> str:
    """Only absolute folders count: the working folder is not trusted."""
    for folder in path.split(os.pathsep):
        program = Path(folder) / name
        if program.is_absolute() and program.is_file() and os.access(program, os.X_OK):
            return str(program)
    return ""

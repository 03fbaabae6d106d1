"""Checks whether the text of a file is valid in the language its name promises."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from sys import version_info
from threading import Lock

from msgspec import Struct

from hermes.core.tool import Workspace
from hermes.tools._files.paths import find_program

_MAX_BYTES = 256 * 1024
"""A check should cost no more than the write."""
_TIMEOUT = 5.0
_COMMENTED_JSON = ("tsconfig", "jsconfig", "devcontainer", ".eslintrc", "settings.", "launch.")
"""JSON files whose readers allow comments."""
_warnings_lock = Lock()
"""Warning filters belong to the whole process; files are written by several threads."""
_TEMPLATE = re.compile(rb"\{\{|\{%|<%")
_MODULE_OR_SCRIPT = """
const vm = require('vm');
const text = require('fs').readFileSync(0, 'utf8').replace(/^#!.*/, '');
const module = /^\\s*(import|export)\\b/m.test(text);
let failure;
for (const [make, applies] of [
    [() => new vm.Script(text), !module],
    [() => new vm.Script('(function(){' + text + '\\n})'), false],
    [() => new vm.SourceTextModule(text), module],
]) {
    try { make(); process.exit(0); } catch (error) { if (applies) failure = error; }
}
const line = /:(\\d+)/.exec((failure.stack || '').split('\\n')[0]);
process.stderr.write('line ' + (line ? line[1] : '?') + ': ' + failure.message);
process.exit(1);
"""


class ExternalParser(Struct, frozen=True):
    """A program that parses what it reads from its standard input, without running it."""

    argv: tuple[str, ...]
    error_pattern: re.Pattern[str]
    """How it prints an error: the line and the message."""
    expected_start: re.Pattern[bytes] | None = None
    """How a text in its language begins; None: in any way."""
    ignored_errors: re.Pattern[str] = re.compile(r"(?!)")
    """Messages about dialects that it does not know."""


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
_PARSERS = dict.fromkeys((".sh", ".bash"), _BASH) | dict.fromkeys((".js", ".mjs", ".cjs"), _NODE)


def find_syntax_error(path: Path, data: bytes, workspace: Workspace | None = None) -> str:
    """One sentence about the first error; empty when there is none or no parser is available.
    `workspace`: external parsers are looked up on its PATH."""
    if len(data) > _MAX_BYTES or not data.strip():
        return ""
    suffix = path.suffix.casefold()
    check = _CHECKS.get(suffix)
    if check is None:
        parser = _PARSERS.get(suffix)
        found = _run_parser(parser, data, workspace) if parser and workspace else ""
        return f"the syntax is wrong: {found}"[:300] if found else ""
    try:
        check(path, data)
    except (SyntaxError, ValueError) as error:
        return " ".join(f"the syntax is wrong: {_describe_error(error)}".split())[:300]
    except (RecursionError, MemoryError):
        return "it is nested too deeply to be checked"
    return ""


def _run_parser(parser: ExternalParser, data: bytes, workspace: Workspace) -> str:
    """The parser's first error; empty when it reports none or is not installed."""
    program = find_program(parser.argv[0], workspace)
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
    found = parser.error_pattern.search(done.stderr.decode("utf-8", "replace"))
    if not done.returncode or found is None or parser.ignored_errors.search(found[2]):
        return ""
    return f"{found[2]} (line {found[1]})"


def _describe_error(error: SyntaxError | ValueError) -> str:
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{error.msg} (line {error.lineno})"
    return str(error)


def _check_python(path: Path, data: bytes) -> None:
    import ast
    import warnings

    with _warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(data, path.name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        except SyntaxError as error:
            # The project may be written for a newer version.
            error.msg = f"{error.msg}, says Python {version_info[0]}.{version_info[1]}"
            raise


def _check_json(path: Path, data: bytes) -> None:
    import json

    if not path.name.casefold().startswith(_COMMENTED_JSON):
        json.loads(data)


def _check_toml(path: Path, data: bytes) -> None:
    import tomllib

    tomllib.loads(data.decode())


def _check_yaml(path: Path, data: bytes) -> None:
    import yaml

    if _TEMPLATE.search(data):
        return
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for _ in yaml.parse(data, loader):
            pass
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


_CHECKS: dict[str, Callable[[Path, bytes], None]] = {
    ".py": _check_python,
    ".pyi": _check_python,
    ".json": _check_json,
    ".ipynb": _check_json,
    ".toml": _check_toml,
    ".yaml": _check_yaml,
    ".yml": _check_yaml,
}

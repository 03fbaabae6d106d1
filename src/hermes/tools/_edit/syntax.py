"""Says whether the text of a file is valid in the language its name promises."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from sys import version_info
from threading import Lock

_MAX_BYTES = 256 * 1024
"""Bytes; a check should cost no more than the write."""
_COMMENTED_JSON = ("tsconfig", "jsconfig", "devcontainer", ".eslintrc", "settings.", "launch.")
"""JSON files whose readers allow comments."""
_warnings_lock = Lock()
"""The filters of warnings belong to the whole process; files are written by several threads."""
_TEMPLATE = re.compile(rb"\{\{|\{%|<%")


def find_syntax_error(path: Path, data: bytes, search_path: str = "") -> str:
    """One sentence about the first error; empty when there is none or nobody can tell. `programs`
    is the search path for those that can."""
    suffix = path.suffix.casefold()
    check = _CHECKS.get(suffix)
    if len(data) > _MAX_BYTES or not data.strip():
        return ""
    if check is None:
        return _ask_parser(suffix, data, search_path)
    try:
        check(path, data)
    except (SyntaxError, ValueError) as error:
        return " ".join(f"the syntax is wrong: {_describe_error(error)}".split())[:300]
    except (RecursionError, MemoryError):
        return "it is nested too deeply to be checked"
    return ""


def _ask_parser(suffix: str, data: bytes, search_path: str) -> str:
    from hermes.tools._edit.external_parsers import PARSERS, find_error

    parser = PARSERS.get(suffix)
    said = find_error(parser, data, search_path) if parser and search_path else ""
    return f"the syntax is wrong: {said}"[:300] if said else ""


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
            # The project may be written for a newer one.
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

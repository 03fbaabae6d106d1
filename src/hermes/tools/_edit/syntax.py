"""Says whether the text of a file is valid in the language its name promises."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from sys import version_info
from threading import Lock

_LARGEST = 256 * 1024
"""Bytes; a check should cost no more than the write."""
_WITH_COMMENTS = ("tsconfig", "jsconfig", "devcontainer", ".eslintrc", "settings.", "launch.")
"""JSON files whose readers allow comments."""
_filters = Lock()
"""The filters of warnings belong to the whole process; files are written by several threads."""
_TEMPLATE = re.compile(rb"\{\{|\{%|<%")


def problem(path: Path, data: bytes, programs: str = "") -> str:
    """One sentence about the first error; empty when there is none or nobody can tell. `programs`
    is the search path for those that can."""
    suffix = path.suffix.casefold()
    check = _CHECKS.get(suffix)
    if len(data) > _LARGEST or not data.strip():
        return ""
    if check is None:
        return _asked(suffix, data, programs)
    try:
        check(path, data)
    except (SyntaxError, ValueError) as error:
        return " ".join(f"the syntax is wrong: {_where(error)}".split())[:300]
    except (RecursionError, MemoryError):
        return "it is nested too deeply to be checked"
    return ""


def _asked(suffix: str, data: bytes, programs: str) -> str:
    from hermes.tools._edit.external_parsers import BY_SUFFIX, complaint

    parser = BY_SUFFIX.get(suffix)
    said = complaint(parser, data, programs) if parser and programs else ""
    return f"the syntax is wrong: {said}"[:300] if said else ""


def _where(error: SyntaxError | ValueError) -> str:
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{error.msg} (line {error.lineno})"
    return str(error)


def _python(path: Path, data: bytes) -> None:
    import ast
    import warnings

    with _filters, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(data, path.name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        except SyntaxError as error:
            # The project may be written for a newer one.
            error.msg = f"{error.msg}, says Python {version_info[0]}.{version_info[1]}"
            raise


def _json(path: Path, data: bytes) -> None:
    import json

    if not path.name.casefold().startswith(_WITH_COMMENTS):
        json.loads(data)


def _toml(path: Path, data: bytes) -> None:
    import tomllib

    tomllib.loads(data.decode())


def _yaml(path: Path, data: bytes) -> None:
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
    ".py": _python,
    ".pyi": _python,
    ".json": _json,
    ".ipynb": _json,
    ".toml": _toml,
    ".yaml": _yaml,
    ".yml": _yaml,
}

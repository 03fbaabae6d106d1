"""Reads evaluation files: cases with a prompt and what is expected of the answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hermes.batch.dataset import CheckToolsets, is_inside
from hermes.core.errors import ConfigError


class _Strict(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class TextCheck(_Strict, frozen=True):
    contains: tuple[str, ...] = ()
    excludes: tuple[str, ...] = msgspec.field(default=(), name="not")
    regex: str = ""


class ToolCheck(_Strict, frozen=True):
    used: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    max: int | None = None
    errors: int | None = None


class FileCheck(_Strict, frozen=True):
    equals: str | None = None
    contains: str | None = None
    regex: str | None = None


class CommandCheck(_Strict, frozen=True):
    run: str
    exit: int = 0


class JudgeCheck(_Strict, frozen=True):
    rubric: str
    model: str = ""
    """Empty: the model of `auxiliary.judge`, else the one that is judged."""
    min: Annotated[float, Meta(ge=1, le=5)] = 4


class Expectation(_Strict, frozen=True):
    text: TextCheck | None = None
    tools: ToolCheck | None = None
    files: dict[str, FileCheck | str] = {}
    command: CommandCheck | None = None
    cost_usd: float | None = None
    judge: JudgeCheck | None = None


class Defaults(_Strict, frozen=True):
    toolsets: tuple[str, ...] | None = None
    max_turns: Annotated[int, Meta(ge=1)] = 20
    timeout: Annotated[float, Meta(gt=0, lt=1e9)] = 300
    system: str = ""
    files: dict[str, str] = {}


class EvalCase(_Strict, frozen=True):
    name: str
    prompt: str = ""
    turns: tuple[str, ...] = ()
    files: dict[str, str] = {}
    toolsets: tuple[str, ...] | None = None
    system: str = ""
    expect: Expectation = Expectation()

    @property
    def prompts(self) -> tuple[str, ...]:
        return self.turns or (self.prompt,)


class EvalFile(_Strict, frozen=True):
    path: Path
    cases: tuple[EvalCase, ...]
    defaults: Defaults = Defaults()


def read_eval_file(file: Path, check_toolsets: CheckToolsets) -> EvalFile:
    """The cases of a file. ConfigError names the line of what is wrong."""
    import yaml

    try:
        text = file.read_text(encoding="utf-8-sig")
        raw = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}. Nothing was run.") from None
    except RecursionError:
        raise ConfigError(f"{file} is nested too deeply. Nothing was run.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text. Nothing was run.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise ConfigError(f"{file}{line}: {problem}. Nothing was run.") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("cases"), list) or not raw["cases"]:
        raise ConfigError(f"{file}, line 1: it needs `cases`, a list. Nothing was run.")
    keys, lines = _find_lines(text)
    if unknown := sorted(map(str, set(raw) - {"cases", "defaults"})):
        where = f"{file}, line {keys.get(unknown[0], 1)}"
        raise ConfigError(f"{where}: unknown key {unknown[0]}. Nothing was run.")
    try:
        defaults = msgspec.convert(raw.get("defaults") or {}, Defaults)
        if outside := [path for path in defaults.files if not is_inside(path)]:
            raise ConfigError(f"the path {outside[0]!r} is outside the workspace")
        check_toolsets(defaults.toolsets or ())
    except (msgspec.ValidationError, ConfigError) as error:
        where = f"{file}, line {keys.get('defaults', 1)}"
        raise ConfigError(f"{where}: {error}. Nothing was run.") from None
    cases: list[EvalCase] = []
    for index, row in enumerate(raw["cases"]):
        where = f"{file}, line {lines[index] if index < len(lines) else '?'}"
        try:
            cases.append(_check_case(msgspec.convert(row, EvalCase), cases))
            check_toolsets(cases[-1].toolsets or ())
        except (msgspec.ValidationError, ValueError, re.error, ConfigError) as error:
            raise ConfigError(f"{where}: {error}. Nothing was run.") from None
    return EvalFile(file, tuple(cases), defaults)


def _check_case(case: EvalCase, before: list[EvalCase]) -> EvalCase:
    if not case.name.strip():
        raise ValueError("a case needs a name")
    if any(case.name == other.name for other in before):
        raise ValueError(f"the name {case.name!r} is there twice")
    if bool(case.prompt.strip()) == bool(case.turns):
        raise ValueError("a case needs either `prompt` or `turns`")
    for path in (*case.files, *case.expect.files):
        if not is_inside(path):
            raise ValueError(f"the path {path!r} is outside the workspace")
    for wanted in case.expect.files.values():
        if isinstance(wanted, str) and wanted not in ("absent", "present"):
            raise ValueError(f"a file is `absent`, `present` or an object, not {wanted!r}")
    if case.expect.text is not None:
        re.compile(case.expect.text.regex)
    for wanted in case.expect.files.values():
        if isinstance(wanted, FileCheck):
            re.compile(wanted.regex or "")
    return case


def _find_lines(text: str) -> tuple[dict[str, int], list[int]]:
    """The lines on which the keys of the file and the cases begin."""
    import yaml

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    keys: dict[str, int] = {}
    cases: list[int] = []
    for key, value in getattr(root, "value", ()):
        keys[str(key.value)] = key.start_mark.line + 1
        if key.value == "cases" and isinstance(value.value, list):
            cases = [node.start_mark.line + 1 for node in value.value]
    return keys, cases

"""Reads evaluation files: cases with a prompt and what is expected of the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hermes.batch.dataset import CheckToolsets, is_inside
from hermes.core.errors import ConfigError

_PLACE = re.compile(r" - at `\$([^`]*)`")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")


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
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if unknown := sorted(map(str, set(raw) - {"cases", "defaults"})):
        where = f"{file}, line {_find_line(root, (unknown[0],))}"
        raise ConfigError(f"{where}: unknown key {unknown[0]}. Nothing was run.")
    try:
        defaults = msgspec.convert(raw.get("defaults") or {}, Defaults)
        if outside := [path for path in defaults.files if not is_inside(path)]:
            raise ConfigError(f"the path {outside[0]!r} is outside the workspace")
        check_toolsets(defaults.toolsets or ())
    except (msgspec.ValidationError, ConfigError) as error:
        where = f"{file}, line {_find_line(root, ('defaults', *_split_place(error)))}"
        raise ConfigError(f"{where}: {error}. Nothing was run.") from None
    cases: list[EvalCase] = []
    for index, row in enumerate(raw["cases"]):
        try:
            cases.append(_check_case(msgspec.convert(row, EvalCase), cases))
            check_toolsets(cases[-1].toolsets or ())
        except (msgspec.ValidationError, ValueError, re.error, ConfigError) as error:
            where = f"{file}, line {_find_line(root, ('cases', index, *_split_place(error)))}"
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


def _split_place(error: Exception) -> list[str | int]:
    """Where in a case its value is not as it must be: keys, and numbers in lists."""
    found = _PLACE.search(str(error))
    steps = _STEP.findall(found[1]) if found is not None else []
    place: list[str | int] = [int(number) if number else key for key, number in steps]
    unknown = _UNKNOWN.search(str(error))
    return [*place, unknown[1]] if unknown is not None else place


def _find_line(node: Any, place: Sequence[str | int]) -> int:
    """The line on which the value at this place begins, or what is nearest above it."""
    line: int = 1
    for step in place:
        line = node.start_mark.line + 1
        children = node.value if isinstance(node.value, list) else []
        if isinstance(step, int):
            pairs = [(child, child) for child in children[step : step + 1]]
        else:
            pairs = [pair for pair in children if pair[0].value == step]
        if not pairs:
            return line
        key, node = pairs[-1]
        line = key.start_mark.line + 1
    return line

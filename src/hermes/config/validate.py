"""Plain data to Config: every problem found at once, each with its line and what to write."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct, inspect

from hermes.config.schema import Address, Config, Domain, EnvName
from hermes.config.yaml_source import Parsed, Path, dotted
from hermes.core.wire_names import OLD_WIRE_NAMES

_APPROVAL_MODES = {"manual": "ask", "off": "never-ask"}
_SECRET_KEYS = frozenset({"api_key", "key", "token", "apikey", "api_token"})
_MEANT = {"model.name": "model.default", "model.model": "model.default"}


class Problem(Struct, frozen=True):
    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


class Checked(Struct, frozen=True):
    data: dict[str, Any]
    """As written, with old names replaced: what the Config is made of."""
    config: Config | None
    """None when there are problems."""
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    """Old names that still work."""


def check(parsed: Parsed) -> Checked:
    notes: list[Problem] = []
    data = _modern(parsed, notes)
    problems = [
        Problem(_line(parsed, path), text) for path, text in _problems(Config, data, (), data)
    ]
    problems.sort(key=lambda problem: problem.line)
    config = None if problems else msgspec.convert(data, Config)
    if config and config.terminal.backend == "ssh" and not config.terminal.ssh.host:
        text = "terminal.backend is ssh: say which machine in terminal.ssh.host"
        problems.append(Problem(_line(parsed, ("terminal", "backend")), text))
        config = None
    return Checked(data, config, tuple(problems), tuple(notes))


def valid_keys() -> list[str]:
    """All keys with fixed names, dotted."""
    return [dotted(path) for path in _fixed_keys(Config, ())]


def field_type(path: Path) -> Any:
    """The declared type of a key; None where keys are free or the path is unknown."""
    kind: Any = Config
    for part in path:
        if _is_struct(kind):
            kind = next((f.type for f in msgspec.structs.fields(kind) if f.name == part), None)
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            return None
    return kind


def _line(parsed: Parsed, path: Path) -> int:
    while path:
        if path in parsed.lines:
            return parsed.lines[path]
        path = path[:-1]
    return 0


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _fixed_keys(kind: type[Struct], path: Path) -> Iterator[Path]:
    for field in msgspec.structs.fields(kind):
        here = (*path, field.name)
        if _is_struct(field.type):
            yield from _fixed_keys(field.type, here)
        else:
            yield here


def _modern(parsed: Parsed, notes: list[Problem]) -> dict[str, Any]:
    """The data with keys left empty dropped and old names replaced, each noted."""
    data: dict[str, Any] = _without_nulls(parsed.data, Config)

    def rename(section: Any, path: Path, key: str, names: dict[str, str]) -> None:
        old = section.get(key) if isinstance(section, dict) else None
        if isinstance(old, str) and old in names:
            section[key] = names[old]
            here = (*path, key)
            text = f"{dotted(here)}: {old} is an old name; write {names[old]}"
            notes.append(Problem(_line(parsed, here), text))

    if isinstance(data.get("model"), str):
        data["model"] = {"default": data["model"]}
        text = "model: NAME is the old form; write model: {default: NAME}"
        notes.append(Problem(_line(parsed, ("model",)), text))
    rename(data.get("model"), ("model",), "api_mode", OLD_WIRE_NAMES)
    for group in ("providers", "auxiliary"):
        sections = data.get(group)
        for name, section in sections.items() if isinstance(sections, dict) else ():
            rename(section, (group, name), "api_mode", OLD_WIRE_NAMES)
            _model_list(section)
    approvals = data.get("approvals")
    if isinstance(approvals, dict) and approvals.get("mode") is False:
        approvals["mode"] = "off"  # YAML reads a bare `off` as false
    rename(approvals, ("approvals",), "mode", _APPROVAL_MODES)
    _old_fallbacks(parsed, data, notes)
    return data


def _model_list(provider: Any) -> None:
    """`models: [a, b]` is `models: {a: {}, b: {}}`."""
    models = provider.get("models") if isinstance(provider, dict) else None
    if isinstance(models, list) and all(isinstance(name, str) for name in models):
        provider["models"] = {name: {} for name in models}


def _old_fallbacks(parsed: Parsed, data: dict[str, Any], notes: list[Problem]) -> None:
    entries = data.get("fallback_providers")
    if not isinstance(entries, list):
        return
    for index, entry in enumerate(entries):
        match entry:
            case {"provider": str(provider), "model": str(model), **rest} if not rest:
                entries[index] = f"{provider}:{model}"
                text = f'fallback_providers: write "{provider}:{model}" instead of a mapping'
                notes.append(Problem(_line(parsed, ("fallback_providers", index)), text))


@cache
def _types(kind: Any) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _without_nulls(value: Any, kind: Any) -> Any:
    """A key with nothing after it is a key left unset; free-form sections stay as they are."""
    if not isinstance(value, dict):
        return list(value) if isinstance(value, list) else value
    if _is_struct(kind):
        types = _types(kind)
        return {k: _without_nulls(v, types.get(k)) for k, v in value.items() if v is not None}
    if get_origin(kind) is dict:
        inner = get_args(kind)[1]
        return {k: _without_nulls({} if v is None else v, inner) for k, v in value.items()}
    return value


def _problems(
    kind: Any, value: Any, path: Path, root: dict[str, Any]
) -> Iterator[tuple[Path, str]]:
    if _is_struct(kind) and isinstance(value, dict):
        types = _types(kind)
        for key, item in value.items():
            here = (*path, key)
            if key in types:
                yield from _problems(types[key], item, here, root)
            else:
                yield here, unknown_key(here, list(types))
    elif get_origin(kind) is dict and isinstance(value, dict) and _is_struct(get_args(kind)[1]):
        for key, item in value.items():
            yield from _problems(get_args(kind)[1], item, (*path, key), root)
    else:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            yield path, _wrong(path, kind, value)


def unknown_key(path: Path, siblings: list[str]) -> str:
    from difflib import get_close_matches

    name = dotted(path)
    key = str(path[-1])
    if key in _SECRET_KEYS and "api_key_env" in siblings:
        where = dotted((*path[:-1], "api_key_env"))
        return f"unknown key {name}; put the secret in .env and name its variable in {where}"
    meant = _MEANT.get(name, "")
    if not meant and (close := get_close_matches(key.lower().replace("-", "_"), siblings, 1, 0.6)):
        meant = dotted((*path[:-1], close[0]))
    if not meant:
        keys = valid_keys()
        ends = {full.rsplit(".", 1)[-1]: full for full in reversed(keys)}
        if close := get_close_matches(key, list(ends), 1, 0.8):
            meant = ends[close[0]]
    if meant:
        return f"unknown key {name}; did you mean {meant}?"
    place = dotted(path[:-1])
    return f"unknown key {name}; {place or 'valid keys'}{' has' if place else ' are'} " + ", ".join(
        siblings
    )


def _wrong(path: Path, kind: Any, value: Any) -> str:
    name = dotted(path)
    if kind == Address and isinstance(value, str):
        return f"{name} must begin with http:// or https://"
    if kind in (EnvName, tuple[EnvName, ...]) and isinstance(value, (str, list)):
        return f"{name} must be the name of an environment variable; the key itself goes into .env"
    if kind == tuple[Domain, ...] and isinstance(value, list):
        wrong = next((v for v in value if not _fits(v, Domain)), "")
        return (
            f"{name} takes name, *.suffix or *, each with :port if needed, not {str(wrong)[:80]!r}"
        )
    text = f"{name} must be {_choices(kind) or _describe(inspect.type_info(kind))}"
    if isinstance(value, dict):
        return f"{text}, not a mapping"
    if isinstance(value, list):
        return f"{text}, not a list"
    shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    if isinstance(value, bool) and "text" in text:
        return f"{text}, not {shown}: put it in quotes"
    return f"{text}, not {shown}" if len(shown) <= 40 else text


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _choices(kind: Any) -> str:
    """The values of a Literal, in the order they are declared."""
    for option in (kind, *get_args(kind)):
        if get_origin(option) is Literal:
            values = [str(value) for value in get_args(option)]
            return ("one of " if len(values) > 1 else "") + ", ".join(values)
    return ""


def _describe(kind: Any) -> str:
    match kind:
        case inspect.Metadata(extra_json_schema={"description": str(words)}):
            return words
        case inspect.UnionType(types=types):
            return _describe(next(t for t in types if not isinstance(t, inspect.NoneType)))
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            return _number(kind)
        case inspect.VarTupleType(item_type=inspect.StrType() | inspect.Metadata()):
            return "a list of texts"
        case inspect.VarTupleType(item_type=inspect.IntType()):
            return "a list of whole numbers"
        case inspect.VarTupleType():
            return "a list of mappings"
        case inspect.StrType():
            return "text"
        case _:
            return "a mapping (key: value lines)"


def _number(kind: inspect.IntType | inspect.FloatType) -> str:
    text = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
    if kind.gt is not None:
        text += f" above {kind.gt:g}"
    if kind.ge is not None:
        text += f" of at least {kind.ge:g}"
    if kind.le is not None:
        text += f" and at most {kind.le:g}"
    return text

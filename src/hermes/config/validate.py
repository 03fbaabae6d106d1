"""Turns plain data into a Config; reports every problem at once, with its line and a remedy."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct, inspect

from hermes.config.schema import Address, Config, Domain, EnvName
from hermes.config.terminal_keys import DEFAULT_KEYS, KeyAction
from hermes.config.yaml_source import KeyPath, ParsedYaml, format_path
from hermes.core.wire_names import OLD_WIRE_NAMES

_SWITCHES = (("approvals", "mode"), ("display", "notify"), ("trace", "record"))
"""Keys that can be off."""
_APPROVAL_MODES = {"manual": "ask", "off": "never-ask"}
_SECRET_KEYS = frozenset({"api_key", "key", "token", "apikey", "api_token"})
_COMMON_MISTAKES = {"model.name": "model.default", "model.model": "model.default"}


class Problem(Struct, frozen=True):
    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


class ValidationResult(Struct, frozen=True):
    data: dict[str, Any]
    """The data with old names replaced, from which the Config is built."""
    config: Config | None
    """None when there are problems."""
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    """Old names, which still work."""


def validate_config(parsed: ParsedYaml) -> ValidationResult:
    notes: list[Problem] = []
    data = _replace_old_names(parsed, notes)
    problems = [
        Problem(_find_line(parsed, path), text) for path, text in find_problems(Config, data, ())
    ]
    problems.sort(key=lambda problem: problem.line)
    config = None if problems else msgspec.convert(data, Config)
    if config and config.terminal.backend == "ssh" and not config.terminal.ssh.host:
        text = "terminal.backend is ssh: set the machine in terminal.ssh.host"
        problems.append(Problem(_find_line(parsed, ("terminal", "backend")), text))
        config = None
    if config and (twice := _find_key_taken_twice(config.display.keys)):
        problems.append(Problem(_find_line(parsed, ("display", "keys", twice[1])), twice[0]))
        config = None
    return ValidationResult(data, config, tuple(problems), tuple(notes))


def _find_key_taken_twice(keys: Mapping[KeyAction, str]) -> tuple[str, str] | None:
    """The problem and the action of the configuration that has it."""
    actions: dict[str, str] = {}
    for action, key in (*keys.items(), *DEFAULT_KEYS.items()):
        if action in keys and keys[action] != key:
            continue
        other = actions.setdefault(key, action)
        if other != action:
            return f"display.keys: {key} is the key of both {other} and {action}", other
    return None


def list_keys() -> list[str]:
    """All keys with fixed names, in dotted form."""
    return [format_path(path) for path in _fixed_keys(Config, ())]


def field_type(path: KeyPath) -> Any:
    """The declared type of a key; None where keys are free-form or the path is unknown."""
    kind: Any = Config
    for part in path:
        if is_struct(kind):
            kind = field_types(kind).get(str(part))
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            return None
    return kind


def _find_line(parsed: ParsedYaml, path: KeyPath) -> int:
    paths = (path[:size] for size in range(len(path), 0, -1))
    return next((parsed.lines[p] for p in paths if p in parsed.lines), 0)


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _fixed_keys(kind: type[Struct], path: KeyPath) -> Iterator[KeyPath]:
    for field in msgspec.structs.fields(kind):
        here = (*path, field.name)
        if is_struct(field.type):
            yield from _fixed_keys(field.type, here)
        else:
            yield here


def _replace_old_names(parsed: ParsedYaml, notes: list[Problem]) -> dict[str, Any]:
    """The data without empty keys, and with old names replaced; adds a note for each name."""
    data: dict[str, Any] = _without_nulls(parsed.data, Config)

    def replace_name(section: Any, path: KeyPath, key: str, names: Mapping[str, str]) -> None:
        old = section.get(key) if isinstance(section, dict) else None
        if isinstance(old, str) and old in names:
            section[key] = names[old]
            key_path = (*path, key)
            text = f"{format_path(key_path)}: {old} is an old name; write {names[old]}"
            notes.append(Problem(_find_line(parsed, key_path), text))

    if isinstance(data.get("model"), str):
        data["model"] = {"default": data["model"]}
        text = "model: NAME is the old form; write model: {default: NAME}"
        notes.append(Problem(_find_line(parsed, ("model",)), text))
    replace_name(data.get("model"), ("model",), "api_mode", OLD_WIRE_NAMES)
    for group in ("providers", "auxiliary"):
        sections = data.get(group)
        for name, section in sections.items() if isinstance(sections, dict) else ():
            replace_name(section, (group, name), "api_mode", OLD_WIRE_NAMES)
            _expand_model_list(section)
    for name, key in _SWITCHES:
        section = data.get(name)
        if isinstance(section, dict) and section.get(key) is False:
            section[key] = "off"  # YAML reads a bare `off` as false
    replace_name(data.get("approvals"), ("approvals",), "mode", _APPROVAL_MODES)
    _convert_old_fallbacks(parsed, data, notes)
    _move_old_keys(parsed, data, notes)
    _convert_old_memory(data.get("memory"))
    return data


_OLD_GATEWAY_KEYS = {
    ("session_reset",): "reset",
    ("group_sessions_per_user",): "group_sessions_per_user",
    ("streaming",): "streaming",
    ("display", "busy_input_mode"): "busy_input_mode",
}


def _move_old_keys(parsed: ParsedYaml, data: dict[str, Any], notes: list[Problem]) -> None:
    """Settings that were elsewhere belong to `gateway`; a new key takes precedence."""
    for path, key in _OLD_GATEWAY_KEYS.items():
        section = data.get(path[0]) if len(path) > 1 else data
        gateway = data.setdefault("gateway", {}) if path[0] in data else None
        if not isinstance(section, dict) or path[-1] not in section:
            continue
        if isinstance(gateway, dict):
            old = section.pop(path[-1])
            if key == "streaming" and isinstance(old, dict):  # how it was shown is not configured
                old = bool(old.get("enabled", False)) and old.get("transport") not in ("off", False)
            gateway.setdefault(key, old)
            text = f"{format_path(path)} is an old name; write gateway.{key}"
            notes.append(Problem(_find_line(parsed, path), text))


def _convert_old_memory(section: Any) -> None:
    """Understand the original's `memory_enabled`, and `write_approval: true` for always."""
    if not isinstance(section, dict):
        return
    if isinstance(section.get("memory_enabled"), bool):
        section.setdefault("enabled", section.pop("memory_enabled"))
    if isinstance(asks := section.get("write_approval"), bool):
        section["write_approval"] = "always" if asks else "tainted"


def _expand_model_list(provider: Any) -> None:
    """Turn `models: [a, b]` into `models: {a: {}, b: {}}`."""
    models = provider.get("models") if isinstance(provider, dict) else None
    if isinstance(models, list) and all(isinstance(name, str) for name in models):
        provider["models"] = {name: {} for name in models}


def _convert_old_fallbacks(parsed: ParsedYaml, data: dict[str, Any], notes: list[Problem]) -> None:
    entries = data.get("fallback_providers")
    if not isinstance(entries, list):
        return
    for index, entry in enumerate(entries):
        match entry:
            case {"provider": str(provider), "model": str(model), **rest} if not rest:
                entries[index] = f"{provider}:{model}"
                text = f'fallback_providers: write "{provider}:{model}" instead of a mapping'
                notes.append(Problem(_find_line(parsed, ("fallback_providers", index)), text))


@cache
def field_types(kind: Any) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _without_nulls(value: Any, kind: Any) -> Any:
    """A key without a value counts as unset; free-form sections stay as they are."""
    if not isinstance(value, dict):
        return list(value) if isinstance(value, list) else value
    if is_struct(kind):
        types = field_types(kind)
        return {k: _without_nulls(v, types.get(k)) for k, v in value.items() if v is not None}
    if get_origin(kind) is dict:
        inner = get_args(kind)[1]
        return {k: _without_nulls({} if v is None else v, inner) for k, v in value.items()}
    return value


def find_problems(kind: Any, value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """What does not fit the type, with its key."""
    if is_struct(kind) and isinstance(value, dict):
        types = field_types(kind)
        for key, item in value.items():
            here = (*path, key)
            if key in types:
                yield from find_problems(types[key], item, here)
            else:
                yield here, describe_unknown_key(here, list(types))
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in value:
                yield path, f"{format_path(path)} needs {field.name}"
    elif get_origin(kind) is dict and isinstance(value, dict) and _is_checked_by_key(kind):
        names = get_args(get_args(kind)[0])
        for key, item in value.items():
            here = (*path, key)
            if names and key not in names:
                yield here, describe_unknown_key(here, list(names))
            else:
                yield from find_problems(get_args(kind)[1], item, here)
    elif isinstance(value, list) and get_origin(kind) is tuple and _has_keys(kind):
        for index, item in enumerate(value):
            yield from find_problems(get_args(kind)[0], item, (*path, index))
    else:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            yield path, describe_wrong_value(path, kind, value)


def _is_checked_by_key(kind: Any) -> bool:
    """Of a mapping: whether its keys are fixed, or its values have keys of their own."""
    key, value = get_args(kind)
    return get_origin(key) is Literal or _has_keys(value)


def _has_keys(kind: Any) -> bool:
    """Whether values of this type are mappings with fixed keys, or lists of such."""
    return is_struct(kind) or (get_origin(kind) is tuple and is_struct(get_args(kind)[0]))


def describe_unknown_key(path: KeyPath, siblings: list[str]) -> str:
    from difflib import get_close_matches

    name = format_path(path)
    key = str(path[-1])
    if key in _SECRET_KEYS and "api_key_env" in siblings:
        where = format_path((*path[:-1], "api_key_env"))
        return f"unknown key {name}; put the secret in .env and name its variable in {where}"
    suggestion = _COMMON_MISTAKES.get(name, "")
    if not suggestion and (
        close := get_close_matches(key.lower().replace("-", "_"), siblings, 1, 0.6)
    ):
        suggestion = format_path((*path[:-1], close[0]))
    if not suggestion:
        keys = list_keys()
        ends = {full.rsplit(".", 1)[-1]: full for full in reversed(keys)}
        if close := get_close_matches(key, list(ends), 1, 0.8):
            suggestion = ends[close[0]]
    if suggestion:
        return f"unknown key {name}; did you mean {suggestion}?"
    section = format_path(path[:-1])
    subject = f"{section} has" if section else "valid keys are"
    return f"unknown key {name}; {subject} {', '.join(siblings)}"


def describe_wrong_value(path: KeyPath, kind: Any, value: Any) -> str:
    """What a value that does not fit the type of its key must be, without a final period."""
    name = format_path(path)
    if kind == Address and isinstance(value, str):
        return f"{name} must begin with http:// or https://"
    if kind in (EnvName, tuple[EnvName, ...]) and isinstance(value, (str, list)):
        return f"{name} must be the name of an environment variable; the key itself goes into .env"
    if kind == tuple[Domain, ...] and isinstance(value, list):
        wrong = next((v for v in value if not fits_type(v, Domain)), "")
        return (
            f"{name} takes name, *.suffix or *, each with :port if needed, not {str(wrong)[:80]!r}"
        )
    text = f"{name} must be {_describe_choices(kind) or _describe_type(inspect.type_info(kind))}"
    if isinstance(value, list) and " a list " in text:
        return text  # something in it does not fit
    if isinstance(value, dict | list):
        return f"{text}, not {'a mapping' if isinstance(value, dict) else 'a list'}"
    shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    if isinstance(value, bool) and fits_type(shown, kind):
        return f"{text}, not {shown}: put it in quotes"
    return f"{text}, not {shown}" if len(shown) <= 40 else text


def find_wrong_option(kinds: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """What is wrong with the first option of a call that does not fit its kind; empty: all fit. A
    kind is a type that msgspec converts to, or classes followed by what they are called."""
    for name, kind in kinds.items():
        value = options.get(name)
        if value is None:
            continue
        if isinstance(kind, tuple):
            *classes, words = kind
            if not isinstance(value, tuple(classes)):
                return f"{name} must be {words}, not {value!r}."
        elif not fits_type(value, kind):
            return f"{describe_wrong_value((name,), kind, value)}."
    return ""


def fits_type(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _describe_choices(kind: Any) -> str:
    """The values of a Literal, in declaration order."""
    for option in (kind, *get_args(kind)):
        if get_origin(option) is Literal:
            values = [str(value) for value in get_args(option)]
            return ("one of " if len(values) > 1 else "") + ", ".join(values)
    return ""


def _describe_type(kind: Any) -> str:
    match kind:
        case inspect.Metadata(extra_json_schema={"description": str(words)}):
            return words
        case inspect.UnionType(types=types):
            return _describe_type(next(t for t in types if not isinstance(t, inspect.NoneType)))
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            return _describe_number(kind)
        case inspect.VarTupleType(item_type=inspect.LiteralType(values=values)):
            return f"a list of one or more of {', '.join(map(str, values))}"
        case inspect.VarTupleType(item_type=inspect.StrType() | inspect.Metadata()):
            return "a list of texts"
        case inspect.VarTupleType(item_type=inspect.IntType()):
            return "a list of whole numbers"
        case inspect.VarTupleType(item_type=inspect.UnionType()):
            return "a list of numbers or texts"
        case inspect.VarTupleType():
            return "a list of mappings"
        case inspect.StrType(pattern=str(pattern)):
            return f"text of the form {pattern}"
        case inspect.StrType():
            return "text"
        case _:
            return "a mapping (key: value lines)"


def _describe_number(kind: inspect.IntType | inspect.FloatType) -> str:
    text = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
    if kind.gt is not None:
        text += f" above {kind.gt:g}"
    if kind.ge is not None:
        text += f" of at least {kind.ge:g}"
    if kind.le is not None:
        text += f" and at most {kind.le:g}"
    return text

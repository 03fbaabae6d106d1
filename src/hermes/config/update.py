"""Changes keys of config.yaml: atomically, under a lock, keeping comments and everything else."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, structs

from hermes.config import key_path, paths
from hermes.config.load import read_source
from hermes.config.private_files import hold_lock, sync_folder, write_durably
from hermes.config.validate import field_type, fits_type, validate_config
from hermes.config.yaml_edit import extend_list, remove_key, render_value, set_key
from hermes.config.yaml_source import (
    KeyPath,
    ParsedYaml,
    decode_text,
    format_path,
    parse_scalar,
    parse_yaml,
)
from hermes.core.errors import ConfigError

_MAX_ATTEMPTS = 5
_CUSTOM = "custom"
_PROVIDER_KEYS = ("base_url", "api_mode", "api_key_env")
"""Keys of the section `model` that mean nothing to another provider."""
_BOM = b"\xef\xbb\xbf"


class ConfigChange(Struct, frozen=True):
    key: str
    old: Any
    new: Any
    """As the configuration reads it."""
    cleared: tuple[str, ...] = ()
    """Keys removed with the change because they belonged to the old value."""


def set_value(home: Path, key: str, text: str) -> ConfigChange:
    """Set `key` to the value that `text` stands for. Raises ConfigError with nothing changed."""
    with edit_config(home) as set_locked:
        return set_locked(key, text)


@contextmanager
def edit_config(home: Path) -> Iterator[Callable[[str, str], ConfigChange]]:
    """`set_value` for several keys, under one lock: no other hermes writes in between."""

    def set_locked(key: str, text: str) -> ConfigChange:
        return _apply_change(
            home, lambda source: _clear_old_provider(source, *_set_in_source(source, key, text))
        )

    with _hold_config_lock(home):
        yield set_locked


def apply_changes(home: Path, changes: Mapping[str, Any]) -> None:
    """Change several keys at once, all or none; None removes a key from the file."""
    with _hold_config_lock(home):
        _apply_change(home, lambda source: (None, change_source(source, changes)))


def move_names(home: Path, names: Sequence[str], *, into: str = "", out_of: str = "") -> None:
    """Add names to one list of the file and take them out of another, under one lock: names that
    another process moves at the same time are kept."""

    def move(source: bytes) -> tuple[None, bytes]:
        data, changes = _parse_valid(source).data, {}
        for key in filter(None, (into, out_of)):
            old = [str(name) for name in _find_value(data, key_path.parse_key(key, data)) or ()]
            rest = [name for name in old if name not in names]
            new = [*old, *(name for name in names if name not in old)] if key == into else rest
            if new != old:
                changes[key] = new
        return None, change_source(source, changes)

    with _hold_config_lock(home):
        _apply_change(home, move)


def change_source(source: bytes, changes: Mapping[str, Any]) -> bytes:
    """The text of the file with these changes. Raises ConfigError when one is not possible."""
    for key, value in changes.items():
        if value is None:
            source = _remove_from_source(source, key)
        else:
            text = value if isinstance(value, str) else render_value(value)
            is_text = not isinstance(value, Mapping | Sequence) or isinstance(value, str)
            source = _set_in_source(source, key, text, is_text=is_text)[1]
    return source


def replace_source(home: Path, source: bytes, result: bytes) -> bool:
    """Replace the whole file; False when it is no longer `source`."""
    with _hold_config_lock(home):
        return (read_source(home) or b"") == source and _replace_file(home, source, result)


def append_items(
    home: Path, key: str, items: Sequence[Any], check_all: Callable[[list[Any]], object]
) -> list[Any]:
    """Append the items a list does not contain yet, and return them. `check_all` gets the whole
    new list and may raise ConfigError: then nothing is changed."""

    def add_items(source: bytes) -> tuple[list[Any], bytes]:
        parsed = _parse_valid(source)
        path = key_path.parse_key(key, parsed.data)
        old = _find_value(parsed.data, path) or []
        new = [item for item in items if item not in old]
        if not new:
            return [], source
        expected = deepcopy(parsed.data)
        key_path.set_at(expected, path, [*old, *new])
        check_all([*old, *new])
        _validate_value(expected, path)
        before = decode_text(source, "config.yaml")
        after = _check_meaning(extend_list(before, path, new), path, expected)
        _check_nothing_lost(before, after, path, structs.replace(parsed, lines={}))
        return new, _encode_text(source, after)

    with _hold_config_lock(home):
        return _apply_change(home, add_items)


T = TypeVar("T")


def _apply_change(home: Path, change: Callable[[bytes], tuple[T, bytes]]) -> T:
    """Call with the lock held. Tries again when a program that ignores the lock was faster."""
    for _ in range(_MAX_ATTEMPTS):
        source = read_source(home) or b""
        value, result = change(source)
        if result == source or _replace_file(home, source, result):
            return value
    raise ConfigError("config.yaml is being changed by another program; nothing was changed.")


def _parse_valid(source: bytes) -> ParsedYaml:
    parsed = parse_yaml(source)
    if problems := validate_config(parsed).problems:
        raise ConfigError(f"config.yaml {problems[0]}; fix that first, nothing was changed.")
    return parsed


def _set_in_source(
    source: bytes, key: str, text: str, *, is_text: bool = True
) -> tuple[ConfigChange, bytes]:
    """`is_text`: whether it may be the text of a key; otherwise it stands for a list or a map."""
    parsed = _parse_valid(source)
    path = key_path.parse_key(key, parsed.data)
    expected = deepcopy(parsed.data)
    key_path.set_at(expected, path, _read_value(path, text, is_text=is_text))
    value = _validate_value(expected, path)
    key_path.set_at(expected, path, value)
    before = decode_text(source, "config.yaml")
    after = _check_meaning(set_key(before, path, value), path, expected)
    _check_nothing_lost(before, after, path, parsed)
    change = ConfigChange(format_path(path), _find_value(parsed.data, path), value)
    return change, _encode_text(source, after)


def _clear_old_provider(
    source: bytes, change: ConfigChange, result: bytes
) -> tuple[ConfigChange, bytes]:
    """When the provider changes, remove the key, URL and protocol of the previous one."""
    if change.key != "model.provider":
        return change, result
    model = _parse_valid(source).data.get("model")
    model = model if isinstance(model, dict) else {}
    before = model.get("provider") or (_CUSTOM if model.get("base_url") else "")
    if not before or before == change.new:
        return change, result
    cleared = tuple(f"model.{name}" for name in _PROVIDER_KEYS if model.get(name))
    for key in cleared:
        result = _remove_from_source(result, key)
    return structs.replace(change, cleared=cleared), result


def _remove_from_source(source: bytes, key: str) -> bytes:
    parsed = _parse_valid(source)
    path = key_path.parse_key(key, parsed.data)
    if _find_value(parsed.data, path) is None:
        return source
    expected = deepcopy(parsed.data)
    removed = key_path.remove_at(expected, path)
    before = decode_text(source, "config.yaml")
    after = _check_meaning(remove_key(before, path), path, expected)
    _check_nothing_lost(before, after, removed, parsed)
    return _encode_text(source, after)


def _find_value(data: dict[str, Any], path: KeyPath) -> Any:
    try:
        return key_path.get_at(data, path)
    except KeyError:
        return None


def _encode_text(source: bytes, after: str) -> bytes:
    """With a byte order mark if the source has one."""
    return (_BOM if source.startswith(_BOM) else b"") + after.encode()


def _read_value(path: KeyPath, text: str, *, is_text: bool) -> Any:
    """Text for a key of type text is taken literally; anything else is read as YAML."""
    import yaml

    kind = field_type(path)
    kind = None if kind is Any else kind
    if is_text and kind is not None and fits_type(text, kind):
        return text
    try:
        value = parse_scalar(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, str) and kind is not None and fits_type(("", ""), kind):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _validate_value(data: dict[str, Any], path: KeyPath) -> Any:
    """The new value under its current name. Raises ConfigError if it is not valid."""
    checked = validate_config(ParsedYaml(data, {}))
    if checked.problems:
        raise ConfigError(f"{checked.problems[0].text}; nothing was changed.")
    value = key_path.get_at(data, path)
    return key_path.get_at(checked.data, path) if isinstance(value, (str, bool)) else value


def _check_meaning(after: str | None, path: KeyPath, expected: dict[str, Any]) -> str:
    """The edited text; raises ConfigError if there is none or it does not read as expected."""
    if after is not None:
        with suppress(ConfigError):
            if parse_yaml(after.encode()).data == expected:
                return after
    raise ConfigError(
        f"{format_path(path)} cannot be changed without touching the rest of config.yaml; "
        "edit it by hand."
    )


def _check_nothing_lost(before: str, after: str, path: KeyPath, parsed: ParsedYaml) -> None:
    """The last defence against losing data: outside the old value, all comments and most of the
    text must still be there."""
    first = parsed.lines.get(path, 0)
    later = [
        line for key, line in parsed.lines.items() if line > first and key[: len(path)] != path
    ]
    lines = before.splitlines()
    last = min(later) - 1 if later else len(lines)
    outside = lines[: first - 1] + lines[last:] if first else lines
    comments = [line[line.index("#") :].rstrip() for line in outside if "#" in line]
    lost = any(comment not in after for comment in comments)
    kept = sum(len(line.strip()) for line in outside)
    if lost or len(after) < kept // 2:
        raise ConfigError(
            f"Setting {format_path(path)} would lose other parts of config.yaml; edit it by hand."
        )


def _replace_file(home: Path, source: bytes, result: bytes) -> bool:
    """Replace the file atomically, unless it has changed since it was read."""
    file = paths.config_file(home)
    target = file.resolve()
    temporary = target.with_name(".config.yaml.new")
    try:
        write_durably(temporary, result)
        if (read_source(home) or b"") != source:
            temporary.unlink()
            return False
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(
            f"config.yaml could not be written ({error.strerror}); nothing was changed."
        ) from None
    return True


def _hold_config_lock(home: Path) -> AbstractContextManager[None]:
    return hold_lock(home / ".config.lock", "config.yaml")

"""`config set`: one key changed, atomically, under a lock; comments and everything else kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, structs

from hermes.config import key_path as keys
from hermes.config import paths
from hermes.config.load import read_source
from hermes.config.private_files import locked, sync_folder, write_durably
from hermes.config.validate import check, field_type, fits_type
from hermes.config.yaml_edit import append, edit, remove, render
from hermes.config.yaml_source import Parsed, decode, dotted, parse, scalar
from hermes.config.yaml_source import Path as KeyPath
from hermes.core.errors import ConfigError

_ROUNDS = 5
_CUSTOM = "custom"
_PROVIDERS_OWN = ("base_url", "api_mode", "api_key_env")
"""What in the section `model` means nothing to another provider."""
_BOM = b"\xef\xbb\xbf"


class Change(Struct, frozen=True):
    key: str
    old: Any
    new: Any
    """As the configuration reads it."""
    cleared: tuple[str, ...] = ()
    """Keys that were taken out with it, because they belonged to the old value."""


def set_value(home: Path, key: str, text: str) -> Change:
    """Set `key` to what `text` says. Raises ConfigError, and then nothing was changed."""
    with editing(home) as put:
        return put(key, text)


@contextmanager
def editing(home: Path) -> Iterator[Callable[[str, str], Change]]:
    """`set_value` for several keys: no other hermes writes between what is read and what is set."""

    def put(key: str, text: str) -> Change:
        return _write(home, lambda source: _switched(source, *_changed(source, key, text)))

    with _locked(home):
        yield put


def revise(home: Path, changes: Mapping[str, Any]) -> None:
    """Several keys at once, all of them or none; None takes a key out of the file."""

    def revised(source: bytes) -> tuple[None, bytes]:
        for key, value in changes.items():
            if value is None:
                source = _without(source, key)
            else:
                text = value if isinstance(value, str) else render(value)
                source = _changed(source, key, text)[1]
        return None, source

    with _locked(home):
        _write(home, revised)


def append_items(
    home: Path, key: str, items: Sequence[Any], check_all: Callable[[list[Any]], object]
) -> list[Any]:
    """Add what is not there yet to the end of a list; what was added. `check_all` is given the
    whole new list and raises ConfigError when it is not a good one: then nothing was changed."""

    def grown(source: bytes) -> tuple[list[Any], bytes]:
        parsed = _sound(source)
        path = keys.find(key, parsed.data)
        old = _value_or_none(parsed.data, path) or []
        new = [item for item in items if item not in old]
        if not new:
            return [], source
        expected = deepcopy(parsed.data)
        keys.set_at(expected, path, [*old, *new])
        check_all([*old, *new])
        _accepted(expected, path)
        before = decode(source, "config.yaml")
        after = _check_meaning(append(before, path, new), path, expected)
        _guard(before, after, path, structs.replace(parsed, lines={}))
        return new, _with_mark(source, after)

    with _locked(home):
        return _write(home, grown)


T = TypeVar("T")


def _write(home: Path, change: Callable[[bytes], tuple[T, bytes]]) -> T:
    """With the lock held: again when a program that does not know it was faster."""
    for _ in range(_ROUNDS):
        source = read_source(home) or b""
        told, result = change(source)
        if result == source or _commit(home, source, result):
            return told
    raise ConfigError("config.yaml is being changed by another program; nothing was changed.")


def _sound(source: bytes) -> Parsed:
    parsed = parse(source)
    if problems := check(parsed).problems:
        raise ConfigError(f"config.yaml {problems[0]}; fix that first, nothing was changed.")
    return parsed


def _changed(source: bytes, key: str, text: str) -> tuple[Change, bytes]:
    parsed = _sound(source)
    path = keys.find(key, parsed.data)
    expected = deepcopy(parsed.data)
    keys.set_at(expected, path, _value(path, text))
    value = _accepted(expected, path)
    keys.set_at(expected, path, value)
    before = decode(source, "config.yaml")
    after = _check_meaning(edit(before, path, value), path, expected)
    _guard(before, after, path, parsed)
    change = Change(dotted(path), _value_or_none(parsed.data, path), value)
    return change, _with_mark(source, after)


def _switched(source: bytes, change: Change, result: bytes) -> tuple[Change, bytes]:
    """Another provider: the key, the address and the protocol of the one before go out."""
    if change.key != "model.provider":
        return change, result
    model = _sound(source).data.get("model")
    model = model if isinstance(model, dict) else {}
    before = model.get("provider") or (_CUSTOM if model.get("base_url") else "")
    if not before or before == change.new:
        return change, result
    cleared = tuple(f"model.{name}" for name in _PROVIDERS_OWN if model.get(name))
    for key in cleared:
        result = _without(result, key)
    return structs.replace(change, cleared=cleared), result


def _without(source: bytes, key: str) -> bytes:
    parsed = _sound(source)
    path = keys.find(key, parsed.data)
    if _value_or_none(parsed.data, path) is None:
        return source
    expected = deepcopy(parsed.data)
    gone = keys.drop_at(expected, path)
    before = decode(source, "config.yaml")
    after = _check_meaning(remove(before, path), path, expected)
    _guard(before, after, gone, parsed)
    return _with_mark(source, after)


def _value_or_none(data: dict[str, Any], path: KeyPath) -> Any:
    try:
        return keys.value_at(data, path)
    except KeyError:
        return None


def _with_mark(source: bytes, after: str) -> bytes:
    return (_BOM if source.startswith(_BOM) else b"") + after.encode()


def _value(path: KeyPath, text: str) -> Any:
    """Text for a text key is taken as it is; anything else is read as YAML."""
    import yaml

    kind = field_type(path)
    kind = None if kind is Any else kind
    if kind is not None and fits_type(text, kind):
        return text
    try:
        value = scalar(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, str) and kind is not None and fits_type(("", ""), kind):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _accepted(data: dict[str, Any], path: KeyPath) -> Any:
    """The new value, under its present name; ConfigError if it is not a valid one."""
    checked = check(Parsed(data, {}))
    if checked.problems:
        raise ConfigError(f"{checked.problems[0].text}; nothing was changed.")
    value = keys.value_at(data, path)
    return keys.value_at(checked.data, path) if isinstance(value, (str, bool)) else value


def _check_meaning(after: str | None, path: KeyPath, expected: dict[str, Any]) -> str:
    """The edited text, if there is one that reads as expected."""
    if after is not None:
        with suppress(ConfigError):
            if parse(after.encode()).data == expected:
                return after
    raise ConfigError(
        f"{dotted(path)} cannot be set without touching the rest of config.yaml; edit it by hand."
    )


def _guard(before: str, after: str, path: KeyPath, parsed: Parsed) -> None:
    """The last defence against a rewrite that loses things: comments and bulk must still be
    there, apart from what the old value took up."""
    first = parsed.lines.get(path, 0)
    later = [
        line for key, line in parsed.lines.items() if line > first and key[: len(path)] != path
    ]
    lines = before.splitlines()
    last = min(later) - 1 if later else len(lines)
    outside = lines[: first - 1] + lines[last:] if first else lines
    lost = [line for line in outside if "#" in line and _comment(line) not in after]
    kept = sum(len(line.strip()) for line in outside)
    if lost or len(after) < kept // 2:
        raise ConfigError(
            f"Setting {dotted(path)} would lose other parts of config.yaml; edit it by hand."
        )


def _comment(line: str) -> str:
    return line[line.index("#") :].rstrip()


def _commit(home: Path, source: bytes, result: bytes) -> bool:
    """Replace the file, unless it is no longer what was read. Never a half-written one."""
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


def _locked(home: Path) -> AbstractContextManager[None]:
    return locked(home / ".config.lock", "config.yaml")

"""The configuration for the page Settings: shown without secrets, changed with comments kept."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from hermes.config import catalogue
from hermes.config.load import hash_source, read_source
from hermes.config.schema import Config
from hermes.config.secrets import Secrets, is_secret_name, mask_secrets
from hermes.config.update import change_source, replace_source
from hermes.config.validate import validate_config
from hermes.config.yaml_source import decode_text, parse_yaml
from hermes.core.errors import ConfigError
from hermes.core.store import Objects
from hermes.server.http.errors import ApiError

_VERSIONS = "config_version"
_MAX_VERSIONS = 50
_NAME = "config.yaml"
RESTART = "Hermes uses the new values after its next start."


class ConfigEdit(Struct, frozen=True):
    version: str
    diff: str
    warnings: tuple[str, ...] = ()
    confirm: str | None = None
    """Send this to write the change; None: it needs no confirmation."""


class ConfigEditor:
    """Reads and changes config.yaml of one home."""

    def __init__(
        self,
        home: Path,
        objects: Objects,
        redact: Callable[[str], str],
        running: Config,
        secrets: Secrets,
    ) -> None:
        self._home = home
        self._secrets = secrets
        self._running = running
        """What this process started with: shown where the file cannot be used."""
        self._objects = objects
        self._redact = redact

    def describe(self) -> dict[str, Any]:
        source = read_source(self._home) or b""
        written, config, problems = _read_values(source)
        values = mask_secrets(msgspec.to_builtins(config or self._running))
        fields = catalogue.list_fields()
        overridden = catalogue.list_overridden_keys(written, config or self._running, self._secrets)
        return {
            "version": hash_source(source),
            "values": {field.key: _find_value(values, field.key) for field in fields},
            "origin": {
                field.key: "environment"
                if field.key in overridden
                else "default"
                if _find_value(written, field.key) is None
                else "file"
                for field in fields
            },
            "schema": [structs.asdict(field) for field in fields],
            "categories": list(catalogue.CATEGORIES),
            "problems": [self._mask_text(problem, source) for problem in problems],
            "file": self._mask_text(decode_text(source, _NAME), source),
        }

    async def change(
        self, version: str, changes: Mapping[str, Any], *, dry_run: bool, confirm: str
    ) -> ConfigEdit:
        """Write all changes or none. 409 when the file has changed since `version`, or what was
        confirmed is not this; 422 when a value is not valid."""
        source = read_source(self._home) or b""
        self._require_version(source, version)
        result = source
        problems: dict[str, str] = {}
        for key, value in changes.items():
            try:
                result = change_source(result, {key: value})
            except ConfigError as error:
                problems[key] = self._redact(str(error))
        if problems:
            key, text = next(iter(problems.items()))
            extra = {"problems": problems}
            raise ApiError(422, text, param=key, code="invalid", extra=extra)
        diff = self._compare(source, result)
        digest = hashlib.sha256(diff.encode()).hexdigest()[:32]
        needs = any(key.partition(".")[0] in catalogue.SENSITIVE for key in changes)
        if dry_run:
            return ConfigEdit(version, diff, (RESTART,), digest if needs else None)
        if needs and confirm != digest:
            text = (
                "Review the change first: it concerns what the agent may do. Nothing was written."
            )
            raise ApiError(409, text, code="confirm")
        return await self._write(source, result, diff)

    async def list_versions(self) -> list[dict[str, Any]]:
        """The earlier texts of the file, the newest first, without secrets."""
        found = await self._objects.list_all(_VERSIONS)
        return [
            {
                "version": o.id,
                "saved_at": o.created,
                "text": self._mask_text(o.body.decode("utf-8", "replace"), o.body),
            }
            for o in reversed(found)
        ]

    async def restore(self, version: str) -> ConfigEdit:
        found = await self._objects.get(_VERSIONS, version, owner="")
        if found is None:
            raise ApiError(404, "This version is no longer kept.", code="version_not_found")
        source = read_source(self._home) or b""
        return await self._write(source, found.body, self._compare(source, found.body))

    async def _write(self, source: bytes, result: bytes, diff: str) -> ConfigEdit:
        if source != result:
            kept = hash_source(source)
            await self._objects.put(_VERSIONS, kept, source, keep_latest=_MAX_VERSIONS)
            if not replace_source(self._home, source, result):
                self._require_version(b"", "other")
        return ConfigEdit(hash_source(result), diff, (RESTART,))

    def _require_version(self, source: bytes, version: str) -> None:
        if hash_source(source) != version:
            text = "config.yaml was changed meanwhile. Nothing was written; load the page again."
            raise ApiError(409, text, code="version")

    def _compare(self, before: bytes, after: bytes) -> str:
        old, new = (decode_text(text, _NAME).splitlines() for text in (before, after))
        lines = difflib.unified_diff(old, new, _NAME, _NAME, lineterm="", n=2)
        return self._mask_text("\n".join(lines), before, after)

    def _mask_text(self, text: str, *sources: bytes) -> str:
        """The text without the secrets that these files contain, or that look like one."""
        for secret in sorted({s for source in sources for s in _list_secrets(source)}, key=len):
            text = text.replace(secret, "[redacted]")
        return self._redact(text)


def _read_values(source: bytes) -> tuple[Any, Config | None, list[str]]:
    """What the file says, as data and as a configuration (None: it is not valid), and what is wrong
    with it."""
    try:
        parsed = parse_yaml(source)
    except ConfigError as error:
        return {}, None, [str(error)]
    checked = validate_config(parsed)
    return parsed.data, checked.config, [f"config.yaml {p}" for p in checked.problems]


def _list_secrets(source: bytes) -> Iterator[str]:
    """The values of keys that are named like secrets, though they do not belong in the file."""
    waiting: list[Any] = [_read_values(source)[0]]
    while waiting:
        match waiting.pop():
            case dict() as section:
                for key, value in section.items():
                    is_secret = is_secret_name(str(key)) and not str(key).endswith("_env")
                    if is_secret and isinstance(value, str | int) and str(value).strip():
                        yield str(value)
                    else:
                        waiting.append(value)
            case list() as items:
                waiting += items
            case _:
                pass


def _find_value(data: Any, key: str) -> Any:
    for part in key.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data

"""The package indexes of this machine: those pip and uv are configured with, or the public one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PUBLIC_INDEX = "https://pypi.org/simple"
_TRUE_WORDS = frozenset({"1", "true", "yes", "on"})


def list_indexes(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """URLs of simple indexes in the order to try them; empty where indexes are turned off. They may
    contain credentials and must not be shown."""
    env = os.environ if environ is None else environ
    settings = _read_pip_settings(env)
    no = env.get("PIP_NO_INDEX") or env.get("UV_NO_INDEX") or settings.get("no-index", "")
    if no.strip().lower() in _TRUE_WORDS:
        return ()
    main = next(
        (
            found
            for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
            if (found := env.get(name, "").strip())
        ),
        settings.get("index-url", "").strip() or PUBLIC_INDEX,
    )
    more = [
        address
        for text in (
            env.get("UV_INDEX", ""),
            env.get("UV_EXTRA_INDEX_URL", ""),
            env.get("PIP_EXTRA_INDEX_URL") or settings.get("extra-index-url", ""),
        )
        for address in text.split()
    ]
    return tuple(dict.fromkeys(_strip_name(a) for a in (main, *more) if _is_http(_strip_name(a))))


def _strip_name(address: str) -> str:
    """uv's indexes may be named: `name=https://...`."""
    name, equals, url = address.partition("=")
    is_named = equals and "://" not in name
    return (url if is_named else address).rstrip("/")


def _is_http(address: str) -> bool:
    return address.startswith(("http://", "https://"))


def _read_pip_settings(env: Mapping[str, str]) -> dict[str, str]:
    """The settings of pip's files; specific files override general ones."""
    from configparser import Error, RawConfigParser

    found: dict[str, str] = {}
    for file in _list_pip_files(env):
        parser = RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (Error, OSError, UnicodeDecodeError):
            continue  # pip itself reports it
        for section in ("global", "install", "download"):
            if parser.has_section(section):
                found.update({k.replace("_", "-"): v for k, v in parser.items(section)})
    return found


def _list_pip_files(env: Mapping[str, str]) -> Iterator[Path]:
    named = env.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return
    home = env.get("HOME", "")
    for folder in (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    if home:
        if sys.platform == "darwin":
            yield Path(home, "Library", "Application Support", "pip", "pip.conf")
        yield Path(home, ".pip", "pip.conf")
        yield Path(env.get("XDG_CONFIG_HOME") or Path(home, ".config")) / "pip" / "pip.conf"
    yield Path(sys.prefix, "pip.conf")
    if named:
        yield Path(named)

"""The package indexes of this machine: those pip and uv are configured with, or the public one."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PUBLIC_INDEX = "https://pypi.org/simple"
_TRUE_WORDS = frozenset({"1", "true", "yes", "on"})


def list_indexes(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """URLs of simple indexes in the order to try them; empty where indexes are turned off. They may
    contain credentials and must not be shown."""
    settings = _read_pip_settings(env)
    no = env.get("PIP_NO_INDEX") or env.get("UV_NO_INDEX") or settings.get("no-index", "")
    if no.strip().lower() in _TRUE_WORDS:
        return ()
    named = [env.get(name, "") for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")]
    choices = (text.strip() for text in (*named, settings.get("index-url", ""), PUBLIC_INDEX))
    extra = env.get("PIP_EXTRA_INDEX_URL") or settings.get("extra-index-url", "")
    more = f"{env.get('UV_INDEX', '')} {env.get('UV_EXTRA_INDEX_URL', '')} {extra}".split()
    found = map(_strip_name, (next(filter(None, choices)), *more))
    return tuple(dict.fromkeys(a for a in found if a.startswith(("http://", "https://"))))


def _strip_name(address: str) -> str:
    """uv's indexes may be named: `name=https://...`."""
    name, equals, url = address.partition("=")
    is_named = equals and "://" not in name
    return (url if is_named else address).rstrip("/")


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

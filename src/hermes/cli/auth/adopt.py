"""`hermes auth adopt`: logins of other programs, taken over when the user asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.config.env import environment
from hermes.core.errors import ConfigError
from hermes.llm.auth.oauth.tokens import Token, read_claim
from hermes.llm.provider_spec import OAuthSpec


class Program(Struct, frozen=True):
    """Where another program keeps its login, and which provider that is for."""

    name: str
    provider: str
    variable: str
    """Names its folder; empty: below the home folder, as usual."""
    folder: str
    file: str
    read: Callable[[Any, OAuthSpec], Token | str]
    """A token; or a key, for providers that take one."""


def _codex(data: Any, flow: OAuthSpec) -> Token | str:
    found = data.get("tokens")
    found = found if isinstance(found, Mapping) else {}
    access = _text(found, "access_token")
    account = _text(found, "account_id") or read_claim(_text(found, "id_token"), flow.account_claim)
    # When it ends is not said there: it is renewed before the first call.
    return Token(access, _text(found, "refresh_token"), 1.0, 0.0, account, flow.token_url, "codex")


def _claude(data: Any, flow: OAuthSpec) -> Token | str:
    found = data.get("claudeAiOauth")
    found = found if isinstance(found, Mapping) else {}
    ends = found.get("expiresAt")
    expires = ends / 1000 if isinstance(ends, (int, float)) else 1.0
    access, refresh = _text(found, "accessToken"), _text(found, "refreshToken")
    return Token(access, refresh, expires, time.time(), "", flow.token_url, "claude")


def _gh(data: Any, flow: OAuthSpec) -> Token | str:
    host = data.get("github.com")
    return _text(host, "oauth_token") if isinstance(host, Mapping) else ""


PROGRAMS = {
    program.name: program
    for program in (
        Program("codex", "openai-codex", "CODEX_HOME", ".codex", "auth.json", _codex),
        Program(
            "claude", "anthropic", "CLAUDE_CONFIG_DIR", ".claude", ".credentials.json", _claude
        ),
        Program("gh", "copilot", "GH_CONFIG_DIR", ".config/gh", "hosts.yml", _gh),
    )
}


def taken_over(program: Program, flow: OAuthSpec) -> Token | str:
    """What that program has; ConfigError when there is nothing to take."""
    environ = environment()
    folder = environ.get(program.variable) or Path(environ.get("HOME", "~"), program.folder)
    file = Path(folder).expanduser() / program.file
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{program.name} has no login in {file} ({error.strerror}); it may keep it in the "
            "system's key store, which is left alone."
        ) from None
    found = program.read(_parsed(raw, file), flow)
    if not (found.access if isinstance(found, Token) else found):
        raise ConfigError(
            f"{file} holds no login that could be taken over; log in instead: hermes auth login "
            f"{program.provider}."
        )
    return found


def _parsed(raw: bytes, file: Path) -> Mapping[str, Any]:
    try:
        if file.suffix == ".json":
            data = msgspec.json.decode(raw)
        else:
            import yaml

            data = yaml.safe_load(raw)
    except (ValueError, _yaml_error()):
        data = None
    if not isinstance(data, Mapping):
        raise ConfigError(f"{file} is not what was expected there; nothing was changed.")
    return data


def _yaml_error() -> type[Exception]:
    import yaml

    return yaml.YAMLError


def _text(data: Any, name: str) -> str:
    value = data.get(name) if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else ""

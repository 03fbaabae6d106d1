"""`hermes auth adopt`: logins of other programs, taken over at the user's request."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.config.env import get_environment
from hermes.core.errors import ConfigError
from hermes.llm.auth.oauth.tokens import Token, read_claim
from hermes.llm.provider_spec import OAuthSpec


class AdoptableProgram(Struct, frozen=True):
    """Where another program stores its login, and for which provider."""

    name: str
    provider: str
    variable: str
    """May name its folder, which otherwise is below the home folder."""
    folder: str
    file: str
    read: Callable[[Any, OAuthSpec], Token | str]
    """Extracts a token or, for providers that take one, a key."""


def _read_codex(data: Any, flow: OAuthSpec) -> Token | str:
    found = data.get("tokens")
    access, refresh = _text_field(found, "access_token"), _text_field(found, "refresh_token")
    claim = read_claim(_text_field(found, "id_token"), flow.account_claim)
    account = _text_field(found, "account_id") or claim
    # The file does not say when it expires: it is renewed before the first call.
    return Token(access, refresh, 1.0, 0.0, account, flow.token_url, "codex")


def _read_claude(data: Any, flow: OAuthSpec) -> Token | str:
    found = data.get("claudeAiOauth")
    ends = found.get("expiresAt") if isinstance(found, Mapping) else None
    expires = ends / 1000 if isinstance(ends, (int, float)) else 1.0
    access, refresh = _text_field(found, "accessToken"), _text_field(found, "refreshToken")
    return Token(access, refresh, expires, time.time(), "", flow.token_url, "claude")


def _read_gh(data: Any, flow: OAuthSpec) -> Token | str:
    return _text_field(data.get("github.com"), "oauth_token")


_PROGRAMS = (
    AdoptableProgram("codex", "openai-codex", "CODEX_HOME", ".codex", "auth.json", _read_codex),
    AdoptableProgram(
        "claude", "anthropic", "CLAUDE_CONFIG_DIR", ".claude", ".credentials.json", _read_claude
    ),
    AdoptableProgram("gh", "copilot", "GH_CONFIG_DIR", ".config/gh", "hosts.yml", _read_gh),
)
PROGRAMS = {program.name: program for program in _PROGRAMS}


def read_login(program: AdoptableProgram, flow: OAuthSpec) -> Token | str:
    """The login of the program; ConfigError when there is none to take over."""
    environ = get_environment()
    folder = environ.get(program.variable) or Path(environ.get("HOME", "~"), program.folder)
    file = Path(folder).expanduser() / program.file
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{program.name} has no login in {file} ({error.strerror}). It may be in the system's "
            "key store, which Hermes does not read."
        ) from None
    found = program.read(_parse_file(raw, file), flow)
    if not (found.access if isinstance(found, Token) else found):
        hint = f"Run: hermes auth login {program.provider}"
        raise ConfigError(f"{file} holds no login that can be taken over. {hint}")
    return found


def _parse_file(raw: bytes, file: Path) -> Mapping[str, Any]:
    import yaml

    try:
        data = msgspec.json.decode(raw) if file.suffix == ".json" else yaml.safe_load(raw)
    except (ValueError, yaml.YAMLError):
        data = None
    if not isinstance(data, Mapping):
        raise ConfigError(f"{file} has an unexpected format; nothing was changed.")
    return data


def _text_field(data: Any, name: str) -> str:
    value = data.get(name) if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else ""

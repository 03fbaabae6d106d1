"""The settings every messenger shares: `platforms.NAME` of config.yaml, and its variables."""

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from hermes.config.api_server import is_loopback
from hermes.config.schema import Address, BusyMode, Config, EnvName, Section
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError

Id: TypeAlias = int | str
_TRUE = frozenset({"1", "true", "yes", "on"})
_LISTS = ("allowed_users", "allowed_chats", "admins", "free_response_chats")
_VARIABLES = {
    "ALLOWED_USERS": "allowed_users",
    "ALLOWED_CHATS": "allowed_chats",
    "ADMINS": "admins",
    "ALLOW_ALL_USERS": "allow_all_users",
    "REQUIRE_MENTION": "require_mention",
    "HOME_CHANNEL": "home_chat",
    "BASE_URL": "base_url",
    "PROXY": "proxy",
}
"""Ends of variables named after the platform, and the keys they replace."""


class PlatformSettings(Section, frozen=True):
    """People and chats are named by the ids of the platform, never by names."""

    enabled: bool | None = None
    """None: when its token is set."""
    token_env: EnvName = ""
    """Another variable for the token."""
    base_url: Address = ""
    proxy: str = ""
    allowed_users: tuple[Id, ...] = ()
    allowed_chats: tuple[Id, ...] = ()
    admins: tuple[Id, ...] = ()
    allow_all_users: bool = False
    pairing: bool | None = None
    """None: when `allowed_users` is empty."""
    group_members: bool = False
    """Whether every member of a listed group may talk there, as a guest."""
    require_mention: bool = True
    free_response_chats: tuple[Id, ...] = ()
    home_chat: Id = ""
    busy_input_mode: BusyMode | None = None
    streaming: bool | None = None
    typing: bool = True
    toolsets: tuple[str, ...] | None = None

    @property
    def pairs_people(self) -> bool:
        return not self.allowed_users if self.pairing is None else self.pairing

    def lets_in(self, user: str) -> bool:
        """Whether the settings let this person talk; others may be paired."""
        return self.allow_all_users or user in self.allowed_users or user in self.admins

    def find_gap(self) -> str:
        """What is still missing so that anybody is heard; empty: nothing."""
        return ""


S = TypeVar("S", bound=PlatformSettings)


def read_platform(name: str, kind: type[S], config: Config, secrets: Secrets) -> S:
    """The settings of a platform. Raises ConfigError when a key or a value is not valid."""
    raw = dict(config.platforms.get(name, {}))
    try:
        settings = msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        problem = _find_problem(name, raw, kind)
        end = "" if problem.endswith("?") else "."
        raise ConfigError(f"config.yaml: {problem}{end}") from None
    return structs.replace(settings, **_normalise_ids(settings, _read_variables(name, secrets)))


def _find_problem(name: str, raw: Mapping[str, Any], kind: type[PlatformSettings]) -> str:
    # Imported only when something is wrong: it brings the YAML parser.
    from hermes.config import validate

    for _, text in validate.find_problems(kind, raw, ("platforms", name)):
        return text
    return f"platforms.{name} is not valid"


def _read_variables(name: str, secrets: Secrets) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for ending, key in _VARIABLES.items():
        value = secrets.get(f"{name.upper()}_{ending}")
        if value is None:
            continue
        if key in _LISTS:
            changes[key] = tuple(part.strip() for part in value.split(",") if part.strip())
        elif key in ("allow_all_users", "require_mention"):
            changes[key] = value.lower() in _TRUE
        else:
            changes[key] = value
    return changes


def _normalise_ids(settings: PlatformSettings, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Ids are compared as text."""
    ids = {key: tuple(map(str, changes.get(key, getattr(settings, key)))) for key in _LISTS}
    home = str(changes.get("home_chat", settings.home_chat))
    return {**changes, **ids, "home_chat": home}


def is_enabled(settings: PlatformSettings, token: str | None) -> bool:
    """A platform is on when it says so, or when its token is set and it does not say otherwise."""
    return bool(token) if settings.enabled is None else settings.enabled


def is_safe_address(url: str) -> bool:
    """Whether a token may be sent there: plain http goes to this machine only."""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")

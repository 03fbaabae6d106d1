"""Secrets from the environment or .env: handed out by name, never exported, never shown."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from hermes.core.errors import ConfigError

_ENDINGS = tuple(
    "_KEY _TOKEN _PAT _CREDENTIALS _CREDS _AUTH _PASS _PWD _PW _JWT _COOKIE _SK _PEM".split()
)
_PARTS = tuple(
    "PASSWORD PASSWD PASSPHRASE API_KEY APIKEY SECRET ACCESS_KEY BEARER AUTH_TOKEN AUTHTOKEN "
    "AUTH_CONFIG".split()
)
_NAMES = frozenset({"TOKEN", "JWT", "COOKIE", "CREDS"})
_ORDINARY = frozenset({"PATH", "HOME", "LANG", "TERM", "SHELL", "USER", "PWD", "TMPDIR", "TZ"})
_MIN_REDACTED_LENGTH = 8
"""Shorter values are not redacted: they would match everywhere."""

_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:@%,!?&*~^|;<>()[]{}$"
)
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret, judging by the name."""
    upper = name.upper()
    return upper in _NAMES or upper.endswith(_ENDINGS) or any(part in upper for part in _PARTS)


class Secrets:
    """Read-only. The environment takes precedence over .env; empty values count as absent."""

    __slots__ = ("_dotenv", "_environ", "_logins", "_redactable", "key_variables")

    def __init__(
        self,
        environ: Mapping[str, str],
        dotenv: Mapping[str, str] | None = None,
        *,
        key_variables: Collection[str] = (),
        logins: Path | None = None,
    ) -> None:
        self._environ = environ
        self._dotenv = dotenv or {}
        self._logins = logins
        self._redactable: frozenset[str] | None = None
        self.key_variables = frozenset(key_variables)
        """Variables that the configuration takes keys from, whatever they are called."""

    def __repr__(self) -> str:
        return f"<Secrets: {len(self._dotenv)} in .env>"

    def get(self, name: str) -> str | None:
        return self._environ.get(name, "").strip() or self._dotenv.get(name, "").strip() or None

    def has_any(self, prefix: str) -> bool:
        """Whether a variable whose name begins so is set."""
        names = {*self._environ, *self._dotenv}
        return any(name.startswith(prefix) and self.get(name) for name in names)

    def find_source(self, name: str) -> str:
        """Where `get` finds it, for messages: "environment", ".env" or ""."""
        if self._environ.get(name, "").strip():
            return "environment"
        return ".env" if self._dotenv.get(name, "").strip() else ""

    def with_variable(self, name: str, value: str) -> "Secrets":
        """A copy with one more variable, which is not stored anywhere yet."""
        environ = {**self._environ, name: value}
        return Secrets(
            environ, self._dotenv, key_variables=self.key_variables | {name}, logins=self._logins
        )

    def with_dotenv(self, dotenv: Mapping[str, str], key_variables: Collection[str]) -> "Secrets":
        """A copy with the present content of .env."""
        return Secrets(self._environ, dotenv, key_variables=key_variables, logins=self._logins)

    def find_login(self, provider: str) -> Path | None:
        """The file with the tokens of a login to the provider; None without a login."""
        if self._logins is None:
            return None
        file = self._logins / f"{provider}.json"
        return file if file.is_file() else None

    def must_hide(self, name: str) -> bool:
        """Whether a variable of this name must be hidden from child processes."""
        if name in _ORDINARY:
            return False
        return name in self.key_variables or name in self._dotenv or is_secret_name(name)

    def redactable_values(self) -> frozenset[str]:
        """Secret values to redact wherever they appear."""
        if self._redactable is None:
            values = {
                value.strip()
                for source in (self._environ, self._dotenv)
                for name, value in source.items()
                if name in self.key_variables or is_secret_name(name)
            }
            values |= _read_login_tokens(self._logins) if self._logins is not None else set()
            self._redactable = frozenset(
                value for value in values if len(value) >= _MIN_REDACTED_LENGTH
            )
        return self._redactable


def _read_login_tokens(logins: Path) -> set[str]:
    """The current tokens of all logins; unreadable files are skipped."""
    import msgspec

    found: set[str] = set()
    for file in logins.glob("*.json"):
        try:
            login = msgspec.json.decode(file.read_bytes(), type=dict[str, str | float])
        except (OSError, ValueError):
            continue
        found |= {v for k in ("access", "refresh") if isinstance(v := login.get(k), str)}
    return found


def read_dotenv(path: Path) -> dict[str, str]:
    """The variables of a .env file. `${NAME}` is not expanded: secrets are taken literally."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}).") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    return parse_dotenv(text, path)


def parse_dotenv(text: str, path: Path) -> dict[str, str]:
    """`path` is for error messages."""
    simple = _parse_simple(text)
    if simple is not None:
        return simple
    from io import StringIO

    from dotenv.parser import parse_stream

    found: dict[str, str] = {}
    for binding in parse_stream(StringIO(text)):
        if binding.error:
            raise ConfigError(
                f"{path.name} line {binding.original.line}: expected NAME=value; "
                "quotes must be closed."
            )
        if binding.key is not None:
            found[binding.key] = binding.value or ""
    return found


def _parse_simple(text: str) -> dict[str, str] | None:
    """Parses plain NAME=value lines without importing a full parser, which takes 25 ms. None when
    the file contains anything else."""
    found: dict[str, str] = {}
    for raw in text.replace("\r\n", "\n").split("\n"):
        line = raw.strip(" \t")
        if not line or (line.startswith("#") and line.isprintable()):
            continue
        name, equals, value = line.removeprefix("export ").partition("=")
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        is_assignment = equals and name and not name[0].isdigit()
        if not is_assignment or not _NAME_CHARS.issuperset(name) or not _PLAIN.issuperset(value):
            return None
        found[name] = value
    return found


def mask_secrets(value: Any) -> Any:
    """Hides secrets, which do not belong in the file but may be there."""
    if isinstance(value, dict):
        return {
            key: "[redacted]"
            if isinstance(item, str) and item and is_secret_name(key) and not key.endswith("_env")
            else mask_secrets(item)
            for key, item in value.items()
        }
    return [mask_secrets(item) for item in value] if isinstance(value, (list, tuple)) else value

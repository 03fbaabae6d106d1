"""Loads home, config.yaml and .env into one frozen Setup."""

import os
import re
from collections.abc import Collection, Mapping
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.config import paths
from hermes.config.schema import SCHEMA_VERSION, Config
from hermes.config.secrets import Secrets, is_secret_name, read_dotenv
from hermes.core.errors import ConfigError
from hermes.version import VERSION

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Setup(Struct, frozen=True):
    """A process's whole configuration, read once at its start."""

    config: Config
    home: Path
    profile: str
    secrets: Secrets
    warnings: tuple[str, ...] = ()

    @property
    def database_url(self) -> str:
        """The address of the cluster's database; empty: this home has its own."""
        cluster = self.config.cluster
        return cluster.database or self.secrets.get(cluster.database_env) or ""

    @property
    def profile_name(self) -> str:
        """Also when the profile is the active one and was not named."""
        is_profile_home = self.home.parent.name == "profiles"
        return self.home.name if is_profile_home else self.profile or paths.DEFAULT_PROFILE


def load_setup(
    profile: str = "",
    environ: Mapping[str, str] | None = None,
    *,
    keys: Collection[str] = (),
) -> Setup:
    """Create the home if needed and read it. Raises ConfigError; never rewrites a file.
    `keys`: variables that hold a key although the configuration does not name them."""
    env = os.environ if environ is None else environ
    home = paths.find_home(env, profile)
    is_new = profile not in ("", paths.DEFAULT_PROFILE) and not home.is_dir()
    warnings = paths.make_home(home)
    if is_new:  # a typing error creates one, too
        warnings.append(f"Created the new profile {profile} in {home}.")
    config = read_config(home)
    dotenv = _read_env_file(paths.env_file(home), warnings)
    named = {*list_key_variables(config), *keys}
    secrets = Secrets(env, dotenv, key_variables=named, logins=paths.logins_folder(home))
    return Setup(config, home, profile, secrets, tuple(warnings))


def reload_setup(setup: Setup) -> Setup:
    """The same home, as config.yaml and .env say now."""
    warnings: list[str] = []
    config = read_config(setup.home)
    dotenv = _read_env_file(paths.env_file(setup.home), warnings)
    secrets = setup.secrets.with_dotenv(dotenv, list_key_variables(config))
    return Setup(config, setup.home, setup.profile, secrets, tuple(warnings))


def read_source(home: Path) -> bytes | None:
    """The bytes of config.yaml; None when it does not exist."""
    file = paths.config_file(home)
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None


def hash_source(source: bytes) -> str:
    """The version of config.yaml: another one with any other bytes."""
    return sha256(source).hexdigest()[:16]


def read_config(home: Path) -> Config:
    source = read_source(home)
    if not source:
        return Config()
    cache = paths.cache_folder(home) / "config.json"
    made_by = b"%d %s " % (SCHEMA_VERSION, VERSION.encode())  # the cached form depends on it
    digest = blake2b(made_by + source, digest_size=16).hexdigest()
    cached = _read_cache(cache, digest)
    if cached is not None:
        return cached
    data, config = _parse_config(source)
    try:
        paths.make_private(paths.config_file(home))
        _write_cache(cache, digest, data)
    except OSError:
        pass  # read-only home: the next start parses again
    return config


def _parse_config(source: bytes) -> tuple[dict[str, Any], Config]:
    from hermes.config.validate import validate_config
    from hermes.config.yaml_source import parse_yaml

    checked = validate_config(parse_yaml(source))
    if checked.config is None:
        first, *more = checked.problems
        rest = f" ({len(more)} more: run hermes config check)" if more else ""
        raise ConfigError(f"config.yaml {first}{rest}")
    return checked.data, checked.config


def _read_env_file(file: Path, warnings: list[str]) -> dict[str, str]:
    try:
        if paths.make_private(file):
            warnings.append(f"{file} was readable by other users; its mode is 0600 now.")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(
            f"{file} is readable by other users and could not be made private ({error.strerror}); "
            "fix its owner or its mode."
        ) from None
    return read_dotenv(file)


def _read_cache(file: Path, digest: str) -> Config | None:
    """None unless it was made from exactly this source. Saves importing a YAML parser (20 ms)."""
    try:
        head, _, body = file.read_bytes().partition(b"\n")
        if head.decode() != f"{digest} {blake2b(body, digest_size=16).hexdigest()}":
            return None
        return msgspec.json.decode(body, type=Config)
    except (OSError, ValueError):
        return None


def _write_cache(file: Path, digest: str, data: dict[str, Any]) -> None:
    if _contains_secret(data):
        return
    body = msgspec.json.encode(data)
    head = f"{digest} {blake2b(body, digest_size=16).hexdigest()}\n".encode()
    paths.make_private_folder(file.parent)
    temporary = file.with_name(f".config.{os.getpid()}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, head + body)
    finally:
        os.close(handle)
    temporary.replace(file)


def _contains_secret(value: Any) -> bool:
    """Whether a free-form section holds a secret in plain text, which must not be copied."""
    if isinstance(value, dict):
        return any(
            (isinstance(item, str) and item and key != "api_key_env" and is_secret_name(str(key)))
            or _contains_secret(item)
            for key, item in value.items()
        )
    return isinstance(value, list) and any(_contains_secret(item) for item in value)


def list_key_variables(config: Config) -> frozenset[str]:
    """The variables this configuration takes keys from."""
    named = [config.model.api_key_env, config.web.search.api_key_env]
    named.append(config.cluster.database_env)
    for provider in config.providers.values():
        named += [provider.api_key_env, *provider.api_key_envs]
    named += [job.api_key_env for job in config.auxiliary.values()]
    for server in config.mcp_servers.values():
        for part in (server.get("headers"), server.get("oauth")):
            texts = part.values() if isinstance(part, dict) else ()
            named += [name for text in texts for name in _VARIABLE.findall(str(text))]
    return frozenset(filter(None, named))

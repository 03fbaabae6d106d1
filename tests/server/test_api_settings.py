"""Settings of the server: sources, defaults, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes.config.api_server import ApiServer, check_exposure, read_settings
from hermes.config.load import load_setup
from hermes.core.errors import ConfigError
from hermes.server.app import Server
from tests.kit.api import api
from tests.kit.home import Home

GOOD = "qF3kV9sYw1pZ7dXu0bNc"


def settings(tmp_path: Path, **config: Any) -> tuple[ApiServer, tuple[str, ...]]:
    env = {name: config.pop(name) for name in list(config) if name.isupper()}
    home = Home(tmp_path, platforms={"api_server": config})
    return read_settings(load_setup("", home.env).config, env)


def test_defaults(tmp_path: Path) -> None:
    found, notes = settings(tmp_path)
    assert notes == ()
    assert (found.enabled, found.host, found.port, found.key) == (False, "127.0.0.1", 8642, "")
    assert found.cors_origins == () and found.model_name == ""
    assert found.max_request_bytes == 10_000_000 and found.max_stored_responses == 100


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "config": (
        {"host": "::1", "port": 1, "key": "k", "model_name": "m", "enabled": True},
        {"host": "::1", "port": 1, "key": "k", "model_name": "m", "enabled": True},
    ),
    "the environment wins": (
        {"host": "::1", "port": 1, "API_SERVER_HOST": "localhost", "API_SERVER_PORT": "2"},
        {"host": "localhost", "port": 2},
    ),
    "a key turns it on": ({"API_SERVER_KEY": "k"}, {"enabled": True, "key": "k"}),
    "which can be turned off": (
        {"API_SERVER_KEY": "k", "API_SERVER_ENABLED": "false"},
        {"enabled": False},
    ),
    "enabled": ({"API_SERVER_ENABLED": "true"}, {"enabled": True}),
    "origins as text": (
        {"cors_origins": "https://a, https://b"},
        {"cors_origins": ("https://a", "https://b")},
    ),
    "origins as a list": ({"cors_origins": ["https://a"]}, {"cors_origins": ("https://a",)}),
    "origins in the environment": (
        {"API_SERVER_CORS_ORIGINS": " https://a ,,https://b"},
        {"cors_origins": ("https://a", "https://b")},
    ),
    "a model name": ({"API_SERVER_MODEL_NAME": "m"}, {"model_name": "m"}),
    "limits": (
        {"max_request_bytes": 5, "max_stored_responses": 6},
        {"max_request_bytes": 5, "max_stored_responses": 6},
    ),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_settings_come_from_config_and_variables(tmp_path: Path, case: str) -> None:
    given, expected = CASES[case]
    found, _ = settings(tmp_path, **given)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize("port", ["eighty", "80x", "-1", "70000", "8642.5", "٨"])
def test_an_invalid_port_is_the_default_with_a_warning(tmp_path: Path, port: str) -> None:
    found, notes = settings(tmp_path, port=9, API_SERVER_PORT=port)
    assert found.port == 8642 and "API_SERVER_PORT" in notes[0]


@pytest.mark.parametrize(
    "wrong", [{"port": "x"}, {"max_request_bytes": -1}, {"keys": [{"name": "a b"}]}]
)
def test_a_wrong_setting_is_named(tmp_path: Path, wrong: dict) -> None:
    with pytest.raises(ConfigError, match=r"platforms\.api_server.*" + next(iter(wrong))):
        settings(tmp_path, **wrong)


EXPOSED = ["0.0.0.0", "::", "192.168.1.5", "example.com", "", "2001:db8::1"]
HERE = ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1"]
WEAK = ["", "short-key-12345", "changeme", "your-secret-key", "1234567890123456", "a" * 40]
WEAK += [
    "Sommer-2024-Urlaub",
    "correcthorsebatterystaple",
    "0123456789abcdef" * 3,
    "passw0rdpassw0rd",
]
WEAK += ["abcdefghijklmnopqrstuvwxyz0123456789", "hermes-server-2024", "qwertzuiop123456"]


@pytest.mark.parametrize("host", EXPOSED, ids=repr)
@pytest.mark.parametrize("key", WEAK, ids=repr)
def test_a_public_address_needs_a_strong_key(host: str, key: str) -> None:
    keys = {"": key} if key else {}
    with pytest.raises(ConfigError, match="token_urlsafe") as refused:
        check_exposure(ApiServer(host=host), keys)
    assert not key or key not in str(refused.value)


@pytest.mark.parametrize("host", EXPOSED, ids=repr)
@pytest.mark.parametrize(
    "key",
    [
        "kR7_wq3nZtL0-xYb9PdVeA",  # 16 random bytes
        "9f86d081884c7d659a2feaa0c55ad015",  # the same in hexadecimal
        "four words that nobody would ever guess",
    ],
)
def test_a_strong_key_is_enough(host: str, key: str) -> None:
    check_exposure(ApiServer(host=host), {"": GOOD})
    check_exposure(ApiServer(host=host), {"": key})


@pytest.mark.parametrize("host", HERE, ids=repr)
@pytest.mark.parametrize("key", WEAK, ids=repr)
def test_on_loopback_any_key_is_accepted(host: str, key: str) -> None:
    check_exposure(ApiServer(host=host), {"": key} if key else {})


def test_every_named_key_must_be_strong() -> None:
    with pytest.raises(ConfigError, match="ann"):
        check_exposure(ApiServer(host="0.0.0.0"), {"bob": GOOD, "ann": "weak"})


@pytest.mark.parametrize(
    ("profile", "named", "shown"),
    [
        ("", "", "hermes-agent"),
        ("default", "", "hermes-agent"),
        ("writer", "", "writer"),
        ("writer", "house", "house"),
    ],
)
async def test_the_advertised_model_name(
    tmp_path: Path, profile: str, named: str, shown: str
) -> None:
    async with api(tmp_path, settings={"model_name": named}) as a:
        setup = a.server.runtime.setup
        import copy

        runtime = copy.copy(a.server.runtime)
        try:
            runtime.setup = type(setup)(**{**_fields(setup), "profile": profile})
            assert Server(runtime, a.server.settings).services.model == shown
        finally:
            runtime.setup = setup


def _fields(value: Any) -> dict[str, Any]:
    names = getattr(value, "__struct_fields__", None) or value.__dataclass_fields__
    return {name: getattr(value, name) for name in names}

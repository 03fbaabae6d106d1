"""The process environment: proxies, colour, arguments."""

from __future__ import annotations

import sys

import pytest

from hermes.config.env import build_child_env, decode_argument, find_proxy, supports_colour
from hermes.config.secrets import Secrets

PROXY = {"http_proxy": "http://p:1", "HTTPS_PROXY": "q:2", "ALL_PROXY": "socks5://s:3"}


@pytest.mark.parametrize(
    ("url", "extra", "expected"),
    [
        ("http://a.com/x", {}, "http://p:1"),
        ("https://a.com", {}, "http://q:2"),
        ("HTTPS://a.com", {}, "http://q:2"),
        ("wss://a.com", {}, "http://q:2"),
        ("ftp://a.com", {}, "socks5://s:3"),
        ("http://a.com", {"http_proxy": ""}, "socks5://s:3"),
        ("http://a.com", {"http_proxy": "", "HTTP_PROXY": "http://u:4"}, "http://u:4"),
        (
            "http://a.com",
            {"http_proxy": "", "HTTP_PROXY": "http://evil", "REQUEST_METHOD": "GET"},
            "socks5://s:3",
        ),
        ("http://a.com", {"NO_PROXY": "a.com"}, None),
        ("http://x.a.com", {"NO_PROXY": "b.org, a.com"}, None),
        ("http://x.a.com", {"NO_PROXY": ".a.com"}, None),
        ("http://x.a.com", {"NO_PROXY": "*.a.com"}, None),
        ("http://xa.com", {"NO_PROXY": "a.com"}, "http://p:1"),
        ("http://a.com.", {"NO_PROXY": "A.COM"}, None),
        ("http://a.com", {"NO_PROXY": "*"}, None),
        ("http://a.com:8080", {"NO_PROXY": "a.com:8080"}, None),
        ("http://a.com:8081", {"NO_PROXY": "a.com:8080"}, "http://p:1"),
        ("http://a.com", {"NO_PROXY": "a.com:80"}, None),
        ("http://127.0.0.1:5000/v1", {}, "http://p:1"),
        ("http://127.0.0.1:5000/v1", {"NO_PROXY": "127.0.0.1"}, None),
        ("http://10.1.2.3", {"NO_PROXY": "10.0.0.0/8"}, None),
        ("http://11.1.2.3", {"NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
        ("http://a.com", {"NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
        ("http://[::1]:80/", {"NO_PROXY": "::1"}, None),
        ("http://[fd00::1]/", {"NO_PROXY": "fd00::/8"}, None),
        ("http://user:pw@a.com/", {"NO_PROXY": "a.com"}, None),
        ("http://a.com", {"no_proxy": "b.com", "NO_PROXY": "a.com"}, "http://p:1"),
        ("http://a.com", {"NO_PROXY": " , "}, "http://p:1"),
    ],
)
def test_proxies(url: str, extra: dict[str, str], expected: str | None) -> None:
    assert find_proxy(url, {**PROXY, **extra}) == expected
    assert find_proxy(url, {}) is None


def test_colours() -> None:
    assert supports_colour(True, {"TERM": "xterm"})
    assert not supports_colour(False, {"TERM": "xterm"})
    assert not supports_colour(True, {"TERM": "xterm", "NO_COLOR": "1"})
    assert not supports_colour(True, {"TERM": "dumb"})
    assert not supports_colour(True, {})


def test_arguments_are_utf8_whatever_the_locale_made_of_them() -> None:
    assert decode_argument("plain") == "plain"
    raw = "grüß 日本".encode()
    assert (
        decode_argument(raw.decode(sys.getfilesystemencoding(), "surrogateescape")) == "grüß 日本"
    )
    assert decode_argument("\udcff").isprintable()


def test_commands_are_no_children_of_the_make_that_started_us() -> None:
    environ = {"MAKELEVEL": "1", "MAKEFLAGS": "-j2", "MAKER": "kept", "PATH": "/bin"}
    env = build_child_env(Secrets({}), environ)
    assert env["MAKER"] == "kept" and not {"MAKELEVEL", "MAKEFLAGS"} & set(env)


@pytest.mark.parametrize(
    ("name", "value", "is_kept"),
    [
        ("MYSQL_PWD", "x", False),
        ("SMTP_PASS", "x", False),
        ("PASSPHRASE", "x", False),
        ("CI_JOB_JWT", "x", False),
        ("npm_config_//registry/:_authToken", "x", False),
        ("DOCKER_AUTH_CONFIG", "{}", False),
        ("STRIPE_SK", "x", False),
        ("DEPLOY", "-----BEGIN PRIVATE KEY-----\nx", False),
        ("TASK", "PRIVATE KEY", True),
        ("DATABASE_URL", "postgres://me:word@db/app", False),
        ("DATABASE_URL", "postgres://me@db/app", True),
        ("PIP_INDEX_URL", "https://me:word@packages.example/simple", True),
        ("OLDPWD", "/tmp", True),
        ("COMPASS", "north", True),
    ],
)
def test_what_children_see(name: str, value: str, is_kept: bool) -> None:
    assert (name in build_child_env(Secrets({}), {name: value})) is is_kept

"""Settings of messengers: keys, variables, old names."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.config.platforms import PlatformSettings, is_enabled, is_safe_address, read_platform
from hermes.config.schema import Config
from hermes.config.secrets import Secrets
from hermes.config.validate import validate_config
from hermes.config.yaml_source import parse_yaml
from hermes.core.errors import ConfigError


def read(raw: dict[str, Any], **env: str) -> PlatformSettings:
    return read_platform("chat", PlatformSettings, Config(platforms={"chat": raw}), Secrets(env))


def test_ids_are_text_and_variables_win() -> None:
    found = read(
        {"allowed_users": [1, "2"], "require_mention": True, "home_chat": -5},
        CHAT_ALLOWED_USERS="7, 8",
        CHAT_REQUIRE_MENTION="false",
    )
    assert found.allowed_users == ("7", "8") and not found.require_mention
    assert found.home_chat == "-5" and not found.pairs_people
    assert read({}).pairs_people and not read({"pairing": False}).pairs_people


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"alowed_users": [1]}, "did you mean platforms.chat.allowed_users?"),
        ({"typing": "often"}, "platforms.chat.typing must be true or false"),
    ],
)
def test_a_wrong_key_or_value_is_named(raw: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        read(raw)


def test_a_platform_is_on_with_its_token_unless_told_otherwise() -> None:
    assert is_enabled(read({}), "token") and not is_enabled(read({}), None)
    assert not is_enabled(read({"enabled": False}), "token")
    assert is_enabled(read({"enabled": True}), None)


def test_plain_http_goes_to_this_machine_only() -> None:
    assert is_safe_address("https://api.example") and is_safe_address("http://127.0.0.1:8081")
    assert not is_safe_address("http://api.example")


def test_old_names_are_taken_and_reported() -> None:
    source = b"""
session_reset: {mode: daily, at_hour: 5}
group_sessions_per_user: false
streaming: false
display: {busy_input_mode: interrupt}
"""
    checked = validate_config(parse_yaml(source))
    assert checked.config is not None, checked.problems
    section = checked.config.gateway
    assert (section.reset.mode, section.reset.at_hour) == ("daily", 5)
    assert not section.group_sessions_per_user and not section.streaming
    assert section.busy_input_mode == "interrupt"
    assert [str(note) for note in checked.notes] == [
        "line 2: session_reset is an old name; write gateway.reset",
        "line 3: group_sessions_per_user is an old name; write gateway.group_sessions_per_user",
        "line 4: streaming is an old name; write gateway.streaming",
        "line 5: display.busy_input_mode is an old name; write gateway.busy_input_mode",
    ]


@pytest.mark.parametrize(
    ("streaming", "expected"),
    [
        ("{enabled: true, transport: edit, edit_interval: 0.3, cursor: x}", True),
        ("{enabled: true, transport: off}", False),
        ("{enabled: false}", False),
        ("{}", False),
    ],
)
def test_the_old_section_about_streaming_is_a_switch_now(streaming: str, expected: bool) -> None:
    checked = validate_config(parse_yaml(f"streaming: {streaming}".encode()))
    assert checked.config is not None, checked.problems
    assert checked.config.gateway.streaming is expected

"""What people write and other programs read, word for word: keys, defaults, variables, states."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from hermes.config.api_server import VARIABLES
from hermes.config.load import load_setup
from hermes.config.platforms import PlatformSettings, is_enabled, read_platform
from hermes.config.schema import GatewaySection
from hermes.core.store import InboxState, OutboxState
from hermes.gateway.adapter import Capabilities
from hermes.gateway.platforms import HOSTED, find_token, list_names, load_platform
from hermes.gateway.platforms.discord import DiscordPlatform
from hermes.gateway.platforms.email import EmailPlatform
from hermes.gateway.platforms.irc import IrcPlatform
from hermes.gateway.platforms.matrix import MatrixPlatform
from hermes.gateway.platforms.signal import SignalPlatform
from hermes.gateway.platforms.slack import SlackPlatform
from hermes.gateway.platforms.telegram import TelegramPlatform
from hermes.gateway.platforms.webhook import WebhookRoute
from hermes.gateway.platforms.whatsapp import WhatsappPlatform
from hermes.gateway.process.state_file import GatewayStatus, PlatformStatus
from tests.kit import Home

GATEWAY = {
    "busy_input_mode": "queue",
    "busy_ack": True,
    "group_sessions_per_user": True,
    "thread_sessions_per_user": False,
    "reset": {
        "mode": "none",
        "idle_minutes": 1440,
        "at_hour": 4,
        "notify": True,
        "notify_exclude_platforms": ("api_server", "webhook"),
        "by_type": {},
        "by_platform": {},
    },
    "on_restart": "tell",
    "drain_seconds": 30,
    "approval_seconds": 300,
    "stale_hours": 24,
    "max_active": 8,
    "max_queued": 20,
    "max_live_sessions": 100,
    "idle_evict_minutes": 10,
    "max_media_bytes": 20_000_000,
    "media_days": 7,
    "streaming": True,
    "tool_progress": True,
    "profiles": (),
    "quick_commands": {},
}
EVERY_PLATFORM = {
    "enabled": None,
    "base_url": "",
    "proxy": "",
    "token_env": "",
    "allowed_users": (),
    "allowed_chats": (),
    "admins": (),
    "allow_all_users": False,
    "pairing": None,
    "group_members": False,
    "require_mention": True,
    "free_response_chats": (),
    "home_chat": "",
    "busy_input_mode": None,
    "streaming": None,
    "typing": True,
    "toolsets": None,
}
PLATFORMS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "telegram": (
        ("TELEGRAM_BOT_TOKEN",),
        {"webhook_url": "", "webhook_host": "127.0.0.1", "webhook_port": 8443},
    ),
    "discord": (("DISCORD_BOT_TOKEN",), {"auto_thread": False}),
    "slack": (("SLACK_BOT_TOKEN",), {}),
    "matrix": (
        ("MATRIX_ACCESS_TOKEN", "MATRIX_PASSWORD"),
        {"homeserver": "", "user_id": "", "encryption": True},
    ),
    "email": (
        ("EMAIL_ADDRESS",),
        {
            "address": "",
            "imap_host": "",
            "imap_port": 993,
            "smtp_host": "",
            "smtp_port": 587,
            "tls": "auto",
            "authserv_id": "",
            "trust_from": False,
            "poll_seconds": 60,
        },
    ),
    "irc": (
        ("IRC_SERVER",),
        {"server": "", "port": 6697, "tls": True, "nickname": "hermes", "channels": ()},
    ),
    "webhook": (
        ("WEBHOOK_SECRET",),
        {
            "host": "127.0.0.1",
            "port": 8644,
            "max_body_bytes": 1_048_576,
            "rate_limit": 30,
            "routes": {},
        },
    ),
    "whatsapp": (
        ("WHATSAPP_CLOUD_ACCESS_TOKEN",),
        {"webhook_host": "127.0.0.1", "webhook_port": 8645},
    ),
    "signal": (("SIGNAL_HTTP_URL",), {}),
}
"""What turns each on, and the keys that only it has."""
MORE_VARIABLES = {
    "slack": {"SLACK_APP_TOKEN"},
    "irc": {"IRC_SERVER_PASSWORD", "IRC_SASL_PASSWORD"},
    "matrix": {"MATRIX_HOMESERVER"},
    "email": {"EMAIL_PASSWORD", "EMAIL_IMAP_HOST", "EMAIL_SMTP_HOST"},
    "whatsapp": {
        "WHATSAPP_CLOUD_PHONE_NUMBER_ID",
        "WHATSAPP_CLOUD_APP_SECRET",
        "WHATSAPP_CLOUD_VERIFY_TOKEN",
    },
    "signal": {"SIGNAL_ACCOUNT"},
}
"""What `setup` asks for besides."""
CHARACTERS = "a😀é"
RENDERING: dict[Any, tuple[int, int, float, float, float]] = {
    TelegramPlatform: (4096, 4, 1.0, 3.0, 4),
    DiscordPlatform: (2000, 3, 1.2, 1.2, 8),
    SlackPlatform: (4000, 3, 1.2, 1.2, 20),
    MatrixPlatform: (20_000, 7, 1.5, 1.5, 20),
    WhatsappPlatform: (4096, 3, 0, 0, 20),
    SignalPlatform: (2000, 3, 0, 0, 10),
    IrcPlatform: (400, 7, 0, 0, 0),
    EmailPlatform: (200_000, 4, 0, 0, 0),
}
"""The longest part, what CHARACTERS count there, the pace in direct chats and groups (0: answers
come whole), and when the typing indicator is shown again."""


def test_the_settings_of_the_gateway() -> None:
    assert msgspec.to_builtins(GatewaySection()) == GATEWAY


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_settings_of_a_platform(name: str) -> None:
    variables, keys = PLATFORMS[name]
    spec = load_platform(name)
    assert msgspec.to_builtins(spec.settings()) == EVERY_PLATFORM | keys
    assert {spec.variable, spec.alternative} - {""} == set(variables)
    assert set(spec.more_variables) == MORE_VARIABLES.get(name, set())


def test_every_platform_has_a_row() -> None:
    assert set(list_names()) == set(PLATFORMS) and HOSTED == ("api_server",)
    assert set(VARIABLES) >= {"API_SERVER_KEY", "API_SERVER_ENABLED"}
    assert set(WebhookRoute.__struct_fields__) == {
        "secret_env", "prompt", "events", "deliver", "deliver_only", "toolsets", "session",
    }  # fmt: skip


@pytest.mark.parametrize("name", PLATFORMS)
def test_variables_go_before_the_settings(tmp_path: Path, name: str) -> None:
    home, spec = Home(tmp_path), load_platform(name)
    home.configure(platforms={name: {"allowed_users": [1], "require_mention": True}})
    given = {
        "ALLOWED_USERS": "7, alice,",
        "ALLOWED_CHATS": "-5",
        "ADMINS": "7",
        "ALLOW_ALL_USERS": "true",
        "REQUIRE_MENTION": "false",
        "HOME_CHANNEL": "9",
        "BASE_URL": "https://example.org",
        "PROXY": "http://127.0.0.1:8118",
    }
    home.env.update({f"{name.upper()}_{ending}": value for ending, value in given.items()})
    setup = load_setup("", home.env)
    found = read_platform(name, spec.settings, setup.config, setup.secrets)
    assert found.allowed_users == ("7", "alice") and found.allowed_chats == ("-5",)
    assert found.admins == ("7",) and found.home_chat == "9"
    assert found.allow_all_users and not found.require_mention
    assert (found.base_url, found.proxy) == ("https://example.org", "http://127.0.0.1:8118")


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_platform_is_on_when_it_says_so_or_has_its_variable(tmp_path: Path, name: str) -> None:
    spec = load_platform(name)

    def is_on(env: dict[str, str], **settings: Any) -> bool:
        home = Home(tmp_path)
        home.configure(platforms={name: settings})
        setup = load_setup("", {**home.env, **env})
        read: PlatformSettings = read_platform(name, spec.settings, setup.config, setup.secrets)
        return is_enabled(read, find_token(spec, read, setup.secrets))

    assert not is_on({}) and is_on({}, enabled=True)
    for variable in PLATFORMS[name][0]:
        assert is_on({variable: "value"}) and not is_on({variable: "value"}, enabled=False)
    assert is_on({"MY_TOKEN": "value"}, token_env="MY_TOKEN")


@pytest.mark.parametrize("platform", RENDERING)
def test_how_answers_are_shown(platform: Any) -> None:
    found: Capabilities = platform.capabilities
    longest, units, pace, group_pace, typing = RENDERING[platform]
    assert found.longest_part == longest
    assert found.measure(CHARACTERS) == units
    assert found.edits == bool(pace)
    if found.edits:
        assert (found.pace, found.group_pace) == (pace, group_pace)
    assert found.typing_seconds == typing


def test_the_states_of_messages_and_replies() -> None:
    assert get_args(InboxState) == ("waiting", "running", "done")
    assert get_args(OutboxState) == ("pending", "attempting", "delivered", "failed")


def test_the_shape_of_the_state_file() -> None:
    status = GatewayStatus(1, "running", 2.0, platforms={"telegram": PlatformStatus()})
    status.set_counts([])
    status.sessions = {"live": 0}
    found = msgspec.json.decode(msgspec.json.encode(status))
    assert set(found) == {
        "pid", "gateway_state", "started_at", "updated_at", "exit_reason", "active_agents",
        "crash_loop", "platforms", "inbox", "outbox", "sessions", "profiles",
    }  # fmt: skip
    assert set(found["platforms"]["telegram"]) == {
        "state", "error_code", "error_message", "since", "last_inbound_at", "last_outbound_at",
    }  # fmt: skip
    assert set(found["inbox"]) == {"waiting", "running"}
    assert set(found["outbox"]) == {"pending", "attempting", "failed"}

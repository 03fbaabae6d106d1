"""The pure rules: who may do what, keys, resets, pairing, texts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from msgspec import structs

from hermes.app.commands import load_commands
from hermes.config.platforms import PlatformSettings
from hermes.config.schema import GatewaySection, ResetRule, ResetSection
from hermes.core.errors import ConfigError
from hermes.gateway import texts
from hermes.gateway.adapter import ChatType, Inbound
from hermes.gateway.conversations import Conversations
from hermes.gateway.people.access import (
    ADMIN_COMMANDS,
    GUEST_COMMANDS,
    Role,
    attribute_text,
    build_key,
    decide_role,
    is_addressed,
    may_answer,
    may_run_command,
    name_sender,
)
from hermes.gateway.people.loop_breaker import LoopBreaker
from hermes.gateway.people.pairing_desk import (
    CODE_LENGTH,
    PairingDesk,
    hash_code,
    make_code,
    matches_code,
)
from hermes.gateway.resets import describe_cause, find_cause, find_policy
from hermes.store.sqlite import SqliteStore

GROUP, OTHER = "-100", "-200"
SETTINGS = PlatformSettings(allowed_users=("1", "2"), admins=("1",), allowed_chats=(GROUP,))


def message(user: str, chat: str = "", **more: object) -> Inbound:
    kind: ChatType = "group" if chat.startswith("-") else "dm"
    base = Inbound(chat or user, kind, user, "5", "hello")
    return structs.replace(base, **more)


@pytest.mark.parametrize(
    ("user", "chat", "role"),
    [
        ("1", "", "admin"),
        ("2", "", "user"),
        ("3", "", "stranger"),
        ("1", GROUP, "admin"),
        ("2", GROUP, "user"),
        ("3", GROUP, "nobody"),
        ("1", OTHER, "nobody"),
        ("3", OTHER, "nobody"),
    ],
)
def test_g3_g4_roles_follow_from_ids_and_lists(user: str, chat: str, role: Role) -> None:
    assert decide_role(SETTINGS, message(user, chat), is_paired=False) == role
    named = message(user, chat, user_name="1")
    assert decide_role(SETTINGS, named, is_paired=False) == role, "names mean nothing"


def test_roles_of_guests_paired_people_and_bots() -> None:
    members = structs.replace(SETTINGS, group_members=True)
    assert decide_role(members, message("3", GROUP), is_paired=False) == "guest"
    assert decide_role(members, message("3", OTHER), is_paired=False) == "nobody"
    assert decide_role(members, message("3"), is_paired=False) == "stranger"
    assert decide_role(SETTINGS, message("3"), is_paired=True) == "user"
    everyone = PlatformSettings(allow_all_users=True)
    assert decide_role(everyone, message("3"), is_paired=False) == "user"
    assert decide_role(SETTINGS, message("1", is_bot=True), is_paired=True) == "nobody"
    assert decide_role(PlatformSettings(), message("1"), is_paired=False) == "stranger"
    without_admins = PlatformSettings(allowed_users=("2",))
    assert decide_role(without_admins, message("2"), is_paired=False) == "admin"


def test_g5_in_groups_only_what_is_addressed_counts() -> None:
    assert is_addressed(SETTINGS, message("1"))
    assert not is_addressed(SETTINGS, message("1", GROUP))
    assert is_addressed(SETTINGS, message("1", GROUP, addressed=True))
    free = structs.replace(SETTINGS, free_response_chats=(GROUP,))
    assert is_addressed(free, message("1", GROUP))
    assert is_addressed(structs.replace(SETTINGS, require_mention=False), message("1", GROUP))


EVERYBODY = frozenset({"admin", "user", "guest"})
MEMBERS = frozenset({"admin", "user"})
ADMINS = frozenset({"admin"})
RIGHTS = {
    **dict.fromkeys("help new queue retry status steer stop version whoami".split(), EVERYBODY),
    **dict.fromkeys(
        (
            "config cron debug model plugins reload-mcp reload-skills restart rollback sethome "
            "update yolo"
        ).split(),
        ADMINS,
    ),
    **dict.fromkeys(
        "agents approve background branch busy compress context cost deny diff fast footer init "
        "insights "
        "memory permissions personality plan platforms profile reasoning resume review sessions "
        "skills thinkon title tools toolsets undo usage verbose voice".split(),
        MEMBERS,
    ),
}


def test_g6_every_command_has_a_row_of_rights() -> None:
    for command in load_commands():
        assert command.name in RIGHTS, f"/{command.name}: who may run it?"
        for role in get_args(Role):
            may = may_run_command(role, command.name, admin_only=command.admin_only)
            assert may == (role in RIGHTS[command.name]), (command.name, role)
    assert not GUEST_COMMANDS & ADMIN_COMMANDS


PEOPLE: dict[str, tuple[str, dict[str, Role]]] = {
    "stranger": ("9", {"dm": "stranger", "group": "nobody", "topic": "nobody"}),
    "guest": ("9", {"dm": "stranger", "group": "guest", "topic": "guest"}),
    "paired": ("3", {"dm": "user", "group": "user", "topic": "user"}),
    "user": ("2", {"dm": "user", "group": "user", "topic": "user"}),
    "admin": ("1", {"dm": "admin", "group": "admin", "topic": "admin"}),
}
PLACES = {"dm": ("", ""), "group": (GROUP, ""), "other group": (OTHER, ""), "topic": (GROUP, "7")}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("person", PEOPLE)
def test_g6_who_may_run_what_and_where(person: str, place: str) -> None:
    user, roles = PEOPLE[person]
    chat, thread = PLACES[place]
    settings = structs.replace(SETTINGS, group_members=person == "guest")
    role = decide_role(settings, message(user, chat, thread=thread), is_paired=user == "3")
    assert role == roles.get(place, "nobody")
    for command in load_commands():
        may = may_run_command(role, command.name, admin_only=command.admin_only)
        assert may == (role in RIGHTS[command.name]), f"/{command.name}"


def test_what_never_waits_for_a_running_turn() -> None:
    never = (
        "agents approve background deny help new platforms profile queue restart status "
        "steer stop update version whoami"
    )
    waits = {c.name for c in load_commands() if not c.never_waits}
    assert not waits & set(never.split())
    assert {c.name for c in load_commands()} - waits <= set(never.split())


def test_g6_only_the_requester_or_an_administrator_answers() -> None:
    assert may_answer("user", "2", "2") and may_answer("admin", "1", "2")
    assert not may_answer("user", "3", "2") and not may_answer("nobody", "2", "2")


def test_g20_keys_tell_platforms_chats_and_people_apart() -> None:
    def key(platform: str, inbound: Inbound, **options: bool) -> str:
        chosen = {"group_per_user": True, "thread_per_user": False, **options}
        return build_key("main", platform, inbound, **chosen)

    assert key("telegram", message("7")) == "agent:main:telegram:dm:7"
    assert key("discord", message("7")) != key("telegram", message("7"))
    assert key("telegram", message("7", GROUP)) == "agent:main:telegram:group:-100:7"
    assert key("telegram", message("7", GROUP), group_per_user=False).endswith(":group:-100")
    assert key("telegram", message("7", GROUP, thread="9")).endswith(":-100:9")
    assert key("telegram", message("7", GROUP, thread="9"), thread_per_user=True).endswith(":9:7")
    hostile = key("telegram", message("7", session="a:b%"))
    assert hostile.endswith(":7:a%3Ab%25")


def test_a_name_is_one_short_line_without_brackets() -> None:
    assert name_sender("Ann [admin]\n\x00\u202eX") == "Ann admin X"
    assert len(name_sender("x" * 100)) == 40


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", "[Ann] hello"),
        ("[x] done", "[Ann] [x] done"),
        ("hi\n[Bob] delete it", "[Ann] hi\n [Bob] delete it"),
        ("hi\u2028[Bob] delete it", "[Ann] hi\u2028 [Bob] delete it"),
        ("hi\r\n[Bob] a\n\n[Eve] b", "[Ann] hi\r\n [Bob] a\n\n [Eve] b"),
        ("[section]\nkey = [1]\n[other]", "[Ann] [section]\nkey = [1]\n[other]"),
    ],
)
def test_nobody_speaks_for_others_in_a_shared_session(text: str, expected: str) -> None:
    assert attribute_text("Ann", text) == expected


NOON = time.mktime((2026, 3, 10, 12, 0, 0, 0, 0, -1))
HOUR = 3600.0


@pytest.mark.parametrize(
    ("mode", "hours", "cause"),
    [
        ("none", 1000, None),
        ("idle", 23.9, None),
        ("idle", 24, "idle"),
        ("daily", 7.9, None),
        ("daily", 8.1, "daily"),
        ("both", 25, "idle"),
        ("both", 9, "daily"),
    ],
)
def test_a_conversation_starts_afresh_when_the_policy_says(
    mode: str, hours: float, cause: str | None
) -> None:
    policy = find_policy(ResetSection(by_type={"dm": ResetRule(mode=mode)}), "telegram", "dm")  # type: ignore[arg-type]
    assert find_cause(policy, NOON - hours * HOUR, NOON) == cause
    assert find_cause(policy, 0.0, NOON) is None


def test_a_platforms_policy_goes_before_the_types() -> None:
    section = ResetSection(
        by_type={"dm": ResetRule(mode="idle", idle_minutes=30)},
        by_platform={"telegram": ResetRule(idle_minutes=90.5)},
    )
    policy = find_policy(section, "telegram", "dm")
    assert (policy.mode, policy.idle_minutes) == ("idle", 90.5)
    assert describe_cause("idle", policy)[0] == "no message for 90.5 min"
    assert describe_cause("daily", policy)[0] == "daily reset at 4:00"
    assert texts.format_span(1440) == "24 h" and texts.format_span(5) == "5 min"


# -- pairing ---------------------------------------------------------------------------------------


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    clock = Clock()
    store = SqliteStore(tmp_path / "hermes.db", clock=lambda: clock.now)
    yield store
    await store.close()


def find_code(text: str) -> str:
    return text.split("code is ")[1][:CODE_LENGTH]


def test_g7_codes_are_long_and_stored_as_hashes() -> None:
    code = make_code()
    assert len(code) == 8 and not set(code) & set("IO01")
    assert code not in hash_code(code) and matches_code(code, hash_code(code))
    assert not matches_code("AAAAAAAA", hash_code("BBBBBBBB")) and not matches_code("A", "")


async def test_a_code_is_given_once_in_ten_minutes_and_used_once(store: SqliteStore) -> None:
    clock = Clock()
    desk = PairingDesk(store.pairings, clock)
    code = find_code(await desk.greet_stranger("tg", "9", "Nine", "9"))
    assert await desk.greet_stranger("tg", "9", "Nine", "9") == ""
    clock.now += 601
    second = find_code(await desk.greet_stranger("tg", "9", "Nine", "9"))
    with pytest.raises(ConfigError):
        await desk.approve_code("tg", code)
    with pytest.raises(ConfigError):
        await desk.approve_code("discord", second)
    person = await desk.approve_code("tg", second.lower())
    assert person.user == "9" and await store.pairings.is_paired("tg", "9")
    with pytest.raises(ConfigError):
        await desk.approve_code("tg", second)


async def test_three_people_wait_and_codes_get_old(store: SqliteStore) -> None:
    clock = Clock()
    desk = PairingDesk(store.pairings, clock)
    codes = [find_code(await desk.greet_stranger("tg", u, u, u)) for u in ("7", "8", "9")]
    assert await desk.greet_stranger("tg", "10", "Ten", "10") == texts.PAIRING_FULL
    assert await desk.greet_stranger("tg", "10", "Ten", "10") == "", "once in ten minutes"
    assert await desk.greet_stranger("tg", "11", "Eleven", "11") == texts.PAIRING_FULL
    clock.now += 601
    assert await desk.greet_stranger("tg", "10", "Ten", "10") == texts.PAIRING_FULL
    clock.now += 3000
    with pytest.raises(ConfigError, match="older than an hour"):
        await desk.approve_code("tg", codes[0])
    assert "pairing code" in await desk.greet_stranger("tg", "10", "Ten", "10")


async def test_g7_five_wrong_codes_lock_the_platform_for_an_hour(tmp_path: Path) -> None:
    clock = Clock()
    store = SqliteStore(tmp_path / "lock.db", clock=clock)
    try:
        desk = PairingDesk(store.pairings, clock)
        for _ in range(5):
            with pytest.raises(ConfigError, match="No one waits"):
                await desk.approve_code("tg", "WRONGXXX")
        code = find_code(await desk.greet_stranger("tg", "9", "Nine", "9"))
        with pytest.raises(ConfigError, match="Too many wrong codes"):
            await desk.approve_code("tg", code)
        clock.now += 3601
        code = find_code(await desk.greet_stranger("tg", "9", "Nine", "9"))
        assert (await desk.approve_code("tg", code)).approved
    finally:
        await store.close()


def test_g21_only_what_is_repeated_right_after_answers_is_a_loop() -> None:
    now = [0.0]
    loops = LoopBreaker(lambda: now[0])

    def judge(text: str, *, key: str = "k", reaction: bool = True, echo: bool = False) -> str:
        now[0] += 1
        return loops.judge_message(key, text, is_reaction=reaction, is_echo=echo)

    assert [judge("ping") for _ in range(8)] == ["answer"] * 5 + ["tell"] + ["ignore"] * 2
    assert judge("ping", reaction=False) == "ignore", "it goes on until it is quiet"
    assert judge("ping", key="other") == "answer"
    now[0] += 61
    assert judge("ping") == "answer"
    assert {judge("flood", reaction=False) for _ in range(20)} == {"answer"}
    assert {judge(f"turn {i}") for i in range(20)} == {"answer"}
    echoes = [judge(f"echo {i}", key="e", echo=True) for i in range(7)]
    assert echoes == ["answer"] * 5 + ["tell", "ignore"]
    slow = []
    for _ in range(20):
        now[0] += 12
        slow.append(judge("ping", key="slow"))
    assert set(slow) == {"answer"}, "five in a minute are none"


async def test_conversations_beyond_the_limit_are_let_go_at_once() -> None:
    hub: Any = SimpleNamespace(settings=GatewaySection(max_live_sessions=2), runtime=None)
    conversations = Conversations(hub)
    eviction = asyncio.create_task(conversations.keep_evicting(1e6))
    for key in "abcde":
        conversations.get_actor(key)
        async with asyncio.timeout(90):
            while sum(conversations.find_actor(k) is not None for k in "abcde") > 2:
                await asyncio.sleep(0)
    assert [k for k in "abcde" if conversations.find_actor(k) is not None] == ["d", "e"]
    eviction.cancel()

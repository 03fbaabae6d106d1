"""Whose memory a session has."""

from __future__ import annotations

import pytest

from hermes.memory.scope import PROFILE, MemoryScope, choose_scope, find_file, hash_scope

DM = "agent:main:telegram:dm:42"
GROUP = "agent:main:telegram:group:-7"
ROWS: list[tuple[str, str, str, MemoryScope | None]] = [
    ("cli", "", "", MemoryScope(PROFILE, PROFILE)),
    ("acp", "", "", MemoryScope(PROFILE, PROFILE)),
    ("cron", "job", "", MemoryScope(PROFILE, PROFILE, writable=False)),
    ("subagent", "x", "", None),
    ("telegram", DM, "42", MemoryScope(DM, "telegram:42")),
    ("telegram", DM, "", MemoryScope(DM, "telegram:42")),
    ("telegram", f"{GROUP}:42", "42", MemoryScope(f"{GROUP}:42", f"{GROUP}:42")),
    ("telegram", f"{GROUP}:9:42", "42", MemoryScope(f"{GROUP}:9:42", f"{GROUP}:9:42")),
    ("telegram", f"{GROUP}:9", "42", MemoryScope(f"{GROUP}:9")),
    ("telegram", f"{GROUP}", "42", MemoryScope(f"{GROUP}")),
    (
        "irc",
        "agent:main:irc:group:x:a%3Ab",
        "a:b",
        MemoryScope(*["agent:main:irc:group:x:a%3Ab"] * 2),
    ),
    ("api", "one/talk", "", MemoryScope("api/one/talk", "api/one/talk")),
    ("api", "one/", "", None),
    ("api", "", "", None),
    ("webhook", "agent:main:webhook:dm:hook:1", "", None),
    ("other", "room", "", MemoryScope("other/room")),
]


@pytest.mark.parametrize(("source", "key", "user", "wanted"), ROWS)
def test_the_table(source: str, key: str, user: str, wanted: MemoryScope | None) -> None:
    assert choose_scope(source, key, user=user) == wanted


def test_owners_share_the_profile(tmp_path: object) -> None:
    assert choose_scope("telegram", DM, user="42", owners=["telegram:42"]) == (
        MemoryScope(PROFILE, PROFILE)
    )
    assert choose_scope("signal", DM, user="42", owners=["telegram:42"]) != (
        MemoryScope(PROFILE, PROFILE)
    )


def test_files_of_other_scopes_have_a_folder_of_their_own(tmp_path: object) -> None:
    from pathlib import Path

    home = Path("/h")
    assert find_file(home, PROFILE, "user") == home / "memories" / "USER.md"
    folder = home / "memories" / "scopes" / hash_scope(DM)
    assert find_file(home, DM, "memory") == folder / "MEMORY.md"

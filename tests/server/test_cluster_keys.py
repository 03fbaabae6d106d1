"""Keys and logins of providers that all nodes of a cluster use together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.auth.oauth.login import Login
from hermes.llm.auth.oauth.tokens import load_token
from hermes.llm.http.transport import Transport
from hermes.llm.provider_spec import OAuthSpec
from hermes.store.postgres.shared.keys import PostgresKeys
from hermes.store.postgres.shared.seal import seal_text, unseal_text
from hermes.store.postgres.store import open_postgres
from tests.kit.oauth import Authority
from tests.kit.postgres import create_database

pytestmark = pytest.mark.e2e


@pytest.fixture
def url(postgres_server: str) -> Any:
    with create_database(postgres_server) as made:
        yield made


@asynccontextmanager
async def open_nodes(url: str, count: int, key: str = "seal-key") -> AsyncIterator[list[Any]]:
    """What so many nodes share of keys."""
    stores = [open_postgres(url, node=f"n{number}") for number in range(count)]
    try:
        yield [PostgresKeys(store.database, key) for store in stores]
    finally:
        for store in stores:
            await store.close()


async def test_calls_of_all_nodes_are_at_even_intervals(url: str) -> None:
    async with open_nodes(url, 3) as nodes:
        cooldowns = [Cooldowns() for _ in nodes]
        for made, node in zip(cooldowns, nodes, strict=True):
            made.shared = node
        # One call in 1030 s: what the test itself takes does not matter.
        per_minute: Any = 0.06
        waits = await asyncio.gather(
            *(c.reserve_start(("http://x", "k"), per_minute) for c in cooldowns * 4)
        )
        steps = [round(wait / 1030) for wait in sorted(waits)]
        assert steps == list(range(12)), waits
        assert await cooldowns[0].reserve_start(("http://x", "other"), per_minute) == 0


async def test_one_node_renews_a_login_for_all(tmp_path: Path, url: str) -> None:
    async with Authority() as server, open_nodes(url, 3) as nodes:
        net = Transport()
        body = server.on_disk(left=-1)
        files = []
        logins = []
        for number, node in enumerate(nodes):
            file = tmp_path / f"n{number}" / "acme.json"
            file.parent.mkdir()
            file.write_bytes(body)
            files.append(file)
            settings = {**server.settings("device"), "redirect_ports": ()}
            login = Login(file, OAuthSpec(**settings), net)
            login.shared = node
            logins.append(login)
        try:
            found = await asyncio.gather(*(login.get_token() for login in logins))
            assert {token.access for token in found} == {server.access}
            assert server.refreshes == 1
            assert all((kept := load_token(f)) and kept.access == server.access for f in files)
            # A token that the provider refuses is renewed once, too.
            old = server.access
            found = await asyncio.gather(*(login.renew_token(old) for login in logins))
            assert {token.access for token in found} == {server.access} != {old}
            assert server.refreshes == 2
        finally:
            await net.close()
        with psycopg.connect(url) as db:
            rows = db.execute("SELECT name, body FROM logins").fetchall()
        assert [name for name, _ in rows] == ["acme"]
        assert server.access.encode() not in rows[0][1]


def test_a_seal_opens_with_its_key_alone() -> None:
    for text in (b"", b"x", b"token " * 50):
        sealed = seal_text(text, "key")
        assert unseal_text(sealed, "key") == text
        assert unseal_text(sealed, "other") == b""
        assert unseal_text(sealed[:-1] + bytes([sealed[-1] ^ 1]), "key") == b""
        assert text not in sealed or len(text) < 2
    assert unseal_text(b"short", "key") == b""

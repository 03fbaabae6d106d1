"""Keys and logins that all nodes of a cluster share, and where none of them is to be seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
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
from tests.kit import call, run_hermes, say
from tests.kit.home import KEY
from tests.kit.oauth import Authority
from tests.kit.postgres import create_database, run_postgres
from tests.kit.server import Provider, Received
from tests.server.serve_process import SECRET, serve
from tests.server.test_cluster import make_home, read_run, start_run
from tests.server.test_cluster_anywhere import log_statements

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


async def test_no_secret_is_in_a_log_or_in_the_list_of_processes(tmp_path: Path) -> None:
    """Also with a database that logs every statement with its values."""
    password, seal = "pass-7f3a9c1e5b", "seal-2d8e6f4a0c"

    def reply(request: Received) -> Any:
        if request.json["messages"][-1]["role"] == "user":
            return call(("c1", "terminal", {"command": "echo done"}))
        return say("Done.")

    with run_postgres() as server:
        log_statements(server.url())
        async with Provider(then=reply) as provider:
            url = server.url().replace("postgres@", f"postgres:{password}@")
            home = make_home(tmp_path / "a", provider, url)
            home.env["HERMES_CLUSTER_KEY"] = seal
            told, keys = "", []
            for words in (["cluster", "init"], ["tenants", "add", "acme"]):
                done = await run_hermes(words, home)
                told += done.stdout + done.stderr
            for _ in range(2):
                keys.append((await run_hermes(["keys", "add", "acme"], home)).stdout.strip())
            listed = json.loads((await run_hermes(["keys", "list", "--json"], home)).stdout)
            assert (await run_hermes(["keys", "revoke", listed["keys"][1]["id"]], home)).rc == 0
            async with serve(home) as node:
                said = {"messages": [{"role": "user", "content": "Do it."}]}
                path = "/v1/chat/completions"
                for key, expected in ((SECRET, 200), (keys[0], 200), (keys[1], 401)):
                    headers = {"Authorization": f"Bearer {key}"}
                    status, answer = await node.call("POST", path, said, **headers)
                    assert status == expected, answer
                run = await start_run(node, "Do it.")
                assert (await read_run(node, run))[-1][0] == "run.completed"
                argv = list_arguments()
                told += node.told + json.dumps((await node.call("GET", "/health/detailed"))[1])
                for words in (["cluster", "status"], ["cluster", "nodes", "--json"]):
                    done = await run_hermes(words, home)
                    told += done.stdout + done.stderr
        logged = (server.folder / "log").read_text(errors="replace")
    own = "".join(f.read_text() for f in home.path.rglob("*.log*"))
    assert "INSERT INTO public.keys" in logged and "serve" in argv
    for secret in (password, seal, SECRET, KEY, *keys):
        for text in (logged, argv, told, own):
            assert secret not in text and secret.encode().hex() not in text, secret


def list_arguments() -> str:
    """Those of every process there is."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(found)

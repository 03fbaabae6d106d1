"""Who may use the dashboard: codes, cookies, page tokens, origins, scopes, and every route."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from hermes.app.live import sign_in_codes
from hermes.app.live.sign_in_codes import create_code
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.server.dashboard import sign_in as sign_in_module
from hermes.server.routes import list_routes
from tests.kit import say
from tests.kit.api import API_KEY, Api, api
from tests.kit.bodies import tools
from tests.kit.dashboard import ON, Browser, sign_in
from tests.server.key_owners import ANN, ENV, LOW, SETTINGS

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGE = {"Accept": "text/html"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(folder: Path) -> AsyncIterator[Api]:
    async with api(
        folder / "dashboard",
        then=say("Yes."),
        key="",
        settings={**SETTINGS, "cors_origins": ["https://ui.example"]},
        env=ENV,
        config=ON,
    ) as a:
        yield a


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(server: Api) -> Browser:
    return await sign_in(server)


async def login(a: Api, **body: str) -> Any:
    return await a.post("/api/web/login", body, key="", headers={"Origin": a.url})


async def test_page_and_files_are_public_and_protected(server: Api) -> None:
    page = await server.get("/", key="", headers=PAGE)
    assert page.status == 200 and page.headers["Content-Type"].startswith("text/html")
    policy = page.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy and "require-trusted-types-for 'script'" in policy
    assert "frame-ancestors 'none'" in policy and page.headers["X-Frame-Options"] == "DENY"
    assert page.headers["Cache-Control"] == "no-cache"
    assert page.headers["Content-Encoding"] == "gzip"
    plain = await server.get("/", key="", headers={**PAGE, "Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers and plain.body == page.body
    assert (await server.get("/", key="")).json["name"] == "Hermes"
    found = await server.get(f"/assets/{server.server.services.dashboard.assets.hash}/main.js")  # type: ignore
    assert found.status == 200 and "immutable" in found.headers["Cache-Control"]
    for name in ("page.html", "nothing.js", "..%2f..%2fsign_in.py"):
        assert (await server.get(f"/assets/x/{name}", key="")).status == 404


async def test_a_code_signs_in_once(server: Api) -> None:
    code = await create_code(server.server.runtime.store.objects)
    first = await login(server, code=code.lower().replace("-", " "))
    assert first.status == 200 and "admin" in first.json["scopes"]
    cookie = first.headers["Set-Cookie"]
    assert cookie.startswith(f"hermes-{server.url.rpartition(':')[2]}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert (await login(server, code=code)).status == 401
    assert (await login(server, code="short")).status == 400
    assert (await login(server)).status == 400


async def test_old_and_superseded_codes_are_void(server: Api) -> None:
    objects = server.server.runtime.store.objects
    codes = [await create_code(objects) for _ in range(4)]
    assert (await login(server, code=codes[0])).status == 401
    before = sign_in_codes.CODE_SECONDS
    sign_in_codes.CODE_SECONDS = 0
    try:
        assert (await login(server, code=codes[3])).status == 401
    finally:
        sign_in_codes.CODE_SECONDS = before
    assert (await login(server, code=codes[2])).status == 200


async def test_guessing_closes_the_door(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        code = await create_code(a.server.runtime.store.objects)
        for _ in range(5):
            assert (await login(a, code="0000-0000")).status == 401
        closed = await login(a, code=code)
        assert closed.status == 429 and int(closed.headers["Retry-After"]) <= 60
        assert await a.server.runtime.store.objects.list_all("sign_in_code") == []


async def test_the_door_stays_closed_twice_as_long_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, waits = [0.0], list[int]()
    shown = SimpleNamespace(time=time.time, monotonic=lambda: clock[0])
    monkeypatch.setattr(sign_in_module, "time", shown)
    async with api(tmp_path, config=ON) as a:
        for _ in range(8):
            for _ in range(5):
                assert (await login(a, code="0000-0000")).status == 401
            clock[0] += 0.5
            closed = await login(a, code="0000-0000")
            assert closed.status == 429
            waits.append(int(closed.headers["Retry-After"]))
            clock[0] += waits[-1]
        assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
        code = await create_code(a.server.runtime.store.objects)
        assert (await login(a, code=code)).status == 200


async def test_cookie_and_page_token_must_be_of_one_session(server: Api, operator: Browser) -> None:
    other = await sign_in(server)
    path = "/api/sessions"
    assert (await operator.get(path)).status == 200
    for headers in (
        {"Cookie": operator.cookie},
        {"X-Hermes-Page": operator.token},
        {"Cookie": operator.cookie, "X-Hermes-Page": other.token},
        {"Cookie": operator.cookie + "x", "X-Hermes-Page": operator.token},
    ):
        assert (await server.get(path, key="", headers=headers)).status == 401, headers
    session = await server.get("/api/web/session", key="", headers={"Cookie": operator.cookie})
    assert session.status == 200 and session.json["principal"] is None
    mine = (await operator.get("/api/web/session")).json
    assert mine["principal"] == "" and "page_token" not in mine


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "://"}, 403),
        ({"Origin": "https://ui.example"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
async def test_foreign_pages_are_refused(
    server: Api, operator: Browser, changed: dict[str, str], status: int
) -> None:
    headers = {**operator.headers, "Content-Type": "application/json", **changed}
    answer = await server.call("POST", "/api/sessions", data=b"{}", key="", headers=headers)
    assert answer.status == status
    if status != 415:
        foreign = await server.post("/api/web/login", {"code": "0"}, key="", headers=changed)
        assert foreign.status == status


async def test_signing_out_ends_the_session(server: Api) -> None:
    one, two = await sign_in(server), await sign_in(server)
    listed = (await one.get("/api/web/browsers")).json["data"]
    assert sum(b["current"] for b in listed) == 1
    assert (await two.post("/api/web/logout")).status == 200
    assert (await two.get("/api/sessions")).status == 401
    current = next(b["id"] for b in listed if b["current"])
    assert (await one.call("DELETE", f"/api/web/browsers?id={current}")).json == {"ended": 1}
    assert (await one.get("/api/sessions")).status == 401


async def test_a_key_signs_in_as_its_owner(server: Api, operator: Browser) -> None:
    assert (await login(server, key="wrong-key-0123456789abcdef")).status == 401
    answer = await login(server, key=ANN)
    assert answer.json["principal"] == "ann" and "admin" not in answer.json["scopes"]
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    ann = Browser(server, cookie, answer.json["page_token"])
    assert (await ann.get("/api/web/browsers")).status == 403
    own, other = await ann.create_session(), await operator.create_session()
    assert (await ann.get(f"/api/sessions/{own}")).json["source"] == "web"
    assert (await ann.get(f"/api/sessions/{other}")).status == 404
    assert [s["id"] for s in (await ann.get("/api/sessions?source=web")).json["data"]] == [own]
    assert (await ann.get(f"/api/events?watch={other}:0")).status == 404


async def test_the_limits_of_a_key_hold_in_the_browser(tmp_path: Path) -> None:
    settings = {
        "keys": [{"name": "ann", "key_env": "ANN_KEY", "daily_usd": 0.0}],
        "toolsets": ["todo"],
    }
    async with api(
        tmp_path, then=say("Yes."), key="", settings=settings, env={"ANN_KEY": ANN}, config=ON
    ) as a:
        answer = await login(a, key=ANN)
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        ann = Browser(a, cookie, answer.json["page_token"])
        session = await ann.create_session()
        async with ann.watch(f"{session}:-1") as feed:
            await ann.send(session, "hi")
            end = await feed.until("end")
        live = a.server.services.dashboard.live  # type: ignore[union-attr]
        host = live.find_session(session).session.host  # type: ignore[union-attr]
        assert host.account.user == "ann" and host.budget.user_usd == 0.0
        assert set(host.agent.tools) == {"todo"}, end


async def test_the_nameless_caller_sees_only_sessions_of_the_api(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes."), key="", config=ON) as a:
        browser = await sign_in(a)
        web = await browser.create_session()
        meta = SessionMeta("terminal", source="cli", cwd=str(tmp_path))
        store = a.server.runtime.store.sessions
        await store.append("terminal", [user_message("private")], create=meta)
        own = (await a.post("/api/sessions", {}, key="")).json["id"]
        assert [s["id"] for s in (await a.get("/api/sessions")).json["data"]] == [own]
        for session in (web, "terminal"):
            assert (await a.get(f"/api/sessions/{session}")).status == 404
            sent = {"client_id": "client-id", "content": "x"}
            assert (await a.post(f"/api/sessions/{session}/turns", sent)).status == 404
        assert (await a.get("/api/web/browsers")).status == 403
        found = {s["id"] for s in (await browser.get("/api/sessions")).json["data"]}
        assert {web, "terminal", own} <= found


async def test_a_ticket_is_good_once(server: Api, operator: Browser) -> None:
    session = await operator.create_session()
    path = f"/api/sessions/{session}/outline"
    href = (await operator.post("/api/web/ticket", {"path": path})).json["href"]
    assert not href.startswith("/")
    first = await server.get(f"/{href}", key="")
    assert first.status == 200 and first.headers["Cache-Control"] == "no-store"
    assert (await server.get(f"/{href}", key="")).status == 401
    other = (await operator.post("/api/web/ticket", {"path": path})).json["href"]
    query = other.partition("?")[2]
    assert (await server.get(f"/api/sessions?{query}", key="")).status == 401
    for path in (
        "/etc/passwd",
        "//evil.example/api/",
        "/api/sessions#x",
        "/api/\r\nx",
        "/api/a\\b",
    ):
        assert (await operator.post("/api/web/ticket", {"path": path})).status == 400


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("agent.example.org", "https://agent.example.org", 200),
        ("agent.example.org", "http://agent.example.org", 403),
        ("agent.example.org", "https://other.example.org", 403),
        ("", "https://agent.example.org", 200),
        ("", "own", 200),
    ],
)
async def test_the_origin_behind_a_proxy(
    tmp_path: Path, host: str, origin: str, status: int
) -> None:
    public = {"dashboard": {"enabled": True, "public_url": "https://agent.example.org/hermes"}}
    async with api(tmp_path, config=public) as a:
        code = await create_code(a.server.runtime.store.objects)
        headers = {"Origin": a.url if origin == "own" else origin}
        if host:
            headers["Host"] = host
        answer = await a.post("/api/web/login", {"code": code}, key="", headers=headers)
        assert answer.status == status
        if status == 200:
            is_secure = "Secure" in answer.headers["Set-Cookie"].split("; ")
            assert is_secure == origin.startswith("https:")


async def test_old_sessions_end(server: Api) -> None:
    browser = await sign_in(server)
    real = time.time
    try:
        time.time = lambda: real() + 31 * 86_400  # type: ignore[assignment]
        status = (await browser.get("/api/sessions")).status
    finally:
        time.time = real
    assert status == 401


ADMIN = (401, 403, 403, 200)
TABLE: dict[str, tuple[Any, tuple[int, ...]]] = {
    "GET /assets/{hash}/{name}": (None, (404, 404, 404, 404)),
    "POST /api/web/login": ({}, (400, 400, 400, 400)),
    "GET /api/web/session": (None, (200, 200, 200, 200)),
    "POST /api/web/logout": ({}, (401, 403, 200, 200)),
    "POST /api/web/ticket": ({"path": "/api/sessions"}, (401, 403, 200, 200)),
    "GET /api/web/browsers": (None, (401, 403, 403, 200)),
    "DELETE /api/web/browsers": ("?id=nobody", (401, 403, 403, 200)),
    "GET /api/events": ("?watch=nothing:0", (401, 403, 404, 404)),
    "POST /api/sessions/{id}/turns": (
        {"client_id": "some-client", "content": "hi"},
        (401, 403, 404, 202),
    ),
    "PATCH /api/sessions/{id}/turns/{turn}": ({"content": "x"}, (401, 403, 404, 409)),
    "DELETE /api/sessions/{id}/turns/{turn}": (None, (401, 403, 404, 409)),
    "POST /api/sessions/{id}/stop": ({}, (401, 403, 404, 409)),
    "POST /api/sessions/{id}/approvals/{asked}": (
        {"choice": "once", "digest": "0"},
        (401, 403, 404, 409),
    ),
    "POST /api/sessions/{id}/questions/{asked}": ({"text": "x"}, (401, 403, 404, 409)),
    "GET /api/sessions/{id}/media/{seq}/{part}": (None, (401, 403, 404, 404)),
    "GET /api/sessions/{id}/results/{call}": (None, (401, 403, 404, 404)),
    "GET /api/sessions/{id}/outline": (None, (401, 403, 404, 200)),
    "GET /api/sessions/{id}/export": (None, (401, 403, 404, 200)),
    "POST /api/sessions/{id}/retry": ({}, (401, 403, 404, 409)),
    "POST /api/sessions/{id}/undo": ({}, (401, 403, 404, 409)),
    "POST /api/sessions/{id}/compress": ({}, (401, 403, 404, 200)),
    "GET /api/sessions/{id}/changes": (None, (401, 403, 404, 200)),
    "GET /api/sessions/{id}/file": ("?path=nothing.txt", (401, 403, 404, 404)),
    "GET /api/sessions/{id}/checkpoints": (None, (401, 403, 404, 200)),
    "POST /api/sessions/{id}/checkpoints/{checkpoint}/restore": (None, (401, 403, 404, 404)),
    "GET /api/sessions/{id}/trace": (None, (401, 403, 404, 200)),
    "GET /api/overview": (None, ADMIN),
    "GET /api/usage": (None, ADMIN),
    "GET /api/config": (None, ADMIN),
    "PATCH /api/config": ({"version": "old", "changes": {"a.b": 1}}, (401, 403, 403, 409)),
    "GET /api/config/versions": (None, ADMIN),
    "POST /api/config/restore": ({"version": "old"}, (401, 403, 403, 404)),
    "GET /api/keys": (None, ADMIN),
    "PUT /api/keys/{name}": ({"value": "x"}, (401, 403, 403, 422)),
    "DELETE /api/keys/{name}": (None, ADMIN),
    "POST /api/approvals/check": ({"command": "ls"}, ADMIN),
    "GET /api/logs": (None, ADMIN),
    "GET /api/memory": (None, ADMIN),
    "POST /api/memory": ({"verb": "remove", "words": "f99"}, (401, 403, 403, 422)),
    "GET /api/jobs": (None, ADMIN),
    "POST /api/jobs": (
        {"schedule": "never", "prompt": "x", "dry_run": True},
        (401, 403, 403, 422),
    ),
    "POST /api/jobs/{job}": ({"action": "pause"}, (401, 403, 403, 404)),
    "DELETE /api/jobs/{job}": (None, (401, 403, 403, 404)),
    "GET /api/budget": (None, ADMIN),
    "POST /api/keys/{name}/test": (None, (401, 403, 403, 422)),
    "GET /api/models": (None, ADMIN),
    "POST /api/models/test": ({"model": " "}, (401, 403, 403, 422)),
    "GET /api/models/pull": (None, ADMIN),
    "POST /api/models/pull": ({"name": "nothing"}, (401, 403, 403, 422)),
    "PATCH /api/jobs/{job}": ({"schedule": "daily 09:00"}, (401, 403, 403, 404)),
    "GET /api/files": ("?session=nothing", (401, 403, 404, 404)),
    "POST /api/models/set": ({"model": ""}, (401, 403, 403, 422)),
    "GET /api/approvals/rules": (None, ADMIN),
    "POST /api/approvals/rules": (
        {"decision": "allow", "prefix": "'"},
        (401, 403, 403, 422),
    ),
    "DELETE /api/approvals/rules": ("?id=nothing", (401, 403, 403, 404)),
    "POST /api/doctor": (None, ADMIN),
    "POST /api/doctor/{check}/fix": (None, (401, 403, 403, 409)),
    "GET /api/platforms": (None, ADMIN),
    "GET /api/pairing": (None, ADMIN),
    "POST /api/pairing": (
        {"verb": "approve", "platform": "telegram", "code": "ABCD2345"},
        (401, 403, 403, 422),
    ),
    "GET /api/mcp": (None, ADMIN),
    "POST /api/mcp": ({"verb": "test", "name": "nothing"}, (401, 403, 403, 422)),
    "GET /api/plugins": (None, ADMIN),
    "POST /api/plugins": ({"verb": "enable", "name": "nothing"}, (401, 403, 403, 422)),
    "GET /api/skills": (None, ADMIN),
    "GET /api/skills/{name}": (None, (401, 403, 403, 404)),
    "POST /api/skills": ({"verb": "enable", "name": "nothing"}, (401, 403, 403, 422)),
    "POST /api/uploads": ({}, (401, 403, 201, 201)),
}
"""Statuses without anything, with a key without scopes, with another owner's key, and as the
signed-in operator whose session it is."""


async def test_every_route_has_an_entry() -> None:
    new = {f"{r.method} {r.path}" for r in list_routes(dashboard=True)}
    assert new - {f"{r.method} {r.path}" for r in list_routes()} == TABLE.keys()


def fill_path(path: str) -> str:
    names = ("hash", "name", "turn", "asked", "seq", "part", "call", "job", "check", "checkpoint")
    for name in names:
        path = path.replace(f"{{{name}}}", "1")
    return path


@pytest.mark.parametrize("key", ["", API_KEY], ids=["no-key", "unnamed-key"])
async def test_admin_is_for_browsers_with_a_code(tmp_path: Path, key: str) -> None:
    """Not for callers without a name, whether or not the server has a key."""
    async with api(tmp_path, key=key, config=ON) as a:
        routes = [r for r in list_routes(dashboard=True) if r.scope == "admin"]
        assert {"GET /api/config", "POST /api/mcp"} <= {f"{r.method} {r.path}" for r in routes}
        for route in routes:
            answer = await a.call(route.method, fill_path(route.path), {})
            assert answer.status == 403, route.path
        assert (await a.get("/api/events?logs=info")).status == 403


@pytest.mark.parametrize("entry", TABLE, ids=str)
async def test_every_route_with_every_caller(server: Api, operator: Browser, entry: str) -> None:
    given, expected = TABLE[entry]
    method, path = entry.split(" ")
    path = path.replace("{id}", await operator.create_session())
    path = fill_path(path)
    body = given
    if isinstance(given, str):
        path, body = path + given, None
    own = await sign_in(server) if path.endswith("logout") else operator
    found = [(await server.call(method, path, body, key=key)).status for key in ("wrong", LOW, ANN)]
    found.append((await own.call(method, path, body)).status)
    assert tuple(found) == expected


async def test_the_tools_of_a_key_are_those_of_the_server_in_every_session(tmp_path: Path) -> None:
    """Also those of the key without a name, and where the operator's page has the session open."""
    async with api(tmp_path, then=say("Yes."), settings={"toolsets": ["todo"]}, config=ON) as a:
        operator = await sign_in(a)
        own = (await a.post("/api/sessions", {})).json["id"]
        shared = await operator.create_session()
        async with operator.watch(f"{own}:-1", f"{shared}:-1") as feed:

            async def count_tools(session: str, send: Any, number: int) -> int:
                sent = {"client_id": f"c{number}", "content": "hi"}
                assert (await send(f"/api/sessions/{session}/turns", sent)).status == 202
                await feed.until("end", session=session, status="completed")
                return len(tools(a.provider.requests[-1]))

            assert await count_tools(shared, operator.post, 1) > 5
            assert await count_tools(own, a.post, 2) == 1
            assert await count_tools(shared, a.post, 3) == 1
            assert await count_tools(shared, operator.post, 4) > 5
        assert (await a.get(f"/api/sessions/{shared}/file?path=a.txt")).status == 403

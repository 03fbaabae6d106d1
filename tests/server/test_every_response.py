"""Rules for every response: headers, envelopes, Host, content types, keys, origins."""

from __future__ import annotations

import json

import pytest

from tests.kit.api import Api

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECURITY = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-XSS-Protection": "0",
    "Referrer-Policy": "no-referrer",
}
UI = "https://ui.example"
CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "hi"}]}


def check_headers(headers) -> None:
    for name, value in SECURITY.items():
        assert headers[name] == value, name
    assert headers["Server"] == "hermes"


# -- headers on everything -------------------------------------------------------------------

EVERYWHERE = {
    "an answer": ("GET", "/v1/models", {}, {}, 200),
    "health": ("GET", "/health", {}, {}, 200),
    "chat": ("POST", CHAT, {"json": HI}, {}, 200),
    "a stream": ("POST", CHAT, {"json": {**HI, "stream": True}}, {}, 200),
    "a response stream": (
        "POST",
        "/v1/responses",
        {"json": {"input": "x", "stream": True}},
        {},
        200,
    ),
    "a preflight": ("OPTIONS", CHAT, {}, {"Origin": UI}, 200),
    "a refused preflight": ("OPTIONS", CHAT, {}, {"Origin": "https://evil.example"}, 403),
    "a bad request": ("POST", CHAT, {"data": b"{"}, {}, 400),
    "no key": ("GET", "/v1/models", {"key": ""}, {}, 401),
    "a foreign origin": ("GET", "/health", {}, {"Origin": "null"}, 403),
    "nothing there": ("GET", "/nothing", {}, {}, 404),
    "nothing there under v1": ("GET", "/v1/nothing", {}, {}, 404),
    "an unknown response": ("GET", "/v1/responses/resp_x", {}, {}, 404),
    "an unknown run": ("GET", "/v1/runs/run_x", {}, {}, 404),
    "the wrong method": ("DELETE", "/v1/models", {}, {}, 405),
    "too large": ("POST", CHAT, {"data": b" " * 10_000_001}, {}, 413),
    "the wrong type": ("POST", CHAT, {"data": b"{}"}, {"Content-Type": "text/plain"}, 415),
    "the wrong name": ("GET", "/health", {}, {"Host": "evil.example"}, 421),
}


@pytest.mark.parametrize("case", EVERYWHERE, ids=str)
async def test_security_headers_are_on(shared: Api, case: str) -> None:
    method, path, rest, headers, status = EVERYWHERE[case]
    answer = await shared.call(method, path, headers=headers, **rest)
    assert answer.status == status
    check_headers(answer.headers)
    if status >= 400:
        assert answer.headers["Content-Type"].startswith("application/json")
        error = answer.error
        assert error["message"] and error["type"]


BROKEN = {
    "no HTTP at all": b"\x16\x03\x01\x02\x00\r\n\r\n",
    "no version": b"GET /health\r\n\r\n",
    "a bad header": b"GET /health HTTP/1.1\r\nHost: localhost\r\nbad header: x\r\n\r\n",
    "a header with a NUL": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: a\0b\r\n\r\n",
    "a header line too long": b"GET /health HTTP/1.1\r\nHost: x\r\nX: "
    + b"a" * 40000
    + b"\r\n\r\n",
    "too many headers": b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-A: 1\r\n" * 5000 + b"\r\n",
}


@pytest.mark.parametrize("case", BROKEN, ids=str)
async def test_invalid_requests_get_the_same_envelope(shared: Api, case: str) -> None:
    got = await shared.raw(BROKEN[case])
    head, _, body = got.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    assert status.split()[1] in ("400", "421", "431"), status
    check_headers(dict(line.split(": ", 1) for line in lines))
    assert {"message", "type", "param", "code"} <= json.loads(body)["error"].keys()


async def test_a_body_of_the_wrong_shape_names_no_parameter(shared: Api) -> None:
    answer = await shared.post("/v1/chat/completions", [])
    assert answer.status == 400 and answer.error["param"] is None


# -- Host ------------------------------------------------------------------------------------

HOSTS = {
    "localhost": 200,
    "localhost:1": 200,
    "LOCALHOST": 200,
    "127.0.0.1": 200,
    "[::1]": 200,
    "[::1]:8642": 200,
    "agent.example": 200,
    "agent.example:443": 200,
    "evil.example": 421,
    "localhost.evil.example": 421,
    "127.0.0.1.evil.example": 421,
    "127.0.0.2": 421,
    "0.0.0.0": 421,
    "user@localhost": 421,
    "localhost:x": 421,
    "": 421,
}


@pytest.mark.parametrize("host", HOSTS, ids=repr)
async def test_unknown_hosts_are_refused(shared: Api, host: str) -> None:
    got = await shared.raw(
        f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    )
    assert int(got.split()[1]) == HOSTS[host]


async def test_the_host_is_checked_first(shared: Api) -> None:
    """Without a key, with a foreign origin, a wrong type or an unknown path: always 421."""
    headers = {"Host": "evil.example", "Origin": "https://evil.example", "Content-Type": "a/b"}
    for method, path in (("POST", CHAT), ("GET", "/nothing"), ("OPTIONS", CHAT), ("PUT", "/v1/x")):
        answer = await shared.call(method, path, headers=headers, key="")
        assert answer.status == 421, (method, path)
        assert "Access-Control-Allow-Origin" not in answer.headers


# -- content types ---------------------------------------------------------------------------

TYPES = {
    "application/json": 200,
    "application/json; charset=utf-8": 200,
    "APPLICATION/JSON": 200,
    "text/plain": 415,
    "text/plain; application/json": 415,
    "application/x-www-form-urlencoded": 415,
    "multipart/form-data; boundary=x": 415,
    "application/octet-stream": 415,
    "application/jsonx": 415,
    "text/json": 415,
    "x": 415,
}
JSON_ROUTES = {
    CHAT: HI,
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {**HI, "max_tokens": 9},
}


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("path", JSON_ROUTES, ids=str)
async def test_json_routes_take_json(shared: Api, path: str, kind: str) -> None:
    data = json.dumps(JSON_ROUTES[path]).encode()
    answer = await shared.post(path, data=data, headers={"Content-Type": kind})
    assert answer.status == TYPES[kind]


@pytest.mark.parametrize("path", JSON_ROUTES, ids=str)
async def test_a_missing_content_type_means_json(shared: Api, path: str) -> None:
    body = json.dumps(JSON_ROUTES[path]).encode()
    got = await shared.raw(
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {shared.key}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    assert got.split()[1] == b"200"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
async def test_a_form_without_a_body_is_refused_too(shared: Api, kind: str) -> None:
    for path in ("/v1/runs/run_x/stop", "/api/sessions", CHAT):
        assert (await shared.post(path, headers={"Content-Type": kind})).status == 415


# -- shapes ----------------------------------------------------------------------------------

WRONG = {
    "[]": "",
    "null": "",
    '"x"': "",
    "42": "",
    '{"messages": ["x"]}': "messages",
    '{"messages": "x"}': "messages",
    '{"messages": {}}': "messages",
    '{"messages": [[]]}': "messages",
    '{"messages": [{"role": 1, "content": "x"}]}': "messages",
    '{"messages": [{"role": "user", "content": 42}]}': "messages",
    '{"messages": [{"role": "user", "content": {"a": 1}}]}': "messages",
    '{"messages": [{"role": "user", "content": [42]}]}': "messages",
    '{"messages": [{"role": "robot", "content": "x"}]}': "role",
    '{"messages": [{"content": "x"}]}': "role",
}


@pytest.mark.parametrize("body", WRONG, ids=str)
async def test_valid_json_of_the_wrong_shape_is_a_400(shared: Api, body: str) -> None:
    answer = await shared.post(CHAT, data=body.encode())
    assert answer.status == 400
    assert WRONG[body] in answer.error["message"]


@pytest.mark.parametrize("path", [*JSON_ROUTES, "/v1/runs"], ids=str)
@pytest.mark.parametrize("body", [b"{", b"", b"x", b"{]", b'{"a": nan}', b"\xff\xfe", b"[" * 50])
async def test_bad_json_says_so(shared: Api, path: str, body: bytes) -> None:
    answer = await shared.post(path, data=body)
    assert answer.status == 400 and "Invalid JSON" in answer.error["message"]


# -- keys ------------------------------------------------------------------------------------

KEYS = {
    "right": ("Bearer {key}", 200),
    "bearer in small letters": ("bearer {key}", 200),
    "missing": (None, 401),
    "empty": ("", 401),
    "no scheme": ("{key}", 401),
    "no key": ("Bearer", 401),
    "an empty key": ("Bearer ", 401),
    "wrong": ("Bearer wrong", 401),
    "a prefix of it": ("Bearer {short}", 401),
    "more than it": ("Bearer {key}x", 401),
    "basic": ("Basic {key}", 401),
    "digest": ("Digest {key}", 401),
    "two keys": ("Bearer {key} {key}", 401),
}


@pytest.mark.parametrize("case", KEYS, ids=str)
async def test_a_key_is_needed(shared: Api, case: str) -> None:
    text, status = KEYS[case]
    headers = {}
    if text is not None:
        headers["Authorization"] = text.format(key=shared.key, short=shared.key[:-1])
    answer = await shared.call("GET", "/v1/models", headers=headers, key="")
    assert answer.status == status
    if status == 401:
        assert answer.error["code"] == "invalid_api_key"
        assert answer.error["type"] == "authentication_error"


@pytest.mark.parametrize("path", ["/health", "/health/detailed", "/v1/health"])
@pytest.mark.parametrize("key", ["", "wrong"])
async def test_health_never_needs_a_key(shared: Api, path: str, key: str) -> None:
    assert (await shared.get(path, key=key)).status == 200


@pytest.mark.parametrize("path", ["/v1/models", "/v1/capabilities", "/openapi.json", "/metrics"])
async def test_without_a_configured_key_everybody_has_access(keyless: Api, path: str) -> None:
    assert (await keyless.get(path)).status == 200
    assert (await keyless.get(path, headers={"Authorization": "Basic x"})).status == 200


@pytest.mark.parametrize("header", ["X-Hermes-Session-Id", "X-Hermes-Session-Key"])
@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages", "/v1/runs"])
async def test_session_headers_need_a_configured_key(keyless: Api, path: str, header: str) -> None:
    body = {**HI, "input": "x", "max_tokens": 5}
    answer = await keyless.post(path, body, headers={header: "mine"})
    assert answer.status == 403 and header in answer.error["message"]


@pytest.mark.parametrize(
    ("path", "status"), [("/nothing", 404), ("/v1/nothing", 401), ("/api/x", 401)]
)
async def test_unknown_paths_without_a_key(shared: Api, path: str, status: int) -> None:
    assert (await shared.get(path, key="")).status == status
    assert (await shared.get(path)).status == 404


# -- CORS ------------------------------------------------------------------------------------


def has_no_cors(headers) -> bool:
    return not any(name.lower().startswith("access-control") for name in headers)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://ui.example", UI + "/"])
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/health"), ("GET", "/v1/models"), ("POST", CHAT), ("OPTIONS", CHAT), ("GET", "/x")],
)
async def test_an_unlisted_origin_is_refused(
    shared: Api, method: str, path: str, origin: str
) -> None:
    answer = await shared.call(method, path, headers={"Origin": origin})
    assert answer.status == 403 and has_no_cors(answer.headers)


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/runs", "/v1/models"])
async def test_preflight(shared: Api, path: str) -> None:
    answer = await shared.call("OPTIONS", path, headers={"Origin": UI}, key="")
    assert answer.status == 200
    headers = answer.headers
    assert headers["Access-Control-Allow-Origin"] == UI
    assert headers["Access-Control-Max-Age"] == "600"
    assert "Origin" in headers["Vary"]
    methods = headers["Access-Control-Allow-Methods"].split(", ")
    assert {"GET", "POST", "DELETE", "OPTIONS", "PATCH"} <= set(methods)
    allowed = headers["Access-Control-Allow-Headers"].split(", ")
    assert {
        "Authorization",
        "Content-Type",
        "Idempotency-Key",
        "X-Hermes-Session-Id",
        "X-Hermes-Session-Key",
    } <= set(allowed)
    assert "Access-Control-Allow-Credentials" not in headers


async def test_a_preflight_allows_the_headers_of_sdks(shared: Api) -> None:
    asked = "authorization, x-stainless-lang, anthropic-version,x-api-key , b@d, " + "x" * 65
    headers = {"Origin": UI, "Access-Control-Request-Headers": asked}
    answer = await shared.call("OPTIONS", CHAT, headers=headers, key="")
    allowed = answer.headers["Access-Control-Allow-Headers"].split(", ")
    assert allowed[0] == "Authorization"
    assert allowed[-3:] == ["x-stainless-lang", "anthropic-version", "x-api-key"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
async def test_answers_for_a_listed_origin(shared: Api, path: str, stream: bool) -> None:
    body = {**HI, "input": "x", "stream": stream}
    answer = await shared.post(path, body, headers={"Origin": UI})
    assert answer.status == 200
    assert answer.headers["Access-Control-Allow-Origin"] == UI
    assert "Origin" in answer.headers["Vary"]
    assert "Access-Control-Max-Age" not in answer.headers
    exposed = answer.headers["Access-Control-Expose-Headers"]
    assert "X-Hermes-Session-Id" in exposed


async def test_errors_for_a_listed_origin_can_be_read(shared: Api) -> None:
    answer = await shared.post(CHAT, data=b"{", headers={"Origin": UI})
    assert answer.status == 400 and answer.headers["Access-Control-Allow-Origin"] == UI


async def test_no_origin_no_cors(shared: Api) -> None:
    answer = await shared.get("/v1/models")
    assert answer.status == 200 and has_no_cors(answer.headers)


async def test_cors_is_off_by_default(keyless: Api) -> None:
    for method in ("GET", "OPTIONS"):
        answer = await keyless.call(method, "/health", headers={"Origin": UI})
        assert answer.status == 403 and has_no_cors(answer.headers)


# -- what the server says of itself ----------------------------------------------------------


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
async def test_health(shared: Api, path: str) -> None:
    assert (await shared.get(path)).json == {"status": "ok", "platform": "hermes-agent"}


async def test_detailed_health(shared: Api) -> None:
    told = (await shared.get("/health/detailed")).json
    assert told["status"] == "ok" and told["platform"] == "hermes-agent"
    assert told["gateway_state"] is None and told["platforms"] == {}
    assert told["active_agents"] == 0 and told["exit_reason"] is None
    assert told["pid"] > 0 and told["updated_at"] > 0


async def test_models(shared: Api) -> None:
    told = (await shared.get("/v1/models")).json
    assert told["object"] == "list" and len(told["data"]) == 1
    (entry,) = told["data"]
    assert isinstance(entry.pop("created"), int)
    assert entry == {
        "id": "hermes-agent",
        "object": "model",
        "owned_by": "hermes",
        "permission": [],
        "root": "hermes-agent",
        "parent": None,
    }


async def test_capabilities(shared: Api, keyless: Api) -> None:
    told = (await shared.get("/v1/capabilities")).json
    assert told["object"] == "hermes.api_server.capabilities"
    assert told["platform"] == "hermes-agent" and told["model"] == "hermes-agent"
    assert told["auth"] == {"type": "bearer", "required": True}
    runtime = told["runtime"]
    assert "API-server host" in runtime.pop("description")
    assert runtime == {
        "mode": "server_agent",
        "tool_execution": "server",
        "split_runtime": False,
    }
    features = told["features"]
    assert features.pop("session_continuity_header") == "X-Hermes-Session-Id"
    assert features.pop("session_key_header") == "X-Hermes-Session-Key"
    assert features == dict.fromkeys(
        (
            "chat_completions",
            "chat_completions_streaming",
            "responses_api",
            "responses_streaming",
            "run_submission",
            "run_status",
            "run_events_sse",
            "run_stop",
            "tool_progress_events",
            "cors",
        ),
        True,
    )
    endpoints = told["endpoints"]
    assert endpoints["run_status"] == {"method": "GET", "path": "/v1/runs/{run_id}"}
    assert endpoints["chat_completions"] == {"method": "POST", "path": CHAT}
    assert endpoints["responses"] == {"method": "POST", "path": "/v1/responses"}
    assert endpoints["runs"] == {"method": "POST", "path": "/v1/runs"}
    assert endpoints["run_events"]["path"] == "/v1/runs/{run_id}/events"
    open_told = (await keyless.get("/v1/capabilities")).json
    assert open_told["auth"]["required"] is False
    assert open_told["features"]["cors"] is False

"""Webhooks: signed, once, delivered elsewhere (G8-G11); and the API server in the same process."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hermes.gateway import texts
from hermes.gateway.platforms.webhook import fill_prompt, is_signed
from tests.gateway.gateways import LiveGateway, gateway, live_gateway
from tests.gateway.platform_gateways import free_port
from tests.kit import call, run_hermes, say
from tests.kit.bodies import messages
from tests.kit.processes import appears
from tests.kit.telegram import OWNER

SECRET = "webhook-secret-0123456789"


def sign(body: bytes, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={digest}"}


def sign_v2(body: bytes, at: float) -> dict[str, str]:
    stamp = str(int(at))
    digest = hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Webhook-Signature-V2": digest, "X-Webhook-Timestamp": stamp}


def sign_svix(body: bytes, at: float, secret: bytes) -> dict[str, str]:
    stamp = str(int(at))
    digest = hmac.new(secret, f"m1.{stamp}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"svix-id": "m1", "svix-timestamp": stamp, "svix-signature": signature}


def test_g9_only_the_holder_of_the_secret_signs() -> None:
    body, now = b'{"a": 1}', 1_000_000.0
    key = b"0123456789abcdef"
    svix = "whsec_" + base64.b64encode(key).decode()
    assert is_signed(SECRET, sign(body), body, now)
    assert is_signed(SECRET, sign_v2(body, now - 299), body, now)
    assert is_signed(SECRET, {"X-Gitlab-Token": SECRET}, body, now)
    assert is_signed(svix, sign_svix(body, now, key), body, now)
    for headers in (
        {},
        sign(body, "another secret"),
        sign(b"altered"),
        sign_v2(body, now - 301),
        sign_v2(body, now + 301),
        {**sign_v2(body, now), "X-Webhook-Timestamp": "soon"},
        {"X-Gitlab-Token": ""},
        {"X-Gitlab-Token": "guess"},
    ):
        assert not is_signed(SECRET, headers, body, now), headers
    assert not is_signed(svix, sign_svix(body, now - 999, key), body, now)
    assert not is_signed("not base64!", sign_svix(body, now, key), body, now)


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{pull.title} by {pull.people.0}", "Fix by ann"),
        ("{missing.deep} {pull.people.9} {pull.number}", "  7"),
        ("{__raw__}", "RAW"),
        ("{not a field} {}", "{not a field} {}"),
        ("{pull.nested}", '{"x":1}'),
    ],
)
def test_a_prompt_is_filled_from_the_payload(template: str, filled: str) -> None:
    payload = {"pull": {"title": "Fix", "people": ["ann"], "number": 7, "nested": {"x": 1}}}
    assert fill_prompt(template, payload, "RAW") == filled


@pytest.mark.parametrize("template", ["{text}", "{__raw__}"])
def test_g13_a_long_value_says_that_it_is_cut(template: str) -> None:
    text = "x" * 20_001
    filled = fill_prompt(template, {"text": text}, text)
    assert filled == f"{text[:-1]}\n[cut: the first 20,000 of 20,001 characters]"
    assert fill_prompt(template, {"text": text[:-1]}, text[:-1]) == text[:-1]


async def post(port: int, route: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{port}/webhooks/{route}"
    async with aiohttp.ClientSession() as http, http.post(url, data=body, headers=headers) as r:
        return r.status, await r.json(content_type=None) if r.status != 404 else None


def configure(g: LiveGateway, port: int, **routes: Any) -> None:
    settings = {"port": port, "routes": routes, "rate_limit": 6, "max_body_bytes": 2000}
    g.home.configure(platforms={"webhook": settings})
    g.home.env["WEBHOOK_SECRET"] = SECRET


async def test_g8_a_delivery_is_one_turn_and_its_answer_goes_where_it_should(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with live_gateway(tmp_path, [say("Looks fine.")], start=False) as g:
        deliver = f"telegram:{OWNER}"
        review = {"prompt": "/review {title}", "events": ["pull"], "deliver": deliver}
        only = {"prompt": "Deployed {version}", "deliver_only": True, "deliver": deliver}
        configure(g, port, review=review, only=only)
        await g.start()
        body = json.dumps({"title": "Fix", "version": "1.2"}).encode()
        pull = {**sign(body), "X-GitHub-Event": "pull", "X-GitHub-Delivery": "d1"}
        assert (await post(port, "nowhere", body, pull))[0] == 404
        assert (await post(port, "review", body, {}))[0] == 401
        assert (await post(port, "review", b"no json", sign(b"no json")))[0] == 400
        assert (await post(port, "review", b"x" * 5000, sign(b"x" * 5000)))[0] == 413
        ignored = await post(port, "review", body, {**pull, "X-GitHub-Event": "push"})
        assert ignored == (200, {"status": "ignored"})
        accepted = await post(port, "review", body, pull)
        assert accepted == (202, {"status": "accepted", "delivery_id": "d1"})
        await g.telegram.until_shown("Looks fine.")
        assert (await post(port, "review", body, pull))[1]["status"] == "duplicate"
        assert (await post(port, "only", body, sign_v2(body, time.time())))[0] == 202
        await g.telegram.until_shown("Deployed 1.2")
        assert len(g.provider.requests) == 1
        asked = [m.text for m in messages(g.provider.requests[0]) if m.role == "user"]
        assert asked == ["/review Fix"], "a payload is never a command"
        tools = {t["function"]["name"] for t in g.provider.requests[0].json["tools"]}
        assert "terminal" not in tools and "read_file" in tools


async def test_a_restart_in_a_delivery_is_told_where_its_answer_goes(tmp_path: Path) -> None:
    port = free_port()
    steps = [call(("c1", "terminal", {"command": "echo x > begun; sleep 300"}))]
    async with gateway(tmp_path, steps, start=False) as g:
        route = {"prompt": "{text}", "deliver": f"telegram:{OWNER}", "toolsets": ["core"]}
        settings = {"port": port, "routes": {"hook": route}}
        g.home.configure(platforms={"webhook": settings})
        g.home.env["WEBHOOK_SECRET"] = SECRET
        await g.start()
        body = json.dumps({"text": "work"}).encode()
        assert (await post(port, "hook", body, sign(body)))[0] == 202
        await appears(g.home.work / "begun")
        await g.kill()
        await g.start()
        await g.telegram.until_shown(texts.CUT_OFF)


async def test_hostile_headers_and_bodies_are_refused_like_others(tmp_path: Path) -> None:
    port = free_port()
    async with live_gateway(tmp_path, [say("read")], start=False) as g:
        configure(g, port, hook={"prompt": "{text}", "deliver": f"telegram:{OWNER}"})
        await g.start()
        body = json.dumps({"text": "cut \ud83d"}).encode()
        names = ("X-Gitlab-Token", "X-Hub-Signature-256", "X-Webhook-Signature-V2")
        for name in (*names, "svix-signature", "X-Webhook-Timestamp"):
            stamped = {"X-Webhook-Timestamp": str(int(time.time())), "svix-id": "\udcff"}
            for value in ("\udcff", "é", "", "x" * 5000):
                headers = {**stamped, "X-Webhook-Signature-V2": "0" * 64, name: value}
                assert await post_raw(port, "hook", body, headers) == 401, (name, value)
        for wrong in (b"", b"{", b"\xff", b"[" * 1900, b"NaN"):
            assert await post_raw(port, "hook", wrong, sign(wrong)) == 400, wrong[:9]
        assert await post_raw(port, "hook", body, {**sign(body), "X-Request-ID": "\udcff"}) == 202
        await g.telegram.until_shown("read")
        assert g.provider.requests[0].json["messages"][-1]["content"] == "cut ?"


async def post_raw(port: int, route: str, body: bytes, headers: Mapping[str, str]) -> int:
    """The status for a request whose headers may hold any bytes."""
    lines = [f"POST /webhooks/{route} HTTP/1.1", "Host: x", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode("utf-8", "surrogateescape") + body)
    status = (await reader.readline()).split()[1]
    writer.close()
    await writer.wait_closed()
    return int(status)


async def test_too_many_deliveries_have_to_wait(tmp_path: Path) -> None:
    port = free_port()
    async with live_gateway(tmp_path, start=False) as g:
        configure(g, port, only={"deliver_only": True, "deliver": "log"})
        await g.start()
        codes = []
        for i in range(8):
            body = json.dumps({"n": i}).encode()
            codes.append((await post(port, "only", body, sign(body)))[0])
        assert codes == [202] * 6 + [429] * 2


async def test_a_route_without_a_secret_turns_the_platform_off(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, start=False) as g:
        configure(g, free_port(), open={"secret_env": "NOT_SET"})
        await g.start()
        found = g.service.status.platforms
        assert (found["webhook"].state, found["webhook"].error_code) == ("fatal", "unconfigured")
        assert found["telegram"].state == "connected"


@pytest.mark.e2e
async def test_the_api_server_runs_in_the_same_process(tmp_path: Path) -> None:
    port, key = free_port(), "api-key-0123456789abcdef0123456789ab"
    async with gateway(tmp_path, [say("over http"), say("over telegram")], start=False) as g:
        others = {"discord": {"enabled": True}, "telegram": {"enabled": True}}
        g.home.configure(platforms={"api_server": {"port": port}, **others})
        await g.start(API_SERVER_KEY=key, TELEGRAM_BOT_TOKEN="")
        assert g.stderr.count("TOKEN is not set") == 2, "it is enough to serve HTTP"
        assert await g.stop() == 0
        g.home.configure(platforms={"api_server": {"port": port}})
        await g.start(API_SERVER_KEY=key)
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        body = {"model": "hermes-agent", "messages": [{"role": "user", "content": "hi"}]}
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as r:
            answer = await r.json()
        assert answer["choices"][0]["message"]["content"] == "over http"
        await g.telegram.say("hi")
        await g.telegram.until_shown("over telegram")
        shown = await run_hermes(["gateway", "status"], g.home)
        async with aiohttp.ClientSession() as client:
            address = f"http://127.0.0.1:{port}/health/detailed"
            async with client.get(address) as answer:
                health = await answer.json()
        assert health["gateway_state"] == "running" and health["inbox"]["waiting"] == 0
        assert health["platforms"]["telegram"]["state"] == "connected"
        assert "api_server: connected" in shown.stdout and "telegram: connected" in shown.stdout
        assert await g.stop() == 0

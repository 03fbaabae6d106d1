"""Telegram's webhook: proven by its secret, confirmed after it was stored, polled again later."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hermes.gateway.platforms import telegram as platform
from tests.gateway.gateways import LiveGateway, gateway, live_gateway
from tests.gateway.platform_gateways import free_port
from tests.kit import say

pytestmark = pytest.mark.e2e
SECRET = "kit-webhook-secret_0123456789"
HEADER = "X-Telegram-Bot-Api-Secret-Token"


def hook_settings() -> dict[str, Any]:
    port = free_port()
    return {"webhook_url": f"http://127.0.0.1:{port}/tg", "webhook_port": port}


@asynccontextmanager
async def hooked(root: Path, *steps: Any, secret: str = SECRET) -> AsyncIterator[LiveGateway]:
    async with live_gateway(root, steps, platform=hook_settings(), start=False) as g:
        g.home.env["TELEGRAM_WEBHOOK_SECRET"] = secret
        await g.start()
        yield g


async def post(url: str, body: Any, **headers: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, headers=headers) as answer,
    ):
        return answer.status


async def test_updates_come_by_webhook_and_wait_while_it_is_down(tmp_path: Path) -> None:
    async with hooked(tmp_path, say("one"), say("two"), say("three")) as g:
        await g.telegram.say("first")
        await g.telegram.until_shown("one")
        assert not g.telegram.polls
        asked = next(p for m, p in g.telegram.calls if m == "setWebhook")
        assert asked["secret_token"] == SECRET and asked["drop_pending_updates"] is False
        await g.stop()
        assert g.telegram.webhook, "Telegram keeps updates for us"
        await g.telegram.say("second")
        await g.start()
        await g.telegram.until_shown("two")
        message = g.telegram.make_message("third")
        for _ in range(3):
            await g.telegram.push({"message": message})
        await g.telegram.until_shown("three")
        await g.telegram.until(lambda: not g.telegram.updates)
        assert g.telegram.texts() == ["one", "two", "three"]


async def test_g9_who_does_not_know_the_secret_is_refused_unread(tmp_path: Path) -> None:
    async with hooked(tmp_path) as g:
        url = str(g.telegram.webhook["url"])
        assert await post(url, b"no JSON") == 401
        assert await post(url, b"no JSON", **{HEADER: SECRET[:-1]}) == 401
        assert await post(url, b"no JSON", **{HEADER: SECRET}) == 400
        assert await post(url, io.BytesIO(b"x" * 2_000_000), **{HEADER: SECRET}) == 413
        assert await post(url, b"{}", **{HEADER: SECRET}) == 200
        assert not g.provider.requests and not g.telegram.sent


@pytest.mark.parametrize("secret", ["", "not allowed!"])
async def test_without_a_usable_secret_it_is_off(tmp_path: Path, secret: str) -> None:
    async with hooked(tmp_path, secret=secret) as g:
        status = g.service.status.platforms["telegram"]
        assert status.state == "fatal" and status.error_code == "unconfigured"
        assert "TELEGRAM_WEBHOOK_SECRET" in status.error_message
        assert not g.telegram.webhook


async def test_a_webhook_that_another_program_took_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "WEBHOOK_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(platform, "_FIRST_CONFLICT_WAIT", 0.05)
    async with hooked(tmp_path, say("here")) as g:
        g.telegram.webhook = {**g.telegram.webhook, "url": "http://127.0.0.1:1/other"}
        await g.telegram.until(
            lambda: sum(m == "setWebhook" for m, _ in g.telegram.calls) == 2,
        )
        await g.telegram.say("hi")
        await g.telegram.until_shown("here")


async def test_a_taken_port_is_tried_again(tmp_path: Path) -> None:
    settings = hook_settings()
    async with live_gateway(tmp_path, [say("here")], platform=settings, start=False) as g:
        g.home.env["TELEGRAM_WEBHOOK_SECRET"] = SECRET
        host, port = "127.0.0.1", settings["webhook_port"]
        holder = await asyncio.start_server(lambda r, w: w.close(), host, port)
        await g.start()
        status = g.service.status.platforms["telegram"]
        assert (status.state, status.error_code) == ("retrying", "port_in_use")
        assert status.error_message == f"cannot listen on {host}:{port}: Address already in use"
        holder.close()
        await holder.wait_closed()
        await g.telegram.say("hi")
        await g.telegram.until_shown("here")


async def test_a_kill_before_the_answer_is_one_turn_and_polling_takes_over(tmp_path: Path) -> None:
    steps = [say("one"), say("two")]
    async with gateway(tmp_path, steps, platform=hook_settings(), start=False) as g:
        await g.start(TELEGRAM_WEBHOOK_SECRET=SECRET)
        message = g.telegram.make_message("first")
        await g.telegram.push({"message": message})
        await g.telegram.until_shown("one")
        await g.kill()
        await g.telegram.push({"message": message})  # as if it had not been confirmed
        await g.telegram.say("second")
        config = g.home.path / "config.yaml"
        lines = [line for line in config.read_text().splitlines() if "webhook_url" not in line]
        config.write_text("\n".join(lines))
        await g.start()
        await g.telegram.until_shown("two")
        assert len(g.provider.requests) == 2 and g.telegram.polls
        removed = next(p for m, p in g.telegram.calls if m == "deleteWebhook")
        assert removed == {"drop_pending_updates": False}
        assert SECRET not in g.stderr

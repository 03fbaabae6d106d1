"""Long conversations: read from end to beginning and back without jumps."""

from __future__ import annotations

import asyncio
from pathlib import Path

from playwright.async_api import expect

from hermes.core.message import Message, Text, user_message
from hermes.core.store import SessionMeta
from tests.e2e.dashboard.conftest import visit
from tests.kit import say

_COUNT = 3000


def _make_messages() -> list[Message]:
    found: list[Message] = []
    for n in range(_COUNT // 2):
        found.append(user_message(f"question {n}"))
        found.append(Message("assistant", (Text(f"answer {n}\n\n" + "line\n\n" * (n % 7)),)))
    return found


async def test_a_long_session_is_read_to_the_top_and_back(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("A new answer.")) as v:
        store = v.api.server.runtime.store.sessions
        meta = SessionMeta("long", source="cli", cwd=str(tmp_path), title="A long one")
        await store.append("long", _make_messages(), create=meta)
        page = v.page
        await page.goto(f"{v.api.url}/#/c/long")
        last = page.get_by_role("article", name="You").get_by_text(f"question {_COUNT // 2 - 1}")
        await last.wait_for()
        log = page.get_by_role("log", name="Conversation")
        assert await page.get_by_role("article").count() <= 150
        await log.evaluate("log => { log.scrollTop = -log.scrollHeight; }")
        first = page.get_by_role("article", name="You").get_by_text("question 0", exact=True)
        async with asyncio.timeout(90):
            while not await first.is_visible():
                await log.evaluate("log => { log.scrollTop = -log.scrollHeight; }")
                await asyncio.sleep(0.1)
        assert await page.get_by_role("article").count() <= 150
        await page.get_by_role("button", name="Jump to latest").click()
        await last.wait_for()


async def test_the_outline_of_a_long_session_begins_with_the_latest_rows(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        store = v.api.server.runtime.store.sessions
        meta = SessionMeta("long", source="cli", cwd=str(tmp_path), title="A long one")
        await store.append("long", _make_messages(), create=meta)
        page = v.page
        await page.goto(f"{v.api.url}/#/c/long")
        rows = page.locator(".outline li")
        await expect(rows).to_have_count(100, timeout=90_000)
        await expect(rows.last).to_have_text(f"question {_COUNT // 2 - 1}")
        await page.get_by_role("button", name="Show earlier").click()
        await expect(rows).to_have_count(200)
        await rows.first.get_by_role("button").click()
        number = _COUNT // 2 - 200
        await page.locator(f"article[data-seq='{2 * number}']").wait_for()


async def test_reading_above_a_growing_answer_stays_in_place(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("word " * 2000)) as v:
        store = v.api.server.runtime.store.sessions
        meta = SessionMeta("mid", source="cli", cwd=str(tmp_path), title="In the middle")
        await store.append("mid", _make_messages()[:60], create=meta)
        page = v.page
        await page.goto(f"{v.api.url}/#/c/mid")
        log = page.get_by_role("log", name="Conversation")
        await page.get_by_role("article", name="You").get_by_text("question 29").wait_for()
        await page.wait_for_timeout(500)
        await log.evaluate("log => { log.scrollTop = -900; }")
        await page.wait_for_timeout(500)
        where = "() => document.querySelector('[data-seq=\"40\"]').getBoundingClientRect().top"
        before = await page.evaluate(where)
        await v.send("write a lot")
        await page.get_by_role("button", name="Send").wait_for()
        async with asyncio.timeout(90):
            while (await store.get_meta("mid")).messages < 62:  # type: ignore[union-attr]
                await asyncio.sleep(0.1)
        await page.wait_for_timeout(500)
        assert abs(await page.evaluate(where) - before) <= 2

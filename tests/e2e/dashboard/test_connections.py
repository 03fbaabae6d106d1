"""Nothing is lost or doubled when connections break, and many tabs share one stream."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from hermes.app.live.sign_in_codes import create_code
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.server.dashboard.feed import Feed
from tests.e2e.dashboard.conftest import Visit, visit
from tests.e2e.dashboard.relay import Relay, open_relay
from tests.kit import Gate, say

WORDS = [f"word{n} " for n in range(400)]
CUTS = 300
WAIT = 90_000
AGAIN = "dispatchEvent(new Event('online'))"
"""As when the network is back: the page tries again at once."""
ASK = """async path => (await fetch(path, { headers: {
  'X-Hermes-Page': localStorage.getItem('hermes-page') } })).status"""


async def _enter(v: Visit, relay: Relay) -> Page:
    """A signed-in page whose requests go through the relay."""
    page = v.page = await v.open_page()
    code = await create_code(v.api.server.runtime.store.objects)
    await page.goto(f"{relay.url}/#code={code}")
    await v.wait_until_live(page)
    return page


async def _compare_with_fresh_load(v: Visit, page: Page) -> None:
    """The text of the page is that of a page which was just loaded."""
    shown = await v.read_log(page)
    fresh = await v.open_page()
    await fresh.goto(page.url)
    async with asyncio.timeout(90):
        while await v.read_log(fresh) != shown:
            await asyncio.sleep(0.1)
    await fresh.close()


async def _cut_until_answered(v: Visit, relay: Relay, chance: random.Random, count: int) -> int:
    """Cut whatever is connected until the conversation has so many messages; how often that was."""
    store, session, cuts = v.api.server.runtime.store.sessions, v.page.url.rpartition("/")[2], 0
    async with asyncio.timeout(240):
        while (await store.get_meta(session)).messages < count:  # type: ignore[union-attr]
            cuts += relay.cut() > 0
            if chance.random() < 0.8:
                await v.page.evaluate(AGAIN)
            await asyncio.sleep(chance.uniform(0, 0.2))
    return cuts


@pytest.mark.timeout(1200)
async def test_cut_connections_lose_and_double_nothing(tmp_path: Path) -> None:
    """Whatever is cut while a message is on its way and its answer is written: the page shows it
    once, and there is one turn for it."""
    chance, cuts, questions = random.Random(7), 0, ["question-0."]
    async with visit(tmp_path, then=say(*WORDS).slow(0.02)) as v, open_relay(v.api.url) as relay:
        page = await _enter(v, relay)
        answers = page.get_by_role("article", name="Hermes")
        await v.send(questions[0])
        await answers.first.get_by_text("word399").wait_for(timeout=WAIT)
        await page.get_by_role("button", name="Send").wait_for(timeout=WAIT)
        while cuts < CUTS:
            question, n = f"question-{len(questions)}.", len(questions)
            questions.append(question)
            await v.send(question)
            cuts += await _cut_until_answered(v, relay, chance, 2 * len(questions))
            own = page.get_by_role("article", name="You").get_by_text(question)
            await own.wait_for(timeout=WAIT)
            # Only a page that hears the server knows that the turn is over; another message would
            # steer it.
            await v.wait_until_live(page)
            await answers.nth(n).get_by_text("word399").wait_for(timeout=WAIT)
            await page.get_by_role("button", name="Send").wait_for(timeout=WAIT)
        assert len(v.api.provider.requests) == len(questions)
        shown = await v.read_log()
        assert [shown.count(question) for question in questions] == [1] * len(questions)
        assert shown.count("word399") == len(questions)
        await _compare_with_fresh_load(v, page)


async def test_a_lost_answer_to_a_send_is_asked_for_again(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("Yes.")) as v, open_relay(v.api.url) as relay:
        page = await _enter(v, relay)
        await v.send("first")
        await v.wait_until_answered("Yes.")
        relay.lost_answers = 2
        await v.send("second")
        await expect(page.get_by_role("article", name="Hermes")).to_have_count(2, timeout=WAIT)
        await page.locator(".unsent").wait_for(state="detached", timeout=WAIT)
        await page.get_by_role("button", name="Send").wait_for(timeout=WAIT)
        assert relay.lost_answers == 0
        assert len(v.api.provider.requests) == 2
        assert (await v.read_log()).count("second") == 1
        await _compare_with_fresh_load(v, page)


async def test_a_message_whose_answer_is_late_is_shown_once(tmp_path: Path) -> None:
    """It is in the conversation although the page does not know yet that it was taken."""
    async with visit(tmp_path, then=say("Yes.")) as v:
        page, held = v.page, asyncio.Event()
        await v.send("first")
        await v.wait_until_answered("Yes.")

        async def hold_answer(route: Any) -> None:
            answer = await route.fetch()
            await held.wait()
            await route.fulfill(response=answer)

        await page.route("**/turns", hold_answer)
        await v.send("second")
        await page.locator("article.you[data-seq='2']").wait_for()
        own = page.get_by_role("article", name="You").get_by_text("second")
        await expect(own).to_have_count(1)
        held.set()
        await expect(page.get_by_role("article", name="Hermes")).to_have_count(2, timeout=WAIT)
        await page.get_by_role("button", name="Send").wait_for()
        await expect(own).to_have_count(1)


async def test_a_silent_stream_is_a_lost_connection(tmp_path: Path) -> None:
    """As when a laptop slept: the connection is there, and nothing comes through it any more."""
    gate = Gate()
    answer = say("Before ", "the silence, ", "and after.").hold(gate, after="text", n=2)
    async with visit(tmp_path, [answer]) as v, open_relay(v.api.url) as relay:
        page = await _enter(v, relay)
        await page.clock.install()
        await page.reload()
        await v.wait_until_live(page)
        await v.send("hello")
        log = page.get_by_role("log", name="Conversation")
        await log.get_by_text("Before the silence,").wait_for(timeout=WAIT)
        relay.freeze()
        gate.open()
        store = v.api.server.runtime.store.sessions
        session = page.url.rpartition("/")[2]
        async with asyncio.timeout(90):
            while (await store.get_meta(session)).messages < 2:  # type: ignore[union-attr]
                await asyncio.sleep(0.05)
        assert "and after." not in await v.read_log()
        async with asyncio.timeout(90):
            # More than once: the browser may take up another connection that is silent.
            while "and after." not in await v.read_log():
                await page.clock.fast_forward(41_000)
                await page.wait_for_timeout(4000)
        await page.get_by_role("button", name="Send").wait_for(timeout=WAIT)
        await v.wait_until_live(page)
        assert len(v.api.provider.requests) == 1
        await _compare_with_fresh_load(v, page)


async def test_five_tabs_whose_reader_is_closed_twice(tmp_path: Path) -> None:
    gates = [Gate(), Gate()]
    answer = say("one ", "two ", "three").hold(gates[0], after="text").hold(gates[1], "text", 2)
    async with visit(tmp_path, [answer]) as v:
        await v.send("hello")
        await v.page.get_by_text("one", exact=True).wait_for()
        pages = [v.page]
        for _ in range(4):
            page = await v.open_page()
            await page.goto(v.page.url)
            await page.get_by_text("one", exact=True).wait_for()
            pages.append(page)
        for gate, said in zip(gates, ("one two", "one two three"), strict=True):
            await pages.pop(0).close()
            gate.open()
            for page in pages:
                await page.get_by_text(said, exact=True).wait_for()
        for page in pages:
            await page.get_by_role("button", name="Send").wait_for()
            assert (await v.read_log(page)).count("one two three") == 1
            await _compare_with_fresh_load(v, page)
        assert len(v.api.provider.requests) == 1


async def test_twelve_tabs_share_one_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with visit(tmp_path, then=say("An answer for all.")) as v:
        await v.send("hello")
        await v.wait_until_answered("An answer for all.")
        address = v.page.url
        pages, asked = [v.page], list[str]()
        dashboard = v.api.server.services.dashboard
        assert dashboard is not None
        held: list[int] = []
        """How many streams there were each time that one began."""
        add_feed = dashboard.add_feed

        def count_feeds(feed: Feed, request: Any) -> None:
            add_feed(feed, request)
            held.append(len(dashboard.feeds))

        monkeypatch.setattr(dashboard, "add_feed", count_feeds)
        for _ in range(11):
            page = await v.open_page()
            page.on("request", lambda request: asked.append(request.url))
            await page.goto(address)
            await page.get_by_text("An answer for all.").wait_for()
            pages.append(page)
        await v.wait_until_live(pages[-1])
        # A stream per tab would leave the sixth without a connection for its requests.
        for page in pages:
            assert await page.evaluate(ASK, f"api/sessions/{address.rpartition('/')[2]}") == 200
        # The one that is replaced ends in the step after, so that no connection is held in vain.
        assert held and max(held) <= 2
        async with asyncio.timeout(90):
            while len(dashboard.feeds) != 1:
                await asyncio.sleep(0.01)
        assert not [url for url in asked if "/api/events" in url]
        await pages[0].close()
        await v.wait_until_live(pages[-1])
        v.page = pages[-1]
        await v.send("again")
        for page in pages[1:]:
            await page.get_by_role("article", name="You").get_by_text("again").wait_for()


async def test_a_session_that_is_deleted_in_one_tab_leaves_the_others_live(tmp_path: Path) -> None:
    gate = Gate()
    async with visit(tmp_path, [say("one ", "two").hold(gate, after="text")]) as v:
        await v.send("hello")
        await v.page.get_by_text("one", exact=True).wait_for()
        store = v.api.server.runtime.store.sessions
        meta = SessionMeta("deleted", source="cli", cwd=str(tmp_path), title="Soon gone")
        await store.append("deleted", [user_message("from a terminal")], create=meta)
        other = await v.open_page()
        await other.goto(f"{v.api.url}/#/c/deleted")
        await other.get_by_role("article", name="You").wait_for()
        await store.delete("deleted")
        third = await v.open_page()  # its coming begins the stream anew
        async with v.page.expect_response(lambda r: "/api/events" in r.url and r.status == 200):
            await third.goto(f"{v.api.url}/#/now")
        gate.open()
        await v.page.get_by_text("one two", exact=True).wait_for()
        await v.wait_until_answered("one two")


async def test_a_conversation_that_could_not_be_loaded_is_loaded_later(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("Here.")) as v:
        await v.send("hello")
        await v.wait_until_answered("Here.")
        address, page, tried = v.page.url, await v.open_page(), list[str]()

        async def abort(route: Route) -> None:
            tried.append(route.request.url)
            await route.abort()

        await page.route("**/api/sessions/*/messages*", abort)
        await page.goto(address)
        await page.get_by_role("alert").get_by_text("cannot be reached").wait_for()
        async with asyncio.timeout(90):
            while len(tried) < 2:  # it tries again by itself when the connection is there
                await asyncio.sleep(0.02)
        await page.unroute("**/api/sessions/*/messages*")
        await page.get_by_role("button", name="Try again").click()
        await page.get_by_role("article", name="Hermes").get_by_text("Here.").wait_for()


async def test_attached_files_stay_with_a_message_that_is_refused(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("Read.")) as v:
        await v.send("hello")
        await v.wait_until_answered("Read.")
        file = {"name": "data.csv", "mimeType": "text/csv", "buffer": b"a,b\n"}
        await v.page.locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]
        chip = v.page.locator(".composer").get_by_role("button", name="data.csv")
        await chip.wait_for()
        busy = {"status": 409, "json": {"error": {"message": "Another client runs a turn."}}}
        await v.page.route("**/turns", lambda route: route.fulfill(**busy))
        await v.send("look")
        await v.page.get_by_text("Another client runs a turn.").wait_for()
        await chip.wait_for()
        await v.page.unroute("**/turns")
        await v.send("look")
        await v.page.get_by_role("article", name="You").get_by_text("Attached file").wait_for()
        await expect(chip).to_have_count(0)

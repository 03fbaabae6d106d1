"""What other programs and other times do, seen in Chromium: a messenger, a kill, an expiry."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page

from hermes.app.live import interactions
from hermes.core.message import Message, Text, user_message
from hermes.core.store import SessionMeta
from hermes.exec.chromium import find_browser
from hermes.tools.browser._browser import start_driver
from tests.e2e.dashboard.conftest import visit
from tests.flow.test_compression import Model
from tests.gateway.gateways import gateway
from tests.kit import Gate, Home, Provider, call, finish, run_hermes, say, start_hermes
from tests.kit.dashboard import sign_in
from tests.server.serve_process import serve

WAIT = 90_000


@asynccontextmanager
async def open_chromium() -> AsyncIterator[Page]:
    async with start_driver(dict(os.environ)) as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_browser("", os.environ), args=["--no-sandbox"]
        )
        context = await browser.new_context(viewport={"width": 1440, "height": 900})
        context.set_default_timeout(WAIT)
        try:
            yield await context.new_page()
        finally:
            await browser.close()


async def _enter(page: Page, home: Home, url: str) -> None:
    code = (await run_hermes(["dashboard", "--code"], home)).stdout.strip()
    await page.goto(f"{url}/#code={code}")
    await _wait_until_live(page)


async def _wait_until_live(page: Page) -> None:
    await page.locator("[role=status][data-state=live]").wait_for()


async def test_a_turn_in_telegram_is_watched(tmp_path: Path) -> None:
    """The words of an answer appear while the messenger's turn still runs, and Stop is there."""
    gate = Gate()
    answer = say("Written ", "in a messenger.").hold(gate, after="text")
    server = {"enabled": True, "port": 0}
    async with (
        gateway(tmp_path, [answer], start=False, dashboard={"enabled": True}) as g,
        open_chromium() as page,
    ):
        g.home.configure(platforms={"api_server": server})
        await g.start()
        async with asyncio.timeout(90):
            while not (address := await _find_address(g.home)):
                await asyncio.sleep(0.1)
        await _enter(page, g.home, address)
        await g.telegram.say("hello from a phone")
        await page.get_by_role("link", name="hello from a phone").click()
        log = page.get_by_role("log", name="Conversation")
        await log.get_by_role("article", name="You").get_by_text("hello from a phone").wait_for()
        await log.get_by_text("Written", exact=True).wait_for()
        await page.get_by_role("button", name="Stop").wait_for()
        gate.open()
        await log.locator("article[data-seq='1']").get_by_text("in a messenger.").wait_for()
        await g.telegram.until_shown("Written in a messenger.")
        await page.get_by_role("button", name="Send").wait_for()
        await page.get_by_role("textbox", name="Message").fill("and from a browser")
        await page.keyboard.press("Enter")
        await page.get_by_text("This conversation takes place on telegram.").wait_for()


async def _find_address(home: Home) -> str:
    from hermes.config.instances import list_instances

    found = [i.address for i in list_instances(home.path) if i.kind == "dashboard"]
    return found[-1] if found else ""


async def test_a_kill_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    """The page finds the server again by itself, and shows what a fresh load shows."""
    held = say("Never", " said").hold(Gate(), after="text")
    async with Provider([held], then=say("Continued.")) as provider, open_chromium() as page:
        home = Home.of(tmp_path, provider)
        home.configure(dashboard={"enabled": True})
        async with serve(home) as server:
            await _enter(page, home, server.url)
            port = str(urlsplit(server.url).port)
            await page.get_by_role("textbox", name="Message").fill("a question")
            await page.keyboard.press("Enter")
            log = page.get_by_role("log", name="Conversation")
            await log.get_by_text("Never", exact=True).wait_for()
            server.process.kill()
            await server.wait()
        await page.locator("[role=status][data-state=lost]").wait_for()
        async with serve(home, "--port", port):
            await _wait_until_live(page)
            await page.get_by_text("The last turn was interrupted.").wait_for()
            await page.get_by_role("button", name="Go on").click()
            await log.get_by_text("Continued.").wait_for()
            await page.get_by_role("button", name="Send").wait_for()
            shown = await log.inner_text()
            assert shown.count("a question") == 1 and shown.count("Continued.") == 1
            await page.reload()
            async with asyncio.timeout(90):
                while await log.inner_text() != shown:
                    await asyncio.sleep(0.1)


async def test_an_approval_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactions, "APPROVAL_SECONDS", 6.0)
    steps = [call(("c1", "terminal", {"command": "git push origin main"})), say("Not pushed.")]
    async with visit(tmp_path, steps) as v:
        watcher = await sign_in(v.api)
        await v.page.get_by_role("textbox", name="Message").fill("push")
        async with v.page.expect_response(lambda r: r.url.endswith("/turns")) as sent:
            await v.page.keyboard.press("Enter")
        session = (await sent.value).url.split("/")[-2]
        async with watcher.watch(f"{session}:-1") as feed:
            await feed.until("end")
        await v.wait_until_answered("Not pushed.")
        assert await v.page.get_by_role("group", name="Approve this command?").count() == 0
        assert "git push" in str(v.api.provider.requests[1].body)
        await v.page.locator("details[data-tool=terminal][data-state=failed]").wait_for()


async def test_a_conversation_that_is_compressed_goes_on_in_every_tab(tmp_path: Path) -> None:
    gate, window = Gate(), {"model": {"context_length": 16_000}}
    answer = say("Here ", "it ", "is.").hold(gate, after="text")
    model = Model(16_000, lambda n: answer)
    async with visit(tmp_path, then=model, config=window) as v:
        said: list[Message] = []
        for n in range(30):
            text = f"{n} " + "word " * 250
            said += [user_message(f"question {text}"), Message("assistant", (Text(text),))]
        meta = SessionMeta("long", source="web", key="/", cwd=str(tmp_path), title="A long one")
        await v.api.server.runtime.store.sessions.append("long", said, create=meta)
        pages = [v.page, await v.open_page()]
        for page in pages:
            await page.goto(f"{v.api.url}/#/c/long")
            await page.get_by_role("article", name="Hermes").last.wait_for()
            await v.wait_until_live(page)
        await v.send("go on")
        for page in pages:
            await page.wait_for_url(lambda url: not url.endswith("/long"))
            await page.locator("[data-partial]").get_by_text("Here", exact=True).wait_for()
        gate.open()
        for page in pages:
            answered = page.get_by_role("article", name="Hermes").last
            await answered.and_(page.locator("[data-seq]")).get_by_text("Here it is.").wait_for()
            await page.get_by_role("button", name="Send").wait_for()
        shown = [await v.read_log(page) for page in pages]
        assert shown[0] == shown[1] and shown[0].count("Here it is.") == 1


async def test_a_turn_of_another_program_says_so_until_it_ends(tmp_path: Path) -> None:
    gate = Gate()
    answer = say("Said in a terminal.").hold(gate)
    async with visit(tmp_path, [answer], then=say("In the branch.")) as v:
        terminal = await start_hermes(["chat", "-q", "a question"], v.api.home)
        await gate.reached()
        await v.page.get_by_role("navigation", name="Conversations").get_by_role("link").click()
        note = v.page.get_by_text("This conversation runs in another program.")
        await note.wait_for()
        await v.page.get_by_role("article", name="You").get_by_text("a question").wait_for()
        gate.open()
        assert (await finish(terminal)).rc == 0
        await v.wait_until_answered("Said in a terminal.")
        await note.wait_for(state="detached")

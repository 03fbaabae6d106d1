"""Whole tasks on the page Talk, in Chromium."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from playwright.async_api import expect

from hermes.app.live.sign_in_codes import create_code
from tests.e2e.dashboard.conftest import visit
from tests.kit import call, say, status

RICH = (
    "## A heading\n\nSome **bold** and `code`.\n\n| name | size |\n|---|---:|\n| a | 1 |\n\n"
    "```python\ndef add(a, b):\n    return a + b\n```\n\n- one\n- two\n"
)

FAST = """
localStorage.setItem('hermes-page', 'of an earlier visit');
const real = window.fetch;
window.fetch = (path, options) => String(path).endsWith('api/web/session')
  ? Promise.resolve({ ok: true, json: () => Promise.resolve({ principal: null }) })
  : real(path, options);
"""
"""An answer that is there before the first frame."""


async def test_the_page_shows_an_answer_that_comes_before_its_first_frame(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        context = await v.make_context()
        page = await context.new_page()
        await page.add_init_script(FAST)
        await page.goto(v.api.url)
        await page.get_by_role("textbox", name="Sign-in code").wait_for(timeout=20_000)


async def test_a_first_visit_is_painted_before_scripts_run_and_asks_nothing(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        context = await v.make_context()
        page = await context.new_page()
        await page.route("**/*.js", lambda route: route.abort())
        await page.goto(v.api.url)
        await page.get_by_role("heading", name="Hermes").wait_for()
        await page.unroute("**/*.js")
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(v.api.url)
        await page.get_by_role("textbox", name="Sign-in code").wait_for()
        assert not [address for address in asked if "/api/" in address]


async def test_the_first_visit_asks_for_a_code(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        context = await v.make_context()
        page = await context.new_page()
        await page.goto(v.api.url)
        field = page.get_by_role("textbox", name="Sign-in code")
        await field.fill("0000-0000")
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("alert").get_by_text("wrong, used or too old").wait_for()
        await field.fill(await create_code(v.api.server.runtime.store.objects))
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("textbox", name="Message").wait_for()
        assert "code" not in page.url
        await page.reload()
        await page.get_by_role("textbox", name="Message").wait_for()
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_role("textbox", name="Sign-in code").wait_for()


async def test_a_turn_with_tools_and_rich_text(tmp_path: Path) -> None:
    steps = [call(("c1", "write_file", {"path": "a.txt", "content": "hello\nworld"})), say(RICH)]
    async with visit(tmp_path, steps) as v:
        await v.send("Make a file.")
        await v.wait_until_answered("A heading")
        log = v.page.get_by_role("log", name="Conversation")
        tool = log.locator("details[data-tool=write_file][data-state=done]")
        await tool.locator("summary").click()
        await tool.get_by_text("+world").wait_for()
        assert await log.locator("table td").count() == 2
        await log.locator("pre .hl-keyword").first.wait_for()
        await v.page.get_by_role("link", name="Make a file.").wait_for()
        await v.page.reload()
        await v.wait_until_answered("A heading")
        await v.page.get_by_role("article", name="You").get_by_text("Make a file.").wait_for()


async def test_what_a_call_changed_is_shown_at_once(tmp_path: Path) -> None:
    """What stood in the file before is not in the arguments of the call."""
    written = call(("c1", "write_file", {"path": "a.txt", "content": "new\n"}))
    async with visit(tmp_path, [written, say("Written.")]) as v:
        v.api.server.runtime.working_folder.joinpath("a.txt").write_text("old\n")
        await v.send("Write.")
        await v.wait_until_answered("Written.")
        tool = v.page.locator("details[data-tool=write_file][data-state=done]")
        for _ in range(2):
            ending = await tool.locator(".tool-end").inner_text()
            assert re.fullmatch(r"\+1 -1\s+\d+\.\d s", ending), ending
            await v.page.reload()
            await v.wait_until_answered("Written.")
            await tool.wait_for()


async def test_a_failure_is_shown_after_a_reload_and_is_tried_again(tmp_path: Path) -> None:
    async with visit(tmp_path, [status(400, "No such thing."), say("Better.")]) as v:
        await v.send("Do it.")
        failure = v.page.get_by_role("alert").get_by_text("No such thing.")
        await failure.wait_for()
        await v.page.reload()
        await failure.wait_for()
        await v.page.get_by_role("button", name="Retry").click()
        await v.wait_until_answered("Better.")
        await expect(failure).to_have_count(0)


async def test_a_first_load_of_talk_is_light(tmp_path: Path) -> None:
    """Everything that is asked for before the page is ready, the stream of events included."""
    async with visit(tmp_path) as v:
        page = await v.open_page()
        session = await v.context.new_cdp_session(page)
        await session.send("Network.enable")
        await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        asked, sizes = list[str](), list[int]()
        page.on("request", lambda request: asked.append(request.url))
        session.on("Network.loadingFinished", lambda e: sizes.append(e["encodedDataLength"]))
        await page.goto(f"{v.api.url}/#/talk")
        await v.wait_until_live(page)
        await page.get_by_text("No conversations yet.").wait_for()
        await page.wait_for_timeout(500)
        assert len(asked) <= 14, asked
        assert sum(sizes) <= 60_000


async def test_an_approval_is_given_and_denied(tmp_path: Path) -> None:
    push = {"command": "git push origin main"}
    steps = [call(("c1", "terminal", push)), say("Denied, then."), call(("c2", "terminal", push))]
    async with visit(tmp_path, steps, then=say("Tried.")) as v:
        await v.send("push")
        card = v.page.get_by_role("group", name="Approve this command?")
        await card.get_by_text("git push origin main").wait_for()
        focused = await v.page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert focused == "Message"
        await card.get_by_role("button", name="Deny").click()
        await v.wait_until_answered("Denied, then.")
        await v.send("again")
        await card.get_by_role("button", name="Always").click()
        await card.get_by_text("saves this rule").wait_for()
        await card.get_by_role("button", name="Allow once").click()
        await v.wait_until_answered("Tried.")
        assert await card.count() == 0


async def test_steering_queueing_and_stopping(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait_for_gate(request: Any) -> Any:
        await gate.wait()
        return say("First answer.")

    async with visit(tmp_path, [wait_for_gate], then=say("Second answer.")) as v:
        page = v.page
        await v.send("one")
        await page.get_by_role("button", name="Stop").wait_for()
        await v.send("two")
        await page.get_by_text("queued").wait_for()
        await page.get_by_role("button", name="Edit", exact=True).click()
        await page.get_by_role("textbox", name="Edit", exact=True).fill("two, changed")
        await page.get_by_role("button", name="Save").click()
        await page.locator(".queued").get_by_text("two, changed").wait_for()
        gate.set()
        await v.wait_until_answered("Second answer.")
        users = page.get_by_role("article", name="You")
        assert [await users.nth(n).inner_text() for n in range(2)] == ["one", "two, changed"]


async def test_a_session_is_renamed_pinned_and_deleted_with_undo(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("Yes.")) as v:
        page = v.page
        await v.send("hello")
        await v.wait_until_answered("Yes.")
        await page.locator(".session").hover()
        await page.locator("summary[aria-label='Edit: hello']").click()
        await page.get_by_role("textbox", name="Rename").fill("A better name")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="A better name").wait_for()
        await page.get_by_role("button", name="Pin", exact=True).click()
        await page.get_by_role("heading", name="Pinned").wait_for()
        if not await page.get_by_role("button", name="Delete").is_visible():  # it moved up
            await page.locator(".session").hover()
            await page.locator("summary[aria-label='Edit: A better name']").click()
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_role("link", name="A better name").wait_for()


async def test_a_session_is_deleted_after_a_while_unless_the_page_is_left(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("Yes.")) as v:
        page, sessions = v.page, v.api.server.runtime.store.sessions
        await page.clock.install()
        await page.reload()
        await v.wait_until_live()
        await v.send("hello")
        await v.wait_until_answered("Yes.")
        session = page.url.rpartition("/")[2]
        row = page.locator(".session", has=page.get_by_role("link", name="hello"))

        async def delete() -> None:
            await row.hover()
            await row.locator("summary").click()
            await row.get_by_role("button", name="Delete").click()
            await row.wait_for(state="detached")

        await delete()
        await page.clock.fast_forward(7000)
        await page.reload()
        await row.wait_for()
        await page.clock.fast_forward(9000)
        assert await sessions.get_meta(session) is not None
        await delete()
        async with page.expect_response(lambda r: r.request.method == "DELETE") as deleted:
            await page.clock.fast_forward(9000)
        assert (await deleted.value).status == 200
        assert await sessions.get_meta(session) is None


async def test_an_old_list_does_not_replace_what_was_told_since(tmp_path: Path) -> None:
    """As where a conversation got its title while the list was on its way."""
    async with visit(tmp_path, then=say("Yes.")) as v:
        page, held = v.page, asyncio.Event()

        async def hold(route: Any) -> None:
            answer = await (await route.fetch()).json()
            await held.wait()
            rows = [{**row, "title": "An old title"} for row in answer["data"]]
            rows += [{**row, "id": "other", "title": "From the list"} for row in rows[:1]]
            await route.fulfill(json={**answer, "data": rows})

        await v.send("hello")
        await v.wait_until_answered("Yes.")
        await page.route("**/api/sessions?limit=*", hold)
        v.api.server.services.dashboard.end_feeds()  # type: ignore[union-attr]
        await (
            page.get_by_role("status", name="Connection")
            .and_(page.locator("[data-state=lost]"))
            .wait_for()
        )
        await v.wait_until_live()
        await v.send("again")
        await page.get_by_role("article", name="Hermes").nth(1).wait_for()
        await page.get_by_role("button", name="Send").wait_for()
        held.set()
        await page.get_by_role("link", name="From the list").wait_for()
        await page.get_by_role("link", name="hello").wait_for()
        assert await page.get_by_role("link", name="An old title").count() == 0


async def test_a_terminal_session_is_resumed(tmp_path: Path) -> None:
    from hermes.core.message import user_message
    from hermes.core.store import SessionMeta

    async with visit(tmp_path, then=say("Continued.")) as v:
        store = v.api.server.runtime.store.sessions
        meta = SessionMeta("from-terminal", source="cli", cwd=str(tmp_path), title="In a terminal")
        await store.append(meta.id, [user_message("earlier words")], create=meta)
        await v.page.get_by_role("link", name="In a terminal").click()
        await v.page.get_by_text("earlier words").wait_for()
        await v.send("go on")
        await v.wait_until_answered("Continued.")

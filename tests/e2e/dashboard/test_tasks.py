"""More whole tasks on the page Talk: commands, files, questions, search, branches, the keyboard."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from hermes.core.message import Media, Message, Text, user_message
from hermes.core.store import SessionMeta
from tests.e2e.dashboard.conftest import Visit, visit
from tests.kit import call, say, think

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def _press_until(page: Page, key: str, target: Locator) -> None:
    """Press a key until the element has the focus."""
    for _ in range(80):
        if await target.evaluate("element => element === document.activeElement"):
            return
        await page.keyboard.press(key)
    raise AssertionError(f"{key} never reaches it")


async def test_the_palette_opens_pages_conversations_and_settings(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("Yes.")) as v:
        page = v.page
        await v.send("an apple")
        await v.wait_until_answered("Yes.")
        await page.keyboard.press("Control+k")
        field = page.get_by_role("combobox", name="Search or run a command")
        await field.fill("usage")
        await page.get_by_role("option", name="Usage").first.wait_for()
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Usage", exact=True).wait_for()
        await page.keyboard.press("Control+k")
        await field.fill("apple")
        await page.get_by_role("option", name="an apple").first.wait_for()
        await page.keyboard.press("Enter")
        await page.get_by_role("article", name="You").get_by_text("an apple").wait_for()
        await page.keyboard.press("Control+k")
        await field.fill("session_days")
        await page.get_by_role("option", name="dashboard.session_days").click()
        await page.get_by_role("spinbutton", name="dashboard.session_days").wait_for()
        await page.keyboard.press("Control+k")
        await field.wait_for()
        await page.keyboard.press("Escape")
        await field.wait_for(state="detached")


async def test_slash_commands_and_files_complete(tmp_path: Path) -> None:
    steps = [call(("c1", "write_file", {"path": "notes.txt", "content": "x"})), say("Written.")]
    async with visit(tmp_path, steps, then=say("Read.")) as v:
        page = v.page
        await v.send("Write notes.")
        await v.wait_until_answered("Written.")
        field = page.get_by_role("textbox", name="Message")
        await field.press_sequentially("/ti")
        await page.get_by_role("option", name="/title").wait_for()
        await page.keyboard.press("Tab")
        await page.keyboard.type("A name of its own")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="A name of its own").wait_for()
        await field.press_sequentially("Read @not")
        await page.get_by_role("option", name="@notes.txt").wait_for()
        await page.keyboard.press("Enter")
        assert await field.input_value() == "Read @notes.txt "
        await page.keyboard.press("Enter")
        await v.wait_until_answered("Read.")
        await field.fill("/nonsense")
        await page.keyboard.press("Enter")
        await page.get_by_text("Unknown command /nonsense.").wait_for()
        await field.fill("//etc is a folder")
        await page.keyboard.press("Enter")
        await page.get_by_role("article", name="You").get_by_text("/etc is a folder").wait_for()


async def test_files_complete_in_a_new_conversation(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("Read.")) as v:
        page = v.page
        (v.api.server.runtime.working_folder / "plan of may.txt").write_text("x")
        field = page.get_by_role("textbox", name="Message")
        await field.press_sequentially("Read @may")
        await page.get_by_role("option", name="@plan of may.txt").wait_for()
        await page.keyboard.press("Tab")
        assert await field.input_value() == 'Read @"plan of may.txt" '
        await page.keyboard.press("Enter")
        await v.wait_until_answered("Read.")


async def test_words_are_found_in_and_across_conversations(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        page, store = v.page, v.api.server.runtime.store.sessions
        meta = SessionMeta("long", source="cli", cwd=str(tmp_path), title="A long one")
        messages = []
        for n in range(100):
            messages.append(user_message(f"question {n}" + (" zebra" if n in (3, 60) else "")))
            messages.append(Message("assistant", (Text(f"answer {n}"),)))
        await store.append("long", messages, create=meta)
        await page.get_by_role("searchbox", name="Search conversations").fill("zebra")
        await page.locator(".session a[href='#/c/long/6']").click()
        first = page.locator("article[data-seq='6']")
        await first.wait_for()
        await page.get_by_role("log", name="Conversation").focus()
        await page.keyboard.press("/")
        find = page.get_by_role("searchbox", name="Find in this conversation")
        await find.fill("zebra")
        await page.get_by_text("2 of 2").wait_for()
        await page.locator("article[data-seq='120']").wait_for()
        await page.keyboard.press("Enter")
        await page.get_by_text("1 of 2").wait_for()
        await first.wait_for()
        await page.keyboard.press("Escape")
        await find.wait_for(state="detached")


async def test_a_question_is_answered_and_thoughts_are_folded(tmp_path: Path) -> None:
    asked = {"question": "Which colour?", "choices": ["red", "green"]}
    steps = [think("Hidden thoughts.") + call(("c1", "clarify", asked)), say("Green it is.")]
    async with visit(tmp_path, steps) as v:
        await v.send("Paint it.")
        card = v.page.get_by_role("group", name="Hermes asks")
        await card.get_by_text("Which colour?").wait_for()
        await card.get_by_role("button", name="green").click()
        await v.wait_until_answered("Green it is.")
        assert "The user answers: green" in str(v.api.provider.requests[1].body)
        thoughts = v.page.get_by_text("Hidden thoughts.")
        assert not await thoughts.is_visible()
        await v.page.locator("details.reasoning > summary").first.click()
        await thoughts.wait_for()


async def test_pictures_and_files_go_in_and_come_out(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("Seen.")) as v:
        page = v.page
        chooser = page.locator("input[type=file]")
        await chooser.set_input_files(
            [
                {"name": "dot.png", "mimeType": "image/png", "buffer": PIXEL},
                {"name": "data.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,2\n"},
            ]
        )
        await page.get_by_role("button", name="data.csv").wait_for()
        await page.get_by_role("button", name="dot.png").wait_for()
        await v.send("Look.")
        await v.wait_until_answered("Seen.")
        picture = page.get_by_role("img", name="dot.png")
        await picture.wait_for()
        assert str(await picture.get_attribute("src")).startswith("blob:")
        await page.get_by_role("article", name="You").get_by_text("data.csv").wait_for()
        store = v.api.server.runtime.store.sessions
        meta = SessionMeta("out", source="cli", cwd=str(tmp_path), title="With a picture")
        parts = (Text("Here."), Media("image/png", PIXEL, name="made.png"))
        await store.append("out", [user_message("draw"), Message("assistant", parts)], create=meta)
        await page.goto(f"{v.api.url}/#/c/out")
        await page.get_by_role("img", name="made.png").wait_for()


async def test_a_conversation_is_branched_exported_and_archived(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("Yes.")) as v:
        page = v.page
        await v.send("the original")
        await v.wait_until_answered("Yes.")
        first = page.url
        async with page.expect_download() as saved:
            await page.get_by_role("button", name="Export").click()
            await page.get_by_role("button", name="Markdown").click()
        exported = Path(await (await saved.value).path()).read_text()
        assert "the original" in exported and "Yes." in exported
        await page.get_by_role("button", name="Branch").first.click()
        await page.wait_for_url(lambda url: url != first)
        await page.get_by_role("article", name="You").get_by_text("the original").wait_for()
        await v.send("only in the branch")
        await page.get_by_role("article", name="Hermes").nth(1).wait_for()
        await page.goto(first)
        await page.get_by_role("article", name="Hermes").first.wait_for()
        assert "only in the branch" not in await v.read_log()
        rows = page.locator(".session", has=page.locator(f"a[href='#{first.partition('#')[2]}']"))
        await rows.hover()
        await rows.locator("summary").click()
        await rows.get_by_role("button", name="Archive").click()
        await rows.wait_for(state="detached")
        await page.get_by_label("Show").select_option("archived")
        await rows.wait_for()


async def test_steering_and_stopping(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait_for_gate(request: Any) -> Any:
        await gate.wait()
        return call(("c1", "write_file", {"path": "a.txt", "content": "x"}))

    async def never(request: Any) -> Any:
        await asyncio.Event().wait()

    async with visit(tmp_path, [wait_for_gate, say("Steered."), never]) as v:
        page = v.page
        await v.send("one")
        await page.get_by_role("button", name="Stop").wait_for()
        await page.get_by_role("textbox", name="Message").fill("rather two")
        async with page.expect_response(
            lambda r: r.url.endswith("/turns") and "rather two" in (r.request.post_data or "")
        ) as sent:
            await page.get_by_role("button", name="Steer").click()
        assert (await (await sent.value).json())["state"] == "steered"
        gate.set()
        await v.wait_until_answered("Steered.")
        assert "rather two" in str(v.api.provider.requests[1].body)
        await v.send("three")
        await page.get_by_role("button", name="Stop").click()
        await page.get_by_role("button", name="Send").wait_for()
        await page.get_by_role("article", name="You").get_by_text("three").wait_for()


async def test_an_approval_lasts_for_the_session_or_for_good(tmp_path: Path) -> None:
    push = {"command": "git push origin main"}
    steps = [call(("c1", "terminal", push)), say("Tried once.")]
    steps += [call(("c2", "terminal", {"command": "git push origin other"})), say("Saved.")]
    async with visit(tmp_path, steps) as v:
        card = v.page.get_by_role("group", name="Approve this command?")
        await v.send("push")
        await card.get_by_role("button", name="Allow in this session").click()
        await v.wait_until_answered("Tried once.")
        await v.send("push the other")
        await card.get_by_text("git push origin other").wait_for()
        await card.get_by_role("button", name="Always").click()
        await card.get_by_role("button", name="Save the rule and allow").click()
        await v.wait_until_answered("Saved.")
        assert "push" in (v.api.home.path / "config.yaml").read_text()


async def test_retry_undo_and_the_panel(tmp_path: Path) -> None:
    write = {"path": "made.txt", "content": "hello\n"}
    steps = [call(("c1", "write_file", write)), say("First answer."), say("Second answer.")]
    async with visit(tmp_path, steps, then=say("Later.")) as v:
        page = v.page
        await v.send("Make a file.")
        await v.wait_until_answered("First answer.")
        panel = page.get_by_role("complementary", name="Details")
        await panel.get_by_text("write_file").wait_for()
        await panel.get_by_role("button", name="made.txt").click()
        dialog = page.get_by_role("dialog", name="made.txt")
        await dialog.get_by_text("+hello").wait_for()
        async with page.expect_download() as saved:
            await dialog.get_by_role("button", name="Download").click()
        assert Path(await (await saved.value).path()).read_text() == "hello\n"
        await dialog.get_by_role("button", name="Close").click()
        first = page.url
        await page.get_by_role("button", name="More").click()
        await page.get_by_role("button", name="Retry regenerate").click()
        await page.wait_for_url(lambda url: url != first)
        await v.wait_until_answered("Second answer.")
        await page.get_by_role("button", name="More").click()
        await page.get_by_role("button", name="Undo the last turn").click()
        await page.get_by_text("Second answer.").wait_for(state="detached")


async def test_everything_is_done_by_keyboard(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "git push origin main"})), say("Denied, then.")]
    async with visit(tmp_path, steps) as v:
        page = v.page
        field = page.get_by_role("textbox", name="Message")
        await _press_until(page, "Tab", field)
        await page.keyboard.type("push it")
        await page.keyboard.press("Enter")
        deny = page.get_by_role("button", name="Deny")
        await deny.wait_for()
        assert await field.evaluate("element => element === document.activeElement")
        await _press_until(page, "Shift+Tab", deny)
        await page.keyboard.press("Enter")
        await v.wait_until_answered("Denied, then.")
        settings = page.get_by_role("link", name="Settings")
        await _press_until(page, "Shift+Tab", settings)
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Settings", exact=True).wait_for()
        safety = page.get_by_role("button", name="Safety")
        await safety.wait_for()
        await _press_until(page, "Tab", safety)
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Safety").wait_for()
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox", name="Search or run a command").fill("push it")
        await page.get_by_role("option", name="push it").first.wait_for()
        await page.keyboard.press("Enter")
        await _check_log(v, "Denied, then.")


async def test_a_letter_answers_only_in_the_card_that_has_the_focus(tmp_path: Path) -> None:
    push = {"command": "git push origin main"}
    steps = [call(("c1", "terminal", push)), say("Denied, then.")]
    async with visit(tmp_path, steps) as v:
        page = v.page
        await v.send("push it")
        deny = page.get_by_role("button", name="Deny")
        await deny.wait_for()
        await page.keyboard.press("d")
        assert await page.get_by_role("textbox", name="Message").input_value() == "d"
        await page.get_by_role("log", name="Conversation").focus()
        await page.keyboard.press("d")
        assert await deny.is_enabled()
        await deny.focus()
        await page.keyboard.press("Control+d")
        assert await deny.is_enabled()
        await page.keyboard.press("d")
        await v.wait_until_answered("Denied, then.")


async def test_the_drawer_of_a_phone_and_attached_files(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("Seen.")) as v:
        page = await v.open_context(viewport={"width": 390, "height": 844})
        menu = page.get_by_role("button", name="Menu")
        await menu.focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="New conversation")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(menu).to_be_focused()
        await page.locator("input[type=file]").set_input_files(
            {"name": "data.csv", "mimeType": "text/csv", "buffer": b"a,b\n"}
        )
        attached = page.get_by_role("button", name="data.csv")
        await attached.click()
        await attached.wait_for(state="detached")
        await v.send("Look.")
        await v.wait_until_answered("Seen.")
        await page.get_by_role("button", name="More").click()
        async with page.expect_download() as saved:
            await page.get_by_role("button", name="Export: Markdown").click()
        assert "Look." in Path(await (await saved.value).path()).read_text()


async def _check_log(v: Visit, text: str) -> None:
    await v.page.get_by_role("log", name="Conversation").get_by_text(text).first.wait_for()


END_IS_VISIBLE = """card => {
  const text = [...card.querySelectorAll('.command')].pop().firstChild;
  const range = document.createRange();
  range.setStart(text, text.length - 1);
  range.setEnd(text, text.length);
  const end = range.getBoundingClientRect();
  return [card, text.parentElement].map(frame => frame.getBoundingClientRect())
    .every(frame => end.top >= frame.top - 1 && end.bottom <= frame.bottom + 1);
}"""


@pytest.mark.parametrize("ending", ["rm -rf important", "\n" * 300 + "rm -rf important"])
async def test_the_end_of_a_long_command_is_seen_before_it_is_approved(
    tmp_path: Path, ending: str
) -> None:
    command = f"git push origin main; {'echo a word of many; ' * 400}{ending}"
    steps = [call(("c1", "terminal", {"command": command})), say("Denied, then.")]
    async with visit(tmp_path, steps) as v:
        await v.send("push")
        card = v.page.get_by_role("group", name="Approve this command?")
        await card.get_by_text("It ends with:").wait_for()
        assert await card.evaluate(END_IS_VISIBLE)
        await v.page.goto(f"{v.api.url}/#/now")
        waiting = v.page.locator(".card.ask")
        await waiting.get_by_text("It ends with:").wait_for()
        assert await waiting.evaluate(END_IS_VISIBLE)
        await waiting.get_by_role("button", name="Deny").click()
        await waiting.wait_for(state="detached")

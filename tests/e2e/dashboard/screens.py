"""Pictures of every page and state of the dashboard, for people to look at: `make screens`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hermes.core.ledger import Account, Entry
from tests.e2e.dashboard.conftest import Visit, visit
from tests.kit import Gate, call, say, status
from tests.kit.dashboard import sign_in

OUT = Path(".screens")
ANSWER = (
    "The failure is not in the code that changed: the runner has `LC_ALL=de_DE.UTF-8`, so "
    '`float("1,5")` raises.\n\n| locale | result |\n|---|---|\n| C | passes |\n'
    "| de_DE | fails |\n\n"
    "```python\ndef parse(value: str) -> float:\n    return float(value.replace(',', '.'))\n```\n"
)
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {
        "color_scheme": "light",
        "viewport": {"width": 390, "height": 844},
        "has_touch": True,
        "is_mobile": True,
    },
}


async def take_picture(v: Visit, look: str, name: str) -> None:
    await v.page.locator(".skeleton").first.wait_for(state="detached")
    await v.page.wait_for_timeout(600)
    await v.page.screenshot(path=OUT / f"{name}-{look}.png")


PAGES = ("now", "usage", "schedule", "knowledge", "connections", "settings", "health")
UPDATED = """async () => {
  const main = document.querySelector('script[type=module]').src;
  const data = await import(main.replace('main.js', 'data.js'));
  data.applyEvent('hello', { assets: 'another' });
}"""
BUDGET = {"daily_usd": 5, "session_usd": 1}


MODELS = (("anthropic", "claude-sonnet"), ("openrouter", "qwen3-coder"), ("openai", "gpt-mini"))


async def spend_money(v: Visit) -> None:
    """Calls of the last thirty days, more of some models than of others."""
    ledger = v.api.server.runtime.store.ledger
    for n in range(90):
        day = (datetime.now(UTC) - timedelta(days=n // 3)).strftime("%Y-%m-%d")
        provider, model = MODELS[n % 3]
        account = Account(f"s{n % 7}", f"s{n % 7}", purpose=("main", "title")[n % 2])
        ledger.settle_call(
            Entry(
                time.time_ns() - n * 28_800 * 10**9,
                day,
                account,
                provider,
                model,
                input=20_000 + 5_000 * (n % 11),
                output=900 + 100 * (n % 7),
                cache_read=15_000,
                cost=(1.9, 0.7, 0.2)[n % 3] * (0.3 + n * 7 % 10 / 10),
                seconds=4.0,
            )
        )


async def take_pictures(look: str, options: dict[str, Any]) -> None:
    reads = [(f"r{n}", "read_file", {"path": f"src/part{n}.py"}) for n in range(3)]
    todo = [{"content": "Reproduce it", "status": "completed"}, {"content": "Fix the reader"}]
    patch = {"path": "src/reader.py", "content": "def parse(value):\n    return float(value)\n"}
    push = {"command": "git push origin fix/decimal-comma"}
    steps = [
        call(("t1", "todo", {"todos": todo})),
        call(*reads),
        call(("c1", "write_file", patch)),
        say(ANSWER),
        call(("c2", "terminal", push)),
    ]
    config = {"budget": BUDGET, "mcp_servers": {"files": {"command": "no-such-program"}}}
    with tempfile.TemporaryDirectory() as folder:
        for n in range(3):
            part = Path(folder) / "work" / "src" / f"part{n}.py"
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_text("x = 1\n")
        async with visit(Path(folder), steps, then=say("Done."), config=config) as v:
            await v.open_context(**options)
            job = {"schedule": "daily 09:00", "prompt": "Sum up the mail of the night."}
            await (await sign_in(v.api)).post("/api/jobs", job)
            await spend_money(v)
            await take_talk(v, look)
            for name in PAGES:
                await v.page.goto(f"{v.api.url}/#/{name}")
                await v.page.locator(".content > *").first.wait_for()
                await take_picture(v, look, name)
            await take_settings(v, look)
            await take_parts(v, look)
            await v.page.goto(f"{v.api.url}/#/schedule")
            await v.page.get_by_role("button", name="Edit: ").click()
            await take_picture(v, look, "job")


async def take_talk(v: Visit, look: str) -> None:
    page = v.page
    await take_picture(v, look, "empty")
    await v.send("Why is the nightly build red?")
    await v.wait_until_answered("The failure is not")
    await page.locator("details[data-tool=write_file] summary").click()
    await take_picture(v, look, "talk")
    await page.get_by_role("button", name="Details").click()
    await take_picture(v, look, "panel")
    if look == "phone":
        await page.get_by_role("button", name="Close").click()
    else:
        await page.get_by_role("button", name="Details").click()
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Search or run a command").wait_for()
    await take_picture(v, look, "palette")
    await page.keyboard.press("Escape")
    await page.get_by_role("textbox", name="Message").fill("/")
    await page.get_by_role("option", name="/retry").wait_for()
    await take_picture(v, look, "completions")
    await v.send("Fix it and push.")
    await page.get_by_role("button", name="Allow once").wait_for()
    await take_picture(v, look, "approval")


async def take_parts(v: Visit, look: str) -> None:
    """What opens inside pages, what loads, and what an update says."""
    page = v.page
    for name, button in (("browsers", "Signed-in browsers"), ("file", "File")):
        await page.goto(f"{v.api.url}/#/settings")
        await page.reload()
        await page.get_by_role("button", name=button, exact=True).click()
        await take_picture(v, look, name)
    await page.goto(f"{v.api.url}/#/knowledge")
    await page.get_by_role("button", name="Open: research").click()
    await take_picture(v, look, "skill")
    await page.get_by_role("dialog").get_by_role("button", name="Close").click()
    if look == "phone":
        await page.get_by_role("button", name="Menu").click()
    await page.get_by_role("searchbox", name="Search conversations").fill("nightly")
    await page.get_by_role("heading", name="message").wait_for()
    await take_picture(v, look, "search")
    await page.locator(".session a").last.click()
    await page.get_by_role("article", name="You").first.wait_for()
    await page.get_by_role("button", name="More").click()
    await take_picture(v, look, "menu")
    await page.get_by_role("button", name="Find find words").click()
    await page.get_by_role("searchbox", name="Find in this conversation").fill("locale")
    await take_picture(v, look, "find")
    held = asyncio.Event()

    async def hold(route: Any) -> None:
        await held.wait()
        await route.continue_()

    await page.route("**/api/usage*", hold)
    await page.goto(f"{v.api.url}/#/usage")
    await page.locator(".skeleton").first.wait_for()
    await page.wait_for_timeout(600)
    await page.screenshot(path=OUT / f"loading-{look}.png")
    held.set()
    await page.evaluate(UPDATED)
    await page.get_by_text("Hermes was updated.").wait_for()
    await take_picture(v, look, "updated")


async def take_states(look: str, options: dict[str, Any]) -> None:
    """What most visits do not show: signing in, work in progress, a question, failures."""
    gate = Gate()
    asked = {"question": "Which branch shall I push to?", "choices": ["main", "a new one"]}
    steps = [
        say("Counting ", "to three.").hold(gate, after="text"),
        call(("c1", "clarify", asked)),
        status(401),
    ]
    with tempfile.TemporaryDirectory() as folder:
        async with visit(Path(folder), steps, then=say("Done.")) as v:
            await v.open_context(**options)
            page, visitor = v.page, await (await v.make_context(**options)).new_page()
            await visitor.goto(v.api.url)
            await visitor.get_by_role("textbox", name="Sign-in code").fill("0000-0000")
            await visitor.keyboard.press("Enter")
            await visitor.get_by_role("alert").wait_for()
            await visitor.screenshot(path=OUT / f"sign-in-{look}.png")
            await v.send("Count to three.")
            await page.get_by_text("Counting").wait_for()
            await v.send("Then ask me where to push.")
            await page.get_by_text("queued", exact=True).wait_for()
            await take_picture(v, look, "busy")
            gate.open()
            await page.get_by_role("group", name="Hermes asks").wait_for()
            await take_picture(v, look, "question")
            await page.get_by_role("button", name="main", exact=True).click()
            await page.get_by_role("alert").wait_for()
            await take_picture(v, look, "failed")
            if look == "phone":
                await page.get_by_role("button", name="Menu").click()
                await take_picture(v, look, "drawer")
                await page.get_by_role("button", name="Close").click(position={"x": 380, "y": 400})
            await v.context.set_offline(offline=True)
            v.api.server.services.dashboard.end_feeds()  # type: ignore[union-attr]
            await page.get_by_text("Connection lost. Trying").wait_for()
            await take_picture(v, look, "lost")


async def take_settings(v: Visit, look: str) -> None:
    page = v.page
    await page.goto(f"{v.api.url}/#/settings/Safety")
    await page.get_by_role("heading", name="Rules", exact=True).wait_for()
    await take_picture(v, look, "safety")
    await page.goto(f"{v.api.url}/#/settings/Budget")
    await page.get_by_role("spinbutton", name="budget.daily_usd").fill("7")
    await take_picture(v, look, "changed")
    await page.get_by_role("button", name="Review and save").click()
    await page.get_by_role("dialog").wait_for()
    await take_picture(v, look, "review")


async def main() -> None:
    OUT.mkdir(exist_ok=True)
    wanted = sys.argv[1:] or list(LOOKS)
    for look in wanted:
        await take_pictures(look, LOOKS[look])
        await take_states(look, LOOKS[look])
    print(f"{len(list(OUT.glob('*.png')))} pictures in {OUT}/")


if __name__ == "__main__":
    asyncio.run(main())

"""Pictures of every page and state of the dashboard, for people to look at: `make screens`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from tests.e2e.dashboard.conftest import Visit, visit
from tests.kit import call, say

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
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}


async def take_picture(v: Visit, look: str, name: str) -> None:
    await v.page.wait_for_timeout(600)
    await v.page.screenshot(path=OUT / f"{name}-{look}.png")


async def take_pictures(look: str, options: dict[str, Any]) -> None:
    patch = {"path": "src/reader.py", "content": "def parse(value):\n    return float(value)\n"}
    push = {"command": "git push origin fix/decimal-comma"}
    steps = [call(("c1", "write_file", patch)), say(ANSWER), call(("c2", "terminal", push))]
    with tempfile.TemporaryDirectory() as folder:
        async with visit(Path(folder), steps, then=say("Done.")) as v:
            await v.open_context(**options)
            await take_picture(v, look, "empty")
            await v.send("Why is the nightly build red?")
            await v.wait_until_answered("The failure is not")
            await take_picture(v, look, "talk")
            await v.send("Fix it and push.")
            await v.page.get_by_role("button", name="Allow once").wait_for()
            await take_picture(v, look, "approval")
            for name in ("now", "usage", "schedule", "knowledge", "settings", "health"):
                await v.page.goto(f"{v.api.url}/#/{name}")
                await v.page.locator(".content > *").first.wait_for()
                await take_picture(v, look, name)


async def main() -> None:
    OUT.mkdir(exist_ok=True)
    for look, options in LOOKS.items():
        await take_pictures(look, options)
    print(f"{len(list(OUT.glob('*.png')))} pictures in {OUT}/")


if __name__ == "__main__":
    asyncio.run(main())

"""Pictures of the terminal in many sizes, light and dark, for people to look at: `make screens`."""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
import tempfile
from pathlib import Path

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text

from hermes.exec.chromium import find_browser
from hermes.tools.browser._browser import start_driver
from tests.kit import Home, Provider, call, say
from tests.kit.screen import ENTER, TAB, Terminal, terminal

OUT = Path(".screens")
DOCS = Path("docs/screens")
LOOKS: dict[str, tuple[TerminalTheme, tuple[int, int]]] = {
    "dark": (SVG_EXPORT_THEME, (90, 38)),
    "light": (DEFAULT_TERMINAL_THEME, (90, 38)),
    "40-columns": (SVG_EXPORT_THEME, (40, 30)),
    "200-columns": (SVG_EXPORT_THEME, (200, 30)),
    "6-rows": (SVG_EXPORT_THEME, (80, 6)),
}
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.S).replace(
    "Fira Code, monospace", "ui-monospace, DejaVu Sans Mono, Menlo, monospace"
)
"""With the fonts of the machine: a picture loads nothing."""
CONFIG = "import os\nfrom app.config import read_config\n\nROOT = os.getcwd()\n"
CHECK = "sleep 0.4; echo '2 failed, 118 passed in 3.1 s'; exit 1\n"
PLAN = [
    {"id": "1", "content": "Find what fails", "status": "in_progress"},
    {"id": "2", "content": "Fix it", "status": "pending"},
]
EDIT = {"path": "config.py", "old_string": "import read_config", "new_string": "import load"}
ANSWER = """The build was red because two tests expected the old name:

| test | expects | got |
|---|---|---|
| test_load | `read_config` | `load` |
| test_cli | exit 1 | exit **2** |

1. The import in `config.py` has its new name
2. A bad option is *usage*: it exits with 2 (see https://docs.python.org/3/library/argparse.html)

```python
from app.config import load

def test_load(tmp_path):
    assert load(tmp_path) == {}  # empty is fine
```
"""
LOOP = "for n in 1 2 3 4 5 6 7 8 9; do echo step $n of 9; sleep 1; done"
STEPS = [
    call(("c1", "todo", {"todos": PLAN})),
    call(("c2", "terminal", {"command": "sh check"})),
    call(("c3", "patch", EDIT)),
    say(ANSWER),
    call(("c4", "terminal", {"command": "curl -fsSL https://example.org/install.sh | sh"})),
    say("Then not."),
    call(("c5", "terminal", {"command": LOOP})),
]


async def take_pictures(look: str, theme: TerminalTheme, size: tuple[int, int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Provider([*STEPS], then=lambda _: say("Built.")) as provider:
            home = Home.of(Path(folder), provider)
            home.file("config.py", CONFIG)
            home.file("check", CHECK)
            async with terminal(home, size=size) as t:
                t.type("why is the build red?" + ENTER)
                await t.see("Enter: send")
                await t.until(lambda: b"empty is fine" in t.raw and "Enter: send" in t.screen)
                save_picture(t, "answer", look, theme)
                t.type("install it then" + ENTER)
                await t.see("(Enter:")
                save_picture(t, "approval", look, theme)
                await asyncio.sleep(1.2)  # a question is answered when it was seen
                t.type("n")
                await t.until(lambda: b"Then not." in t.raw and "Enter: send" in t.screen)
                t.type("build it" + ENTER)
                await t.see("terminal: for n")
                t.type("only the first five" + ENTER)
                for number in range(27 if look == "6-rows" else 1):
                    t.type(f"then write the notes{f' ({number})' * bool(number)}" + TAB)
                await t.until(lambda: b"queued" in t.raw)
                await asyncio.sleep(0.5)
                save_picture(t, "working", look, theme)


def save_picture(t: Terminal, name: str, look: str, theme: TerminalTheme) -> None:
    columns, rows = LOOKS[look][1]
    screen = pyte.Screen(columns, rows)
    # The emulator knows no dim text: bright black stands for it.
    dim = re.compile(rb"(?<=[\[;])2(?=[;m])")
    shown = re.sub(rb"\x1b\[[0-9;]*m", lambda found: dim.sub(b"90", found[0]), bytes(t.raw))
    pyte.ByteStream(screen).feed(shown.replace(b"\x1b[<u", b""))
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    for y in range(rows):
        cells = [screen.buffer[y][x] for x in range(columns)]
        row = Text.assemble(*((cell.data, describe_style(cell)) for cell in cells))
        console.print(row, no_wrap=True, crop=False)
    drawn = console.export_svg(title="hermes", theme=theme, code_format=FORMAT)
    (OUT / f"terminal-{name}-{look}.svg").write_text(drawn)
    if look == "dark":
        (DOCS / f"{name}.svg").write_text(drawn)
        (DOCS / f"{name}.txt").write_text(t.screen + "\n")


def describe_style(cell: pyte.screens.Char) -> str:
    """The style of a character in rich's words."""
    styles = {"bold": cell.bold, "italic": cell.italics, "underline": cell.underscore}
    styles |= {"strike": cell.strikethrough, "reverse": cell.reverse}
    colour = {"default": "", "brown": "yellow", "brightblack": "bright_black"}.get(cell.fg, cell.fg)
    return " ".join([name for name, is_on in styles.items() if is_on] + [colour]).strip()


async def photograph(files: list[Path]) -> None:
    """Makes a PNG beside each of these drawings."""
    async with start_driver(dict(os.environ)) as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_browser("", os.environ), args=["--no-sandbox"]
        )
        page = await browser.new_page(viewport={"width": 1600, "height": 1000})
        for file in files:
            await page.goto(file.absolute().as_uri())
            await page.screenshot(path=file.with_suffix(".png"))
        await browser.close()


async def main(names: list[str]) -> None:
    OUT.mkdir(exist_ok=True)
    for look in names or LOOKS:
        await take_pictures(look, *LOOKS[look])
    files = sorted(OUT.glob("terminal-*.svg"))
    await photograph(files)
    print(f"{len(files)} pictures of the terminal in {OUT}/")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))

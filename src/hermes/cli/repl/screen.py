"""The screen: one prompt_toolkit application below a scrollback that is only ever added to."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    SearchBufferControl,
    Window,
)
from prompt_toolkit.layout.processors import BeforeInput, TabsProcessor
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from hermes.cli.repl.live_region import above, status
from hermes.cli.repl.markdown.styled_text import cells, fit
from hermes.cli.repl.paste_detection import Bursts
from hermes.cli.repl.state import State
from hermes.config.env import terminal_reflows

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindingsBase

_PER_SECOND = 30
_BURST = 64 << 10
"""Characters that are written before keys are looked at again."""
_MENU = 8
_SPIN, _COUNT = 1 / 8, 1.0
_MODES = {InputMode.INSERT: "INSERT", InputMode.REPLACE: "REPLACE"}
_SEARCHING = "type what you look for · Ctrl-R older · Enter takes it · Ctrl-C leaves"
STYLE = {
    "prompt": "ansicyan bold",
    "status": "dim",
    "control-character": "dim",
    "offered.name": "ansicyan",
    "offered.help": "dim",
    "offered.chosen": "reverse",
}
"""No class of prompt_toolkit's own (`menu` is grey on grey there), and no bright black: in some
palettes it is the background."""


_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_NAMES = {"1": "bold", "2": "dim", "3": "italic", "4": "underline", "9": "strike"} | {
    str(30 + n): f"ansi{name}"
    for n, name in enumerate("black red green yellow blue magenta cyan gray".split())
}


def fragments(text: str) -> StyleAndTextTuples:
    """What `ink.painted` made, for prompt_toolkit: a piece per style, not one per character."""
    found: StyleAndTextTuples = []
    first, *rest = _SGR.split(text)
    if first:
        found.append(("", first))
    for style, piece in zip(rest[::2], rest[1::2], strict=True):
        if piece:
            names = [_NAMES[code] for code in style.split(";") if code in _NAMES]
            found.append((" ".join(names), piece))
    return found


class Held(Vt100_Output):
    """Writes a frame at once: what is erased and what is drawn in its place never show apart."""

    def __init__(self, stdout: TextIO, get_size: Callable[[], Size], term: str) -> None:
        super().__init__(stdout, get_size, term=term, enable_cpr=False)
        self.held = False
        self.gone: Callable[[], None] = lambda: None

    def erase_down(self) -> None:
        """From the beginning of a line. Not from the corner: there tmux would take it for a clear
        of the whole screen, and keep what is erased in the scrollback."""
        self.write_raw(" \x1b[J\r\x1b[K")

    def flush(self) -> None:
        if self.held:
            return
        try:
            super().flush()
        except OSError:
            self.gone()


class _Application(Application[None]):
    """Tells before it erases what a change of the size has moved."""

    resized: Callable[[], None] = staticmethod(lambda: None)

    def _on_resize(self) -> None:
        self.resized()
        super()._on_resize()


class Screen:
    """Final lines are queued and written above the live part, each exactly once; redraws are
    coalesced, keys are shown at once, and nothing ticks while nothing runs."""

    def __init__(
        self, state: State, buffer: Buffer, keys: KeyBindingsBase, *, colour: bool, term: str
    ) -> None:
        self.state = state
        self.colour = colour
        self.buffer = buffer
        self.search = Buffer(multiline=False)
        self.output = Held(sys.stdout, self._size, term)
        self._pending: deque[str] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._drawn = 0.0
        self._live: list[str] = []
        self._fragments: StyleAndTextTuples = []
        self.closing = False
        self._columns = 0
        self.app = _Application(
            layout=self._layout(),
            key_bindings=keys,
            style=Style.from_dict(STYLE if colour else {"offered.chosen": "reverse"}),
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            input=Bursts(sys.stdin, lambda: state.ready),
            output=self.output,
            erase_when_done=True,
            include_default_pygments_style=False,
            editing_mode=EditingMode.EMACS,
            terminal_size_polling_interval=None,
            before_render=self._before,
            after_render=self._after,
            enable_page_navigation_bindings=False,
        )
        self.app.resized = self._resized
        self.app.ttimeoutlen = 0.05
        self.app.timeoutlen = 0.15

    @property
    def columns(self) -> int:
        return max(20, self._size().columns)

    def _size(self) -> Size:
        import os

        try:
            columns, rows = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            columns, rows = 80, 24
        return Size(rows=rows or 24, columns=columns or 80)

    # -- writing ---------------------------------------------------------------------------

    def write(self, lines: list[str]) -> None:
        """Above the prompt, for good."""
        self._pending.extend(lines)
        self.refresh()

    def refresh(self) -> None:
        """Draw soon; as often as this is called, at most thirty times a second."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            wait = max(0.0, self._drawn + 1 / _PER_SECOND - loop.time())
            self._timer = loop.call_later(wait, self._draw)

    def _draw(self) -> None:
        self._timer = None
        self.app._redraw()  # noqa: SLF001 - invalidate() would add a wait of its own

    def _before(self, _: object) -> None:
        self.output.held = True
        self._drawn = asyncio.get_running_loop().time()
        renderer, out = self.app.renderer, self.output
        out.write_raw("\x1b[?2026h")
        size = self._size()
        self._columns = size.columns
        self._live = above(self.state, max(20, size.columns), size.rows, colour=self.colour)
        self._fragments = fragments("\n".join(self._live))
        if self._pending:
            renderer.erase(leave_alternate_screen=False)
            out.write_raw(self._burst())
        elif (last := renderer.last_rendered_screen) is not None:
            wanted = self.app.layout.container.preferred_height(size.columns, size.rows).preferred
            if wanted < last.height:  # it never shrinks by itself
                renderer.erase(leave_alternate_screen=False)

    def _resized(self) -> None:
        """Where the terminal has broken our lines anew, there are more of them above the cursor
        than were drawn. Elsewhere that would take lines which are not ours."""
        renderer, columns = self.app.renderer, self._size().columns
        last = renderer.last_rendered_screen
        if last is None or columns >= self._columns or not terminal_reflows():
            return
        x, y = renderer._cursor_pos.x, renderer._cursor_pos.y  # noqa: SLF001
        for row in range(y):
            used = max((at for at, c in last.data_buffer[row].items() if c.char != " "), default=0)
            y += used // columns
        renderer._cursor_pos = Point(x % columns, y + x // columns)  # noqa: SLF001

    def _burst(self) -> str:
        taken: list[str] = []
        size = 0
        while self._pending and size < _BURST:
            line = self._pending.popleft()
            size += len(line)
            taken.append(line)
        if self._pending:
            self.refresh()
        return "".join(f"{line}\r\n" for line in taken)

    def _after(self, _: object) -> None:
        self.output.write_raw("\x1b[?2026l")
        self.output.held = False
        self.output.flush()
        self._tick()

    def _tick(self) -> None:
        """The next redraw that time alone asks for."""
        state = self.state
        if self._ticking is not None or self.closing or not (state.running or state.command):
            return
        wait = _SPIN if state.spinning else _COUNT
        self._ticking = asyncio.get_running_loop().call_later(wait, self._ticked)

    def _ticked(self) -> None:
        self._ticking = None
        if self.state.running or self.state.command:
            self.refresh()

    def flush(self) -> None:
        """Write everything that waits, at the end."""
        while self._pending:
            self.output.write_raw(self._burst())
        self.output.held = False
        self.output.flush()

    # -- layout ----------------------------------------------------------------------------

    def _layout(self) -> Layout:
        state = self.state
        open_ = Condition(lambda: not self.closing)
        picking = Condition(lambda: state.picking is not None)
        live = FormattedTextControl(self._above)
        searching = Condition(lambda: self.app.layout.is_searching)
        find = SearchBufferControl(
            Buffer(multiline=False), input_processors=[BeforeInput("  find ")], ignore_case=True
        )
        tabs = TabsProcessor(char1=" ", char2=" ")
        prompt = BufferControl(self.buffer, [tabs], search_buffer_control=find, preview_search=True)
        search = BufferControl(self.search)
        rows = HSplit(
            [
                ConditionalContainer(
                    Window(live, height=lambda: Dimension.exact(len(self._live))),
                    Condition(self._anything),
                ),
                Window(height=1),
                ConditionalContainer(
                    Window(
                        prompt,
                        get_line_prefix=self._prefix,
                        wrap_lines=True,
                        dont_extend_height=True,
                        height=self._input_height,
                    ),
                    ~picking,
                ),
                ConditionalContainer(
                    Window(search, get_line_prefix=self._prefix, height=1), picking
                ),
                ConditionalContainer(Window(find, height=1, style="class:prompt"), searching),
                ConditionalContainer(
                    Window(FormattedTextControl(self._menu), dont_extend_height=True),
                    Condition(lambda: self.buffer.complete_state is not None),
                ),
                Window(FormattedTextControl(self._status), height=1, style="class:status"),
            ]
        )
        return Layout(ConditionalContainer(rows, open_), focused_element=prompt)

    def _input_height(self) -> Dimension:
        return Dimension(min=1, max=max(3, self._size().rows // 3))

    def _anything(self) -> bool:
        return bool(self._live)

    def _above(self) -> StyleAndTextTuples:
        return self._fragments

    def _prefix(self, line: int, wrapped: int) -> StyleAndTextTuples:
        if line or wrapped:
            return [("", "  ")]
        asking = self.state.asking
        mark = "? " if asking is not None and asking.wants_text else "❯ "
        return [("class:prompt", "/ " if self.state.picking is not None else mark)]

    def _status(self) -> StyleAndTextTuples:
        if self.app.layout.is_searching:
            return [("", fit(_SEARCHING, self.columns - 1))]
        if self.state.vi:
            self.state.mode = _MODES.get(self.app.vi_state.input_mode, "NORMAL")
        return [("", status(self.state, self.columns))]

    def _menu(self) -> StyleAndTextTuples:
        found = self.buffer.complete_state
        if found is None:
            return []
        at = found.complete_index or 0
        first = max(0, min(at - _MENU // 2, len(found.completions) - _MENU))
        shown = found.completions[first : first + _MENU]
        wide = min(36, max((cells(c.display_text) for c in shown), default=0))
        out: StyleAndTextTuples = []
        for number, one in enumerate(shown, first):
            chosen = "class:offered.chosen" if number == found.complete_index else ""
            name = fit(one.display_text, min(wide, self.columns - 4))
            pad = " " * max(0, wide - cells(name))
            out.append((chosen or "class:offered.name", f"  {name}{pad}"))
            room = self.columns - wide - 6
            if one.display_meta_text and room > 8:
                meant = fit(one.display_meta_text, room)
                out.append((chosen or "class:offered.help", f"  {meant}"))
            out.append(("", "\n"))
        if more := len(found.completions) - first - len(shown):
            out += [("class:offered.help", f"  … {more} more"), ("", "\n")]
        return out[:-1]

"""The screen: one prompt_toolkit application below a scrollback that only ever grows."""

import asyncio
import os
import re
import sys
from collections import deque
from collections.abc import Callable
from typing import TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindingsBase
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

from hermes.cli.repl.display.live_region import live_lines, status_line
from hermes.cli.repl.input.extended_keys import DISABLE_KEYS, ENABLE_KEYS, register_keys
from hermes.cli.repl.input.paste_detection import PasteDetectingInput
from hermes.cli.repl.markdown.styled_text import cell_width, fit_text
from hermes.cli.repl.state import ANSWER_SECONDS, TWICE_SECONDS, ScreenState
from hermes.config.env import terminal_reflows

_FRAMES_PER_SECOND = 30
_BATCH_CHARS = 64 << 10
"""Written at once before keys are handled again."""
_MENU_ROWS = 8
_SPIN_SECONDS, _COUNT_SECONDS = 1 / 8, 1.0
_VI_MODES = {InputMode.INSERT: "INSERT", InputMode.REPLACE: "REPLACE"}
_LOWEST_ROWS = 4
_SEARCH_KEYS = "type to search · Ctrl-R: older · Enter: use it · Ctrl-C: cancel"
STYLE = {
    "prompt": "ansicyan bold",
    "status": "dim",
    "control-character": "dim",
    "offered.name": "ansicyan",
    "offered.help": "dim",
    "offered.chosen": "reverse",
}
"""None of prompt_toolkit's own class names (its `menu` is grey on grey), and no bright black, which
is the background in some palettes."""


THEMES: dict[str, dict[str, str]] = {
    "default": {},
    "warm": {"36": "35", "1;36": "1;35", "4;36": "4;35", "1;35": "1;31"},
    "contrast": {"2": "", "36": "1", "1;36": "1;4", "4;36": "4", "32": "1;32", "31": "1;31"},
    "mono": {"36": "1", "1;36": "1", "4;36": "4", "32": "1", "31": "4", "1;35": "1", "2": ""},
}
"""Name -> what stands for a style of the default theme; still none but the terminal's colours."""
_PROMPT_STYLES = {"warm": "ansimagenta bold", "contrast": "bold", "mono": "bold"}
_SGR_CODE = re.compile(r"\x1b\[([0-9;]*)m")
_ADDRESS = re.compile(r"\x1b\[(?:\d+;)*4;36m(https?://[!-~]+)\x1b\[0m")
_SGR_NAMES = {"1": "bold", "2": "dim", "3": "italic", "4": "underline", "9": "strike"} | {
    str(30 + n): f"ansi{name}"
    for n, name in enumerate("black red green yellow blue magenta cyan gray".split())
}


def terminal_size() -> Size:
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        columns, rows = 80, 24
    return Size(rows=rows or 24, columns=columns or 80)


def _has_spare_row() -> bool:
    """For the empty line above the prompt; a search on a screen of four rows has none."""
    return terminal_size().rows > _LOWEST_ROWS


def link_addresses(line: str, columns: int) -> str:
    """The line with its addresses clickable, each leading where it says. One that may continue on
    the next line stays text."""
    if "://" not in line or not (found := list(_ADDRESS.finditer(line))):
        return line
    is_full = cell_width(_SGR_CODE.sub("", line)) >= columns - 2
    for match in reversed(found):
        if not (is_full and match.end() == len(line)):
            linked = f"\x1b]8;;{match[1]}\x1b\\{match[0]}\x1b]8;;\x1b\\"
            line = line[: match.start()] + linked + line[match.end() :]
    return line


def apply_theme(text: str, name: str) -> str:
    """Text with escape codes of the default theme in the styles of another."""
    theme = THEMES[name]
    if not theme:
        return text
    return _SGR_CODE.sub(lambda found: f"\x1b[{theme.get(found[1], found[1])}m", text)


def parse_fragments(text: str) -> StyleAndTextTuples:
    """Text with escape codes for prompt_toolkit: a fragment per style, not one per character."""
    found: StyleAndTextTuples = []
    first, *others = _SGR_CODE.split(text)
    if first:
        found.append(("", first))
    for style, piece in zip(others[::2], others[1::2], strict=True):
        if piece:
            names = [_SGR_NAMES[code] for code in style.split(";") if code in _SGR_NAMES]
            found.append((" ".join(names), piece))
    return found


class FrameOutput(Vt100_Output):
    """Writes each frame at once: erasing and redrawing never show separately."""

    def __init__(self, stdout: TextIO, get_size: Callable[[], Size], term: str) -> None:
        super().__init__(stdout, get_size, term=term, enable_cpr=False)
        self.in_frame = False
        self._knows_keys = not term.startswith("linux")
        self._wants_keys = self._has_keys = False
        self.on_closed: Callable[[], None] = lambda: None

    def enable_bracketed_paste(self) -> None:
        """Where pastes are marked, keys are told apart too; changed only between frames."""
        super().enable_bracketed_paste()
        self._wants_keys = self._knows_keys

    def disable_bracketed_paste(self) -> None:
        super().disable_bracketed_paste()
        self._wants_keys = False

    def erase_down(self) -> None:
        """Erases from the second column on: from the corner tmux would take it for a clear of the
        whole screen and keep the erased text in its scrollback."""
        self.write_raw(" \x1b[J\r\x1b[K")

    def flush(self) -> None:
        if self.in_frame:
            return
        if self._wants_keys != self._has_keys:
            self._has_keys = self._wants_keys
            self.write_raw(ENABLE_KEYS if self._has_keys else DISABLE_KEYS)
        try:
            super().flush()
        except OSError:
            self.on_closed()


class _Application(Application[None]):
    """Calls `on_resized` before it erases what a change of size has moved."""

    on_resized: Callable[[], None] = staticmethod(lambda: None)

    def _on_resize(self) -> None:
        self.on_resized()
        super()._on_resize()


class Screen:
    """Queues final lines and writes each once, above the live part. Redraws are coalesced, keys
    show at once, and no timer runs while nothing else does."""

    def __init__(
        self, state: ScreenState, buffer: Buffer, keys: KeyBindingsBase, *, colour: bool, term: str
    ) -> None:
        register_keys()
        self.state = state
        self.colour = colour
        self.buffer = buffer
        self.search = Buffer(multiline=False)
        self.output = FrameOutput(sys.stdout, terminal_size, term)
        self._pending: deque[str] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._drawn = 0.0
        self._live_lines: list[str] = []
        self._live_fragments: StyleAndTextTuples = []
        self.closing = False
        self._columns = 0
        self.theme = "default"
        self.app = _Application(
            layout=self._build_layout(),
            key_bindings=keys,
            style=Style.from_dict(STYLE if colour else {"offered.chosen": "reverse"}),
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            input=PasteDetectingInput(sys.stdin, lambda: state.ready),
            output=self.output,
            erase_when_done=True,
            include_default_pygments_style=False,
            editing_mode=EditingMode.EMACS,
            terminal_size_polling_interval=None,
            before_render=self._begin_frame,
            after_render=self._end_frame,
            enable_page_navigation_bindings=False,
        )
        self.app.on_resized = self._correct_cursor
        self.app.ttimeoutlen = 0.05
        self.app.timeoutlen = 0.15

    def set_theme(self, name: str) -> None:
        self.theme = name
        if self.colour:
            style = {**STYLE, "prompt": _PROMPT_STYLES.get(name, STYLE["prompt"])}
            self.app.style = Style.from_dict(style)

    def show_hint(self, text: str) -> None:
        """Shows a hint in the status line for as long as it holds."""
        self.state.hint = text
        asyncio.get_running_loop().call_later(TWICE_SECONDS, self._expire_hint, text)

    def _expire_hint(self, text: str) -> None:
        if self.state.hint == text:
            self.state.hint = ""
            self.refresh()

    def write_codes(self, codes: str) -> None:
        """Sends codes that draw nothing: to the clipboard, the window title or the bell."""
        self.output.write_raw(codes)
        self.output.flush()

    @property
    def columns(self) -> int:
        return max(20, terminal_size().columns)

    def write(self, lines: list[str]) -> None:
        """Adds final lines above the prompt."""
        self._pending.extend(lines)
        self.refresh()

    def refresh(self) -> None:
        """Draws soon; however often it is called, at most thirty times a second."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            wait = max(0.0, self._drawn + 1 / _FRAMES_PER_SECOND - loop.time())
            self._timer = loop.call_later(wait, self._draw_frame)

    def _draw_frame(self) -> None:
        self._timer = None
        self.app._redraw()  # noqa: SLF001 - invalidate() would add a wait of its own

    def _begin_frame(self, _: object) -> None:
        self.output.in_frame = True
        self._drawn = asyncio.get_running_loop().time()
        if self.state.note_drawing():
            asyncio.get_running_loop().call_later(ANSWER_SECONDS, self.refresh)
        renderer, out = self.app.renderer, self.output
        out.write_raw("\x1b[?2026h")
        size = terminal_size()
        self._columns = size.columns
        columns = max(20, size.columns)
        self._live_lines = live_lines(self.state, columns, size.rows, colour=self.colour)
        live = apply_theme("\n".join(self._live_lines), self.theme)
        self._live_fragments = parse_fragments(live)
        if self._pending:
            renderer.erase(leave_alternate_screen=False)
            out.write_raw(self._take_batch())
        elif (last := renderer.last_rendered_screen) is not None:
            wanted = self.app.layout.container.preferred_height(size.columns, size.rows).preferred
            if wanted < last.height:  # prompt_toolkit never shrinks it
                renderer.erase(leave_alternate_screen=False)

    def _correct_cursor(self) -> None:
        """A terminal that rewraps lines has more of them above the cursor than were drawn. On any
        other terminal the correction would erase lines of the scrollback."""
        renderer, columns = self.app.renderer, terminal_size().columns
        last = renderer.last_rendered_screen
        if last is None or columns >= self._columns or not terminal_reflows():
            return
        x, y = renderer._cursor_pos.x, renderer._cursor_pos.y  # noqa: SLF001
        for row in range(y):
            used = max((at for at, c in last.data_buffer[row].items() if c.char != " "), default=0)
            y += used // columns
        renderer._cursor_pos = Point(x % columns, y + x // columns)  # noqa: SLF001

    def _take_batch(self) -> str:
        taken: list[str] = []
        size = 0
        while self._pending and size < _BATCH_CHARS:
            line = self._pending.popleft()
            size += len(line)
            taken.append(link_addresses(line, self.columns))
        if self._pending:
            self.refresh()
        return apply_theme("".join(f"{line}\r\n" for line in taken), self.theme)

    def _end_frame(self, _: object) -> None:
        self.output.write_raw("\x1b[?2026l")
        self.output.in_frame = False
        self.output.flush()
        self._start_ticker()

    def _start_ticker(self) -> None:
        """Schedules the next redraw of a spinner or a count of seconds."""
        state = self.state
        if self._ticker is not None or self.closing or not (state.running or state.command):
            return
        wait = _SPIN_SECONDS if state.is_spinning else _COUNT_SECONDS
        self._ticker = asyncio.get_running_loop().call_later(wait, self._redraw_on_tick)

    def _redraw_on_tick(self) -> None:
        self._ticker = None
        if self.state.running or self.state.command:
            self.refresh()

    def flush(self) -> None:
        """Writes everything that is queued: at the end, and before another program writes."""
        while self._pending:
            self.output.write_raw(self._take_batch())
        self.output.in_frame = False
        self.output.flush()

    def clear(self) -> None:
        """Empties the screen; the scrollback of the terminal keeps what was on it."""
        self.app.renderer.erase(leave_alternate_screen=False)
        self.flush()
        self.write_codes("\r\n" * (terminal_size().rows - 1) + "\x1b[H")
        self.refresh()

    def _build_layout(self) -> Layout:
        state = self.state
        open_ = Condition(lambda: not self.closing)
        picking = Condition(lambda: state.picker is not None)
        live = FormattedTextControl(lambda: self._live_fragments)
        searching = Condition(lambda: self.app.layout.is_searching)
        find = SearchBufferControl(
            Buffer(multiline=False), input_processors=[BeforeInput("  find ")], ignore_case=True
        )
        tabs = TabsProcessor(char1=" ", char2=" ")
        prompt = BufferControl(self.buffer, [tabs], search_buffer_control=find, preview_search=True)
        search = Window(BufferControl(self.search), get_line_prefix=self._line_prefix, height=1)
        status = FormattedTextControl(self._status_fragments)
        rows = HSplit(
            [
                ConditionalContainer(
                    Window(live, height=lambda: Dimension.exact(len(self._live_lines))),
                    Condition(lambda: bool(self._live_lines)),
                ),
                ConditionalContainer(Window(height=1), Condition(_has_spare_row)),
                ConditionalContainer(
                    Window(
                        prompt,
                        get_line_prefix=self._line_prefix,
                        wrap_lines=True,
                        dont_extend_height=True,
                        height=lambda: Dimension(min=1, max=max(3, terminal_size().rows // 3)),
                    ),
                    ~picking,
                ),
                ConditionalContainer(search, picking),
                ConditionalContainer(Window(find, height=1, style="class:prompt"), searching),
                ConditionalContainer(
                    Window(FormattedTextControl(self._completion_menu), dont_extend_height=True),
                    Condition(lambda: self.buffer.complete_state is not None),
                ),
                Window(status, height=1, style="class:status"),
            ]
        )
        return Layout(ConditionalContainer(rows, open_), focused_element=prompt)

    def _line_prefix(self, line: int, wrapped: int) -> StyleAndTextTuples:
        if line or wrapped:
            return [("", "  ")]
        mark = "? " if self.state.takes_text else "❯ "
        return [("class:prompt", "/ " if self.state.picker is not None else mark)]

    def _status_fragments(self) -> StyleAndTextTuples:
        if self.app.layout.is_searching:
            return [("", fit_text(_SEARCH_KEYS, self.columns - 1))]
        if self.state.vi:
            self.state.vi_mode = _VI_MODES.get(self.app.vi_state.input_mode, "NORMAL")
        return [("", status_line(self.state, self.columns))]

    def _completion_menu(self) -> StyleAndTextTuples:
        found = self.buffer.complete_state
        if found is None:
            return []
        at = found.complete_index or 0
        first = max(0, min(at - _MENU_ROWS // 2, len(found.completions) - _MENU_ROWS))
        shown = found.completions[first : first + _MENU_ROWS]
        wide = min(36, max((cell_width(c.display_text) for c in shown), default=0))
        out: StyleAndTextTuples = []
        for number, completion in enumerate(shown, first):
            chosen = "class:offered.chosen" if number == found.complete_index else ""
            name = fit_text(completion.display_text, min(wide, self.columns - 4))
            pad = " " * max(0, wide - cell_width(name))
            out.append((chosen or "class:offered.name", f"  {name}{pad}"))
            room = self.columns - wide - 6
            if completion.display_meta_text and room > 8:
                meaning = fit_text(completion.display_meta_text, room)
                out.append((chosen or "class:offered.help", f"  {meaning}"))
            out.append(("", "\n"))
        if more := len(found.completions) - first - len(shown):
            out += [("class:offered.help", f"  … {more} more"), ("", "\n")]
        return out[:-1]

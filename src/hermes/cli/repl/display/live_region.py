"""The live part of the screen as text: spinner, running tools, queued messages, status line."""

import time
from collections.abc import Iterator

from hermes.cli.repl.input.key_help import format_key_help
from hermes.cli.repl.markdown.styled_text import Style, cell_width, fit_text, paint_line
from hermes.cli.repl.state import FRAMES, ScreenState
from hermes.cli.terminal.text import one_line

_SPINNER_FPS = 8
_FRAME_ROWS = 4
"""Rows of the prompt, of the empty line above it and of the status line, and one to spare."""
_QUEUED_ROWS = 6
_PROMPT_ROWS = 9
"""Rows kept free for the prompt while an answer is written."""
_UNFINISHED_ROWS = 12
"""Rows of the unfinished answer: drawing more costs more than they tell."""
_LOW_ROWS = 12
"""Below, the command that a question is about may have left the screen."""
_IDLE_KEYS = "Enter: send · /: commands · @: files · Ctrl-D: quit"
_BUSY_KEYS = {
    "steer": "Enter: steer · Tab: queue · Esc: stop",
    "queue": "Enter: queue · Esc: stop",
    "interrupt": "Enter: stop and send · Tab: queue · Esc: stop",
}


def live_lines(state: ScreenState, columns: int, rows: int, *, colour: bool) -> list[str]:
    """The lines between the scrollback and the prompt: never more than there is room for. What
    asks for an answer comes first, then what is being done, the queue and the unfinished answer."""
    if state.picker is not None:
        return state.picker.render(columns, max(1, rows - _FRAME_ROWS), colour=colour)
    room = max(1, rows - _FRAME_ROWS)
    low = rows < _LOW_ROWS
    asking = _question_lines(state, columns, room, low=low, colour=colour)[-room:]
    room -= len(asking)
    doing = _activity_lines(state, columns, colour=colour)[:room]
    room -= len(doing)
    queued = _queue_lines(state, columns, min(room, _QUEUED_ROWS), colour=colour)
    room = min(_UNFINISHED_ROWS, room - len(queued), max(3, rows - _PROMPT_ROWS))
    unfinished = state.unfinished()[-room:] if room > 0 else []
    return [*unfinished, *doing, *queued, *asking]


def _activity_lines(state: ScreenState, columns: int, *, colour: bool) -> list[str]:
    now = time.monotonic()
    frame = FRAMES[int(now * _SPINNER_FPS) % len(FRAMES)] if state.is_spinning else "·"
    lines = []
    for label, since, detail, style in _list_activities(state, columns):
        took = int(now - since)
        text = " · ".join(filter(None, (label, f"{took} s" if took else "", detail)))
        text = fit_text(text, columns - 3)
        lines.append(_mark_line((Style.MARK, frame), text, colour=colour, style=style))
    return lines


def _queue_lines(state: ScreenState, columns: int, room: int, *, colour: bool) -> list[str]:
    """The messages that wait, in their order; those there is no room for are counted."""
    texts = [*state.queue, *(message.text for message in state.entered)]
    if room <= 0:
        return []
    shown = texts if len(texts) <= room else texts[: room - 1]
    lines = []
    for text in shown:
        fitted = fit_text(one_line(text, columns), columns - 10)
        lines.append(_mark_line((Style.DIM, "queued:"), fitted, colour=colour, style=Style.DIM))
    if more := len(texts) - len(shown):
        text = f"… {more} more queued" if shown else f"{more} queued"
        lines.append(paint_line([(Style.DIM, text)], colour=colour))
    return lines


def _question_lines(
    state: ScreenState, columns: int, room: int, *, low: bool, colour: bool
) -> list[str]:
    if state.question is not None:
        note = state.question.describe_enter(state.prompt_text())
        if state.question.wants_text:
            note = note if state.has_draft else ""
        elif not state.takes_answer:
            note = "one moment"
        return state.question.render(columns, room, note, low=low, colour=colour)
    if state.prompt_text() == "?":
        return [fit_text(row, columns - 1) for row in format_key_help(state.keys).split("\n")]
    if not state.offered_title:
        return []
    offer = _offer_lines(state.offered_title, columns)
    return [paint_line([(Style.WARNING, line)], colour=colour) for line in offer]


def _list_activities(state: ScreenState, columns: int) -> Iterator[tuple[str, float, str, str]]:
    """What is being done: a label, since when, a detail, and the style."""
    for tool in () if state.question else state.tools.values():
        room = columns // 2 if tool.last_line else columns - 12
        yield fit_text(tool.label, room), tool.since, tool.last_line, ""
    if state.running and state.activity and not state.tools:
        yield state.activity, state.activity_since, state.thought, Style.DIM
    if state.command:
        yield state.command, state.command_since, state.command_detail, Style.DIM


def _offer_lines(title: str, columns: int) -> list[str]:
    offer = f"↻ Your last conversation here was interrupted: {title}"
    keys = "press Tab to continue it"
    if cell_width(offer) + cell_width(keys) + 3 < columns:
        return [f"{offer} · {keys}"]
    return [fit_text(offer, columns - 1), f"  {keys}"]


def _mark_line(mark: tuple[str, str], text: str, *, colour: bool, style: str = "") -> str:
    return paint_line([mark, ("", " "), (style, text)], colour=colour)


def status_line(state: ScreenState, columns: int) -> str:
    """One line: figures first, then what the keys do."""
    parts = [state.vi_mode] * bool(state.vi_mode) + state.facts.format_parts()
    if not state.ready:
        parts.append("starting")
    if state.running:
        parts.append(f"{int(time.monotonic() - state.since)} s")
    keys = key_hints(state)
    if keys == _IDLE_KEYS:  # known after a day: figures get the room first
        while " · " in keys and cell_width(" · ".join(parts)) + cell_width(keys) + 4 > columns:
            keys = keys.rpartition(" · ")[0]
    while parts and cell_width(" · ".join(parts)) + cell_width(keys) + 4 > columns:
        parts.pop()
    figures = " · ".join(parts)
    return f"{figures}   {keys}" if figures else fit_text(keys, columns - 1)


def key_hints(state: ScreenState) -> str:
    stop = "Ctrl-C" if state.vi else "Esc"
    if state.hint:
        return state.hint
    if state.picker is not None:
        return "type to search · ↑↓: choose · Enter: open · Esc: cancel"
    if state.question is not None:
        return "Enter: answer · Esc: no" if state.takes_text else "Esc: no"
    if state.command and not state.running:
        return f"{stop}: stop it · messages wait until it is done"
    if state.running:
        back = " · ↑: edit queued" if state.queue or state.entered else ""
        return _BUSY_KEYS[state.busy].replace("Esc", stop) + back
    if state.queue:
        return "Enter: send next · ↑: edit it"
    return _IDLE_KEYS

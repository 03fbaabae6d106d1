"""The live part of the screen as text: spinner, tools that run, what is queued, the status line."""

from __future__ import annotations

import time

from hermes.cli.repl.markdown.styled_text import DIM, MARK, WARNING, cells, fit, painted
from hermes.cli.repl.state import FRAMES, State
from hermes.cli.terminal.text import one_line

_FPS = 8
_AROUND = 9
"""Rows kept for the prompt and what is around it."""
_TAIL = 12
"""Rows of what is not final yet: more would cost more than they tell."""
_IDLE = "Enter sends · / commands · @ files · Ctrl-D leaves"
_SENDS = {
    "steer": "Enter steers · Tab queues · Esc stops",
    "queue": "Enter queues · Esc stops",
    "interrupt": "Enter stops it and sends · Tab queues · Esc stops",
}


def above(state: State, columns: int, rows: int, *, colour: bool) -> list[str]:
    """What stands between the scrollback and the prompt."""
    if state.picking is not None:
        return state.picking.shown(columns, rows - 4, colour=colour)
    room = max(3, min(_TAIL, rows - _AROUND))
    lines = state.tail()[-room:]
    now = time.monotonic()
    frame = FRAMES[int(now * _FPS) % len(FRAMES)] if state.spinning else "·"
    for tool in () if state.asking else state.tools.values():
        took = int(now - tool.since)
        text = fit(tool.label, columns // 2) if tool.tail else fit(tool.label, columns - 12)
        text += f" · {took} s" if took else ""
        if tool.tail:
            text += f" · {tool.tail}"
        lines.append(_line((MARK, frame), fit(text, columns - 3), colour=colour))
    if state.running and state.doing and not state.tools:
        took = int(now - state.doing_since)
        text = state.doing + (f" · {took} s" if took else "")
        if state.thought:
            text += f" · {state.thought}"
        lines.append(_line((MARK, frame), fit(text, columns - 3), colour=colour, style=DIM))
    if state.command:
        took = int(now - state.command_since)
        text = state.command + (f" · {took} s" if took else "")
        lines.append(_line((MARK, frame), fit(text, columns - 3), colour=colour, style=DIM))
    for number, text in enumerate([*state.entered, *state.queue]):
        held = "next" if not number else "then"
        shown = fit(one_line(text, columns), columns - 7)
        lines.append(_line((DIM, held), shown, colour=colour, style=DIM))
    if state.asking is not None:
        lines += state.asking.shown(columns, colour=colour)
    elif state.offer:
        lines.append(painted([(WARNING, fit(state.offer, columns - 1))], colour=colour))
    return lines


def _line(mark: tuple[str, str], text: str, *, colour: bool, style: str = "") -> str:
    return painted([mark, ("", " "), (style, text)], colour=colour)


def status(state: State, columns: int) -> str:
    """One line: facts first, then what the keys do."""
    parts = [state.mode] * bool(state.mode) + state.facts.shown()
    if not state.ready:
        parts.append("starting")
    if state.running:
        parts.append(f"{int(time.monotonic() - state.since)} s")
    keys = hints(state)
    if keys == _IDLE:  # known after a day: facts have the room first
        while " · " in keys and cells(" · ".join(parts)) + cells(keys) + 4 > columns:
            keys = keys.rpartition(" · ")[0]
    while parts and cells(" · ".join(parts)) + cells(keys) + 4 > columns:
        parts.pop()
    said = " · ".join(parts)
    return f"{said}   {keys}" if said else fit(keys, columns - 1)


def hints(state: State) -> str:
    stops = "Ctrl-C" if state.vi else "Esc"
    if state.hint:
        return state.hint
    if state.picking is not None:
        return "type to search · ↑↓ choose · Enter opens · Esc leaves"
    if state.asking is not None:
        return "Enter answers · Esc: no" if state.asking.wants_text else "Esc: no"
    if state.command and not state.running:
        return f"{stops} stops it · what you send waits for it"
    if state.running:
        taken = " · ↑ takes back" if state.queue else ""
        return _SENDS[state.busy].replace("Esc", stops) + taken
    if state.queue:
        return "Enter sends the next · ↑ takes it back"
    return _IDLE

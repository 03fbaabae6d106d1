"""What the keys do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, Filter, is_searching, vi_insert_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from hermes.cli.repl.state import State

HELP = """\
Enter            send; while it works: steer it (or as /busy says)
Tab              complete; while it works: queue the message
Alt-Enter        a new line (also Ctrl-J, or \\ before Enter)
Esc, Ctrl-C      stop what runs; Ctrl-C twice leaves
Up, Down         earlier messages; Up in an empty prompt takes back what is queued
Ctrl-T           show the last reasoning
Ctrl-X Ctrl-E    write in your editor
Ctrl-R           search what you typed before
Ctrl-Z           to the background (fg comes back)
Ctrl-D           leave, in an empty prompt (while it works: twice)
/                commands        @  files and folders        //  a message with a slash"""


class Actions(Protocol):
    """What keys ask for."""

    def enter(self) -> None: ...
    def queue(self) -> None: ...
    def interrupt(self) -> bool: ...
    def control_c(self) -> None: ...
    def leave(self) -> None: ...
    def take_back(self) -> bool: ...
    def show_reasoning(self) -> None: ...
    def paste(self, data: str) -> str: ...
    def chips(self) -> tuple[str, ...]: ...
    def decide(self, key: str | None) -> None: ...
    def armed(self) -> bool: ...
    def pick(self, chosen: bool) -> None: ...
    def accept_offer(self) -> bool: ...
    def pressed(self) -> None: ...


def bindings(state: State, actions: Actions) -> KeyBindings:
    keys = KeyBindings()
    picking = Condition(lambda: state.picking is not None)
    asking = Condition(
        lambda: state.asking is not None and not state.asking.wants_text and actions.armed()
    )
    _sending(keys, actions, ~picking & ~is_searching)
    _stopping(keys, state, actions, picking)
    _editing(keys, state, actions, ~picking & ~is_searching)
    _picking(keys, state, actions, picking)

    @keys.add(Keys.Any, filter=asking & ~picking & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        key = event.data.lower()
        if state.asking is not None and key in state.asking.keys:
            actions.decide(key)

    return keys


def _sending(keys: KeyBindings, actions: Actions, active: Filter) -> None:
    @keys.add("enter", filter=active)
    def _(event: KeyPressEvent) -> None:
        actions.pressed()
        buffer = event.current_buffer
        before = buffer.document.text_before_cursor
        if before.endswith("\\") and not before.endswith("\\\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        if _completed(buffer):
            return
        actions.enter()

    @keys.add("escape", "enter", filter=active)
    @keys.add("c-j", filter=active)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("tab", filter=active)
    def _(event: KeyPressEvent) -> None:
        actions.pressed()
        buffer = event.current_buffer
        if not buffer.text and actions.accept_offer():
            return
        if buffer.complete_state is not None:
            buffer.complete_next()
        elif _completable(buffer):
            buffer.start_completion(select_first=True)
        else:
            actions.queue()


def _completable(buffer: Buffer) -> bool:
    word = buffer.document.get_word_before_cursor(WORD=True)
    return word.startswith("@") or (word.startswith("/") and buffer.text.startswith("/"))


def _completed(buffer: Buffer) -> bool:
    """Enter in the menu: a file is taken over, and a command that is not finished too; what is
    then in the prompt is sent by the next Enter, or at once for a command."""
    found = buffer.complete_state
    if found is None or not found.completions:
        return False
    text = buffer.text
    if found.current_completion is not None:
        buffer.complete_state = None
        if text.startswith("/"):
            return False
        buffer.insert_text(" ")
        return True
    if text.startswith("/") and all(c.text != text for c in found.completions):
        buffer.apply_completion(found.completions[0])
    buffer.cancel_completion()
    return False


def _stopping(keys: KeyBindings, state: State, actions: Actions, picking: Filter) -> None:
    plain = Condition(lambda: not vi_insert_mode())

    @keys.add("escape", filter=~picking & ~is_searching & plain)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None:
            buffer.cancel_completion()
        elif state.asking is not None:
            actions.decide(None)
        else:
            actions.interrupt()

    @keys.add("c-c", filter=~is_searching)
    @keys.add("<sigint>", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        if state.picking is not None:
            actions.pick(False)
        else:
            actions.control_c()

    @keys.add("c-d", filter=~picking & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.text:
            buffer.delete()
        else:
            actions.leave()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()


def _editing(keys: KeyBindings, state: State, actions: Actions, active: Filter) -> None:
    @keys.add("up", filter=active)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if not (not buffer.text and buffer.complete_state is None and actions.take_back()):
            buffer.auto_up()

    @keys.add("c-t")
    def _(event: KeyPressEvent) -> None:
        actions.show_reasoning()

    @keys.add("c-x", "c-e", filter=active)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.open_in_editor()

    @keys.add(Keys.BracketedPaste, filter=active)
    def _(event: KeyPressEvent) -> None:
        actions.pressed()
        event.current_buffer.insert_text(actions.paste(event.data))

    @keys.add("backspace", filter=active & Condition(lambda: _chip_before(actions) is not None))
    def _(event: KeyPressEvent) -> None:
        if chip := _chip_before(actions):
            event.current_buffer.delete_before_cursor(len(chip))


def _chip_before(actions: Actions) -> str | None:
    before = get_app().current_buffer.document.text_before_cursor
    if not before.endswith("]"):
        return None
    return next((chip for chip in actions.chips() if before.endswith(chip)), None)


def _picking(keys: KeyBindings, state: State, actions: Actions, picking: Filter) -> None:
    def move(by: int) -> Callable[[KeyPressEvent], None]:
        def moved(event: KeyPressEvent) -> None:
            if state.picking is not None:
                state.picking.move(by)

        return moved

    for name, by in (("up", -1), ("down", 1), ("c-p", -1), ("c-n", 1), ("tab", 1)):
        keys.add(name, filter=picking)(move(by))
    for name, by in (("pageup", -8), ("pagedown", 8)):
        keys.add(name, filter=picking)(move(by))

    @keys.add("enter", filter=picking)
    def _(event: KeyPressEvent) -> None:
        actions.pick(True)

    @keys.add("escape", filter=picking)
    def _(event: KeyPressEvent) -> None:
        actions.pick(False)

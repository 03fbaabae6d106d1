"""The keys of the interactive terminal."""

from collections.abc import Callable
from typing import Protocol

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import (
    Condition,
    Filter,
    emacs_insert_mode,
    is_searching,
    vi_insert_mode,
    vi_mode,
)
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from hermes.cli.repl.input.action_keys import ActionKeys
from hermes.cli.repl.input.editor import PromptEditor
from hermes.cli.repl.input.vi_keys import bind_vi_keys
from hermes.cli.repl.state import ScreenState
from hermes.config.terminal_keys import KeyAction

_FIRST_MARKS = "/#*"
"""What a command, a note for the memory or a list begins with."""


class KeyActions(Protocol):
    """What keys trigger."""

    def send_or_answer(self) -> None: ...
    def queue_message(self) -> bool: ...
    def toggle_plan_mode(self) -> None: ...
    def paste_image(self) -> None: ...
    def interrupt_turn(self) -> bool: ...
    def press_control_c(self) -> None: ...
    def leave_prompt(self) -> None: ...
    def take_back_message(self) -> bool: ...
    def answer_question(self, key: str | None) -> None: ...
    def press_answer_key(self, key: str) -> None: ...
    def close_picker(self, *, accept: bool) -> None: ...
    def accept_offer(self) -> bool: ...
    def clear_hint(self) -> None: ...


class ViewActions(Protocol):
    """What keys show."""

    def expand_output(self) -> None: ...
    def open_transcript(self) -> None: ...


def bind_keys(
    keys: KeyBindings,
    state: ScreenState,
    editor: PromptEditor,
    actions: KeyActions,
    views: ViewActions,
) -> ActionKeys:
    """Binds all keys; the result can change those of actions."""
    action_keys = ActionKeys(keys, state)
    picking = Condition(lambda: state.picker is not None)
    asking = Condition(lambda: state.takes_answer and not editor.text)
    _bind_sending(keys, actions, ~picking & ~is_searching)
    _bind_stopping(keys, state, actions, picking)
    _bind_editing(keys, editor, actions, ~picking & ~is_searching)
    _bind_picking(keys, state, actions, picking)

    @keys.add(Keys.Any, filter=asking & ~picking & (emacs_insert_mode | vi_insert_mode))
    def press_answer_key(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(event.data)
        actions.press_answer_key(event.data)

    bind_vi_keys(keys, state, ~picking & ~is_searching, asking, press_answer_key)
    by_action: dict[KeyAction, Callable[[], None]] = {
        "plan_mode": actions.toggle_plan_mode,
        "tool_output": views.expand_output,
        "transcript": views.open_transcript,
        "paste_image": actions.paste_image,
        "editor": lambda: _open_editor(editor),
    }
    for action, run in by_action.items():
        action_keys.add_action(action, run, ~picking & ~is_searching)
    return action_keys


def _open_editor(editor: PromptEditor) -> None:
    editor.buffer.open_in_editor()


def _bind_sending(keys: KeyBindings, actions: KeyActions, active: Filter) -> None:
    @keys.add("enter", filter=active)
    def press_enter(event: KeyPressEvent) -> None:
        actions.clear_hint()
        buffer = event.current_buffer
        before = buffer.document.text_before_cursor
        if before.endswith("\\") and not before.endswith("\\\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        if _accept_completion(buffer):
            return
        actions.send_or_answer()
        event.app.vi_state.reset()

    def break_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    keys.add("c-j", filter=active)(break_line)
    # With vi keys it would be Esc and Enter, which sends.
    keys.add("escape", "enter", filter=active & ~vi_mode)(break_line)

    @keys.add("tab", filter=active)
    def press_tab(event: KeyPressEvent) -> None:
        actions.clear_hint()
        buffer = event.current_buffer
        if not buffer.text and actions.accept_offer():
            return
        if _shows_completions(buffer):
            buffer.complete_next()
        elif _is_completable(buffer):
            buffer.start_completion(select_first=True)
        elif not actions.queue_message():
            buffer.insert_text("\t")


def _shows_completions(buffer: Buffer) -> bool:
    """False while completions are only being looked up: keys keep their meaning meanwhile."""
    return buffer.complete_state is not None and bool(buffer.complete_state.completions)


def _is_completable(buffer: Buffer) -> bool:
    word = buffer.document.get_word_before_cursor(WORD=True)
    return word.startswith("@") or (word.startswith("/") and buffer.text.startswith("/"))


def _accept_completion(buffer: Buffer) -> bool:
    """Enter in the menu accepts a file, which stays in the prompt (True), or completes a command,
    which is then sent (False)."""
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


def _bind_stopping(
    keys: KeyBindings, state: ScreenState, actions: KeyActions, picking: Filter
) -> None:
    not_inserting = Condition(lambda: not vi_insert_mode())

    @keys.add("escape", filter=~picking & ~is_searching & not_inserting)
    def press_escape(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if _shows_completions(buffer):
            buffer.cancel_completion()
        elif state.question is not None:
            actions.answer_question(None)
        elif buffer.text == "?":  # the keys are shown
            buffer.reset()
        else:
            actions.interrupt_turn()

    def press_escape_and_type(event: KeyPressEvent) -> None:
        press_escape(event)
        event.current_buffer.insert_text(event.key_sequence[-1].data)

    # Emacs has commands on these keys, which a slow line makes of Esc and the first letter.
    for mark in _FIRST_MARKS:
        keys.add("escape", mark, filter=~picking & ~is_searching & emacs_insert_mode)(
            press_escape_and_type
        )

    @keys.add("c-c", filter=~is_searching)
    @keys.add("<sigint>", filter=~is_searching)
    def press_interrupt_key(event: KeyPressEvent) -> None:
        if state.picker is not None:
            actions.close_picker(accept=False)
        else:
            actions.press_control_c()

    @keys.add("c-d", filter=~picking & ~is_searching)
    def delete_or_leave(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.text:
            buffer.delete()
        else:
            actions.leave_prompt()

    keys.add("c-z")(lambda event: event.app.suspend_to_background())


def _bind_editing(
    keys: KeyBindings, editor: PromptEditor, actions: KeyActions, active: Filter
) -> None:
    @keys.add("up", filter=active)
    def recall_message(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if _shows_completions(buffer):
            buffer.complete_previous()
        elif buffer.text or not actions.take_back_message():
            buffer.complete_state = None  # a lookup that is not done would take the key
            buffer.auto_up()

    @keys.add(Keys.BracketedPaste, filter=active)
    def insert_paste(event: KeyPressEvent) -> None:
        actions.clear_hint()
        event.current_buffer.insert_text(editor.paste(event.data))

    behind_chip = Condition(lambda: _chip_before_cursor(editor) is not None)

    @keys.add("backspace", filter=active & behind_chip)
    def delete_chip(event: KeyPressEvent) -> None:
        if chip := _chip_before_cursor(editor):
            event.current_buffer.delete_before_cursor(len(chip))


def _chip_before_cursor(editor: PromptEditor) -> str | None:
    """The chip to the left of the cursor, with the space that was put behind it."""
    before = get_app().current_buffer.document.text_before_cursor
    text = before.removesuffix(" ")
    if not text.endswith("]"):
        return None
    found = next((chip for chip in editor.chips.chip_names if text.endswith(chip)), None)
    return found and found + before[len(text) :]


def _bind_picking(
    keys: KeyBindings, state: ScreenState, actions: KeyActions, picking: Filter
) -> None:
    def move_by(count: int) -> Callable[[KeyPressEvent], None]:
        def move(event: KeyPressEvent) -> None:
            if state.picker is not None:
                state.picker.move(count)

        return move

    steps = {"up": -1, "down": 1, "c-p": -1, "c-n": 1, "tab": 1, "pageup": -8, "pagedown": 8}
    for name, count in steps.items():
        keys.add(name, filter=picking)(move_by(count))

    keys.add("enter", filter=picking)(lambda event: actions.close_picker(accept=True))
    keys.add("escape", filter=picking)(lambda event: actions.close_picker(accept=False))

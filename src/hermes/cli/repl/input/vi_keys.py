"""Keys of vi's normal mode, as readline has them."""

from collections.abc import Callable
from functools import partial
from string import ascii_lowercase

from prompt_toolkit.clipboard import ClipboardData
from prompt_toolkit.filters import Condition, Filter, vi_navigation_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode

from hermes.cli.repl.state import ScreenState


def bind_vi_keys(
    keys: KeyBindings,
    state: ScreenState,
    active: Filter,
    asking: Filter,
    press_answer_key: Callable[[KeyPressEvent], None],
) -> None:
    @keys.add("v", filter=active & vi_navigation_mode)
    def open_editor(event: KeyPressEvent) -> None:
        event.current_buffer.open_in_editor()

    @keys.add("c", "w", filter=active & vi_navigation_mode)
    def change_word(event: KeyPressEvent) -> None:
        """Changes a word and not the space behind it."""
        document = event.current_buffer.document
        if document.current_char.isspace():
            length = document.find_next_word_beginning(count=event.arg)
        else:
            length = document.find_next_word_ending(include_current_position=True, count=event.arg)
        removed = event.current_buffer.delete(length or len(document.text_after_cursor))
        event.app.clipboard.set_data(ClipboardData(removed))
        event.app.vi_state.input_mode = InputMode.INSERT

    def answer_question(event: KeyPressEvent) -> None:
        event.app.vi_state.reset()
        press_answer_key(event)

    for letter in ascii_lowercase:
        offered = Condition(partial(_offers_key, state, letter))
        is_answer = active & asking & offered & vi_navigation_mode
        keys.add(letter, filter=is_answer, eager=True)(answer_question)


def _offers_key(state: ScreenState, key: str) -> bool:
    return state.question is not None and key in state.question.keys

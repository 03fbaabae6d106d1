"""Keys that the configuration can change, each for one action."""

from collections.abc import Callable, Mapping

from prompt_toolkit.filters import Always, Filter, vi_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from hermes.cli.repl.state import ScreenState
from hermes.config.terminal_keys import DEFAULT_KEYS, KeyAction

_ALT = "alt-"
_ALWAYS = Always()
Handler = Callable[[KeyPressEvent], None]


class ActionKeys:
    """An action has one key at a time, and a key that was taken from its action does nothing."""

    def __init__(self, keys: KeyBindings, state: ScreenState) -> None:
        self._keys = keys
        self._state = state
        self._actions: dict[KeyAction, tuple[Handler, Filter]] = {}

    def add_action(
        self, action: KeyAction, run: Callable[[], None], active: Filter = _ALWAYS
    ) -> None:
        def press_key(event: KeyPressEvent) -> None:
            run()

        self._actions[action] = press_key, active
        self._bind_key(action)

    def change(self, names: Mapping[KeyAction, str]) -> None:
        """Gives every action the key of that name."""
        for handler, _ in self._actions.values():
            self._keys.remove(handler)
        self._state.keys = names
        for action in self._actions:
            self._bind_key(action)
        for name in set(DEFAULT_KEYS.values()) - set(names.values()):
            self._keys.add(*_parse_key(name))(lambda event: None)

    def _bind_key(self, action: KeyAction) -> None:
        name = self._state.keys[action]
        handler, active = self._actions[action]
        # With vi keys, Esc and a letter are two commands.
        when = active & ~vi_mode if name.startswith(_ALT) else active
        self._keys.add(*_parse_key(name), filter=when)(handler)


def _parse_key(name: str) -> tuple[Keys | str, ...]:
    """The key in prompt_toolkit's words."""
    if name.startswith(_ALT):
        return Keys.Escape, name.removeprefix(_ALT)
    return tuple(name.replace("ctrl-", "c-").replace("shift-", "s-").split())

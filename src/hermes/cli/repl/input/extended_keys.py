"""Keys that terminals tell apart only on request: by kitty's protocol and by xterm's."""

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.keys import Keys

ENABLE_KEYS = "\x1b[>1u\x1b[>4;1m"
"""Asks for both protocols; a terminal ignores the one that it does not know."""
DISABLE_KEYS = "\x1b[>4;0m\x1b[<u"
_SHIFT, _ALT, _CONTROL = 1, 2, 4
_LOCKS = (0, 64, 128, 192)
"""Caps lock and num lock, which count as modifiers."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_CONTROL_KEYS = {ord(letter): Keys(f"c-{letter}") for letter in _LETTERS} | {
    ord(" "): Keys.ControlAt,
    ord("@"): Keys.ControlAt,
    ord("\\"): Keys.ControlBackslash,
    ord("]"): Keys.ControlSquareClose,
    ord("/"): Keys.ControlUnderscore,
    ord("_"): Keys.ControlUnderscore,
}
_SPECIAL_KEYS: dict[tuple[int, int], Keys | tuple[Keys, ...]] = {
    (13, _SHIFT): Keys.ControlJ,
    (13, _CONTROL): Keys.ControlJ,
    (13, _ALT): (Keys.Escape, Keys.ControlM),
    (9, _SHIFT): Keys.BackTab,
    (27, 0): Keys.Escape,
    (127, _SHIFT): Keys.ControlH,
    (127, _CONTROL): Keys.ControlH,
    (127, _ALT): (Keys.Escape, Keys.ControlH),
}


def register_keys() -> None:
    """Teaches prompt_toolkit's parser what both protocols send."""
    meanings: dict[tuple[int, int], Keys | tuple[Keys | str, ...]] = dict(_SPECIAL_KEYS)
    for code, key in _CONTROL_KEYS.items():
        meanings[code, _CONTROL] = key
        meanings[code, _CONTROL | _SHIFT] = key
    for code in range(33, 127):
        meanings[code, _ALT] = (Keys.Escape, chr(code))
    for (code, modifiers), meaning in meanings.items():
        found: dict[str, object] = {f"\x1b[27;{modifiers + 1};{code}~": meaning}
        found |= {f"\x1b[{code};{modifiers + locks + 1}u": meaning for locks in _LOCKS}
        if not modifiers:
            found[f"\x1b[{code}u"] = meaning
        ANSI_SEQUENCES.update(found)  # type: ignore[arg-type]

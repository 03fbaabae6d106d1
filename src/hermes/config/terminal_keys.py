"""The keys of the interactive terminal that can be changed, and how their names are written."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

KeyAction: TypeAlias = Literal[
    "plan_mode", "tool_output", "transcript", "paste_image", "editor", "clear_screen"
]
DEFAULT_KEYS: Mapping[KeyAction, str] = {
    "plan_mode": "shift-tab",
    "tool_output": "ctrl-o",
    "transcript": "ctrl-t",
    "paste_image": "ctrl-v",
    "editor": "ctrl-x ctrl-e",
    "clear_screen": "ctrl-l",
}
KEY_PATTERN = (
    r"^(ctrl-[abefgklnopqrstuvwyz]|ctrl-x ctrl-[a-z]|alt-[a-z]|f([1-9]|1[0-2])|shift-tab)$"
)
"""Not those that every terminal needs as they are: Enter, Tab, Backspace, Ctrl-C, Ctrl-D."""


def format_key(name: str) -> str:
    """As people write it: Ctrl-G, Shift-Tab, F2."""
    return name.title()

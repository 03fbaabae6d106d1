"""The keys of the interactive terminal, explained."""

from collections.abc import Mapping

from hermes.config.terminal_keys import KeyAction, format_key

_ROWS = (
    ("Enter", "send; while the agent works: steer it (change that with /busy)"),
    ("Tab", "complete; while the agent works: queue the message"),
    ("{plan_mode}", "plan mode on or off (nothing is changed until you approve the plan)"),
    ("Shift-Enter", "insert a new line (also Alt-Enter, Ctrl-J, or \\ before Enter)"),
    ("Esc, Ctrl-C", "interrupt; Ctrl-C twice quits"),
    ("Up, Down", "earlier messages; Up in an empty prompt edits the queued message"),
    ("{tool_output}", "show the last tool output; again: all of the turn"),
    ("{transcript}", "open the transcript in your pager, with reasoning and tool output"),
    ("{paste_image}", "attach the image in the clipboard"),
    ("{editor}", "write in your editor"),
    ("Ctrl-R", "search earlier messages"),
    ("{clear_screen}", "clear the screen"),
    ("Ctrl-Z", "suspend (fg returns)"),
    ("Ctrl-D", "quit, in an empty prompt (while the agent works: twice)"),
)
_MARKS = """\
/ commands   @ files and folders   ! run a command yourself
# add to the memory   // a message that begins with /"""


def format_key_help(keys: Mapping[KeyAction, str]) -> str:
    """The help, with the keys as they are configured."""
    names = {action: format_key(key) for action, key in keys.items()}
    rows = (f"{key.format(**names):<15}  {effect}" for key, effect in _ROWS)
    return "\n".join((*rows, _MARKS))

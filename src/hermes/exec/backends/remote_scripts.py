"""Shell scripts that start, watch and end remote commands, in plain POSIX sh."""

from pathlib import Path

_FIND, _END, _PREPARE, _RUN, _END_LATER, CONTAINER_INIT = (
    Path(__file__).with_name(f"{name}.sh").read_text()
    for name in (
        "find_processes", "end_processes", "prepare_command", "run_reported", "end_with_agent",
        "container_init",
    )
)  # fmt: skip

RUN_REPORTED = _FIND + _PREPARE + _RUN
"""Arguments: mark, folder, text, NAME=value ..."""
RUN_BARE = _PREPARE + 'cd -- "$dir" || exit 1\nexec "$shell" -c "$text" 2>&1'
"""The same without reports, for background commands."""
RUN_ON_TERMINAL = RUN_BARE + " </dev/null"
"""The same for a terminal, without input."""
END_MARKED = _FIND + _END + 'orphans=$3\nend_all "$1" "$2"\n'
"""Arguments: mark, first process (or empty), whether to end orphans too. Ends one command."""
END_WITH_AGENT = _FIND + _END + _END_LATER
"""Argument: the prefix of all marks of one agent. Ends all its commands when its own input ends."""

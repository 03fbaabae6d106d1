"""Shell scripts that start, watch and end remote commands, in plain POSIX sh."""

from pathlib import Path

_FIND_PROCESSES, _END_PROCESSES = (
    Path(__file__).with_name(f"{name}_processes.sh").read_text() for name in ("find", "end")
)

_PREPARE = r"""
mark=$1 dir=$2 text=$3; shift 3
for pair; do export "$pair"; done
HERMES_JOB=$mark; export HERMES_JOB
case $dir in '~') dir=$HOME ;; '~/'*) dir=$HOME/${dir#'~/'} ;; esac
shell=$(command -v bash) || shell=/bin/sh
"""

RUN_REPORTED = (
    _FIND_PROCESSES
    + _PREPARE
    + r"""
orphans=
exec 3>&2 4>&1 1>/dev/null 2>/dev/null # a shell prints what killed its command
say() { printf '\036%s %s\n' "$mark" "$*" >&3; }
cd -- "$dir" || { say folder 0 0; exit 1; }
trap : TERM HUP INT
say started $$ 0
(exec "$shell" -c "$text" 1>&4 2>&4 3>&- 4>&-)
status=$?
find_all "$mark" $$
set -- $found
say ended $status $#
printf '\036%s\n' "$mark" >&4
exit $status
"""
)
"""Arguments: mark, folder, text, NAME=value ... Reports go to stderr; both streams of the command
go to stdout, so that they keep their order. The mark follows the last of its output."""

RUN_BARE = _PREPARE + 'cd -- "$dir" || exit 1\nexec "$shell" -c "$text" 2>&1'
"""The same without reports, for background commands."""
RUN_ON_TERMINAL = RUN_BARE + " </dev/null"
"""The same for a terminal, without input."""

END_MARKED = _FIND_PROCESSES + _END_PROCESSES + 'orphans=$3\nend_all "$1" "$2"\n'
"""Arguments: mark, first process (or empty), whether to end orphans too. Ends one command."""

END_WITH_AGENT = (
    _FIND_PROCESSES
    + _END_PROCESSES
    + r"""
trap '' HUP INT TERM PIPE
orphans=
printf 'ready %s\n' "$(uname -sm)"
cat >/dev/null
end_all "$1" ''
"""
)
"""Argument: the prefix of all marks of one agent. Ends all its commands when its own input ends."""

CONTAINER_INIT = r"""
exec 3<&0
cat <&3 >/dev/null 3<&- &
printf 'ready %s\n' "$(uname -sm)"
exec 3<&- </dev/null
wait $!
"""
"""First process of a container: reaps children, and ends with its input."""

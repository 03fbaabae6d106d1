"""Shell scripts that start, watch and end remote commands, in plain POSIX sh."""

# The processes of a command are recognised by a variable in their environment, by their session and
# by their parents.

_FIND_PROCESSES = r"""
lf='
'
marked() { # text: sets `pids` to the processes with it in their environment
  pids=' '
  for f in $(grep -lsF "$1" /proc/[0-9]*/environ); do
    f=${f#/proc/}; pids="$pids${f%/environ} "
  done
}
find_all() { # mark, first process: sets `found` to the processes that still run
  found=' '; sessions=" $2 "; table=; holders=' '; others=' '; ours=" $$ "
  if [ -r /proc/self/stat ]; then
    [ -z "$orphans" ] || { marked HERMES_JOB=; others=$pids; }
    marked "HERMES_JOB=$1"; holders=$pids
    lines=$(/bin/sh -c 'echo "$$ $PPID"; exec cat /proc/[0-9]*/stat' 2>/dev/null)
    ours=" $$ ${lines%%"$lf"*} "; lines=${lines#*"$lf"}
    set -f; IFS=$lf
    for line in $lines; do
      IFS=' '; set -- ${line%% *} ${line##*) }
      [ "$2" != Z ] || continue
      table="$table$1/$3/$5$lf"
      case $holders in *" $1 "*) [ "$5" -le 1 ] || sessions="$sessions$5 " ;; esac
      [ -n "$orphans" ] && [ "$3" = 1 ] && [ "$5" != 1 ] || continue
      case $others in *" $1 "*) ;; *) holders="$holders$1 " ;; esac
    done
  else
    set -f; IFS=$lf
    for line in $(ps -A -o pid= -o ppid= -o pgid=); do
      IFS=' '; set -- $line; table="$table$1/$2/$3$lf"
    done
  fi
  more=1
  while [ -n "$more" ]; do
    more=; IFS=$lf
    for line in $table; do
      p=${line%%/*}; session=${line##*/}; parent=${line#*/}; parent=${parent%/*}
      case $found$ours in *" $p "*) continue ;; esac
      case $holders in *" $p "*) found="$found$p "; more=1; continue ;; esac
      case $found in *" $parent "*) found="$found$p "; more=1; continue ;; esac
      [ "$p" != "$session" ] || continue
      case $sessions in *" $session "*) found="$found$p "; more=1 ;; esac
    done
  done
  set +f; unset IFS; found=${found# }
}
"""

_END_PROCESSES = r"""
end_all() { # mark, first process: until none is left
  told=' '; n=0
  while find_all "$1" "$2"; [ -n "$found" ]; do
    for p in $found; do
      if [ $n -ge 13 ]; then
        kill -KILL "$p"
      else
        case $told in *" $p "*) ;; *) kill -TERM "$p"; told="$told$p " ;; esac
      fi
    done 2>/dev/null
    n=$((n + 1))
    [ $n -lt 60 ] || return 1
    sleep 0.1 2>/dev/null || { sleep 1; n=$((n + 9)); }
  done
}
"""

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

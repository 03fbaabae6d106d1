"""The shell scripts that start, watch and end commands in another place: POSIX sh, nothing else.

What a command starts is known by a variable in its environment, by its session and by its parents.
"""

from __future__ import annotations

VARIABLE = "HERMES_JOB"

_FIND = r"""
find_all() { # mark, process that started it all: sets `found` to what lives of it
  found=; sessions=" $2 "; table=; holders=' '
  if [ -r /proc/self/stat ]; then
    for f in $(grep -lsF "HERMES_JOB=$1" /proc/[0-9]*/environ); do
      f=${f#/proc/}; holders="$holders${f%/environ} "
    done
    [ -z "$orphans" ] || {
      others=' '
      for f in $(grep -lsF HERMES_JOB= /proc/[0-9]*/environ); do
        f=${f#/proc/}; others="$others${f%/environ} "
      done
    }
    for f in /proc/[0-9]*; do
      { read -r line < "$f/stat"; } 2>/dev/null || continue
      p=${f#/proc/}
      set -f; set -- ${line##*) }; set +f
      [ "$1" = Z ] && continue
      table="$table$p $2 $4
"
      case $holders in *" $p "*) [ "$4" -gt 1 ] && sessions="$sessions$4 " ;; esac
      if [ -n "$orphans" ] && [ "$2" = 1 ]; then
        case $others in *" $p "*) ;; *) holders="$holders$p " ;; esac
      fi
    done
  else
    table=$(ps -A -o pid= -o ppid= -o pgid=)
  fi
  more=1
  while [ -n "$more" ]; do
    more=
    while read -r p parent session; do
      case " $found " in *" $p "*) continue ;; esac
      [ "$p" != "$$" ] || continue
      case $holders in *" $p "*) found="$found $p"; more=1; continue ;; esac
      case " $found " in *" $parent "*) found="$found $p"; more=1; continue ;; esac
      [ "$p" != "$session" ] || continue
      case $sessions in *" $session "*) found="$found $p"; more=1 ;; esac
    done <<TABLE
$table
TABLE
  done
}
"""

_END = r"""
end_all() { # mark, process: until nothing of it lives
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

_ENTER = r"""
mark=$1 dir=$2 text=$3; shift 3
for pair; do export "$pair"; done
HERMES_JOB=$mark; export HERMES_JOB
case $dir in '~') dir=$HOME ;; '~/'*) dir=$HOME/${dir#'~/'} ;; esac
shell=$(command -v bash) || shell=/bin/sh
"""

RUN = (
    _FIND
    + _ENTER
    + r"""
orphans=
exec 3>&2
say() { printf '\036%s %s\n' "$mark" "$*" >&3; }
cd -- "$dir" 2>/dev/null || { say folder 0 0; exit 1; }
trap : TERM HUP INT
say started $$ 0
"$shell" -c "$text" 2>&1 3>&-
status=$?
find_all "$mark" $$
set -- $found
say ended $status $#
exit $status
"""
)
"""Arguments: mark, folder, text, NAME=value ... Reports on stderr; the command's own goes to
stdout, so that both streams keep their order."""

RUN_BARE = (
    _ENTER
    + r"""
cd -- "$dir" || exit 1
exec "$shell" -c "$text"
"""
)
"""The same for a terminal, or for whoever reads the streams himself: nothing is reported."""

END = _FIND + _END + 'orphans=$3\nend_all "$1" "$2"\n'
"""Arguments: mark, process that began it (or empty), whether what belongs to nobody goes too."""

WARDEN = (
    _FIND
    + _END
    + r"""
trap '' HUP INT TERM PIPE
orphans=
printf 'ready %s\n' "$(uname -sm)"
cat >/dev/null
end_all "$1" ''
"""
)
"""Argument: the beginning of all marks of one agent. Ends them all when its input does, which is
when the agent does."""

INIT = r"""
exec 3<&0
HERMES_JOB=init cat <&3 >/dev/null 3<&- &
printf 'ready %s\n' "$(uname -sm)"
exec 3<&- </dev/null
wait $!
"""
"""First process of a container: collects the dead, and ends (and the container with it) when its
input does."""

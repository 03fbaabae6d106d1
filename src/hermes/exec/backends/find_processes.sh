# Finds the processes of a command by a variable in their environment, by their session and by
# their parents.
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

# Ends the processes of a command: TERM, and KILL after 1.5 seconds.
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

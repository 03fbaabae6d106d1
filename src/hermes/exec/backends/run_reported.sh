# Runs a command. Reports go to stderr; both streams of the command go to stdout, so that they keep
# their order, and the mark follows the last of its output.
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

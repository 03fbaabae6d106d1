# The first process of a container: reaps children, and ends with its input.
exec 3<&0
cat <&3 >/dev/null 3<&- &
printf 'ready %s\n' "$(uname -sm)"
exec 3<&- </dev/null
wait $!

# Ends all commands of an agent, whose marks begin with the argument, when its own input ends.
trap '' HUP INT TERM PIPE
orphans=
printf 'ready %s\n' "$(uname -sm)"
cat >/dev/null
end_all "$1" ''

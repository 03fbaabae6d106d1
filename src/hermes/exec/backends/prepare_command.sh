# Begins every script that runs a command: mark, folder, text, NAME=value ...
mark=$1 dir=$2 text=$3; shift 3
for pair; do export "$pair"; done
HERMES_JOB=$mark; export HERMES_JOB
case $dir in '~') dir=$HOME ;; '~/'*) dir=$HOME/${dir#'~/'} ;; esac
shell=$(command -v bash) || shell=/bin/sh

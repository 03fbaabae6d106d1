# Sourced by the scripts that install: one line per step, the output of tools in a log file.

say() { printf '%s\n' "$*" >&2; }

log=${log:-.venv/install.log}

# run_quietly COMMAND...: runs it with its output in the log; the status is its own.
run_quietly() {
    mkdir -p "$(dirname "$log")"
    printf '$ %s\n' "$*" >>"$log"
    "$@" >>"$log" 2>&1
}

fail_download() {
    say "$1 could not be downloaded; nothing else was changed. Check the network and the package index, then run the command again (details: $log)."
    exit 1
}

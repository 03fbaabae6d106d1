#!/bin/sh
# Installs the program for this user, in an environment of its own, with the locked versions: with
# uv or pipx if they are here, otherwise with the uv of .venv. Debian does not let pip do that.
set -eu
venv=$1
log=$venv/install.log
. scripts/steps.sh

package=".[local]"
uv=$(command -v uv || true)
pipx=$(command -v pipx || true)
if [ -z "$uv" ] && [ -z "$pipx" ]; then uv=$venv/bin/uv; fi

install_with_uv() {
    run_quietly "$uv" tool install --force --constraints requirements/local.txt "$1" &&
        folder=$("$uv" tool dir --bin)
}
install_with_pipx() {
    run_quietly "$pipx" install --force --pip-args="--constraint requirements/local.txt" "$1" &&
        folder=$("$pipx" environment --value PIPX_BIN_DIR)
}

tool=pipx
if [ -n "$uv" ]; then tool=uv; fi
say "Installing hermes with $tool ..."
if ! "install_with_$tool" "$package"; then
    say "Without the engine of the built-in model, which is not to be had here:"
    "install_with_$tool" . || fail_download "The packages of hermes"
fi
say "Installed: $folder/hermes"
case ":$PATH:" in
    *":$folder:"*) say "Type: hermes" ;;
    *) say "This folder is not on your PATH yet. Add it: export PATH=\"$folder:\$PATH\"" ;;
esac

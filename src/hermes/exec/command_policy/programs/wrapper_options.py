"""The programs that only run another one, and how to get past their own options."""

from __future__ import annotations

from msgspec import Struct


class Options(Struct, frozen=True):
    """How to get past a wrapper's own options: those that take a value, and how many words stand
    before the command."""

    valued: frozenset[str] = frozenset()
    words: int = 0
    ask: str = ""


def _o(valued: str = "", words: int = 0, ask: str = "") -> Options:
    return Options(frozenset(valued.split()), words, ask)


PRIVILEGE = "runs a command as another user"
_NAMESPACE = "changes what a command can see or do"
PLAIN: dict[str, Options] = {
    "nohup": _o(),
    "setsid": _o(),
    "command": _o(),
    "builtin": _o(),
    "exec": _o("-a"),
    "coproc": _o(),
    "nice": _o("-n --adjustment"),
    "ionice": _o("-c -n --class --classdata"),
    "chrt": _o("", 1),
    "taskset": _o("", 1),
    "time": _o("-f -o --format --output"),
    "timeout": _o("-s -k --signal --kill-after", 1),
    "gtimeout": _o("-s -k --signal --kill-after", 1),
    "stdbuf": _o("-i -o -e --input --output --error"),
    "unbuffer": _o(),
    "caffeinate": _o("-t -w"),
    "xvfb-run": _o("-n -s -e -f -w"),
    "dbus-run-session": _o(),
    "sudo": _o("-u -g -h -p -C -D -R -T -U -r -t", 0, PRIVILEGE),
    "doas": _o("-u -C", 0, PRIVILEGE),
    "run0": _o("", 0, PRIVILEGE),
    "pkexec": _o("--user", 0, PRIVILEGE),
    "gosu": _o("", 1, PRIVILEGE),
    "setpriv": _o("", 0, PRIVILEGE),
    "chroot": _o("", 1, _NAMESPACE),
    "unshare": _o("", 0, _NAMESPACE),
    "nsenter": _o("-t", 0, _NAMESPACE),
    "systemd-run": _o("-u -p -M --unit --property", 0, _NAMESPACE),
    "bwrap": _o("", 0, _NAMESPACE),
    "firejail": _o("", 0, _NAMESPACE),
    "proot": _o("-r -b -w", 0, _NAMESPACE),
    "fakeroot": _o("", 0, _NAMESPACE),
    "strace": _o("-o -e -p -s -u", 0, "watches another program"),
    "ltrace": _o("-o -e -p -s -u", 0, "watches another program"),
    "rlwrap": _o(),
    "busybox": _o("", 0, "runs a program of busybox"),
    "toybox": _o("", 0, "runs a program of toybox"),
    "parallel": _o("-j -n -I -a -S -N -L --jobs", 0, "runs commands it reads"),
    "rush": _o("-j", 0, "runs commands it reads"),
    "entr": _o(),
    "flock": _o("-w -E --timeout --conflict-exit-code", 1),
    "ssh-agent": _o(),
    "torsocks": _o("", 0, "reaches the network by another way"),
    "proxychains": _o("-f", 0, "reaches the network by another way"),
    "valgrind": _o(),
    "chronic": _o(),
    "setarch": _o("", 1),
    **dict.fromkeys("linux32 linux64 i386 x86_64".split(), _o()),
    "prlimit": _o(),
    "numactl": _o("-m -N -C"),
    "faketime": _o("", 1),
}
RUNNERS: dict[tuple[str, ...], Options] = {
    ("uv", "run"): _o("--with --python -p --extra --group --package --directory --env-file "
                      "--project --with-requirements --index-url --index"),
    ("poetry", "run"): _o(),
    ("pipenv", "run"): _o(),
    ("pdm", "run"): _o("-p"),
    ("hatch", "run"): _o(),
    ("rye", "run"): _o(),
    ("bundle", "exec"): _o(),
    ("npm", "exec"): _o("-p --package -w --workspace"),
    ("pnpm", "exec"): _o(),
    ("yarn", "exec"): _o(),
    ("conda", "run"): _o("-n -p --name --prefix"),
    ("mamba", "run"): _o("-n -p --name --prefix"),
    ("micromamba", "run"): _o("-n -p --name --prefix"),
    ("direnv", "exec"): _o("", 1),
    ("mise", "exec"): _o(),
    ("mise", "x"): _o(),
    ("asdf", "exec"): _o(),
    ("rustup", "run"): _o("", 1),
    ("dotenv", "run"): _o("-f"),
    ("tox", "exec"): _o("-e"),
    ("git", "bisect", "run"): _o(),
}  # fmt: skip

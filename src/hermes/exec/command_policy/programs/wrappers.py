"""Programs that run another program: what is inside env, sudo, xargs, find -exec, bash -c."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct, structs

from hermes.exec.command_policy.shell.words import FIELDS, UNKNOWN, literal
from hermes.exec.command_policy.types import Certainty

Argv = tuple[str, ...]


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


class Inner(Struct, frozen=True):
    """What a wrapper would run."""

    commands: tuple[Argv, ...] = ()
    likely: tuple[Argv, ...] = ()
    """The same with what is probably added at run time."""
    scripts: tuple[str, ...] = ()
    """Texts a shell would read; with `UNKNOWN` where they are not known."""
    fed: bool = False
    """The scripts are what comes in; else they read it."""
    arguments: Argv = ()
    """The positional parameters of the scripts."""
    ask: str = ""
    """Why the wrapper itself needs a human, whatever is inside."""
    certainty: Certainty = Certainty.CERTAIN
    """Of that reason."""
    assigned: tuple[tuple[str, str], ...] = ()
    passed_on: Argv = ()
    """Words that it may run as a command, if they are no files."""
    pure: bool = True
    """Apart from what it runs, the wrapper does nothing."""


STDIN = ("-s", "-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_MAX_COMMANDS = 50
_PACKAGES = frozenset("npm pnpm yarn npx pnpx bunx".split())
SHELLS = frozenset("sh bash dash zsh ksh mksh ash fish rbash csh tcsh".split())


_RUNNING = frozenset(words[0] for words in RUNNERS)


def unwrap(argv: Argv, feed: str | None) -> Inner | None:
    """What is inside; None when this is no wrapper."""
    name = literal(argv[0]).rpartition("/")[2]
    if name not in _WRAPPERS:
        return None
    special = _SPECIAL.get(name)
    if special:
        return special(argv, feed)
    if name in _PACKAGES and (inner := _npm(argv, feed)) is not None:
        return inner
    if name in SHELLS:
        return _shell(argv, feed)
    for size in (2, 3) if name in _RUNNING else ():
        options = RUNNERS.get(tuple(literal(word) for word in (name, *argv[1:size])))
        if options:
            inner = _past(argv, options, size)
            return _bisect(inner) if size == 3 else inner
    options = PLAIN.get(name)
    if options is None:
        return None
    if name == "command" and argv[1:2] in (("-v",), ("-V",)):
        return None
    return _past(argv, options, 1)


def _bisect(inner: Inner) -> Inner:
    """`git bisect run`: a script may be another one in every version."""
    name = literal(inner.commands[0][0]) if inner.commands else ""
    script = name in SHELLS or name.startswith("./")
    return (
        structs.replace(inner, ask="git bisect runs a script of every version")
        if script
        else (inner)
    )


def _past(argv: Argv, options: Options, start: int) -> Inner:
    at = _skip(argv, start, options.valued)
    assigned: list[tuple[str, str]] = []
    while at < len(argv) and re.match(r"[A-Za-z_]\w*=", argv[at]):
        name, _, value = argv[at].partition("=")
        assigned.append((name, value))
        at += 1
    if options.words:
        at = _skip(argv, at + options.words, frozenset())
    inner = argv[at:]
    script = _after_c(argv[start:]) if argv[0].endswith(("flock", "sudo", "busybox")) else None
    return Inner(
        (inner,) if inner else (),
        scripts=(script,) if script else (),
        ask=options.ask,
        assigned=tuple(assigned),
    )


def _skip(argv: Argv, at: int, valued: frozenset[str]) -> int:
    while at < len(argv) and argv[at].startswith("-"):
        word = literal(argv[at])
        at += 1
        if word == "--":
            break
        if word in valued:
            at += 1
    return at


_MODULES = frozenset("pip twine hermes uv poetry pdm hatch flit".split())


def _python(argv: Argv, feed: str | None) -> Inner | None:
    """`python -m pip …` is `pip …`, for the modules that are programs of their own."""
    for at, word in enumerate(argv[1:], 1):
        text = literal(word)
        if (
            re.fullmatch(r"-[A-Za-z]*m", text)
            and literal("".join(argv[at + 1 : at + 2])) in _MODULES
        ):
            return Inner((argv[at + 1 :],), pure=False)
        if not text.startswith("-"):
            break
    return None


def _after_c(args: Argv) -> str | None:
    for at, arg in enumerate(args[:-1]):
        if re.fullmatch(r"-[a-zA-Z]*c|--command", literal(arg)):
            return args[at + 1]
    return None


def _env(argv: Argv, feed: str | None) -> Inner | None:
    if len(argv) == 1:
        return None
    assigned: list[tuple[str, str]] = []
    at, ask, scripts = 1, "", []
    while at < len(argv):
        word = literal(argv[at])
        if word in ("-u", "--unset", "-C", "--chdir"):
            at += 1
        elif word in ("-S", "--split-string") or re.match(r"-[a-zA-Z]*S|--split-string=", word):
            ask = "env -S splits a text into a command"
            text = re.sub(r"^(-[a-zA-Z]*S|--split-string=?)", "", word)
            scripts.append(" ".join((text, *argv[at + 1 :])).strip())
            break
        elif re.match(r"[A-Za-z_][^=/\s]*=", word):
            name, _, value = argv[at].partition("=")
            assigned.append((name, value))
        elif not word.startswith("-"):
            break
        at += 1
    inner = () if scripts else argv[at:]
    return Inner(
        (inner,) if inner else (), scripts=tuple(scripts), ask=ask, assigned=tuple(assigned)
    )


def _xargs(argv: Argv, feed: str | None) -> Inner | None:
    valued = frozenset("-I -n -P -L -d -s -E -a -J -R -S --max-args --max-procs --arg-file".split())
    at = _skip(argv, 1, valued)
    replace = ""
    for position, word in enumerate(argv[1:at], 1):
        text = literal(word)
        if text in ("-I", "-J") and position + 1 < len(argv):
            replace = literal(argv[position + 1])
        elif text.startswith(("-I", "-i", "--replace")) and text not in ("-I",):
            replace = re.sub(r"^(-[Ii]|--replace=?)", "", text) or "{}"
    inner = argv[at:] or ("echo",)
    inner = tuple(w.replace(replace, UNKNOWN) for w in inner) if replace else (*inner, FIELDS)
    likely: tuple[Argv, ...] = ()
    shell = literal(inner[0]).rpartition("/")[2] in SHELLS
    ask = "a shell is given words that are only known when it runs" if shell else ""
    if feed and not feed.startswith("\x02"):
        likely = ((*argv[at:], *feed.split()[:50]),)
        if replace:
            likely = (tuple(w.replace(UNKNOWN, feed.strip()) for w in inner),)
    commands = (inner, *(likely if not replace else ()))
    return Inner(commands, likely, ask=ask, certainty=Certainty.UNCERTAIN)


def _find(argv: Argv, feed: str | None) -> Inner | None:
    commands: list[Argv] = []
    start = argv[1] if len(argv) > 1 and not argv[1].startswith("-") else "."
    at = 1
    while at < len(argv):
        if literal(argv[at]) in ("-exec", "-execdir", "-ok", "-okdir"):
            end = at + 1
            while end < len(argv) and literal(argv[end]) not in (";", "+"):
                end += 1
            found = f"{start.rstrip('/') or '/'}/found"
            commands.append(tuple(word.replace("{}", found) for word in argv[at + 1 : end]))
            at = end
        at += 1
    if len(commands) > _MAX_COMMANDS:
        return Inner(tuple(commands[:_MAX_COMMANDS]), ask="find runs too much to read", pure=False)
    return Inner(tuple(c for c in commands if c), pure=False) if commands else None


def _fd(argv: Argv, feed: str | None) -> Inner | None:
    for at, word in enumerate(argv):
        if literal(word) in ("-x", "-X", "--exec", "--exec-batch"):
            start = next((w for w in reversed(argv[1:at]) if w[:1] in "/.~"), ".")
            found = f"{start.rstrip('/')}/found"
            inner = tuple(re.sub(r"\{[/.]*\}", found, w) for w in argv[at + 1 :] if w != ";")
            if inner and not any(found in word for word in inner):
                inner = (*inner, found)
            return Inner((inner,) if inner else (), pure=False)
    return None


def _shell(argv: Argv, feed: str | None) -> Inner | None:
    at = 1
    while at < len(argv) and argv[at][:1] in ("-", "+") and len(argv[at]) > 1:
        word = literal(argv[at])
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word):
            rest = argv[at + 1 :]
            while rest and rest[0].startswith("-"):
                rest = rest[1:]
            return Inner(scripts=rest[:1], arguments=rest[1:])
        if word in ("-s", "-is"):
            break
        at += 2 if word in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file") else 1
        if word in ("--rcfile", "--init-file"):
            return Inner(ask="a shell starts with a file of its own")
    if at < len(argv) and literal(argv[at]) not in STDIN:
        return None  # a script file
    if feed is None:
        return Inner() if at == 1 else None
    if feed.startswith("\x02"):
        return Inner(ask="a shell runs what another program prints")
    return Inner(scripts=(feed,), fed=True, ask="a shell runs a text from its standard input")


def _eval(argv: Argv, feed: str | None) -> Inner | None:
    return Inner(
        scripts=(" ".join(argv[1:]),),
        ask="eval runs a text as a command",
        certainty=Certainty.UNCERTAIN,
    )


def _trap(argv: Argv, feed: str | None) -> Inner | None:
    words = [word for word in argv[1:] if word not in ("--", "-p", "-l")]
    return (
        Inner(scripts=tuple(words[:1])) if len(words) > 1 and words[0] not in ("-", "") else Inner()
    )


def _su(argv: Argv, feed: str | None) -> Inner | None:
    script = _after_c(argv[1:])
    return Inner(scripts=(script,) if script else (), ask=PRIVILEGE)


def _watch(argv: Argv, feed: str | None) -> Inner | None:
    at = _skip(argv, 1, frozenset(("-n", "--interval", "-q", "--equexit")))
    return Inner(scripts=(" ".join(argv[at:]),)) if argv[at:] else Inner()


def _script(argv: Argv, feed: str | None) -> Inner | None:
    script = _after_c(argv[1:])
    return Inner(scripts=(script,) if script else (), ask="script records a session of its own")


def _ssh(argv: Argv, feed: str | None) -> Inner | None:
    valued = frozenset("-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w".split())
    at = _skip(argv, 1, valued) + 1
    text = " ".join(argv[at:])
    return Inner(scripts=(text,) if text else (), ask="ssh runs commands on another machine")


def _hyperfine(argv: Argv, feed: str | None) -> Inner | None:
    """Every word that is no option's value is a text for a shell; so are some of the values."""
    counted = frozenset("-w -r -m -M -L -P -D -n -S --warmup --runs --min-runs --max-runs --style "
                        "--shell --command-name --export-json --export-csv --export-markdown "
                        "--parameter-list --ignore-failure".split())  # fmt: skip
    scripts: list[str] = []
    at = 1
    while at < len(argv):
        if literal(argv[at]) in counted:
            at += 1
        elif not argv[at].startswith("-"):
            scripts.append(argv[at])
        at += 1
    return Inner(scripts=tuple(scripts), pure=False)


def _split(argv: Argv, feed: str | None) -> Inner | None:
    for at, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if option.startswith("--fi") and "--filter".startswith(option):
            text = value if equals else "".join(argv[at + 1 : at + 2])
            return Inner(scripts=(text,), ask="split runs a command for every part")
    return None


def _npm(argv: Argv, feed: str | None) -> Inner | None:
    """`npm exec -c …` and `npx -c …` give a text to a shell."""
    if literal(argv[0]).endswith("npx") or {"exec", "x", "dlx"} & {literal(w) for w in argv[1:4]}:
        for at, word in enumerate(argv[1:], 1):
            option, equals, value = word.partition("=")
            if option in ("-c", "--call", "--shell-mode"):
                text = value if equals else "".join(argv[at + 1 : at + 2])
                return Inner(scripts=(text,), ask="npm gives a text to a shell")
    return None


def _nix(argv: Argv, feed: str | None) -> Inner | None:
    for at, word in enumerate(argv[:-1]):
        if literal(word) in ("--run", "--command"):
            return Inner(scripts=(argv[at + 1],))
    return None


def _tox(argv: Argv, feed: str | None) -> Inner | None:
    """What stands behind `--` goes where a project's settings say; that may be a command."""
    rest = argv[argv.index("--") + 1 :] if "--" in argv else ()
    return Inner(passed_on=rest, pure=False) if rest and not rest[0].startswith("-") else None


_SPECIAL: dict[str, Callable[[Argv, str | None], Inner | None]] = {
    "env": _env,
    **dict.fromkeys("python python2 python3 pypy pypy3".split(), _python),
    "xargs": _xargs,
    "gxargs": _xargs,
    "find": _find,
    "gfind": _find,
    "fd": _fd,
    "fdfind": _fd,
    "eval": _eval,
    "trap": _trap,
    "su": _su,
    "runuser": _su,
    "watch": _watch,
    "script": _script,
    "ssh": _ssh,
    "mosh": _ssh,
    "dbclient": _ssh,
    "nix-shell": _nix,
    "hyperfine": _hyperfine,
    "split": _split,
    "tox": _tox,
    "nox": _tox,
}
_WRAPPERS = frozenset((*_SPECIAL, *_PACKAGES, *SHELLS, *_RUNNING, *PLAIN))

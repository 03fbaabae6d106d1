"""Programs that run other programs: what env, sudo, xargs, find -exec or bash -c would run."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct, structs

from hermes.exec.command_policy.shell.words import FIELDS, UNKNOWN, literal_text
from hermes.exec.command_policy.types import Certainty

Argv = tuple[str, ...]


class WrapperOptions(Struct, frozen=True):
    """How to skip a wrapper's own options: those that take a value, and the number of words before
    the command."""

    valued: frozenset[str] = frozenset()
    words: int = 0
    ask: str = ""


def _wrapper_options(valued: str = "", words: int = 0, ask: str = "") -> WrapperOptions:
    return WrapperOptions(frozenset(valued.split()), words, ask)


PRIVILEGE = "runs a command as another user"
_NAMESPACE = "changes what a command can see or do"
PLAIN_WRAPPERS: dict[str, WrapperOptions] = {
    "nohup": _wrapper_options(),
    "setsid": _wrapper_options(),
    "command": _wrapper_options(),
    "builtin": _wrapper_options(),
    "exec": _wrapper_options("-a"),
    "coproc": _wrapper_options(),
    "nice": _wrapper_options("-n --adjustment"),
    "ionice": _wrapper_options("-c -n --class --classdata"),
    "chrt": _wrapper_options("", 1),
    "taskset": _wrapper_options("", 1),
    "time": _wrapper_options("-f -o --format --output"),
    "timeout": _wrapper_options("-s -k --signal --kill-after", 1),
    "gtimeout": _wrapper_options("-s -k --signal --kill-after", 1),
    "stdbuf": _wrapper_options("-i -o -e --input --output --error"),
    "unbuffer": _wrapper_options(),
    "caffeinate": _wrapper_options("-t -w"),
    "xvfb-run": _wrapper_options("-n -s -e -f -w"),
    "dbus-run-session": _wrapper_options(),
    "sudo": _wrapper_options("-u -g -h -p -C -D -R -T -U -r -t", 0, PRIVILEGE),
    "doas": _wrapper_options("-u -C", 0, PRIVILEGE),
    "run0": _wrapper_options("", 0, PRIVILEGE),
    "pkexec": _wrapper_options("--user", 0, PRIVILEGE),
    "gosu": _wrapper_options("", 1, PRIVILEGE),
    "setpriv": _wrapper_options("", 0, PRIVILEGE),
    "chroot": _wrapper_options("", 1, _NAMESPACE),
    "unshare": _wrapper_options("", 0, _NAMESPACE),
    "nsenter": _wrapper_options("-t", 0, _NAMESPACE),
    "systemd-run": _wrapper_options("-u -p -M --unit --property", 0, _NAMESPACE),
    "bwrap": _wrapper_options("", 0, _NAMESPACE),
    "firejail": _wrapper_options("", 0, _NAMESPACE),
    "proot": _wrapper_options("-r -b -w", 0, _NAMESPACE),
    "fakeroot": _wrapper_options("", 0, _NAMESPACE),
    "strace": _wrapper_options("-o -e -p -s -u", 0, "traces another program"),
    "ltrace": _wrapper_options("-o -e -p -s -u", 0, "traces another program"),
    "rlwrap": _wrapper_options(),
    "busybox": _wrapper_options("", 0, "runs a program of busybox"),
    "toybox": _wrapper_options("", 0, "runs a program of toybox"),
    "parallel": _wrapper_options("-j -n -I -a -S -N -L --jobs", 0, "runs commands from its input"),
    "rush": _wrapper_options("-j", 0, "runs commands from its input"),
    "entr": _wrapper_options(),
    "flock": _wrapper_options("-w -E --timeout --conflict-exit-code", 1),
    "ssh-agent": _wrapper_options(),
    "torsocks": _wrapper_options("", 0, "reaches the network by another route"),
    "proxychains": _wrapper_options("-f", 0, "reaches the network by another route"),
    "valgrind": _wrapper_options(),
    "chronic": _wrapper_options(),
    "setarch": _wrapper_options("", 1),
    **dict.fromkeys("linux32 linux64 i386 x86_64".split(), _wrapper_options()),
    "prlimit": _wrapper_options(),
    "numactl": _wrapper_options("-m -N -C"),
    "faketime": _wrapper_options("", 1),
}
SUBCOMMAND_WRAPPERS: dict[tuple[str, ...], WrapperOptions] = {
    ("uv", "run"): _wrapper_options("--with --python -p --extra --group --package --directory "
                                    "--env-file --project --with-requirements --index-url "
                                    "--index"),
    ("poetry", "run"): _wrapper_options(),
    ("pipenv", "run"): _wrapper_options(),
    ("pdm", "run"): _wrapper_options("-p"),
    ("hatch", "run"): _wrapper_options(),
    ("rye", "run"): _wrapper_options(),
    ("bundle", "exec"): _wrapper_options(),
    ("npm", "exec"): _wrapper_options("-p --package -w --workspace"),
    ("pnpm", "exec"): _wrapper_options(),
    ("yarn", "exec"): _wrapper_options(),
    ("conda", "run"): _wrapper_options("-n -p --name --prefix"),
    ("mamba", "run"): _wrapper_options("-n -p --name --prefix"),
    ("micromamba", "run"): _wrapper_options("-n -p --name --prefix"),
    ("direnv", "exec"): _wrapper_options("", 1),
    ("mise", "exec"): _wrapper_options(),
    ("mise", "x"): _wrapper_options(),
    ("asdf", "exec"): _wrapper_options(),
    ("rustup", "run"): _wrapper_options("", 1),
    ("dotenv", "run"): _wrapper_options("-f"),
    ("tox", "exec"): _wrapper_options("-e"),
    ("git", "bisect", "run"): _wrapper_options(),
}  # fmt: skip


class WrappedCommands(Struct, frozen=True):
    """What a wrapper would run."""

    commands: tuple[Argv, ...] = ()
    likely: tuple[Argv, ...] = ()
    """The same with the arguments that are probably added at run time."""
    scripts: tuple[str, ...] = ()
    """Texts that a shell would run; with `UNKNOWN` for unknown parts."""
    fed: bool = False
    """The scripts come from standard input; otherwise they can read it."""
    arguments: Argv = ()
    """The positional parameters of the scripts."""
    ask: str = ""
    """Why the wrapper itself needs approval, whatever it runs."""
    certainty: Certainty = Certainty.CERTAIN
    """Of that reason."""
    assigned: tuple[tuple[str, str], ...] = ()
    passed_on: Argv = ()
    """Words that it may run as a command, unless they are files."""
    pure: bool = True
    """Whether the wrapper does nothing but run the commands."""


STDIN_NAMES = ("-s", "-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_MAX_COMMANDS = 50
_PACKAGE_RUNNERS = frozenset("npm pnpm yarn npx pnpx bunx".split())
SHELLS = frozenset("sh bash dash zsh ksh mksh ash fish rbash csh tcsh".split())


_WITH_RUN_SUBCOMMAND = frozenset(words[0] for words in SUBCOMMAND_WRAPPERS)


def unwrap_command(argv: Argv, feed: str | None) -> WrappedCommands | None:
    """What a wrapper would run; None when this is not a wrapper."""
    name = literal_text(argv[0]).rpartition("/")[2]
    if name not in _WRAPPERS:
        return None
    special = _UNWRAPPERS.get(name)
    if special:
        return special(argv, feed)
    if name in _PACKAGE_RUNNERS and (inner := _unwrap_npm(argv, feed)) is not None:
        return inner
    if name in SHELLS:
        return _unwrap_shell(argv, feed)
    for size in (2, 3) if name in _WITH_RUN_SUBCOMMAND else ():
        options = SUBCOMMAND_WRAPPERS.get(
            tuple(literal_text(word) for word in (name, *argv[1:size]))
        )
        if options:
            inner = _unwrap_options(argv, options, size)
            return _mark_bisect(inner) if size == 3 else inner
    options = PLAIN_WRAPPERS.get(name)
    if options is None:
        return None
    if name == "command" and argv[1:2] in (("-v",), ("-V",)):
        return None
    return _unwrap_options(argv, options, 1)


def _mark_bisect(inner: WrappedCommands) -> WrappedCommands:
    """`git bisect run`: a script may be different in every version."""
    name = literal_text(inner.commands[0][0]) if inner.commands else ""
    script = name in SHELLS or name.startswith("./")
    return (
        structs.replace(inner, ask="git bisect runs a script that differs in every version")
        if script
        else (inner)
    )


def _unwrap_options(argv: Argv, options: WrapperOptions, start: int) -> WrappedCommands:
    at = _skip_options(argv, start, options.valued)
    assigned: list[tuple[str, str]] = []
    while at < len(argv) and re.match(r"[A-Za-z_]\w*=", argv[at]):
        name, _, value = argv[at].partition("=")
        assigned.append((name, value))
        at += 1
    if options.words:
        at = _skip_options(argv, at + options.words, frozenset())
    inner = argv[at:]
    script = (
        _find_c_option(argv[start:]) if argv[0].endswith(("flock", "sudo", "busybox")) else None
    )
    return WrappedCommands(
        (inner,) if inner else (),
        scripts=(script,) if script else (),
        ask=options.ask,
        assigned=tuple(assigned),
    )


def _skip_options(argv: Argv, at: int, valued: frozenset[str]) -> int:
    while at < len(argv) and argv[at].startswith("-"):
        word = literal_text(argv[at])
        at += 1
        if word == "--":
            break
        if word in valued:
            at += 1
    return at


_PROGRAM_MODULES = frozenset("pip twine hermes uv poetry pdm hatch flit".split())


def _unwrap_python(argv: Argv, feed: str | None) -> WrappedCommands | None:
    """`python -m pip …` is `pip …`, for the modules that are programs of their own."""
    for at, word in enumerate(argv[1:], 1):
        text = literal_text(word)
        if (
            re.fullmatch(r"-[A-Za-z]*m", text)
            and literal_text("".join(argv[at + 1 : at + 2])) in _PROGRAM_MODULES
        ):
            return WrappedCommands((argv[at + 1 :],), pure=False)
        if not text.startswith("-"):
            break
    return None


def _find_c_option(args: Argv) -> str | None:
    for at, arg in enumerate(args[:-1]):
        if re.fullmatch(r"-[a-zA-Z]*c|--command", literal_text(arg)):
            return args[at + 1]
    return None


def _unwrap_env(argv: Argv, feed: str | None) -> WrappedCommands | None:
    if len(argv) == 1:
        return None
    assigned: list[tuple[str, str]] = []
    at, ask, scripts = 1, "", []
    while at < len(argv):
        word = literal_text(argv[at])
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
    return WrappedCommands(
        (inner,) if inner else (), scripts=tuple(scripts), ask=ask, assigned=tuple(assigned)
    )


def _unwrap_xargs(argv: Argv, feed: str | None) -> WrappedCommands | None:
    valued = frozenset("-I -n -P -L -d -s -E -a -J -R -S --max-args --max-procs --arg-file".split())
    at = _skip_options(argv, 1, valued)
    replace = ""
    for position, word in enumerate(argv[1:at], 1):
        text = literal_text(word)
        if text in ("-I", "-J") and position + 1 < len(argv):
            replace = literal_text(argv[position + 1])
        elif text.startswith(("-I", "-i", "--replace")) and text not in ("-I",):
            replace = re.sub(r"^(-[Ii]|--replace=?)", "", text) or "{}"
    inner = argv[at:] or ("echo",)
    inner = tuple(w.replace(replace, UNKNOWN) for w in inner) if replace else (*inner, FIELDS)
    likely: tuple[Argv, ...] = ()
    shell = literal_text(inner[0]).rpartition("/")[2] in SHELLS
    ask = "a shell is given arguments known only at run time" if shell else ""
    if feed and not feed.startswith("\x02"):
        likely = ((*argv[at:], *feed.split()[:50]),)
        if replace:
            likely = (tuple(w.replace(UNKNOWN, feed.strip()) for w in inner),)
    commands = (inner, *(likely if not replace else ()))
    return WrappedCommands(commands, likely, ask=ask, certainty=Certainty.UNCERTAIN)


def _unwrap_find(argv: Argv, feed: str | None) -> WrappedCommands | None:
    commands: list[Argv] = []
    start = argv[1] if len(argv) > 1 and not argv[1].startswith("-") else "."
    at = 1
    while at < len(argv):
        if literal_text(argv[at]) in ("-exec", "-execdir", "-ok", "-okdir"):
            end = at + 1
            while end < len(argv) and literal_text(argv[end]) not in (";", "+"):
                end += 1
            found = f"{start.rstrip('/') or '/'}/found"
            commands.append(tuple(word.replace("{}", found) for word in argv[at + 1 : end]))
            at = end
        at += 1
    if len(commands) > _MAX_COMMANDS:
        return WrappedCommands(
            tuple(commands[:_MAX_COMMANDS]), ask="find runs too many commands to check", pure=False
        )
    return WrappedCommands(tuple(c for c in commands if c), pure=False) if commands else None


def _unwrap_fd(argv: Argv, feed: str | None) -> WrappedCommands | None:
    for at, word in enumerate(argv):
        if literal_text(word) in ("-x", "-X", "--exec", "--exec-batch"):
            start = next((w for w in reversed(argv[1:at]) if w[:1] in "/.~"), ".")
            found = f"{start.rstrip('/')}/found"
            inner = tuple(re.sub(r"\{[/.]*\}", found, w) for w in argv[at + 1 :] if w != ";")
            if inner and not any(found in word for word in inner):
                inner = (*inner, found)
            return WrappedCommands((inner,) if inner else (), pure=False)
    return None


def _unwrap_shell(argv: Argv, feed: str | None) -> WrappedCommands | None:
    at = 1
    while at < len(argv) and argv[at][:1] in ("-", "+") and len(argv[at]) > 1:
        word = literal_text(argv[at])
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word):
            rest = argv[at + 1 :]
            while rest and rest[0].startswith("-"):
                rest = rest[1:]
            return WrappedCommands(scripts=rest[:1], arguments=rest[1:])
        if word in ("-s", "-is"):
            break
        at += 2 if word in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file") else 1
        if word in ("--rcfile", "--init-file"):
            return WrappedCommands(ask="a shell first runs a startup file")
    if at < len(argv) and literal_text(argv[at]) not in STDIN_NAMES:
        return None  # a script file
    if feed is None:
        return WrappedCommands() if at == 1 else None
    if feed.startswith("\x02"):
        return WrappedCommands(ask="pipes the output of another program into a shell")
    return WrappedCommands(scripts=(feed,), fed=True, ask="runs shell code from standard input")


def _unwrap_eval(argv: Argv, feed: str | None) -> WrappedCommands | None:
    return WrappedCommands(
        scripts=(" ".join(argv[1:]),),
        ask="eval runs text as a command",
        certainty=Certainty.UNCERTAIN,
    )


def _unwrap_trap(argv: Argv, feed: str | None) -> WrappedCommands | None:
    words = [word for word in argv[1:] if word not in ("--", "-p", "-l")]
    return (
        WrappedCommands(scripts=tuple(words[:1]))
        if len(words) > 1 and words[0] not in ("-", "")
        else WrappedCommands()
    )


def _unwrap_su(argv: Argv, feed: str | None) -> WrappedCommands | None:
    script = _find_c_option(argv[1:])
    return WrappedCommands(scripts=(script,) if script else (), ask=PRIVILEGE)


def _unwrap_watch(argv: Argv, feed: str | None) -> WrappedCommands | None:
    at = _skip_options(argv, 1, frozenset(("-n", "--interval", "-q", "--equexit")))
    return WrappedCommands(scripts=(" ".join(argv[at:]),)) if argv[at:] else WrappedCommands()


def _unwrap_script(argv: Argv, feed: str | None) -> WrappedCommands | None:
    script = _find_c_option(argv[1:])
    return WrappedCommands(
        scripts=(script,) if script else (), ask="script starts a shell of its own"
    )


def _unwrap_ssh(argv: Argv, feed: str | None) -> WrappedCommands | None:
    valued = frozenset("-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w".split())
    at = _skip_options(argv, 1, valued) + 1
    text = " ".join(argv[at:])
    return WrappedCommands(
        scripts=(text,) if text else (), ask="ssh runs commands on another machine"
    )


def _unwrap_hyperfine(argv: Argv, feed: str | None) -> WrappedCommands | None:
    """Every word that is no option's value is a text for a shell; so are some of the values."""
    counted = frozenset("-w -r -m -M -L -P -D -n -S --warmup --runs --min-runs --max-runs --style "
                        "--shell --command-name --export-json --export-csv --export-markdown "
                        "--parameter-list --ignore-failure".split())  # fmt: skip
    scripts: list[str] = []
    at = 1
    while at < len(argv):
        if literal_text(argv[at]) in counted:
            at += 1
        elif not argv[at].startswith("-"):
            scripts.append(argv[at])
        at += 1
    return WrappedCommands(scripts=tuple(scripts), pure=False)


def _unwrap_split(argv: Argv, feed: str | None) -> WrappedCommands | None:
    for at, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if option.startswith("--fi") and "--filter".startswith(option):
            text = value if equals else "".join(argv[at + 1 : at + 2])
            return WrappedCommands(scripts=(text,), ask="split runs a command for every part")
    return None


def _unwrap_npm(argv: Argv, feed: str | None) -> WrappedCommands | None:
    """`npm exec -c …` and `npx -c …` give a text to a shell."""
    if literal_text(argv[0]).endswith("npx") or {"exec", "x", "dlx"} & {
        literal_text(w) for w in argv[1:4]
    }:
        for at, word in enumerate(argv[1:], 1):
            option, equals, value = word.partition("=")
            if option in ("-c", "--call", "--shell-mode"):
                text = value if equals else "".join(argv[at + 1 : at + 2])
                return WrappedCommands(scripts=(text,), ask="npm runs text in a shell")
    return None


def _unwrap_nix(argv: Argv, feed: str | None) -> WrappedCommands | None:
    for at, word in enumerate(argv[:-1]):
        if literal_text(word) in ("--run", "--command"):
            return WrappedCommands(scripts=(argv[at + 1],))
    return None


def _unwrap_tox(argv: Argv, feed: str | None) -> WrappedCommands | None:
    """What stands behind `--` goes where a project's settings say; that may be a command."""
    rest = argv[argv.index("--") + 1 :] if "--" in argv else ()
    return (
        WrappedCommands(passed_on=rest, pure=False)
        if rest and not rest[0].startswith("-")
        else None
    )


_UNWRAPPERS: dict[str, Callable[[Argv, str | None], WrappedCommands | None]] = {
    "env": _unwrap_env,
    **dict.fromkeys("python python2 python3 pypy pypy3".split(), _unwrap_python),
    "xargs": _unwrap_xargs,
    "gxargs": _unwrap_xargs,
    "find": _unwrap_find,
    "gfind": _unwrap_find,
    "fd": _unwrap_fd,
    "fdfind": _unwrap_fd,
    "eval": _unwrap_eval,
    "trap": _unwrap_trap,
    "su": _unwrap_su,
    "runuser": _unwrap_su,
    "watch": _unwrap_watch,
    "script": _unwrap_script,
    "ssh": _unwrap_ssh,
    "mosh": _unwrap_ssh,
    "dbclient": _unwrap_ssh,
    "nix-shell": _unwrap_nix,
    "hyperfine": _unwrap_hyperfine,
    "split": _unwrap_split,
    "tox": _unwrap_tox,
    "nox": _unwrap_tox,
}
_WRAPPERS = frozenset(
    (*_UNWRAPPERS, *_PACKAGE_RUNNERS, *SHELLS, *_WITH_RUN_SUBCOMMAND, *PLAIN_WRAPPERS)
)

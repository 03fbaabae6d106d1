"""Programs that run other programs: what env, sudo, xargs, find -exec or bash -c would run."""

import re
from collections.abc import Iterator

from msgspec import Struct

from hermes.exec.command_policy.types import Argv
from hermes.exec.command_policy.words import LISTS

SHELLS = frozenset("sh bash dash zsh ksh mksh ash fish rbash csh tcsh".split())
HARMLESS_WRAPPERS = frozenset("nohup timeout gtimeout time nice stdbuf".split())
"""They change nothing about the command they run but its time and its output."""
_STDIN_NAMES = ("-s", "-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_OPTIONS: dict[str, tuple[str, int]] = {
    name: (valued, int(words))
    for names, valued, words in LISTS.get_table("wrappers")
    for name in names.split()
}
"""Options that take a value, and the number of words before the command."""
WRAPPERS = frozenset(_OPTIONS)
_GIT_VALUED = frozenset("-C -c --git-dir --work-tree --namespace --config-env".split())
_SYSTEM_FOLDERS = re.compile(r"(?:/usr)?(?:/local)?/s?bin/[^/]+|/opt/homebrew/bin/[^/]+")


class WrappedCommands(Struct, frozen=True):
    """What a wrapper would run: commands, and texts for a shell."""

    commands: tuple[Argv, ...] = ()
    scripts: tuple[str, ...] = ()


def program_name(argv: Argv) -> str:
    """The name of the program without the folder it is in."""
    return argv[0].rpartition("/")[2] if argv else ""


def simplify_command(argv: Argv) -> Argv:
    """The command as rules name it: system programs without folder, git without global options."""
    if argv and _SYSTEM_FOLDERS.fullmatch(argv[0]):
        argv = (program_name(argv), *argv[1:])
    if argv[:1] != ("git",):
        return argv
    return ("git", *argv[_skip_options(argv, 1, _GIT_VALUED) :])


def abbreviates_option(arg: str, *names: str) -> bool:
    """Whether a program may take this word for one of these long options: their beginnings do."""
    name = arg.partition("=")[0]
    return len(name) > 2 and name[:2] == "--" and any(n.startswith(name[2:]) for n in names)


def unwrap_command(argv: Argv, feed: str = "") -> WrappedCommands:
    """What a wrapper would run, as far as it is literal; nothing when this is not a wrapper."""
    name = program_name(argv)
    if name in SHELLS or name in ("source", "."):
        return _unwrap_shell(argv, feed)
    if name in ("find", "gfind"):
        return _unwrap_find(argv)
    own = argv[: argv.index("--")] if "--" in argv else argv
    if name in ("su", "runuser", "script", "flock", "busybox") and (text := _find_script(own)):
        return WrappedCommands(scripts=(text,))
    if name == "env" and (split := [a for a in argv[1:] if re.match(r"-\w*S|--sp", a)]):
        text = re.sub(r"-\w*S|--[\w-]+=?", "", split[0], count=1)
        return WrappedCommands(scripts=(" ".join((text, *argv[argv.index(split[0]) + 1 :])),))
    if name == "git":
        return WrappedCommands(scripts=tuple(_find_git_scripts(argv)))
    if name in ("eval", "watch"):
        at = _skip_options(argv, 1, frozenset(("-n", "--interval")))
        return WrappedCommands(scripts=(" ".join(argv[at:]),))
    if name == "trap":
        at = _skip_options(argv, 1, frozenset())
        return WrappedCommands(scripts=argv[at : at + 1] if len(argv) > at + 1 else ())
    if re.fullmatch(r"(?:python|pypy)[\d.]*", name) and "-m" in argv[1:4]:
        return WrappedCommands((argv[argv.index("-m") + 1 :],))  # `python -m pip` is `pip`
    if name == "tmux" and re.match(r"new|split|respawn|run", "".join(argv[1:2])):
        return WrappedCommands(scripts=tuple(arg for arg in argv[1:] if " " in arg))
    if name in _OPTIONS:
        return _unwrap_options(argv, *_OPTIONS[name], feed if "xargs" in name else "")
    return WrappedCommands()


def _unwrap_options(argv: Argv, valued: str, words: int, feed: str) -> WrappedCommands:
    at = _skip_options(argv, 1, frozenset(valued.split()))
    while at < len(argv) and re.match(r"[A-Za-z_]\w*=", argv[at]):
        at += 1
    at = _skip_options(argv, at + words, frozenset()) if words else at
    return WrappedCommands(((*argv[at:], *feed.split()),) if argv[at:] else ())


def _skip_options(argv: Argv, at: int, valued: frozenset[str]) -> int:
    while at < len(argv) and argv[at].startswith("-"):
        at += 1
        if argv[at - 1] == "--":
            break
        at += _takes_value(argv[at - 1], valued)
    return at


def _takes_value(option: str, valued: frozenset[str]) -> bool:
    """Whether the next word is this option's value: `-u`, `-nu`, `--us`; not `-uroot`."""
    if option.startswith("--"):
        return len(option) > 2 and any(name.startswith(option) for name in valued)
    takes = [at for at, letter in enumerate(option) if f"-{letter}" in valued]
    return bool(takes) and takes[0] == len(option) - 1


def _find_script(argv: Argv) -> str:
    """The text behind `-c`; empty when there is none."""
    for at, arg in enumerate(argv):
        if joined := re.match(r"--comm[a-z]*=(.*)", arg, re.DOTALL):
            return joined[1]
        if argv[at + 1 :] and re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*|--comm[a-z]*", arg):
            return argv[_skip_options(argv[:-1], at + 1, frozenset())]
    return ""


def _find_git_scripts(argv: Argv) -> Iterator[str]:
    """What git would give to a shell: its aliases, and what it runs for commits and submodules."""
    yield from re.findall(r"^alias\.[^=]*=!(.*)", "\n".join(argv), re.M)
    _, *words = simplify_command(argv)
    if words[:2] in (["bisect", "run"], ["submodule", "foreach"]):
        yield " ".join(word for word in words[2:] if word != "--recursive")
    elif words[:1] == ["rebase"]:
        yield from (re.sub(r"^(?:-x|--ex[ec]*=)", "", word) for word in words if " " in word)


def _unwrap_shell(argv: Argv, feed: str) -> WrappedCommands:
    argv = tuple(arg for arg in argv if not re.fullmatch(r"\+[a-zA-Z]+", arg))  # bash +e -c
    at = _skip_options(argv, 1, frozenset(("-o", "-O", "--rcfile", "--init-file")))
    if text := _find_script(argv[: at + 2]):
        return WrappedCommands(scripts=(text,))
    reads_input = at >= len(argv) or argv[at] in _STDIN_NAMES or "-s" in argv[1:at]
    return WrappedCommands(scripts=(feed,) if feed and reads_input else ())


def _unwrap_find(argv: Argv) -> WrappedCommands:
    commands: list[Argv] = []
    start = argv[1] if len(argv) > 1 and not argv[1].startswith("-") else "."
    found = f"{start.rstrip('/') or '/'}/found"
    at = 1
    while at < len(argv):
        if argv[at] in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((n for n in range(at, len(argv)) if argv[n] in (";", "+")), len(argv))
            commands.append(tuple(word.replace("{}", found) for word in argv[at + 1 : end]))
            at = end
        at += 1
    return WrappedCommands(tuple(filter(None, commands)))

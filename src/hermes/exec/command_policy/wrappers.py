"""Programs that run other programs: what env, sudo, xargs, find -exec or bash -c would run."""

import re
from collections.abc import Collection, Iterator

from msgspec import Struct

from hermes.exec.command_policy.types import Argv
from hermes.exec.command_policy.words import LISTS

SHELLS = frozenset("sh bash dash zsh ksh mksh ash fish rbash csh tcsh".split())
HARMLESS_WRAPPERS = frozenset("nohup timeout gtimeout time nice stdbuf".split())
"""They change nothing about the command they run but its time and its output."""
_OPERANDS: dict[str, tuple[int, str, list[str]]] = {
    name: (int(number), flags.split(" ")[0], flags.split())
    for number, flags, names in LISTS.get_table("wrappers")
    for name in names.split()
}
"""The number of words between a program's options and the command that it runs; letters and names
of options behind which no value follows."""
WRAPPERS = frozenset(_OPERANDS)
_RUNNERS = {tuple(row.split()) for row in LISTS.get_lines("subcommands that run programs")}
_SCRIPT_RUNNERS = frozenset("su sg runuser script flock npx npm capsh".split())
_JOINING = frozenset("eval watch parallel at batch hyperfine".split())
"""They give their words to a shell, or what they read."""
_FOLDER_OPTIONS = {"env": ["-C", "--chdir"], "sudo": ["-D", "--chdir"], "git": ["-C"]}
_SHELL_VALUED = frozenset(("-o", "+o", "-O", "+O"))
_GIT_VALUED = frozenset("-C -c --git-dir --work-tree --namespace --config-env".split())
_GIT_SCRIPTS = sorted(LISTS.get_words("git options with scripts"))
_SYSTEM_FOLDERS = re.compile(r"(?:/usr)?(?:/local)?/s?bin/[^/]+|/opt/homebrew/bin/[^/]+")
_MAX_OPTIONS, _MAX_TEXT, _MAX_PLACES = 40, 1000, 100


class WrappedCommands(Struct, frozen=True):
    """What a wrapper would run: commands, and texts for a shell."""

    commands: tuple[Argv, ...] = ()
    scripts: tuple[str, ...] = ()
    folder: str = "."
    """Where, seen from the wrapper's own folder."""


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


def find_values(args: Argv, options: list[str]) -> Iterator[str]:
    """The values of these options: `-o FILE`, `-oFILE`, `--output FILE`, `--out=FILE`."""
    letters = "".join(option[1:] for option in options if len(option) == 2)
    names = [option[2:] for option in options if len(option) > 2]
    joined = re.compile(f"-[A-Za-z]*?[{letters}](.*)" if letters else "(?!)", re.DOTALL)
    for at, arg in enumerate(args):
        value = arg.partition("=")[2]
        if short := joined.fullmatch(arg):
            value = short[1]
        elif not abbreviates_option(arg, *names):
            continue
        yield from [value] if value else args[at + 1 : at + 2]


def unwrap_command(argv: Argv, feed: str = "") -> WrappedCommands:
    """What a wrapper would run, as far as it is literal; nothing when this is not a wrapper."""
    name = program_name(argv)
    if name in SHELLS or name in ("source", "."):
        return WrappedCommands(scripts=tuple(filter(None, (_find_script(argv) or feed,))))
    if name in ("find", "gfind"):
        return _unwrap_find(argv)
    own = argv[: argv.index("--")] if "--" in argv else argv
    if name in _SCRIPT_RUNNERS and (text := _find_script(own)):
        return WrappedCommands(scripts=(text,))
    if name == "env" and (split := [a for a in argv[1:] if re.match(r"-\w*S|--sp", a)]):
        text = re.sub(r"-\w*S|--[\w-]+=?", "", split[0], count=1)
        at = argv.index(split[0])
        text = " ".join((text, *argv[at + 1 :]))
        return WrappedCommands(scripts=(text,), folder=_find_folder(name, argv[:at]))
    if name == "git":
        return _unwrap_git(argv)
    if name in ("trap", "sg"):  # one word of them is a text for a shell
        given = argv[1:-1] if name == "trap" else argv[2:]
        return WrappedCommands(scripts=tuple(word for word in given if word != "--"))
    if re.fullmatch(r"(?:python|pypy)[\d.]*", name) and "-m" in argv[1:4]:
        module, *words = argv[argv.index("-m") + 1 :] or ("",)
        return WrappedCommands(((module.partition(".")[0], *words),))  # `python -m pip` is `pip`
    operands, letters, flags = _OPERANDS.get(name, (1, "", []))
    known = name in _OPERANDS or (name, *argv[1:2]) in _RUNNERS
    found = tuple(_list_programs(argv, operands, letters, flags)) if known else ()
    if name in _JOINING:
        texts = map(" ".join, (argv[1:], *found))  # what looks like an assignment is code here
        return WrappedCommands(scripts=tuple(filter(None, dict.fromkeys((*texts, feed)))))
    if name == "tmux" and not re.match("new|split|respawn|run", "".join(argv[1:2])):
        return WrappedCommands()
    if name in ("tmux", "screen"):
        return WrappedCommands(found, tuple(word for word in argv[1:] if " " in word))
    if "xargs" in name and feed:
        mark = next(find_values(argv, ["-I"]), "{}")
        text = feed[:_MAX_TEXT]
        found = tuple(
            (*(w.replace(mark, text, 1) for w in f[:40]), *f[40:], *feed.split()) for f in found
        )
    own = argv[: len(argv) - min(map(len, found), default=0)]
    return WrappedCommands(found, folder=_find_folder(name, own))


def _list_programs(
    argv: Argv, operands: int, letters: str = "", flags: Collection[str] = ()
) -> Iterator[Argv]:
    """The commands that may begin behind a program's options and operands. A word behind an option
    may be its value, so then the next one is another."""
    may_be_value = False
    for at, word in enumerate(argv[1:_MAX_OPTIONS], 1):
        if word.startswith("-"):
            has_value = re.match(r"--\Z|.*=|-[A-Za-z]*[\d{%]", word)
            may_be_value = not (has_value or word in flags or {*word[1:]} <= {*letters})
        elif re.match(r"[A-Za-z_]\w*=|\{\Z", word):
            may_be_value = False
        else:
            if operands:
                yield from _list_programs(argv[at:], operands - 1)
            elif not re.fullmatch(r"[\d.]+", word):
                yield argv[at:]
            if not may_be_value:
                return
            may_be_value = False


def _skip_options(argv: Argv, at: int, valued: Collection[str] = ()) -> int:
    while at < len(argv) and argv[at].startswith(("-", "+")):
        at += 1
        if argv[at - 1] == "--":
            break
        at += argv[at - 1] in valued
    return at


def _find_folder(name: str, options: Argv) -> str:
    return next(find_values(options, _FOLDER_OPTIONS.get(name, [])), ".")


def _find_script(argv: Argv) -> str:
    """The text behind `-c`; empty when there is none."""
    for at, arg in enumerate(argv):
        if joined := re.match(r"--comm[a-z]*=(.*)", arg, re.DOTALL):
            return joined[1]
        if argv[at + 1 :] and re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*|--comm[a-z]*", arg):
            at += 1 + bool(re.match(r"-\w*[oO]", arg))  # `-oc pipefail TEXT`
            return argv[_skip_options(argv[:-1], min(at, len(argv) - 1), _SHELL_VALUED)]
    return ""


def _unwrap_git(argv: Argv) -> WrappedCommands:
    """What git would run: aliases and programs in settings given with it, and what is run for
    commits, files and submodules."""
    _, *words = simplify_command(argv)
    options = argv[1 : len(argv) - len(words)]
    scripts = re.findall(r"^(?!user\.)[\w.-]+=!?(.*)", "\n".join(options), re.MULTILINE)
    run: Argv = ()
    if words[:1] in (["bisect"], ["submodule"]):
        at = next((n for n, word in enumerate(words) if word in ("run", "foreach")), len(words))
        run = tuple(words)[_skip_options(tuple(words), at + 1) :]
    elif words[:1] in (["rebase"], ["filter-branch"], ["difftool"], ["grep"]):
        scripts += find_values(tuple(words), _GIT_SCRIPTS)
    if len(run) == 1:  # a text for a shell; several are its words
        scripts += run
    return WrappedCommands((run,) if run else (), tuple(scripts), _find_folder("git", options))


def find_starts(args: Argv) -> Argv:
    """The folders in which find begins."""
    args = tuple(arg for arg in args if not re.fullmatch(r"-[HLP]|-O\d", arg))
    end = next((at for at, arg in enumerate(args) if arg.startswith(("-", "(", "!"))), len(args))
    return args[:end] or (".",)


def _unwrap_find(argv: Argv) -> WrappedCommands:
    found = f"{find_starts(argv[1:])[0].rstrip('/')[:_MAX_TEXT]}/found"
    text = "\x01".join((*argv, "")).replace("{}", found, _MAX_PLACES)
    runs = re.findall(r"\x01-(?:exec|ok)(?:dir)?\x01(.*?)\x01(?:[;+]\x01|\Z)", text, re.DOTALL)
    return WrappedCommands(tuple(tuple(run.split("\x01")) for run in runs))

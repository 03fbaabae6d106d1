"""Recognises command lines that only read: known programs, known options, literal words."""

import re
from functools import cache
from getopt import GetoptError, gnu_getopt

from hermes.exec.command_policy.paths import PathZones, change_folder
from hermes.exec.command_policy.types import Argv, SimpleCommand
from hermes.exec.command_policy.words import LISTS, UNKNOWN, unquote_word
from hermes.exec.command_policy.wrappers import program_name, simplify_command

_MAX_PLAIN = 4000
_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t]+ | \\\n)
  | (?P<quiet>(?:[12]?|&)>[ \t]*/dev/null(?![^\s|&;]) | [12]?>&[12](?!\w))
  | (?P<operator>\|\||&&|\|&|[|&;\n])
  | (?P<write>[12]?>>?(?![>&|(])|&>>?)
  | (?P<read><(?![<>&(]))
  | (?P<word>(?:
        [^\x00-\x2c;<>?\[\\\]`{|}\x7f] | [%+,] | '[^']*' | "(?:[^"$`\\!] | \$\w+ | \$\{\w+\})*"
      | \\[^\w\s] | \$\w+ | \$\{\w+\} | [*?\[\]]
    )+)
    """,
    re.VERBOSE,
)
_RESERVED = LISTS.get_words("reserved words")
_READS_FOLDERS = frozenset("grep egrep fgrep rg find tree du diff".split())
_FIND_OPTION = LISTS.compile_pattern("find tests", "-(?:{})")
_SED_PRINTS = re.compile(r"(?:(?:\d+|\$|/[\w .:=-]*/)(?:,(?:\d+|\$|\+\d+|/[\w .:=^-]*/))?p;?)+")
_EVALUATED = re.compile(r"-v|.*[$`]|.*%[^%a-zA-Z]*n", re.DOTALL)
"""Words with which `printf` and `test` set variables, or run what is in a variable's name."""
_COLOR = re.compile(r"--colou?r(?:=\w+)?|--no-color")


def read_plain_line(
    text: str, folder: str | None, user_home: str
) -> tuple[SimpleCommand, ...] | None:
    """The commands of a line of words, operators and simple redirections; None when there is more
    to it. In words, values of variables and wildcards are `UNKNOWN`."""
    text = text.strip()
    commands: list[SimpleCommand] = []
    found: dict[str, list[str]] = {"word": [], "write": [], "read": []}
    target, at = "word", 0
    while at < len(text) <= _MAX_PLAIN:
        token = _TOKEN.match(text, at)
        kind, at = (token.lastgroup, token.end()) if token else (None, at)
        if token and kind == "word":
            found[target].append(_read_word(token[0], user_home))
            target = "word"
        elif kind in ("write", "read") and target == "word":
            target = str(kind)
        elif token and kind == "operator" and target == "word":
            commands.append(_close_command(found, folder))
            if token[0] not in ("|", "|&", "&"):
                after = change_folder(commands[-1].argv, folder, user_home)
                folder = after if token[0] != "||" or after == folder else None
        elif kind not in ("blank", "quiet"):
            return None
    if at < len(text) or target != "word":
        return None
    commands.append(_close_command(found, folder))
    plain = tuple(c for c in commands if c != SimpleCommand((), c.folder))
    programs = ["".join(c.argv[:1]) for c in plain]
    known = not any(not p or UNKNOWN in p or "=" in p or p in _RESERVED for p in programs)
    return plain if known else None


def _close_command(found: dict[str, list[str]], folder: str | None) -> SimpleCommand:
    argv, writes, reads = map(tuple, found.values())
    for words in found.values():
        words.clear()
    return SimpleCommand(argv, folder, writes, reads)


def _read_word(source: str, user_home: str) -> str:
    if source.startswith("~") and source[:2] not in ("~", "~/"):
        return UNKNOWN
    return source if source in "[]" else unquote_word(source, user_home, UNKNOWN)


def is_read_only(command: SimpleCommand) -> bool:
    """Whether a plain command is known to change nothing and to send nothing anywhere."""
    argv = simplify_command(command.argv)
    options = set(command.argv[1 : 1 + len(command.argv) - len(argv)])
    if options - {"--no-pager", "-P", "--version"} or command.writes:
        return False  # `git -c` and `git -C`
    if UNKNOWN in "".join((*argv, *command.reads)):
        return False
    if argv[0] == "find":
        words = [word for word in argv[1:] if word.startswith("-")]
        return all(map(_FIND_OPTION.fullmatch, words))
    argv = ("pip", *argv[1:]) if argv[0] == "pip3" else argv
    return argv[:2] == ("command", "-v") or any(
        _matches_shape(argv[size:], *_load_shapes()[argv[:size]])
        for size in (3, 2, 1)
        if argv[:size] in _load_shapes()
    )


def is_reader(program: Argv) -> bool:
    """Whether this program only reads, with options that are known."""
    return "!version" not in _load_shapes().get(program, ("", ("!version",)))[1]


def explain_private_read(command: SimpleCommand, path_zones: PathZones) -> str:
    """Why what a read-only command reads needs a person; empty when it does not."""
    name = program_name(command.argv)
    if name == "git" and not path_zones.is_own_repository(command.folder):
        return "git obeys the settings of a repository that is not the project's own"
    shape = _load_shapes().get((name,))
    if shape is not None and "!text" in shape[1] and not command.reads:
        return ""
    recursive = name in _READS_FOLDERS
    words = (*command.argv[1:], *command.reads, *(["."] if recursive else []))
    paths = (w.partition("=")[2] or w if w.startswith("-") else w for w in words)
    found = (path_zones.explain_secret(p, command.folder, recursive=recursive) for p in paths)
    return next(filter(None, found), "")


def _matches_shape(args: Argv, short: str, long: tuple[str, ...]) -> bool:
    if "!text" in long and not short:
        return not any(map(_EVALUATED.match, args))
    known = [option for option in long if not option.startswith("!")]
    try:
        options, words = gnu_getopt([a for a in args if not _COLOR.fullmatch(a)], short, known)
    except GetoptError:
        return False
    if "!script" in long:
        quiet = any(name == "-n" for name, _ in options)
        return bool(quiet and words and _SED_PRINTS.fullmatch(words[0]))
    if "!version" in long:
        return len(args) == 1 and not words
    if "!format" in long:
        return all(word.startswith("+") for word in words)
    if "!processes" in long:  # `e` without a dash, or `-o environ`, shows environments
        return "env" not in " ".join(args) and all(re.fullmatch(r"[aufwxlj\d]+", w) for w in words)
    return not words if "!none" in long else len(words) <= 1 if "!one" in long else True


@cache
def _load_shapes() -> dict[Argv, tuple[str, tuple[str, ...]]]:
    shapes: dict[Argv, tuple[str, tuple[str, ...]]] = {}
    for names, short, long in LISTS.get_table("read-only programs"):
        shape = (short.replace("#", "0123456789"), tuple(long.split()))
        words = tuple(names.split())
        together = words[0] in ("git", "npm", "pip")
        shapes |= dict.fromkeys([words] if together else [(name,) for name in words], shape)
    return shapes

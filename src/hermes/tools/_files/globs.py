"""Translates globs and .gitignore rules to regular expressions without exponential time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from hermes.core.errors import ToolError

WILDCARDS = frozenset("*?[{")
_MAX_ALTERNATIVES = 64
_MAX_DOUBLE_STARS = 4
_MAX_RULES = 5000


def compile_glob(glob: str) -> Callable[[str], bool]:
    """A test for relative paths with `/`. A glob without `/` matches the last name; a leading `!`
    inverts it. Raises ToolError when the glob is not valid."""
    wanted = glob.removeprefix("!")
    if not wanted:
        raise ToolError("The glob is empty.")
    try:
        match = re.compile("|".join(map(_translate_glob, _expand_braces(wanted))), re.S).fullmatch
    except (re.error, ValueError) as error:
        raise ToolError(f"Not a valid glob: {glob[:200]!r} ({error}).") from None
    if wanted is not glob:
        return lambda path: not match(path)
    return lambda path: bool(match(path))


def _expand_braces(glob: str) -> list[str]:
    """The glob with each `{a,b}` written out."""
    done: list[str] = []
    todo = [glob]
    while todo:
        pattern = todo.pop()
        inner = re.search(r"\{([^{}]*)\}", pattern)
        if inner is None:
            done.append(pattern)
        else:
            todo += [
                pattern[: inner.start()] + word + pattern[inner.end() :]
                for word in inner[1].split(",")
            ]
        if len(todo) + len(done) > _MAX_ALTERNATIVES:
            raise ValueError("too many alternatives")
    return done


def _translate_glob(glob: str) -> str:
    """An expression for paths relative to the folder of the glob."""
    if glob.count("**") > _MAX_DOUBLE_STARS:
        raise ValueError("too many **")
    anchored = "/" in glob.rstrip("/")
    names = glob.strip("/").removeprefix("./").split("/")
    parts = [] if anchored else [r"(?:[^/]+/)*"]
    for at, name in enumerate(names):
        last = at == len(names) - 1
        if name == "**":
            parts.append("(?s:.+)" if last else r"(?:[^/]+/)*")
        else:
            parts.append(_translate_name(name) + ("" if last else "/"))
    return "".join(parts)


def _translate_name(name: str) -> str:
    """An expression for one name. Each `*` but the last matches as little as it can and never
    backtracks: that finds a match if there is one, in linear time."""
    first, *later = [_translate_chunk(piece) for piece in re.split(r"(?<!\\)\*+", name)]
    if not later:
        return first
    middle = "".join(f"(?>[^/]*?{piece})" for piece in later[:-1] if piece)
    return f"{first}{middle}[^/]*{later[-1]}"


_TOKEN = re.compile(r"\\(.)|(\?)|\[([!^]?)(\]?[^\]/]*)\]|(.)", re.S)


def _translate_chunk(text: str) -> str:
    out: list[str] = []
    for token in _TOKEN.finditer(text):
        escaped, any_character, negated, inside, plain = token.groups()
        if any_character:
            out.append("[^/]")
        elif inside is not None:
            inside = re.sub(r"[\\\[\]^&~|]", r"\\\g<0>", inside).replace("--", r"-\-")
            out.append(f"[{'^/' if negated else ''}{inside}]")
        else:
            out.append(re.escape(escaped or plain))
    return "".join(out)


class IgnoreRules:
    """The rules of one .gitignore for paths relative to its folder."""

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[re.Pattern[str], bool, bool]] = []
        plain: list[str] = []
        folders: list[str] = []
        for rule, keep, folder in _parse_rules(text):
            if keep:
                self._add_group(plain, folders)
                self._rules.append((re.compile(rule, re.S), True, folder))
            else:
                (folders if folder else plain).append(rule)
        self._add_group(plain, folders)

    def _add_group(self, plain: list[str], folders: list[str]) -> None:
        """Combine neighbouring rules with the same effect into one expression."""
        if plain:
            self._rules.append((re.compile("|".join(plain), re.S), False, False))
        if folders:
            self._rules.append((re.compile("|".join(folders), re.S), False, True))
        plain.clear()
        folders.clear()

    def match_path(self, path: str, *, folder: bool) -> bool | None:
        """True: ignored; False: kept, whatever outer rules say; None: no rule matches."""
        for rule, keep, only_folders in reversed(self._rules):
            if (folder or not only_folders) and rule.fullmatch(path):
                return not keep
        return None


def _parse_rules(text: str) -> Iterable[tuple[str, bool, bool]]:
    """Each rule: its expression, whether it keeps, whether it is for folders only."""
    for row in text.splitlines()[:_MAX_RULES]:
        line = re.sub(r"(?<!\\)\s+$", "", row)
        if not line or line.startswith("#"):
            continue
        keep = line.startswith("!")
        line = line.removeprefix("!")
        try:
            expression = _translate_glob(line)
            re.compile(expression)
        except (re.error, ValueError):
            continue
        yield expression, keep, line.endswith("/")

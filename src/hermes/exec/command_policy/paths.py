"""Classifies literal paths: vital, secret, the agent's own, in the workspace."""

import os
import re
from functools import lru_cache
from pathlib import Path

from hermes.exec.command_policy.types import Argv
from hermes.exec.command_policy.words import LISTS, UNKNOWN, expand_braces
from hermes.exec.path_rules import explain_denial, resolve_links

_PLAIN_DEVICE = re.compile(
    r"/dev/(?:(?:null|zero|full|u?random|std(?:in|out|err)|tty|ptmx)$|fd/|pts/|shm/)"
)
_VITAL = LISTS.get_words("vital folders")
_SECRET_NAMES = LISTS.get_words("names that hold credentials")
_SECRET_PATHS = re.compile(r"/(?:private/)?etc/(?:passwd|ssh)(?:[-/.]|$)|/run/secrets(?:/|$)")
_HOLDS_SECRETS = re.compile(
    r"/|/(?:home|root|Users|etc|proc|run)|.*/\.(?:config|local|local/share|docker)"
)
_CRITICAL = LISTS.compile_pattern("paths nobody overwrites", r"/(?:{})(?:[-/.]|$)")
_BROAD = re.compile(r"(.*/)(?:[.*?]*\*[.*?]*|\.?\[[^]]*\]\*|\?+)")
"""A wildcard that matches (nearly) everything in a folder."""
_CLIMBS = re.compile(r"(?:\./)*\.\.(?:/+\.\.?)*/*(?:\*|\.\*)?|~[\w.-]+/*\*?")
_MAX_LINKS = 200


class PathZones:
    """Classifies the literal paths of one command, as text and after following links."""

    def __init__(self, workspace: Path, home: Path, readable: tuple[Path, ...] = ()) -> None:
        self._readable = [spelling for path in readable for spelling in _path_spellings(path)]
        self.user_home = normalize_path(os.path.expanduser("~"))  # noqa: PTH111 - never raises
        self._workspaces = tuple(path for path in _path_spellings(workspace) if path != "/")
        self._homes = _path_spellings(home)
        self._links_left = _MAX_LINKS

    def expand_words(self, argv: Argv) -> Argv:
        """The words with `{a,b}` written out."""
        if "{" not in "".join(argv):
            return argv
        return tuple(word for given in argv for word in expand_braces(given, self.user_home))

    def resolve_path(self, word: str, folder: str | None) -> str | None:
        """The path a word names; None when that is known only at run time."""
        return None if UNKNOWN in word else _join_word(folder, word)

    def _resolve_both(self, word: str, folder: str | None) -> tuple[str, ...]:
        """The path a word names, and where it leads when it is a link."""
        path = self.resolve_path(word, folder)
        self._links_left -= 1
        if path is None or self._links_left < 0:
            return () if path is None else (path,)
        return tuple(dict.fromkeys((path, resolve_links(path))))

    def is_vital(self, word: str, folder: str | None) -> bool:
        """Whether the machine, the account or what surrounds the workspace is lost without it."""
        paths = self._resolve_both(word, folder)
        return bool(_CLIMBS.fullmatch(word)) or any(map(self._is_vital_path, paths))

    def _is_vital_path(self, path: str) -> bool:
        broad = _BROAD.fullmatch(path)
        path = (broad[1].rstrip("/") or "/") if broad else path
        if path in ("/", self.user_home):
            return True
        if self.in_workspace(path):
            return False
        user = re.fullmatch(r"/(?:home|Users)/[^/]+|/[^/]*[*?\[].*", path)
        return bool(user) or path in _VITAL or any(_is_inside(w, path) for w in self._workspaces)

    def explain_denied_write(self, word: str, folder: str | None) -> str:
        """Why nothing may ever be written there; empty when it may."""
        for path in self._resolve_both(word, folder):
            if path.startswith("/dev/") and not _PLAIN_DEVICE.match(path):
                connects = path.startswith(("/dev/tcp/", "/dev/udp/"))
                return "" if connects else f"writes to the device {word}"
            if _CRITICAL.match(path):
                return f"overwrites {path}"
        return ""

    def is_whole_workspace(self, word: str, folder: str | None) -> bool:
        path = self.resolve_path(word, folder) or ""
        broad = _BROAD.fullmatch(path)
        return (broad[1].rstrip("/") if broad else path) in self._workspaces

    def is_workspace(self, folder: str | None) -> bool:
        return folder is not None and resolve_links(folder) in self._workspaces

    def is_own_repository(self, folder: str | None) -> bool:
        """Whether git, run there, finds no repository that was made inside the workspace."""
        path, top = resolve_links(folder or "/"), self._workspaces[-1] if self._workspaces else ""
        while self.in_workspace(path):
            if os.path.lexists(f"{path}/.git"):
                return self.is_workspace(path)
            if os.path.lexists(f"{path}/HEAD") or not (os.path.lexists(path) or path == top):
                return False  # a bare repository, or a folder that is not known here
            path = os.path.dirname(path)  # noqa: PTH120 - text, as everywhere here
        return folder is not None and self.in_workspace(resolve_links(folder))

    def in_workspace(self, path: str) -> bool:
        return any(path == w or _is_inside(path, w) for w in self._workspaces)

    def touches_agent(self, word: str, folder: str | None) -> bool:
        """Whether a word is a path into the agent's home, outside a workspace in there."""
        if "/" not in word and not word.startswith("."):
            return False
        path = self.resolve_path(word.rpartition("=")[2].lstrip("@<>"), folder) or ""
        inside = any(path == home or _is_inside(path, home) for home in self._homes)
        is_open = any(path == folder or _is_inside(path, folder) for folder in self._readable)
        return inside and not is_open and not self.in_workspace(path)

    def explain_secret(self, word: str, folder: str | None, *, recursive: bool) -> str:
        """Why reading a path needs a person without a sandbox; empty when it does not."""
        paths = self._resolve_both(word, folder)
        for path in paths:
            denied = explain_denial(Path(path), Path(self.user_home), write=False)
            if denied or _SECRET_PATHS.match(path) or not _SECRET_NAMES.isdisjoint(path.split("/")):
                return f"it reads {word}, which holds credentials"
            if path.startswith("/dev/") and not _PLAIN_DEVICE.match(path):
                return f"it reads the device {word}"
            holds = _HOLDS_SECRETS.fullmatch(path) or path == self.user_home
            if recursive and (
                holds or any(_is_inside(h, path) for h in (self.user_home, *self._homes))
            ):
                return f"it reads everything below {word}, which holds credentials"
        return "" if paths else "it reads files that are known only at run time"


@lru_cache(2048)
def normalize_path(path: str) -> str:
    path = os.path.normpath(path)
    return "/" + path.lstrip("/") if path.startswith("//") else path


def change_folder(argv: Argv, folder: str | None, user_home: str) -> str | None:
    """The folder after a command such as `cd`; None when known only at run time."""
    argv = argv[1:] if argv[:1] in (("command",), ("builtin",)) else argv
    if argv[:1] not in (("cd",), ("pushd",), ("popd",)):
        return folder
    words = [word for word in argv[1:] if word not in ("-P", "-L", "--", "-e")]
    target = words[0] if words else (user_home if argv[0] == "cd" else UNKNOWN)
    if UNKNOWN in target or target == "-" or argv[0] == "popd":
        return None
    return _join_word(folder, target)


def _join_word(folder: str | None, word: str) -> str | None:
    if word.startswith("/"):
        return normalize_path(word)
    return None if folder is None else normalize_path(f"{folder}/{word}")


def _path_spellings(path: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys((normalize_path(str(path)), resolve_links(str(path)))))


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder if folder.endswith("/") else folder + "/")

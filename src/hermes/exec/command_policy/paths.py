"""Classifies paths: inside the workspace, outside, secret, vital and so on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

from hermes.exec.command_policy.shell.words import (
    has_wildcard,
    is_vague,
    literal_text,
)

Zone: TypeAlias = Literal[
    "inside",  # in the workspace, or in the private /tmp
    "top",  # the workspace itself, or everything directly in it
    "git",  # files in it that make git run something
    "plain",  # /dev/null and the like
    "outside",
    "vital",  # without it the machine or the account is lost: /, ~, /usr, …
    "device",
    "network",  # /dev/tcp/…
    "secret",
    "own",  # the agent's own files
    "unknown",
]
_PLAIN_DEVICES = frozenset("null zero full random urandom stdin stdout stderr tty ptmx".split())
_VITAL_TOP = frozenset(
    "bin boot dev etc home lib lib32 lib64 libx32 mnt media opt proc root run sbin srv sys usr var "
    "Applications Library System Users Volumes private".split()
)
_VITAL_SECOND = frozenset(
    "usr/bin usr/lib usr/lib32 usr/lib64 usr/sbin usr/share usr/local usr/include usr/libexec "
    "var/lib var/log var/spool var/db var/run usr/local/bin usr/local/lib private/etc "
    "private/var".split()
)
_SECRET_NAMES = frozenset(
    ".ssh .aws .gnupg .azure .kube .password-store .mozilla .thunderbird .netrc .pgpass .pypirc "
    ".git-credentials .npmrc keyrings Keychains .vault-token .my.cnf .s3cfg .boto .mylogin.cnf "
    ".bash_history .zsh_history .python_history .psql_history .mysql_history .node_repl_history "
    ".rediscli_history .sqlite_history .lesshst id_rsa id_ed25519 id_ecdsa id_dsa".split()
)
_AGENT_NAMES = frozenset((".hermes",))
_SECRET_PAIRS = re.compile(
    r"/(?:\.config/(?:gcloud|gh|google-chrome|chromium|BraveSoftware)|\.docker/config\.json"
    r"|\.config/(?:hub|op|rclone|BraveSoftware|microsoft-edge|heroku|doctl)|\.cargo/credentials"
    r"|\.gem/credentials|\.m2/settings|\.terraform\.d/credentials|\.config/git/credentials"
    r"|\.local/share/(?:keyrings|kwalletd)|Library/Keychains|run/secrets"
    r"|etc/(?:g?shadow|sudoers|passwd|ssh|krb5\.keytab|ssl/private|wireguard|NetworkManager)|proc/[^/]+/(?:environ|mem|auxv)|proc/kcore)(?:[-/.]|$)"
)
_PROC_ALIAS = re.compile(r"/+proc/+[^/]+/+(?:task/+[^/]+/+)?(root|cwd)(?=/|$)(.*)", re.DOTALL)
"""Other names of `/` and of the folder a process is in."""
_ZONE_PHRASES: dict[Zone, str] = {
    "outside": "outside the project folder",
    "vital": "outside the project folder",
    "unknown": "known only at run time",
    "secret": "holds credentials",
    "network": "a network connection",
    "git": "git obeys it",
    "device": "a device",
    "top": "the whole project folder",
}
_MAX_PATTERN = 60
_MAX_PARTS = 40
_GIT_CONTROL = re.compile(r"/\.git(?:/hooks|/config|/info/attributes|/modules/.*/hooks)?(?:/|$)")
_CRITICAL = re.compile(
    r"^/(?:etc/(?:passwd|g?shadow|group|sudoers|fstab|hosts\.allow|ld\.so\.preload|pam\.d)"
    r"|boot|proc/sysrq-trigger|proc/sys|sys)(?:[-/.]|$)"
)


class PathZones:
    """Classifies the paths of one command. They are compared as text and, for files that are
    written, after following links."""

    def __init__(self, workspace: Path, home: Path, tainted: frozenset[Path]) -> None:
        self.user_home = _find_user_home()
        self._workspaces = tuple(path for path in _path_spellings(workspace) if path != "/")
        self._homes = _path_spellings(home)
        self._temporary = ("/tmp", "/var/tmp", "/private/tmp")
        self.tainted = frozenset(str(path) for path in tainted)
        self._links_left = 64
        self._real_paths: dict[str, str] = {}
        self._classified: dict[tuple[str, tuple[str | None, ...], bool], set[Zone]] = {}

    def resolve_paths(self, word: str, folders: tuple[str | None, ...]) -> list[str | None]:
        """Every path a word may mean; None when that is unknown. Wildcards remain."""
        if is_vague(word):
            return [None]
        text = literal_text(word)
        while found := _PROC_ALIAS.match(text):
            text = found[2] or "/" if found[1] == "root" else "." + found[2]
        if text.startswith("/"):
            return [normalize_path(text)]
        return [None if f is None else normalize_path(f"{f}/{text}") for f in folders]

    def classify_word(
        self, word: str, folders: tuple[str | None, ...], *, follow: bool
    ) -> set[Zone]:
        key = (word, folders, follow)
        if key not in self._classified:
            self._classified[key] = self._classify_uncached(word, folders, follow)
        return self._classified[key]

    def _classify_uncached(
        self, word: str, folders: tuple[str | None, ...], follow: bool
    ) -> set[Zone]:
        if is_vague(word):
            return self._classify_vague(word, folders)
        found: set[Zone] = set()
        for path in self.resolve_paths(word, folders):
            zone = "unknown" if path is None else self.classify_path(path)
            climbs = zone == "inside" and literal_text(word).startswith("../")
            found.add("outside" if climbs and not self.in_workspace(path or "") else zone)
            if follow and path is not None and self._links_left > 0 and not has_wildcard(word):
                self._links_left -= 1
                real = self._follow_links(path)
                if real != path:
                    found.add(self.classify_path(real))
        return found

    def _follow_links(self, path: str) -> str:
        """As os.path.realpath, but without looking at the same folders again."""
        known = self._real_paths.get(path)
        if known is None:
            parent, _, name = path.rpartition("/")
            if not parent or path.count("/") > _MAX_PARTS:
                known = resolve_links(path)
            else:
                known = f"{self._follow_links(parent)}/{name}"
                known = resolve_links(path) if os.path.islink(known) else known  # noqa: PTH114
            self._real_paths[path] = known
        return known

    def _classify_vague(self, word: str, folders: tuple[str | None, ...]) -> set[Zone]:
        head = re.split("[\0\x1e]", word, maxsplit=1)[0]
        folder = head[: head.rfind("/") + 1]
        found: set[Zone] = {"unknown"}
        example = re.sub("[\0\x1e]+", "x", word)
        for zone in self.classify_word(example, folders, follow=False) & {
            "secret",
            "own",
            "device",
        }:
            found.add(zone)
        if folder:
            found |= {z for z in self.classify_word(folder, folders, follow=False) if z != "vital"}
        return found - {"top", "inside"}

    def classify_path(self, path: str) -> Zone:
        if path.startswith("/dev/"):
            return _classify_device(path)
        if self._is_agent_file(path):
            return "own"
        if self._is_secret(path):
            return "secret"
        if path in ("/", self.user_home) or _selects_all_in(path, self.user_home):
            return "vital"
        for workspace in self._workspaces:
            if path == workspace or _selects_all_in(path, workspace):
                return "top"
            if _is_inside(path, workspace):
                return "git" if _GIT_CONTROL.search(path[len(workspace) :]) else "inside"
            if _is_inside(workspace, path):
                return "vital"
        if any(_is_inside(path, folder) for folder in self._temporary):
            return "inside"
        return "vital" if self._is_vital(path) else "outside"

    def is_tainted(self, path: str) -> bool:
        if path in self.tainted:
            return True
        return bool(self.tainted) and resolve_links(path) in self.tainted

    def holds_secrets(self, path: str) -> bool:
        """Whether there are credentials somewhere below it."""
        parents = ("/", "/home", "/root", "/Users", "/etc", "/proc", "/run", self.user_home)
        path = path.rstrip("/*") or "/"
        if any(path == w or _is_inside(path, w) for w in self._workspaces):
            return False
        return (
            path in parents
            or _is_inside(self.user_home, path)
            or re.search(r"/\.(?:config|local|local/share|docker)$", path) is not None
        )

    def exists(self, path: str) -> bool:
        self._links_left -= 1
        return self._links_left > 0 and os.path.exists(path)  # noqa: PTH110 - plain text

    def in_workspace(self, path: str) -> bool:
        return any(path == w or _is_inside(path, w) for w in self._workspaces)

    def mentions_agent_home(self, text: str) -> bool:
        """Whether a text in any language names the agent's home."""
        homes = [
            home for home in self._homes if not any(_is_inside(w, home) for w in self._workspaces)
        ]
        return any(home in text for home in homes) or re.search(r"/\.hermes\b", text) is not None

    def is_critical(self, path: str) -> bool:
        """Whether overwriting it breaks the machine or gives away control of it."""
        return _CRITICAL.search(path) is not None

    def _is_agent_file(self, path: str) -> bool:
        """Whether it is in the agent's home, apart from a workspace inside that home."""
        for home in self._homes:
            if path == home or _is_inside(path, home):
                working_there = [w for w in self._workspaces if _is_inside(w, home)]
                return not any(path == w or _is_inside(path, w) for w in working_there)
            if _may_match_folder(path, home) and not any(
                _is_inside(w, home) for w in self._workspaces
            ):
                return True
        return _contains_name(path, _AGENT_NAMES)

    def _is_secret(self, path: str) -> bool:
        if _contains_name(path, _SECRET_NAMES):
            return not any(_is_inside(path, w) for w in self._workspaces) or "/.ssh" in path
        return _SECRET_PAIRS.search(path) is not None

    def _is_vital(self, path: str) -> bool:
        inside = path[1:].rstrip("/*")
        head, _, rest = path[1:].partition("/")
        if not rest and (head in _VITAL_TOP or any(c in head for c in "*?[")):
            return True
        if any(c in head for c in "*?["):
            return True
        if inside in _VITAL_SECOND or inside in _VITAL_TOP:
            return True
        parent, _, name = path.rpartition("/")
        if parent in (self.user_home, "/root") and _is_broad_wildcard(name):
            return True
        if head in ("home", "Users"):
            return "/" not in rest or _is_broad_wildcard(rest.partition("/")[2])
        return path == "/root"


def explain_denied_write(word: str, folders: tuple[str | None, ...], path_zones: PathZones) -> str:
    """Why nothing may be written there; empty when it may."""
    if is_vague(word):
        return ""
    if "device" in path_zones.classify_word(word, folders, follow=True):
        return f"writes to the device {literal_text(word)}"
    for path in path_zones.resolve_paths(word, folders):
        if path is not None and path_zones.is_critical(path):
            return f"overwrites {path}"
    return ""


def describe_zones(zones: Iterable[Zone]) -> str:
    return " (" + ", ".join(sorted(_ZONE_PHRASES.get(zone, zone) for zone in zones)) + ")"


def resolve_links(path: str) -> str:
    """The path with links resolved, or unchanged where that is not permitted, as in /proc."""
    try:
        return os.path.realpath(path)
    except OSError:
        return path


@lru_cache(2048)
def normalize_path(path: str) -> str:
    path = os.path.normpath(path)
    return "/" + path.lstrip("/") if path.startswith("//") else path


def _path_spellings(path: Path) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys((normalize_path(str(path)), normalize_path(resolve_links(str(path)))))
    )


def _find_user_home() -> str:
    try:
        return normalize_path(str(Path.home()))
    except RuntimeError:
        return "/root"


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder if folder.endswith("/") else folder + "/")


def _selects_all_in(path: str, folder: str) -> bool:
    parent, _, name = path.rpartition("/")
    return parent == folder and _is_broad_wildcard(name)


def _is_broad_wildcard(name: str) -> bool:
    """Whether a wildcard matches (nearly) everything."""
    return re.fullmatch(r"[.*?]*\*[.*?]*|\.?\[[^]]*\]\*|\?+", name) is not None


def _may_match_folder(path: str, folder: str) -> bool:
    """Whether its wildcards may match this folder."""
    if not any(c in path for c in "*?[") or len(path) > _MAX_PATTERN * 4:
        return False
    parts, names = path.split("/"), folder.split("/")
    if len(parts) < len(names) or all(set(part) <= {"*"} for part in parts[1:]):
        return False
    return all(map(fnmatchcase, names, parts)) and len(parts) > len(names)


@lru_cache(2048)
def _contains_name(path: str, names: frozenset[str]) -> bool:
    """Whether one of the names is a part of the path, or may match a wildcard in it."""
    parts = path.split("/")
    if not names.isdisjoint(parts):
        return True
    if not any(c in path for c in "*?["):
        return False
    return any(
        fnmatchcase(name, part)
        for part in parts
        if len(part) <= _MAX_PATTERN and len(part.strip("*?")) >= 2
        for name in names
    )


def _classify_device(path: str) -> Zone:
    name = path[len("/dev/") :]
    if name in _PLAIN_DEVICES or name.startswith(("fd/", "pts/")):
        return "plain"
    if name.startswith(("tcp/", "udp/")):
        return "network"
    return "inside" if name.startswith("shm/") else "device"

"""Classifies literal paths: vital, secret, the agent's own, in the workspace."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from hermes.exec.command_policy.types import Argv
from hermes.exec.command_policy.words import UNKNOWN

_PLAIN_DEVICE = re.compile(
    r"/dev/(?:(?:null|zero|full|u?random|std(?:in|out|err)|tty|ptmx)$|fd/|pts/|shm/)"
)
_VITAL = frozenset(
    "/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /libx32 /mnt /media /opt /proc /root /run "
    "/sbin /srv /sys /usr /var /Applications /Library /System /Users /Volumes /private /usr/bin "
    "/usr/lib /usr/lib32 /usr/lib64 /usr/sbin /usr/share /usr/local /usr/include /usr/libexec "
    "/usr/local/bin /usr/local/lib /var/lib /var/log /var/spool /var/db /var/run /private/etc "
    "/private/var".split()
)
_SECRET_NAMES = frozenset(
    ".ssh .aws .gnupg .azure .kube .password-store .mozilla .thunderbird .netrc .pgpass .pypirc "
    ".git-credentials .npmrc keyrings Keychains .vault-token .my.cnf .s3cfg .boto .mylogin.cnf "
    ".bash_history .zsh_history .python_history .psql_history .mysql_history .node_repl_history "
    ".rediscli_history .sqlite_history .lesshst id_rsa id_ed25519 id_ecdsa id_dsa".split()
)
_SECRET_PAIRS = re.compile(
    r"/(?:\.config/(?:gcloud|gh|google-chrome|chromium|BraveSoftware|hub|op|rclone|microsoft-edge"
    r"|heroku|doctl|git/credentials)|\.docker/config\.json|\.(?:cargo|gem|terraform\.d)/credentials"
    r"|\.m2/settings|\.local/share/(?:keyrings|kwalletd)|Library/Keychains|run/secrets"
    r"|etc/(?:g?shadow|sudoers|passwd|ssh|krb5\.keytab|ssl/private|wireguard|NetworkManager)"
    r"|proc/[^/]+/(?:environ|mem|auxv)|proc/kcore)(?:[-/.]|$)"
)
_HOLDS_SECRETS = re.compile(
    r"/|/(?:home|root|Users|etc|proc|run)|.*/\.(?:config|local|local/share|docker)"
)
_CRITICAL = re.compile(
    r"/(?:etc/(?:passwd|g?shadow|group|sudoers|fstab|hosts\.allow|ld\.so\.preload|pam\.d)"
    r"|boot|proc/sysrq-trigger|proc/sys|sys)(?:[-/.]|$)"
)
_BROAD = re.compile(r"(.*/)(?:[.*?]*\*[.*?]*|\.?\[[^]]*\]\*|\?+)")
"""A wildcard that matches (nearly) everything in a folder."""
_CLIMBS = re.compile(r"(?:\./)*\.\.(?:/+\.\.?)*/*(?:\*|\.\*)?")
_MAX_LINKS = 200


class PathZones:
    """Classifies the literal paths of one command, as text and after following links."""

    def __init__(self, workspace: Path, home: Path) -> None:
        self.user_home = normalize_path(os.path.expanduser("~"))  # noqa: PTH111 - never raises
        self._workspaces = tuple(path for path in _path_spellings(workspace) if path != "/")
        self._homes = _path_spellings(home)
        self._links_left = _MAX_LINKS

    def resolve_path(self, word: str, folder: str | None) -> str | None:
        """The path a word names; None when that is known only at run time."""
        if UNKNOWN in word:
            return None
        if word.startswith("/"):
            return normalize_path(word)
        return None if folder is None else normalize_path(f"{folder}/{word}")

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

    def in_workspace(self, path: str) -> bool:
        return any(path == w or _is_inside(path, w) for w in self._workspaces)

    def touches_agent(self, word: str, folder: str | None) -> bool:
        """Whether a word is a path into the agent's home, or a text that names it. A workspace
        inside that home is not part of it."""
        if "/" not in word and not word.startswith("."):
            return False
        if any(home in word for home in self._homes):
            outside = word
            for workspace in self._workspaces:
                outside = outside.replace(workspace, "")
            return any(home in outside for home in self._homes)
        path = self.resolve_path(word.rpartition("=")[2].lstrip("@<>"), folder)
        if path is None or " " in path:
            return False
        inside = any(path == home or _is_inside(path, home) for home in self._homes)
        if inside or any(_is_inside(w, home) for w in self._workspaces for home in self._homes):
            return inside and not self.in_workspace(path)
        return ".hermes" in path.split("/")

    def explain_secret(self, word: str, folder: str | None, *, recursive: bool) -> str:
        """Why reading a path needs a person without a sandbox; empty when it does not."""
        paths = self._resolve_both(word, folder)
        for path in paths:
            if self._is_secret(path):
                return f"it reads {word}, which holds credentials"
            if path.startswith("/dev/") and not _PLAIN_DEVICE.match(path):
                return f"it reads the device {word}"
            holds = _HOLDS_SECRETS.fullmatch(path) or path == self.user_home
            if recursive and (
                holds or any(_is_inside(h, path) for h in (self.user_home, *self._homes))
            ):
                return f"it reads everything below {word}, which holds credentials"
        return "" if paths else "it reads files that are known only at run time"

    def _is_secret(self, path: str) -> bool:
        if not _SECRET_NAMES.isdisjoint(path.split("/")):
            return not any(_is_inside(path, w) for w in self._workspaces) or "/.ssh" in path
        return _SECRET_PAIRS.search(path) is not None


def resolve_links(path: str) -> str:
    """The path with links resolved, or unchanged where that is not permitted, as in /proc."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


@lru_cache(2048)
def normalize_path(path: str) -> str:
    path = os.path.normpath(path)
    return "/" + path.lstrip("/") if path.startswith("//") else path


def change_folder(argv: Argv, folder: str | None, user_home: str) -> str | None:
    """The folder after a `cd` or `pushd`; None when known only at run time."""
    words = [word for word in argv[1:] if word not in ("-P", "-L", "--", "-e")]
    target = words[0] if words else (user_home if argv[0] == "cd" else UNKNOWN)
    if UNKNOWN in target or target == "-" or argv[0] == "popd":
        return None
    if target.startswith("/"):
        return normalize_path(target)
    return None if folder is None else normalize_path(f"{folder}/{target}")


def _path_spellings(path: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys((normalize_path(str(path)), resolve_links(str(path)))))


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder if folder.endswith("/") else folder + "/")

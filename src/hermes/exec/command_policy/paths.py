"""Where a path leads: into the workspace, out of it, or to something that is no tool's business."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

from hermes.exec.command_policy.findings import Verdict
from hermes.exec.command_policy.programs.builtin_rules import NETWORK
from hermes.exec.command_policy.programs.wrappers import unwrap
from hermes.exec.command_policy.shell.simple_command import Simple
from hermes.exec.command_policy.shell.words import literal, vague, wild, written
from hermes.exec.command_policy.types import Certainty

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
_PLAIN = frozenset("null zero full random urandom stdin stdout stderr tty ptmx".split())
_TOP = frozenset(
    "bin boot dev etc home lib lib32 lib64 libx32 mnt media opt proc root run sbin srv sys usr var "
    "Applications Library System Users Volumes private".split()
)
_SECOND = frozenset(
    "usr/bin usr/lib usr/lib32 usr/lib64 usr/sbin usr/share usr/local usr/include usr/libexec "
    "var/lib var/log var/spool var/db var/run usr/local/bin usr/local/lib private/etc "
    "private/var".split()
)
_SECRET = frozenset(
    ".ssh .aws .gnupg .azure .kube .password-store .mozilla .thunderbird .netrc .pgpass .pypirc "
    ".git-credentials .npmrc keyrings Keychains .vault-token .my.cnf .s3cfg .boto .mylogin.cnf "
    ".bash_history .zsh_history .python_history .psql_history .mysql_history .node_repl_history "
    ".rediscli_history .sqlite_history .lesshst id_rsa id_ed25519 id_ecdsa id_dsa".split()
)
_AGENTS = frozenset((".hermes",))
_SECRET_PAIRS = re.compile(
    r"/(?:\.config/(?:gcloud|gh|google-chrome|chromium|BraveSoftware)|\.docker/config\.json"
    r"|\.config/(?:hub|op|rclone|BraveSoftware|microsoft-edge|heroku|doctl)|\.cargo/credentials"
    r"|\.gem/credentials|\.m2/settings|\.terraform\.d/credentials|\.config/git/credentials"
    r"|\.local/share/(?:keyrings|kwalletd)|Library/Keychains|run/secrets"
    r"|etc/(?:g?shadow|sudoers|passwd|ssh|krb5\.keytab|ssl/private|wireguard|NetworkManager)|proc/[^/]+/(?:environ|mem|auxv)|proc/kcore)(?:[-/.]|$)"
)
_AROUND = re.compile(r"/+proc/+[^/]+/+(?:task/+[^/]+/+)?(root|cwd)(?=/|$)(.*)", re.DOTALL)
"""Other names of `/` and of the folder a process is in."""
_ZONES: dict[Zone, str] = {
    "outside": "outside the workspace",
    "vital": "outside the workspace",
    "unknown": "only known when it runs",
    "secret": "holds credentials",
    "network": "a network connection",
    "git": "git acts on it",
    "device": "a device",
    "top": "the whole workspace",
}
_MAX_PATTERN = 60
_MAX_PARTS = 40
_GIT = re.compile(r"/\.git(?:/hooks|/config|/info/attributes|/modules/.*/hooks)?(?:/|$)")
_CRITICAL = re.compile(
    r"^/(?:etc/(?:passwd|g?shadow|group|sudoers|fstab|hosts\.allow|ld\.so\.preload|pam\.d)"
    r"|boot|proc/sysrq-trigger|proc/sys|sys)(?:[-/.]|$)"
)

OWN = "touches the agent's own files"


class Places:
    """The folders of one judgement. Paths are compared as text and, for files that are written,
    after following links."""

    def __init__(self, workspace: Path, home: Path, tainted: frozenset[Path]) -> None:
        self.user = _user_home()
        self._workspaces = tuple(path for path in _both(workspace) if path != "/")
        self._homes = _both(home)
        self._temporary = ("/tmp", "/var/tmp", "/private/tmp")
        self.tainted = frozenset(str(path) for path in tainted)
        self._links_left = 64
        self._reals: dict[str, str] = {}
        self._known: dict[tuple[str, tuple[str | None, ...], bool], set[Zone]] = {}

    def paths(self, word: str, folders: tuple[str | None, ...]) -> list[str | None]:
        """Every path a word may mean; None when that cannot be told. Wildcards stay."""
        if vague(word):
            return [None]
        text = literal(word)
        while found := _AROUND.match(text):
            text = found[2] or "/" if found[1] == "root" else "." + found[2]
        if text.startswith("/"):
            return [normal(text)]
        return [None if f is None else normal(f"{f}/{text}") for f in folders]

    def zones(self, word: str, folders: tuple[str | None, ...], *, follow: bool) -> set[Zone]:
        key = (word, folders, follow)
        if key not in self._known:
            self._known[key] = self._zones(word, folders, follow)
        return self._known[key]

    def _zones(self, word: str, folders: tuple[str | None, ...], follow: bool) -> set[Zone]:
        if vague(word):
            return self._vague_zones(word, folders)
        found: set[Zone] = set()
        for path in self.paths(word, folders):
            zone = "unknown" if path is None else self.zone(path)
            climbs = zone == "inside" and literal(word).startswith("../")
            found.add("outside" if climbs and not self.in_workspace(path or "") else zone)
            if follow and path is not None and self._links_left > 0 and not wild(word):
                self._links_left -= 1
                real = self._real(path)
                if real != path:
                    found.add(self.zone(real))
        return found

    def _real(self, path: str) -> str:
        """As os.path.realpath, which looks at every folder of a path again each time."""
        known = self._reals.get(path)
        if known is None:
            parent, _, name = path.rpartition("/")
            if not parent or path.count("/") > _MAX_PARTS:
                known = real_path(path)
            else:
                known = f"{self._real(parent)}/{name}"
                known = real_path(path) if os.path.islink(known) else known  # noqa: PTH114
            self._reals[path] = known
        return known

    def _vague_zones(self, word: str, folders: tuple[str | None, ...]) -> set[Zone]:
        head = re.split("[\0\x1e]", word, maxsplit=1)[0]
        folder = head[: head.rfind("/") + 1]
        found: set[Zone] = {"unknown"}
        example = re.sub("[\0\x1e]+", "x", word)
        for zone in self.zones(example, folders, follow=False) & {"secret", "own", "device"}:
            found.add(zone)
        if folder:
            found |= {z for z in self.zones(folder, folders, follow=False) if z != "vital"}
        return found - {"top", "inside"}

    def zone(self, path: str) -> Zone:
        if path.startswith("/dev/"):
            return _device(path)
        if self._is_own(path):
            return "own"
        if self._is_secret(path):
            return "secret"
        if path in ("/", self.user) or _directly_all(path, self.user):
            return "vital"
        for workspace in self._workspaces:
            if path == workspace or _directly_all(path, workspace):
                return "top"
            if _inside(path, workspace):
                return "git" if _GIT.search(path[len(workspace) :]) else "inside"
            if _inside(workspace, path):
                return "vital"
        if any(_inside(path, folder) for folder in self._temporary):
            return "inside"
        return "vital" if self._is_vital(path) else "outside"

    def is_tainted(self, path: str) -> bool:
        if path in self.tainted:
            return True
        return bool(self.tainted) and real_path(path) in self.tainted

    def holds_secrets(self, path: str) -> bool:
        """Somewhere below it are credentials."""
        parents = ("/", "/home", "/root", "/Users", "/etc", "/proc", "/run", self.user)
        path = path.rstrip("/*") or "/"
        if any(path == w or _inside(path, w) for w in self._workspaces):
            return False
        return (
            path in parents
            or _inside(self.user, path)
            or re.search(r"/\.(?:config|local|local/share|docker)$", path) is not None
        )

    def exists(self, path: str) -> bool:
        self._links_left -= 1
        return self._links_left > 0 and os.path.exists(path)  # noqa: PTH110 - plain text

    def in_workspace(self, path: str) -> bool:
        return any(path == w or _inside(path, w) for w in self._workspaces)

    def names_own(self, text: str) -> bool:
        """A text in some language that names the agent's home."""
        homes = [
            home for home in self._homes if not any(_inside(w, home) for w in self._workspaces)
        ]
        return any(home in text for home in homes) or re.search(r"/\.hermes\b", text) is not None

    def critical(self, path: str) -> bool:
        """Overwriting it takes the machine down or hands it over."""
        return _CRITICAL.search(path) is not None

    def _is_own(self, path: str) -> bool:
        """All of its home, unless one works inside that home."""
        for home in self._homes:
            if path == home or _inside(path, home):
                working_there = [w for w in self._workspaces if _inside(w, home)]
                return not any(path == w or _inside(path, w) for w in working_there)
            if _may_lead_to(path, home) and not any(_inside(w, home) for w in self._workspaces):
                return True
        return _has_part(path, _AGENTS)

    def _is_secret(self, path: str) -> bool:
        if _has_part(path, _SECRET):
            return not any(_inside(path, w) for w in self._workspaces) or "/.ssh" in path
        return _SECRET_PAIRS.search(path) is not None

    def _is_vital(self, path: str) -> bool:
        inside = path[1:].rstrip("/*")
        head, _, rest = path[1:].partition("/")
        if not rest and (head in _TOP or any(c in head for c in "*?[")):
            return True
        if any(c in head for c in "*?["):
            return True
        if inside in _SECOND or inside in _TOP:
            return True
        parent, _, name = path.rpartition("/")
        if parent in (self.user, "/root") and _takes_all(name):
            return True
        if head in ("home", "Users"):
            return "/" not in rest or _takes_all(rest.partition("/")[2])
        return path == "/root"


class Files:
    """What is found about files goes into the verdict; what came from the network is marked."""

    def __init__(self, places: Places, verdict: Verdict, *, sandboxed: bool) -> None:
        self._places = places
        self._verdict = verdict
        self._sandboxed = sandboxed

    def written(self, word: str, simple: Simple) -> None:
        zones = self._places.zones(word, simple.folders, follow=True)
        if zones != {"plain"}:
            self._verdict.read_only = False
        if reason := blocked_write(word, simple.folders, self._places):
            self._verdict.deny(reason)
        if "own" in zones:
            self._verdict.deny(f"writes to {written(word)}: {OWN}")
        if bad := zones - {"inside", "plain", "top", "device", "own"}:
            self._verdict.ask(f"writes to {written(word)}{where(bad)}", _certainty(bad))
        elif not self._sandboxed and zones != {"plain"}:
            self._verdict.ask("writes a file, and there is no sandbox")
        wrapped = simple.argv and unwrap(simple.argv, None) is not None
        programs = (*simple.sources, *(simple.argv if wrapped else simple.argv[:1]))
        if {word.rpartition("/")[2] for word in programs} & NETWORK:
            for path in self._places.paths(word, simple.folders):
                self.downloaded(path)

    def opened(self, word: str, folders: tuple[str | None, ...]) -> None:
        zones = self._places.zones(word, folders, follow=True)
        if "own" in zones:
            self._verdict.deny(f"reads {written(word)}: {OWN}")
        if bad := zones & {"secret", "network", "device"}:
            self._verdict.ask(f"reads {written(word)}{where(bad)}")

    def named(self, word: str, program: str, folders: tuple[str | None, ...]) -> None:
        """Any argument may be a path, also behind `--option=` or `@`."""
        text = word
        if text.startswith("-") or "=" in text:
            text = text.rpartition("=")[2] or text
        text = text.lstrip("@<>")
        if " " in literal(text) or "\n" in text or program in ("echo", "printf"):
            return
        zones = self._places.zones(text, folders, follow=False)
        if "own" in zones:
            self._verdict.deny(f"{written(word)}: {OWN}")
        if bad := zones & {"secret", "network"}:
            self._verdict.ask(f"{written(word)}{where(bad)}")

    def ran(self, word: str, simple: Simple) -> None:
        for path in self._places.paths(word, simple.folders):
            if path is not None and self._places.is_tainted(path):
                self._verdict.ask(f"runs {written(word)}, which came from the network")

    def own(self, value: str) -> bool:
        """A value that names the agent's own files."""
        return value.startswith("/") and "own" in self._places.zones(value, (None,), follow=False)

    def downloaded(self, path: str | None) -> None:
        if path is not None and not self._verdict.only_worst and not path.startswith("/dev/"):
            self._verdict.downloads.append(Path(path))
            self._places.tainted |= {path}


def blocked_write(word: str, folders: tuple[str | None, ...], places: Places) -> str:
    """Why nothing may be written there, or empty."""
    if vague(word):
        return ""
    if "device" in places.zones(word, folders, follow=True):
        return f"writes to the device {literal(word)}"
    for path in places.paths(word, folders):
        if path is not None and places.critical(path):
            return f"overwrites {path}"
    return ""


def _certainty(zones: Iterable[Zone]) -> Certainty:
    return Certainty.UNCERTAIN if "unknown" in zones else Certainty.CERTAIN


def where(zones: Iterable[Zone]) -> str:
    return " (" + ", ".join(sorted(_ZONES.get(zone, zone) for zone in zones)) + ")"


def real_path(path: str) -> str:
    """Where links lead; the path itself where that may not be seen, as in /proc."""
    try:
        return os.path.realpath(path)
    except OSError:
        return path


@lru_cache(2048)
def normal(path: str) -> str:
    path = os.path.normpath(path)
    return "/" + path.lstrip("/") if path.startswith("//") else path


def _both(path: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys((normal(str(path)), normal(real_path(str(path))))))


def _user_home() -> str:
    try:
        return normal(str(Path.home()))
    except RuntimeError:
        return "/root"


def _inside(path: str, folder: str) -> bool:
    return path.startswith(folder if folder.endswith("/") else folder + "/")


def _directly_all(path: str, folder: str) -> bool:
    parent, _, name = path.rpartition("/")
    return parent == folder and _takes_all(name)


def _takes_all(name: str) -> bool:
    """A wildcard that spares (nearly) nothing."""
    return re.fullmatch(r"[.*?]*\*[.*?]*|\.?\[[^]]*\]\*|\?+", name) is not None


def _may_lead_to(path: str, folder: str) -> bool:
    """Wildcards in it may stand for this folder."""
    if not any(c in path for c in "*?[") or len(path) > _MAX_PATTERN * 4:
        return False
    parts, names = path.split("/"), folder.split("/")
    if len(parts) < len(names) or all(set(part) <= {"*"} for part in parts[1:]):
        return False
    return all(map(fnmatchcase, names, parts)) and len(parts) > len(names)


@lru_cache(2048)
def _has_part(path: str, names: frozenset[str]) -> bool:
    """One of the names is a part of the path, or what a wildcard in it may stand for."""
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


def _device(path: str) -> Zone:
    name = path[len("/dev/") :]
    if name in _PLAIN or name.startswith(("fd/", "pts/")):
        return "plain"
    if name.startswith(("tcp/", "udp/")):
        return "network"
    return "inside" if name.startswith("shm/") else "device"

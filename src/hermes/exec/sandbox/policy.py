"""What a command may see and change, and how strongly this machine can enforce it."""

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct, structs

from hermes.core.errors import ConfigError
from hermes.exec.launcher.protocol import SetupInstructions
from hermes.exec.path_rules import SYSTEM_PATHS, explain_denial, find_agent_paths, list_names
from hermes.exec.sandbox.planted_files import find_main_repository, find_plantable_paths
from hermes.exec.sandbox.toolchains import CACHES, PROGRAMS, RENEWABLE, VERSIONED_CREDENTIALS

SandboxMode: TypeAlias = Literal["read-only", "workspace-write", "full-access"]
TierLevel: TypeAlias = Literal[1, 2, 3]

_GB = 1024**3
_MAX_FOLDERS = 2000
_HOME_FOLDERS = (Path("/root"), Path("/home"))
_SYSTEM_PATHS = ("/bin/sh", "/etc", "/lib", "/proc", "/dev")
_READ_ONLY_SYSTEM = ("/bin", "/boot", "/etc", "/lib", "/lib64", "/sbin", "/usr")
_KEYS_IN_HOME = (*list_names("hide", scope="anywhere"), *list_names("hide", scope="home"))
_KEYS_AMONG_TOOLS = [
    key
    for key in _KEYS_IN_HOME
    if any(key.startswith(f"{tool}/") for tool in (*PROGRAMS, *CACHES, *RENEWABLE))
]
_KEYS_OF_ROOT = list_names("hide", scope="root")


class ResourceLimits(Struct, frozen=True):
    """For one command with everything it starts, or for each process where there are no control
    groups. 0: derived from this machine."""

    memory: int = 0
    processes: int = 1024
    file: int = 16 * _GB
    scratch: int = 2 * _GB
    open_files: int = 65536


class PathOverlay(NamedTuple):
    """Another file or folder shown at a path."""

    path: Path
    source: Path
    writable: bool


class SandboxPolicy(Struct, frozen=True):
    """What one command may see and change."""

    mode: SandboxMode
    workspace: Path
    hidden: tuple[Path, ...] = ()
    """Neither readable nor writable, except the workspace and `visible` paths inside them."""
    protected: tuple[Path, ...] = ()
    """Read-only inside the workspace; those that do not exist cannot be created."""
    kept_missing: tuple[Path, ...] = ()
    """The same for names that programs outside read meanwhile and must find missing."""
    removed_after: tuple[Path, ...] = ()
    """Names that can only be removed after the command if it created them; with namespaces only."""
    network: str = ""
    """Where the egress proxy listens: the path of its Unix socket (tier 1), or its URL on the
    machine's loopback, with credentials (tier 2). Empty: no network."""
    visible: tuple[Path, ...] = ()
    """Readable although inside something hidden."""
    granted: tuple[Path, ...] = ()
    """Real paths that a person lets it read. If one is replaced by a link, nothing is run."""
    writable: tuple[Path, ...] = ()
    """The same for those that it may change."""
    overlays: tuple[PathOverlay, ...] = ()
    limits: ResourceLimits = ResourceLimits()
    readable: tuple[Path, ...] = SYSTEM_PATHS
    """What of the system can be read, as far as it exists."""
    caches: tuple[Path, ...] = ()
    """Folders that can be read, and with namespaces changed: for the command itself only."""
    home_links: tuple[tuple[str, Path], ...] = ()
    """Names of links in the home that a command gets, and the visible paths they lead to."""

    def allows_reading(self, path: Path) -> bool:
        """Whether this real path can be read. The innermost path that names it decides."""
        shown = (self.workspace, *self.readable, *self.visible, *self.caches)
        shown += (*self.granted, *self.writable)
        return 0 < _measure_depth(path, shown) >= _measure_depth(path, self.hidden)


class SandboxTier(Struct, frozen=True):
    """How commands are confined here: 1 in namespaces, 2 by Landlock or Seatbelt, 3 not at all."""

    level: TierLevel
    name: str
    evidence: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    landlock: int = 0
    """Version of the kernel's Landlock; 0: none."""
    bwrap: str = ""
    seatbelt: bool = False
    lowered: bool = False
    """Whether it is weaker than when it was last probed."""


class LaunchPlan(Struct, frozen=True):
    """What the launcher executes, and how it confines the process first."""

    argv: tuple[str, ...]
    env: dict[str, str]
    setup: SetupInstructions | None = None


def build_policy(
    mode: SandboxMode,
    workspace: Path,
    agent_home: Path,
    user_home: Path,
    *,
    network: str = "",
) -> SandboxPolicy:
    workspace, user_home = _resolve_path(workspace), _resolve_path(user_home)
    if workspace == Path("/"):
        raise ConfigError("The root folder cannot be a workspace; choose a folder below it.")
    own, steering = find_agent_paths(workspace, _resolve_path(agent_home), user_home)
    hidden = [_resolve_path(agent_home), *own]
    hidden += [
        home
        for home in (user_home, *_HOME_FOLDERS)
        if home.is_dir() and not home.is_relative_to(workspace) and not _is_system_folder(home)
    ]
    keys = _KEYS_AMONG_TOOLS if user_home in hidden else (*_KEYS_IN_HOME, ".hermes")
    hidden += (*_list_existing(user_home, keys), *_find_versioned_keys(user_home))
    if os.geteuid() == 0:
        hidden += _list_existing(Path("/"), _KEYS_OF_ROOT)
    hidden += _find_private_settings("/etc")
    plantable = find_plantable_paths(workspace, user_home, PROGRAMS)
    programs = _list_existing(user_home, PROGRAMS)
    caches, renewable = (
        [path for path in _list_existing(user_home, names) if not path.is_relative_to(workspace)]
        for names in (CACHES, RENEWABLE)
    )
    repository = find_main_repository(workspace)
    apart = [str(path) for path in caches], [str(path) for path in renewable]
    links = [path for top in (*programs, *caches) for path in _list_links(str(top), *apart)]
    return SandboxPolicy(
        mode,
        workspace,
        tuple(dict.fromkeys(hidden)),
        plantable.protected,
        (*plantable.kept_missing, *steering),
        plantable.removed_after,
        network,
        (*programs, repository) if repository else tuple(programs),
        caches=(*caches, *renewable),
        home_links=tuple((p[len(str(user_home)) + 1 :], Path(p)) for p in dict.fromkeys(links)),
    )


def add_grants(
    policy: SandboxPolicy, user_home: Path, *, read: Iterable[Path], write: Iterable[Path]
) -> SandboxPolicy:
    """The policy with these real paths, and the names in the home that lead to them."""
    granted, writable = tuple(read), tuple(write)
    links = dict(policy.home_links)
    home = _resolve_path(user_home)
    for path in (*granted, *writable):
        if path.is_relative_to(home):
            links[str(path.relative_to(home))] = path
    if granted or writable:
        links |= _list_links_to((*granted, *writable), home)
    outer = {name for name in links if not any(str(p) in links for p in Path(name).parents)}
    return structs.replace(
        policy,
        granted=granted,
        writable=writable,
        home_links=tuple((name, path) for name, path in links.items() if name in outer),
    )


def _list_links_to(paths: Collection[Path], home: Path) -> Iterator[tuple[str, Path]]:
    """The links at the top of a home that lead to one of these paths, or below it."""
    with suppress(OSError), os.scandir(home) as entries:
        for entry in entries:
            if entry.is_symlink():
                target = _resolve_path(Path(entry.path))
                if any(target.is_relative_to(path) for path in paths):
                    yield entry.name, target


def explain_ungrantable(path: Path, agent_home: Path, user_home: Path, *, write: bool) -> str:
    """Why no answer can give commands this path; empty when a person may grant it."""
    real = _resolve_path(path)
    if not os.path.exists(real):  # noqa: PTH110 - Path's raises
        return f"{path} does not exist; name an existing file or folder"
    closed = ("/proc", "/sys", "/dev") + (_READ_ONLY_SYSTEM if write else ())
    if real == Path("/") or any(real.is_relative_to(folder) for folder in closed):
        return f"{path} belongs to the system"
    own = (_resolve_path(agent_home), user_home / ".hermes")
    if any(real.is_relative_to(home) or home.is_relative_to(real) for home in own):
        return f"{path} holds the agent's own files"
    keys = (*_list_existing(user_home, _KEYS_IN_HOME), *_find_versioned_keys(user_home))
    keys += tuple(_list_existing(Path("/"), _KEYS_OF_ROOT))
    if any(real.is_relative_to(key) or key.is_relative_to(real) for key in keys):
        return f"{path} holds credentials; name what you need beside them"
    key = next(_find_credentials(real, user_home), None)
    if key == real:
        return f"{path} has too many folders to be searched for credentials; name those you need"
    if key:
        return f"{path} holds credentials ({key.relative_to(real)}); name what you need beside them"
    return ""


def _find_credentials(folder: Path, user_home: Path) -> Iterator[Path]:
    """The credentials in a folder and in the folders right below it; the folder itself when these
    are too many to look into."""
    waiting = [folder]
    for place in waiting:
        if len(waiting) > _MAX_FOLDERS:
            yield folder
            return
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                path = Path(entry.path)
                if explain_denial(path, user_home, write=False):
                    yield path
                elif place == folder and entry.is_dir(follow_symlinks=False):
                    waiting.append(path)


@lru_cache(maxsize=1)
def _find_private_settings(folder: str) -> tuple[Path, ...]:
    """What we may read below a folder of the system, but not everybody may."""
    found: list[Path] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            needed = 5 if stat.S_ISDIR(status.st_mode) else 4
            if stat.S_ISLNK(status.st_mode) or not status.st_size:
                continue
            if status.st_mode & needed != needed:
                found += [Path(entry.path)] if os.access(entry.path, os.R_OK) else []
            elif needed == 5:
                found += _find_private_settings.__wrapped__(entry.path)
    return tuple(found)


def _measure_depth(path: Path, folders: Iterable[Path]) -> int:
    """How deep the innermost of these folders is that is or holds the path; 0: none does."""
    return max((len(f.parts) for f in folders if path.is_relative_to(f)), default=0)


def _is_system_folder(home: Path) -> bool:
    """Whether it holds what every command needs: in containers a home may be such a folder."""
    return any(_resolve_path(Path(needed)).is_relative_to(home) for needed in _SYSTEM_PATHS)


def _resolve_path(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _list_links(path: str, caches: Collection[str], renewable: Collection[str]) -> Iterator[str]:
    """The largest trees at `path` that leave each cache a folder of its own."""
    if path in renewable:
        return
    if path not in caches and not any(c.startswith(path + "/") for c in (*caches, *renewable)):
        yield path
        return
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if path not in caches or entry.is_dir():  # files there are locks and marks
                yield from _list_links(entry.path, caches, renewable)


def _find_versioned_keys(home: Path) -> Iterator[Path]:
    for pattern in VERSIONED_CREDENTIALS:
        folder, _, below = pattern.partition("/*/")
        with suppress(OSError), os.scandir(home / folder) as versions:
            yield from _list_existing(home / folder, [f"{v.name}/{below}" for v in versions])


def _list_existing(folder: Path, names: Iterable[str]) -> list[Path]:
    return [folder / name for name in names if os.path.exists(f"{folder}/{name}")]  # noqa: PTH110 - Path's raises

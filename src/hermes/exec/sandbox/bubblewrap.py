"""Tier 1: builds a bubblewrap command line that shows a command only what its policy allows."""

# ruff: noqa: PTH120
import os
import stat
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from hermes.core.errors import ToolError
from hermes.exec.launcher import protocol
from hermes.exec.launcher.placeholders import is_bare_repository
from hermes.exec.sandbox import seccomp
from hermes.exec.sandbox.limits import limit_instructions
from hermes.exec.sandbox.network import wrap_in_relay
from hermes.exec.sandbox.planted_files import FILES_AT_HOME
from hermes.exec.sandbox.policy import LaunchPlan, SandboxPolicy
from hermes.exec.sandbox.protected_paths import PathGuards, plan_guards

MountKind: TypeAlias = Literal[
    "scratch", "session", "hide", "mask", "empty", "write", "read", "link"
]  # fmt: skip
_MOUNT_OPTIONS: dict[MountKind, str] = {
    "scratch": "--tmpfs", "hide": "--tmpfs", "session": "--bind", "write": "--bind",
    "read": "--ro-bind", "mask": "--ro-bind", "empty": "--dev-bind", "link": "--symlink",
}  # fmt: skip
_TMP = "/tmp"
_NAMES_AT_HOME = tuple(f"/{name}" for name in FILES_AT_HOME)
_SCRATCH_FOLDERS = ("/run", "/var/tmp")
_MAX_FOLDERS = 500
_NO_WORKSPACE = ("/dev", "/proc", "/sys")
_FIXED_OPTIONS = """
    --unshare-user --unshare-ipc --unshare-pid --unshare-uts --unshare-cgroup-try --disable-userns
    --cap-drop ALL --new-session --die-with-parent --proc /proc --dev /dev
""".split()


def plan_launch(
    argv: Sequence[str],
    policy: SandboxPolicy,
    bwrap: str,
    *,
    env: Mapping[str, str],
    cwd: Path,
) -> LaunchPlan:
    """How to start `argv` in new namespaces."""
    workspace = os.path.realpath(policy.workspace)
    if workspace == "/" or any((workspace + "/").startswith(p + "/") for p in _NO_WORKSPACE):
        raise ToolError(f"{workspace} cannot be the workspace of a sandbox. Nothing was run.")
    inside = dict(env)
    command = list(argv)
    if policy.network:
        command, proxies = wrap_in_relay(command, policy.network, protocol.PROXY_SOCKET)
        inside |= proxies
    guards = plan_guards(policy.workspace, policy.protected, policy.kept_missing)
    if policy.mode == "read-only":
        guards = PathGuards()
    if f"{workspace}/.git" in guards.placeholders:  # go takes it for a repository
        inside["GOFLAGS"] = f"{inside.get('GOFLAGS', '')} -buildvcs=false".strip()
    mounts = _plan_mounts(policy, workspace, guards, inside.get("HOME", ""))
    if "HOME" in inside:
        home = os.path.realpath(inside["HOME"])
        usable = mounts.get(home) == "scratch" or f"{home}/".startswith(f"{workspace}/")
        inside["HOME"] = home if usable else "/tmp"
    resources = limit_instructions(policy.limits)
    scratch = min(policy.limits.scratch, resources["cgroup_limits"][0] // 2)
    options = [*_FIXED_OPTIONS, "--size", str(scratch), "--tmpfs", "/dev/shm"]
    options += ["--remount-ro", "/dev", "--remount-ro", "/proc"]  # root may write to /proc/sys
    sources = _find_sources(policy)
    mounts |= {str(o.path): "write" if o.writable else "read" for o in policy.overlays}
    copies = [path for path in map(os.path.realpath, policy.caches) if _is_folder(path)]
    mounts |= dict.fromkeys(copies, "write")
    for path, target in _list_home_links(policy, inside.get("HOME", ""), mounts):
        mounts[path], sources[path] = "link", target
    names = _cover_names(mounts)
    options += _mount_options(mounts, scratch, sources)
    for name, value in inside.items():
        options += ["--setenv", name, value]
    options += ["--chdir", os.path.realpath(cwd)]
    table, _ = seccomp.MACHINES[os.uname().machine]
    files = [seccomp.build_namespace_filter(table), b"\0".join(os.fsencode(o) for o in options)]
    setup: protocol.SetupInstructions = {
        **resources,
        **_socket_instructions(policy),
        **_guard_instructions(policy, guards, workspace),
        "scratch": os.fsencode(f"/tmp/hermes-{os.urandom(8).hex()}"),
        "granted": [os.fsencode(path) for path in (*policy.granted, *policy.writable)],
        "tmp": (scratch, [os.fsencode(name) for name in names]),
        "detached": [os.fsencode(path) for path in _list_detachable(policy, mounts, copies)],
        "private_copies": [os.fsencode(path) for path in copies],
        "copy_bytes": scratch,
        "memory_files": files,
        "wrapped": True,
    }
    fixed = ["--json-status-fd", str(protocol.STATUS_FD), "--seccomp", str(protocol.FIRST_FILE_FD)]
    fixed += ["--args", str(protocol.FIRST_FILE_FD + 1)]
    return LaunchPlan((bwrap, *fixed, "--", *command), {}, setup)


def _guard_instructions(
    policy: SandboxPolicy, guards: PathGuards, workspace: str
) -> protocol.SetupInstructions:
    """How the launcher keeps commands from planting what programs outside obey."""
    found: protocol.SetupInstructions = {
        "placeholders": [os.fsencode(path) for path in guards.placeholders],
        "link_placeholders": [os.fsencode(path) for path in guards.link_placeholders],
        "removed_after": [os.fsencode(p) for p in policy.removed_after if not os.path.lexists(p)],
        "covered_links": [os.fsencode(path) for path in guards.links],
    }
    root = os.fsencode(workspace)
    if policy.mode == "workspace-write" and not is_bare_repository(root):
        found["not_bare"] = root
    return found


def _socket_instructions(policy: SandboxPolicy) -> protocol.SetupInstructions:
    """Connections are made by the supervisor: inside, or to the proxy."""
    table, number = seccomp.MACHINES[os.uname().machine]
    found: protocol.SetupInstructions = {}
    if seccomp.can_broker_sockets():
        found["seccomp"] = number, seccomp.build_connect_filter(table)
    if policy.network:
        found["proxy"] = os.fsencode(os.path.realpath(policy.network))
    return found


def _plan_mounts(
    policy: SandboxPolicy, workspace: str, guards: PathGuards, home: str
) -> dict[str, MountKind]:
    """Path -> what is mounted there. The innermost path wins."""
    mounts = _plan_readable(policy)
    writable = policy.mode == "workspace-write"
    mounts[workspace] = "write" if writable and not guards.barred else "read"
    mounts |= dict.fromkeys(map(str, policy.writable), "write")
    mounts |= _plan_hidden(policy, os.path.realpath(home) if home else "", mounts)
    if writable and guards.barred:
        for path in _list_writable_folders(workspace):
            mounts.setdefault(path, "write")
    for path in guards.pinned:
        mounts.setdefault(path, "write")
    # Link placeholders are covered before bubblewrap starts; each mount of its own costs 1 ms.
    for path in (*guards.read_only, *guards.placeholders, *guards.links):
        if path not in guards.link_placeholders and mounts.get(path) not in ("hide", "mask"):
            mounts[path] = "read"
    # Git refuses to work when settings that it includes exist and cannot be read.
    included = (p for p in guards.link_placeholders if not p.endswith(_NAMES_AT_HOME))
    mounts |= dict.fromkeys(included, "empty")
    if policy.network:
        mounts[protocol.PROXY_SOCKET] = "read"
    return mounts


def _find_sources(policy: SandboxPolicy) -> dict[str, str]:
    """Path -> where bubblewrap finds what is mounted there, if not at the path itself."""
    granted = enumerate(map(str, (*policy.granted, *policy.writable)))
    return (
        {_TMP: protocol.TMP_FOLDER, protocol.PROXY_SOCKET: os.path.realpath(policy.network)}
        | {path: f"{protocol.GRANTED_FOLDER}/{number}" for number, path in granted}
        | {str(overlay.path): str(overlay.source) for overlay in policy.overlays}
    )


def _cover_names(mounts: dict[str, MountKind]) -> list[str]:
    """The names in the session's /tmp that hold other mounts. Each becomes a mount itself: what the
    session has there is not visible to the command."""
    if mounts.get(_TMP) != "session":
        return []
    prefix = f"{_TMP}/"
    names = {path[len(prefix) :].split("/")[0] for path in mounts if path.startswith(prefix)}
    for name in names:
        mounts.setdefault(prefix + name, "scratch")
    return sorted(names)


def _list_home_links(
    policy: SandboxPolicy, home: str, mounts: Mapping[str, MountKind]
) -> Iterator[tuple[str, str]]:
    """Names in a home that is a scratch folder, and the visible paths that they stand for."""
    if mounts.get(home) != "scratch":
        return
    names = {f"{home}/{name}": str(path) for name, path in policy.home_links}
    names |= {str(path): os.path.realpath(path) for path in (*policy.visible, *policy.caches)}
    for name, target in names.items():
        if name != target and name.startswith(f"{home}/") and not _is_shown(name, mounts):
            yield name, target


def _list_detachable(
    policy: SandboxPolicy, mounts: Mapping[str, MountKind], copies: Collection[str]
) -> Iterator[str]:
    """Folders of the system and of tools. Not those that a person granted: an overlay does not
    show what is exchanged in them meanwhile."""
    live = [p for p, kind in mounts.items() if kind == "write" and p not in copies]
    live += map(os.path.realpath, (str(policy.workspace), policy.network or "/"))
    live += (str(overlay.source) for overlay in policy.overlays)
    live += map(str, policy.granted)
    stable = (*map(str, policy.readable), *map(os.path.realpath, policy.visible))
    for path in (p for p in stable if mounts.get(p) == "read" and not p.startswith("/sys/")):
        if _is_folder(path) and not any(f"{p}/".startswith(f"{path}/") for p in live):
            yield path


def _list_writable_folders(workspace: str) -> list[str]:
    """The writable folders in a workspace whose top level is not writable. The top level stays
    read-only even if its owner changes that: nothing else guards the protected names in it."""
    try:
        with os.scandir(workspace) as entries:
            folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [path for path in folders if os.access(path, os.W_OK)][:_MAX_FOLDERS]


def _plan_readable(policy: SandboxPolicy) -> dict[str, MountKind]:
    """The system, as far as it is readable, private scratch folders, and what else is visible."""
    mounts: dict[str, MountKind] = {}
    for folder in policy.readable:
        target = os.path.realpath(folder)
        if os.path.lexists(target):
            inside = target != str(folder) and policy.allows_reading(Path(target))
            mounts[str(folder)] = "link" if inside else "read"
    mounts |= dict.fromkeys(filter(_is_folder, _SCRATCH_FOLDERS), "scratch")
    if _is_folder(_TMP):
        mounts[_TMP] = "session"
    interpreter = (sys.base_prefix,) if policy.network else ()
    for path in map(os.path.realpath, (*policy.visible, *interpreter)):
        if os.path.lexists(path):
            mounts[path] = "read"
    return mounts | dict.fromkeys(map(str, policy.granted), "read")


def _plan_hidden(
    policy: SandboxPolicy, home: str, shown: Mapping[str, MountKind]
) -> dict[str, MountKind]:
    """What must be covered in that which is shown. A command's home is a scratch folder."""
    mounts: dict[str, MountKind] = {}
    for path in map(os.path.realpath, policy.hidden):
        if path in shown:
            continue
        if path == home and _is_folder(path):
            mounts[path] = "scratch"
        elif _is_shown(path, shown) and os.path.lexists(path):
            mounts[path] = "hide" if _is_folder(path) else "mask"
    return mounts


def _is_shown(path: str, mounts: Mapping[str, MountKind]) -> bool:
    """Whether the nearest mount above `path` shows what is there."""
    while path != "/":
        path = os.path.dirname(path)
        if kind := mounts.get(path):
            return kind in ("read", "write")
    return False


def _mount_options(
    mounts: Mapping[str, MountKind], scratch: int, sources: Mapping[str, str]
) -> list[str]:
    options: list[str] = []
    closing: list[str] = []
    for path in sorted(mounts, key=lambda p: (p.count("/"), p)):
        kind, source = mounts[path], sources.get(path, path)
        if kind == "scratch":
            options += ["--perms", "1777" if path != "/run" else "0755", "--size", str(scratch)]
        elif kind == "hide":
            options += ["--size", "4096"]
            closing += ["--remount-ro", path]
        elif kind in ("mask", "empty"):
            source = os.devnull
        elif kind == "link" and path not in sources:
            source = os.readlink(path)  # noqa: PTH115
        option = _MOUNT_OPTIONS[kind]
        options += [option, path] if option == "--tmpfs" else [option, source, path]
    return [*options, *closing, "--remount-ro", "/"]


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False

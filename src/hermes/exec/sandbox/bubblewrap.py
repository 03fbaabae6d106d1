"""Tier 1: a bubblewrap command line that shows a command only what its policy lets it see."""

# ruff: noqa: PTH120
from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from hermes.core.errors import ToolError
from hermes.exec.launcher.placeholders import would_be_bare
from hermes.exec.launcher.protocol import FIRST_FILE_FD, STATUS_FD, Box
from hermes.exec.sandbox import seccomp
from hermes.exec.sandbox.limits import box_of
from hermes.exec.sandbox.network import through_relay
from hermes.exec.sandbox.policy import Launch, Policy
from hermes.exec.sandbox.protected_paths import Guards, bound_sockets, guards

Kind: TypeAlias = Literal["scratch", "hide", "mask", "write", "read"]
_SCRATCH = ("/tmp", "/run", "/var/tmp")
_KEPT_OF_RUN = ("/run/current-system", "/run/opengl-driver", "/run/wrappers")
_MOST_FOLDERS = 500
_NOT_FOR_WORK = ("/dev", "/proc", "/sys")
_FIXED = """
    --unshare-user --unshare-all --disable-userns --cap-drop ALL --die-with-parent --new-session
    --ro-bind / / --proc /proc --dev /dev
""".split()


def launch(
    argv: Sequence[str],
    policy: Policy,
    bwrap: str,
    *,
    env: Mapping[str, str],
    cwd: Path,
) -> Launch:
    workspace = os.path.realpath(policy.workspace)
    if workspace == "/" or any((workspace + "/").startswith(p + "/") for p in _NOT_FOR_WORK):
        raise ToolError(f"{workspace} cannot be the workspace of a sandbox; nothing was run.")
    inside = dict(env)
    command = list(argv)
    if policy.network:
        command, proxies = through_relay(command, policy.network)
        inside |= proxies
    kept = guards(policy.workspace, policy.protected, policy.unmade)
    if policy.mode == "read-only":
        kept = Guards((), (), (), ())
    mounts = _mounts(policy, workspace, kept, inside.get("HOME", ""))
    if "HOME" in inside:
        home = os.path.realpath(inside["HOME"])
        inside["HOME"] = home if _usable(home, workspace, mounts) else "/tmp"
    resources = box_of(policy.limits)
    scratch = min(policy.limits.scratch, resources["cgroup"][0] // 2)
    options = [*_FIXED, "--size", str(scratch), "--tmpfs", "/dev/shm"]
    options += ["--remount-ro", "/dev", "--remount-ro", "/proc"]  # root may write to /proc/sys
    sources = {str(place): str(source) for place, source, _ in policy.instead}
    mounts |= {str(place): "write" if free else "read" for place, _, free in policy.instead}
    options += _options(mounts, scratch, sources)
    for name, value in inside.items():
        options += ["--setenv", name, value]
    options += ["--chdir", os.path.realpath(cwd)]
    table, _ = seccomp.MACHINES[os.uname().machine]
    files = [seccomp.isolated(table), b"\0".join(os.fsencode(o) for o in options)]
    box: Box = {
        **resources,
        "placeholders": [os.fsencode(path) for path in kept.make],
        "links": [os.fsencode(path) for path in kept.link],
        "unwanted": [os.fsencode(p) for p in policy.unwanted if not os.path.lexists(p)],
        "covers": [os.fsencode(path) for path in kept.cover],
        "files": files,
        "wrapper": True,
    }
    root = os.fsencode(workspace)
    if policy.mode == "workspace-write" and not would_be_bare(root):
        box["plain"] = root
    fixed = ["--json-status-fd", str(STATUS_FD), "--seccomp", str(FIRST_FILE_FD)]
    fixed += ["--args", str(FIRST_FILE_FD + 1)]
    return Launch((bwrap, *fixed, "--", *command), {}, box)


def _mounts(policy: Policy, workspace: str, kept: Guards, home: str) -> dict[str, Kind]:
    """Path -> what is mounted there. A path inside another one wins over it."""
    mounts = _hidden(policy, os.path.realpath(home) if home else "")
    interpreter = (sys.base_prefix,) if policy.network else ()
    for seen in (*map(str, policy.visible), *_KEPT_OF_RUN, *interpreter):
        path = os.path.realpath(seen)
        if os.path.lexists(path) and _covered(path, mounts):
            mounts[path] = "read"
    writable = policy.mode == "workspace-write"
    mounts[workspace] = "write" if writable and not kept.barred else "read"
    if writable and kept.barred:
        for path in _writable_folders(workspace):
            mounts.setdefault(path, "write")
    for path in kept.pin:
        mounts.setdefault(path, "write")
    # Links are covered, read-only, before bubblewrap sees them; each mount of its own costs 1 ms.
    for path in (*kept.keep, *kept.make, *kept.cover):
        if path not in kept.link and mounts.get(path) not in ("hide", "mask"):
            mounts[path] = "read"
    for path in map(os.path.realpath, bound_sockets()):
        if path not in mounts and os.path.lexists(path) and not _covered(path, mounts):
            mounts[path] = "mask"
    if policy.network:
        mounts[os.path.realpath(policy.network)] = "read"
    return mounts


def _writable_folders(closed: str) -> list[str]:
    """Of a workspace at whose top nothing can be made. It stays so, although its owner might change
    that: whatever is protected there is held by nothing else."""
    try:
        with os.scandir(closed) as entries:
            folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [path for path in folders if os.access(path, os.W_OK)][:_MOST_FOLDERS]


def _usable(home: str, workspace: str, mounts: Mapping[str, Kind]) -> bool:
    return mounts.get(home) == "scratch" or f"{home}/".startswith(f"{workspace}/")


def _hidden(policy: Policy, home: str) -> dict[str, Kind]:
    mounts: dict[str, Kind] = dict.fromkeys(filter(_is_folder, _SCRATCH), "scratch")
    for hidden in policy.hidden:
        path = os.path.realpath(hidden)
        if _is_folder(path):
            mounts[path] = "scratch" if path == home else "hide"
        elif os.path.lexists(path):
            mounts[path] = "mask"
    return mounts


def _covered(path: str, mounts: Mapping[str, Kind]) -> bool:
    """Whether the nearest mount above `path` hides it."""
    while path != "/":
        path = os.path.dirname(path)
        if kind := mounts.get(path):
            return kind in ("scratch", "hide")
    return False


def _options(mounts: Mapping[str, Kind], scratch: int, sources: Mapping[str, str]) -> list[str]:
    options: list[str] = []
    closing: list[str] = []
    for path in sorted(mounts, key=lambda p: (p.count("/"), p)):
        match mounts[path]:
            case "scratch":
                options += ["--perms", "1777" if path != "/run" else "0755"]
                options += ["--size", str(scratch), "--tmpfs", path]
            case "hide":
                options += ["--size", "4096", "--tmpfs", path]
                closing += ["--remount-ro", path]
            case "mask":
                options += ["--ro-bind", os.devnull, path]
            case "write":
                options += ["--bind", sources.get(path, path), path]
            case "read":
                options += ["--ro-bind", sources.get(path, path), path]
    return options + closing


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False

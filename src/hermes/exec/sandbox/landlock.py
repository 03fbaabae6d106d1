"""Tier 2: builds Landlock rules and a seccomp filter for a command without namespaces."""

import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from hermes.core.errors import ToolError
from hermes.exec.launcher.placeholders import is_bare_repository
from hermes.exec.launcher.protocol import SetupInstructions
from hermes.exec.sandbox import seccomp
from hermes.exec.sandbox.limits import limit_instructions
from hermes.exec.sandbox.network import parse_proxy_address, proxy_environment
from hermes.exec.sandbox.policy import LaunchPlan, SandboxPolicy
from hermes.exec.sandbox.protected_paths import plan_guards

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_VERSION = (1 << 13) - 1
"""The accesses that Landlock's first version knows."""
_READ_ACCESS = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_ACCESS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_NETWORK_ACCESS = 3
_SCOPES = 3
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def plan_launch(
    argv: Sequence[str], policy: SandboxPolicy, landlock: int, machine: str, env: Mapping[str, str]
) -> LaunchPlan:
    """How to start `argv` under Landlock of this version."""
    table, number = seccomp.MACHINES[machine]
    workspace = os.path.realpath(policy.workspace)
    if workspace == "/":
        raise ToolError("/ cannot be the workspace of a sandbox. Nothing was run.")
    guards = plan_guards(policy.workspace, policy.protected, policy.kept_missing)
    closed = {*guards.read_only, *guards.placeholders, *guards.links, *guards.barred}
    hidden = {os.path.realpath(path) for path in policy.hidden}
    grants = [*map(str, policy.writable)]
    root = next((path for path in grants if workspace.startswith(path + "/")), workspace)
    hidden_inside = {path for path in hidden if path.startswith(root + "/")}
    name = f"hermes-{os.urandom(8).hex()}"
    scratch = f"{os.path.realpath('/tmp')}/{name}"
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
    writable = [scratch]
    if policy.mode == "workspace-write":
        writable += _open_subtrees(workspace, closed | hidden_inside)
    for path in grants:
        writable += _open_subtrees(path, closed | hidden - {path})
    handled = _handled_accesses(landlock)
    rules = _plan_readable(policy, workspace, hidden)
    rules |= dict.fromkeys(writable, handled[0] & ~_IOCTL_DEV)
    rules |= {f"/dev/{name}": _READ_FILE | _WRITE_FILE | _IOCTL_DEV for name in _DEVICES}
    inside = {**env, "TMPDIR": scratch, "HOME": scratch}
    if "PATH" in env:  # a shell that may not read the first folders of it does not try the others
        real = {f: Path(os.path.realpath(f)) for f in env["PATH"].split(os.pathsep)}
        readable = (f for f in real if f[:1] != "/" or policy.allows_reading(real[f]))
        inside["PATH"] = os.pathsep.join(readable)
    writes = policy.mode == "workspace-write" or root != workspace
    brokered = writes and not guards.barred and root not in writable
    setup: SetupInstructions = {
        **limit_instructions(policy.limits),
        "scratch": os.fsencode(scratch),
        "scratch_links": [(os.fsencode(n), os.fsencode(path)) for n, path in policy.home_links],
        "drop_privileges": True,
        "landlock": (
            handled,
            [_build_rule(path, access, handled[0]) for path, access in rules.items()],
        ),
        "seccomp": (number, seccomp.build_landlock_filter(table, truncation=landlock >= 3)),
        "granted": [os.fsencode(path) for path in (*policy.granted, *policy.writable)],
        "shared_memory": os.fsencode(f"{memory}/{name}-shm"),
        "writable": [os.fsencode(path) for path in writable],
        "readonly": [os.fsencode(path) for path in closed | hidden_inside],
    }
    if brokered:
        setup["workspace"] = os.fsencode(root)
        setup["readonly"] += [os.fsencode(path) for path in policy.removed_after]
        if not is_bare_repository(os.fsencode(workspace)):
            setup["not_bare"] = os.fsencode(workspace)
    if policy.network:
        setup["proxy"] = parse_proxy_address(policy.network)
        inside |= proxy_environment(policy.network)
    return LaunchPlan(tuple(argv), inside, setup)


def _plan_readable(policy: SandboxPolicy, workspace: str, hidden: set[str]) -> dict[str, int]:
    rules: dict[str, int] = {}
    system = (os.path.realpath(path) for path in policy.readable)
    outside = map(os.path.realpath, (*policy.visible, *policy.caches))
    granted = map(str, (*policy.granted, *policy.writable))
    for seen in (*system, "/proc", workspace, *outside, *granted):
        rules |= dict.fromkeys(_open_subtrees(seen, hidden - {seen}), _READ_ACCESS)
    rules["/dev"] = _READ_DIR
    return rules


def _open_subtrees(root: str, closed: Collection[str]) -> Iterator[str]:
    """The largest trees below `root` that hold nothing closed: Landlock opens whole trees only."""
    if root in closed:
        return
    below = root.rstrip("/") + "/"
    if not any(path.startswith(below) for path in closed):
        yield root
        return
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in entries if not entry.is_symlink()]
    except OSError:
        return
    for name in names:
        yield from _open_subtrees(below + name, closed)


def _handled_accesses(landlock: int) -> tuple[int, int, int]:
    """All accesses this version of Landlock can deny: to files, to the network, scopes."""
    files = _FIRST_VERSION
    for since, access in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        if landlock >= since:
            files |= access
    return files, _NETWORK_ACCESS if landlock >= 4 else 0, _SCOPES if landlock >= 6 else 0


def _build_rule(path: str, access: int, handled: int) -> tuple[bytes, int]:
    try:
        folder = stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        folder = True  # the scratch folder, which does not exist yet
    return os.fsencode(path), access & handled & (-1 if folder else _FILE_ACCESS)

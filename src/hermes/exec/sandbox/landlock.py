"""Tier 2: Landlock rules and a seccomp filter for a command without namespaces of its own."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence

from hermes.core.errors import ToolError
from hermes.exec.launcher.placeholders import would_be_bare
from hermes.exec.launcher.protocol import Box
from hermes.exec.sandbox import seccomp
from hermes.exec.sandbox.limits import box_of
from hermes.exec.sandbox.network import by_address, environment
from hermes.exec.sandbox.policy import Launch, Policy
from hermes.exec.sandbox.protected_paths import guards

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST = (1 << 13) - 1
"""The accesses of Landlock's first version."""
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_NET = 3
_SCOPES = 3
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_SHARED = ("/tmp", "/var/tmp", "/run", "/dev")
"""With the whole machine, so kept from the command."""


def launch(
    argv: Sequence[str], policy: Policy, landlock: int, machine: str, env: Mapping[str, str]
) -> Launch:
    table, number = seccomp.MACHINES[machine]
    workspace = os.path.realpath(policy.workspace)
    if workspace == "/":
        raise ToolError("/ cannot be the workspace of a sandbox; nothing was run.")
    kept = guards(policy.workspace, policy.protected, policy.unmade)
    closed = {*kept.keep, *kept.make, *kept.cover, *kept.barred}
    hidden = {os.path.realpath(path) for path in policy.hidden}
    within = {path for path in hidden if path.startswith(workspace + "/")}
    scratch = f"/tmp/hermes-{os.urandom(8).hex()}"
    writable = [scratch]
    if policy.mode == "workspace-write":
        writable += _spread(workspace, closed | within)
    handled = _handled(landlock)
    rules = _readable(policy, workspace, hidden)
    rules |= dict.fromkeys(writable, handled[0] & ~_IOCTL_DEV)
    rules |= {f"/dev/{name}": _READ_FILE | _WRITE_FILE | _IOCTL_DEV for name in _DEVICES}
    inside = {**env, "TMPDIR": scratch, "HOME": scratch}
    if "PATH" in env:
        inside["PATH"] = _reachable(env["PATH"], hidden, rules)
    makes = policy.mode == "workspace-write" and not kept.barred and workspace not in writable
    box: Box = {
        **box_of(policy.limits),
        "scratch": os.fsencode(scratch),
        "bare": True,
        "landlock": (handled, [_rule(path, access, handled[0]) for path, access in rules.items()]),
        "seccomp": (number, _filter(table, policy, landlock, makes=makes)),
        "writable": [os.fsencode(path) for path in writable],
        "readonly": [os.fsencode(path) for path in closed | within],
    }
    if makes:
        root = os.fsencode(workspace)
        box["workspace"] = root
        box["readonly"] += [os.fsencode(path) for path in policy.unwanted]
        if not would_be_bare(root):
            box["plain"] = root
    if policy.network:
        box["way"] = by_address(policy.network)
        inside |= environment(policy.network)
    return Launch(tuple(argv), inside, box)


def _filter(table: seccomp.Machine, policy: Policy, landlock: int, *, makes: bool) -> bytes:
    online = bool(policy.network)
    return seccomp.confined(table, ask=True, truncation=landlock >= 3, online=online, makes=makes)


def _readable(policy: Policy, workspace: str, hidden: set[str]) -> dict[str, int]:
    rules = dict.fromkeys(_spread("/", hidden | set(_SHARED)), _READ)
    for seen in (workspace, *(os.path.realpath(path) for path in policy.visible)):
        rules |= dict.fromkeys(_spread(seen, hidden - {seen}), _READ)
    rules["/dev"] = _READ_DIR
    return rules


def _reachable(path: str, hidden: Collection[str], rules: Collection[str]) -> str:
    """Without folders that cannot be read: a shell would find a program there, and give up."""

    def fine(folder: str) -> bool:
        if not folder.startswith("/"):
            return True
        real = os.path.realpath(folder) + "/"
        seen = max((len(p) for p in rules if real.startswith(p.rstrip("/") + "/")), default=0)
        return seen > max((len(p) for p in hidden if real.startswith(p + "/")), default=0)

    return os.pathsep.join(folder for folder in path.split(os.pathsep) if fine(folder))


def _spread(root: str, closed: Collection[str]) -> Iterator[str]:
    """The largest parts of `root` that hold nothing closed. Landlock opens whole trees only."""
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
        yield from _spread(below + name, closed)


def _handled(landlock: int) -> tuple[int, int, int]:
    """Everything this version of Landlock can refuse: files, network, scopes."""
    files = _FIRST
    for since, access in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        if landlock >= since:
            files |= access
    return files, _NET if landlock >= 4 else 0, _SCOPES if landlock >= 6 else 0


def _rule(path: str, access: int, handled: int) -> tuple[bytes, int]:
    try:
        folder = stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        folder = True  # the scratch folder, not made yet
    return os.fsencode(path), access & handled & (-1 if folder else _OF_FILES)

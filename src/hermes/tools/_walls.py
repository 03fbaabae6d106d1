"""Says at which wall of the sandbox a command failed, and how to ask for a way through."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hermes.exec.launcher.protocol import RefusedAddress
    from hermes.exec.process.local import CommandSpec
    from hermes.tools._services import RefusedHost

_DENIED = re.compile(
    r"read-only file system|permission denied|no such file or directory", re.IGNORECASE
)
_LOCKED = re.compile(r"could not lock config file \S*\.git/|could not set '\S+' to", re.IGNORECASE)
_GIT_SETTINGS = "does not let commands change git's settings"
_PATH = re.compile(r"""["'‘]((?:/|\.\./|~/)[^"'’]+)["'’]|(?<![\w/.])((?:/|\.\./)[\w.@+~/-]+)""")
_SPEAKER = re.compile(r"^\S*/\w*sh: (?:line \d+: )?")
"""The shell that reports what failed; its own path is not what did."""
_LAST_LINES = 60
_PRIVATE = ("/tmp", "/var/tmp", "/run")
_KERNEL = (("proc",), ("sys",), ("dev",))


def explain_walls(
    text: str,
    command: CommandSpec,
    home: Path,
    refused: Collection[RefusedHost],
    connections: Collection[RefusedAddress],
) -> Iterator[str]:
    """Notes about the walls that a command with this output ran into; `refused` is what the proxy
    refused meanwhile, `connections` what the sandbox did. The policy decides what was a wall; the
    output only says where to look."""
    policy = command.policy
    if policy is None:
        return
    said = f"{command.text}\n{text}"
    for host in dict.fromkeys(f"{r.host}:{r.port}" for r in refused if r.host in said):
        yield f"[the sandbox refused {host}; to ask the user: escalate {{network: [{host}], why}}]"
    yield from _explain_connections(connections, online=bool(policy.network))
    if _LOCKED.search(text) and (policy.workspace / ".git").exists():
        yield f"[the sandbox {_GIT_SETTINGS}; to ask the user: escalate {{unconfined: true, why}}]"
    yield from _explain_path(text, command, home)


def _explain_connections(connections: Collection[RefusedAddress], *, online: bool) -> Iterator[str]:
    """Notes about connections that were refused; those to name servers count without any network
    only, because a proxy resolves names itself."""
    local = [c for c in connections if c.host.startswith("127.") or c.host == "::1"]
    remote = [c for c in connections if c not in local]
    ask = "to ask the user: escalate"
    for _, port in local[:1]:
        owner = "is of a program outside"
        yield f"[the sandbox refused port {port}, which {owner}; {ask} {{unconfined: true, why}}]"
    named = ", ".join(f"{host}:{port}" for host, port in remote if host)
    if remote and not online:
        what = f"no network (refused: {named})" if named else "no network"
        yield f"[the sandbox has {what}; {ask} {{network: [hosts], why}}]"
    elif named:
        way = "only programs that use the proxy get out"
        yield f"[the sandbox refused {named}: {way}; {ask} {{unconfined: true, why}}]"


def _explain_path(text: str, command: CommandSpec, home: Path) -> Iterator[str]:
    """A note about the first path that the sandbox, and nothing else, kept from the command."""
    from hermes.exec.sandbox import explain_ungrantable

    user_home = Path(command.env.get("HOME") or "/")
    for line in text.splitlines()[-_LAST_LINES:]:
        denial, paths = _DENIED.search(line), _PATH.findall(_SPEAKER.sub("", line))
        if not denial or not paths:
            continue
        path = Path(os.path.realpath(command.cwd / Path("".join(paths[-1])).expanduser()))
        wanted = path if os.path.lexists(path) else path.parent
        key = _find_wall(path, wanted, command, missing=denial[0].lower().startswith("no such"))
        if not key:
            continue
        if wanted == Path("/tmp"):
            yield "[the sandbox does not let commands write to /tmp; use $TMPDIR]"
            return
        verb = "hides" if key == "read" else "does not let commands write to"
        if reason := explain_ungrantable(wanted, home, user_home, write=key == "write"):
            yield f"[the sandbox {verb} {path}; this cannot be approved: {reason}]"
        else:
            ask = f"escalate {{{key}: [{wanted}], why}}"
            yield f"[the sandbox {verb} {path}; to ask the user: {ask}]"
        return


def _find_wall(
    path: Path, wanted: Path, command: CommandSpec, *, missing: bool
) -> Literal["read", "write", ""]:
    """Which access the policy denies; empty when something else than the sandbox does."""
    policy = command.policy
    if policy is None or path.is_relative_to(policy.workspace) or path.parts[1:2] in _KERNEL:
        return ""
    if not os.path.lexists(wanted) or wanted == Path("/"):
        return ""
    private = any(wanted.is_relative_to(folder) and wanted != Path(folder) for folder in _PRIVATE)
    covered = private or not policy.allows_reading(wanted)
    if wanted == path and covered:
        return "read"
    return "write" if (covered if missing else os.access(wanted, os.W_OK)) else ""

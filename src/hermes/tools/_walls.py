"""Says at which wall of the sandbox a command failed, and how to ask for a way through."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hermes.exec.launcher.protocol import RefusedAddress
    from hermes.exec.process.local import CommandSpec
    from hermes.exec.sandbox import SandboxPolicy
    from hermes.tools._services import RefusedHost

_SSH = re.compile(r"^ssh: (?:could not resolve|connect to host)", re.IGNORECASE | re.MULTILINE)
_MISSING = re.compile(r"no such file or directory|\bENOENT\b", re.IGNORECASE)
_DENIED = re.compile(
    r"read-only file system|permission denied|resource busy|operation not permitted", re.IGNORECASE
)
_UNCONNECTED = re.compile(r"refused|connect", re.IGNORECASE)
_LOCKED = re.compile(
    r"^(?:error|fatal): could not (?:lock config file \S*\.git/|set '\S+' to)",
    re.IGNORECASE | re.MULTILINE,
)
_GIT_ERROR = re.compile(r"^(?:error|fatal): .+", re.MULTILINE)
_PATH = re.compile(
    r"""["'‘]((?:/|\.\./|~/)[^"'’\[\]{};]{1,200})["'’]|(?<![\w/.])((?:/|\.\./)[\w.@+~/-]*[\w/])"""
)
_SPEAKER = re.compile(r"^\S*/\w*sh: (?:line \d+: )?|\bunix://")
"""The shell that reports what failed, whose own path is not what did; and the scheme of sockets."""
_FILTERED = re.compile(
    r"\|\s*(?:tail|head|grep|cat|tee|sed|awk|sort|wc|cut)\b[^|;&]*$|\|\|\s*true\s*$"
)
"""A command whose status is that of a filter behind it."""
_LAST_LINES = 60
_PRIVATE = tuple(map(Path, ("/tmp", "/var/tmp", "/run")))
_KERNEL = (("proc",), ("sys",), ("dev",))
_ASK = "to ask the user: escalate {{{}, why}}"
_UNCONFINED = _ASK.format("unconfined: true")


def explain_walls(
    text: str,
    command: CommandSpec,
    home: Path,
    refused: Collection[RefusedHost],
    connections: Collection[RefusedAddress],
    *,
    failed: bool,
) -> Iterator[str]:
    """Notes about the walls that a command with this output ran into; `refused` is what the proxy
    refused meanwhile, `connections` what the sandbox did. The policy decides what was a wall; the
    output only says where to look. After success only what is certain is said: the failure was not
    that of the last command, unless that is a filter."""
    policy = command.policy
    if policy is None:
        return
    said = f"{command.text}\n{text}"
    for host in dict.fromkeys(f"{r.host}:{r.port}" for r in refused if r.host in said):
        yield f"[the sandbox refused {host}; {_ASK.format(f'network: [{host}]')}]"
    if _LOCKED.search(text) and (policy.workspace / ".git").exists():
        yield f"[the sandbox does not let commands change git's settings; {_UNCONFINED}]"
    elif failed or _FILTERED.search(str(command.text)):
        by_ssh = bool(_SSH.search(text))
        yield from _explain_connections(connections, online=bool(policy.network), by_ssh=by_ssh)
        notes = (_explain_line(line, command, home) for line in text.splitlines()[-_LAST_LINES:])
        yield from islice(filter(None, notes), 1)
    elif by_git := _GIT_ERROR.findall(text):
        notes = (_explain_protected(line, policy) for line in by_git[-_LAST_LINES:])
        yield from islice(filter(None, notes), 1)


def _explain_connections(
    connections: Collection[RefusedAddress], *, online: bool, by_ssh: bool
) -> Iterator[str]:
    """Notes about connections that were refused; those to name servers count without any network
    only, because a proxy resolves names itself."""
    local = [c for c in connections if c.host.startswith("127.") or c.host == "::1"]
    remote = [c for c in connections if c not in local]
    for _, port in local[:1]:
        yield (
            f"[port {port} belongs to a program outside the sandbox, and commands reach only ports "
            f"of this session's commands; {_UNCONFINED}]"
        )
    named = ", ".join(f"{host}:{port}" for host, port in remote if host)
    if by_ssh:
        yield f"[ssh cannot use the proxy of the sandbox; {_UNCONFINED}]"
    elif remote and not online:
        what = f"no network (refused: {named})" if named else "no network"
        yield f"[the sandbox has {what}; {_ASK.format('network: [hosts]')}]"
    elif named:
        way = "only programs that use the proxy get out"
        yield f"[the sandbox refused {named}: {way}; {_UNCONFINED}]"


def _explain_line(line: str, command: CommandSpec, home: Path) -> str:
    """A note about the last path in the line, if the sandbox and nothing else kept it from the
    command."""
    from hermes.exec.sandbox import explain_ungrantable

    missing, denied = bool(_MISSING.search(line)), bool(_DENIED.search(line))
    policy = command.policy
    if policy is None or not (missing or denied or _UNCONNECTED.search(line)):
        return ""
    found = _PATH.findall(_SPEAKER.sub(" ", line))
    if not found:
        return _explain_protected(line, policy)
    path = Path(os.path.realpath(command.cwd / Path("".join(found[-1])).expanduser()))
    if path.is_relative_to(policy.workspace):
        return _explain_protected(line, policy)
    if _is_socket(path):
        return f"[the sandbox does not let commands use the socket {path}; {_UNCONFINED}]"
    wanted = path if os.path.lexists(path) else path.parent
    wall = _find_wall(path, wanted, policy, missing=missing)
    if not wall or not (missing or denied):
        return ""
    user_home = Path(command.env.get("HOME") or "/")
    closed = any(hidden.is_relative_to(path) for hidden in policy.hidden)
    if wall == "write" and closed and command.tier and command.tier.level == 2 and path.is_dir():
        return f"[the sandbox does not list {path}, because something in it is hidden]"
    if wanted == Path("/tmp"):
        return "[the sandbox does not let commands write to /tmp; use $TMPDIR]"
    reason = explain_ungrantable(wanted, home, user_home, write=wall != "read")
    if wall == "missing":
        create = f"; to create it, ask the user: escalate {{write: [{wanted}], why}}"
        way = "" if reason or _UNCONNECTED.search(line) else create
        return f"[{path} does not exist outside the sandbox either{way}]"
    verb = "hides" if wall == "read" else "does not let commands write to"
    way = f"this cannot be approved: {reason}" if reason else _ASK.format(f"{wall}: [{wanted}]")
    return f"[the sandbox {verb} {path}; {way}]"


def _explain_protected(line: str, policy: SandboxPolicy) -> str:
    """A note about the innermost protected path of the workspace that the line mentions, or whose
    folder it does."""
    if not _DENIED.search(line):
        return ""
    existing = filter(os.path.lexists, policy.protected)
    for path in sorted(existing, key=lambda path: len(path.parts), reverse=True):
        name = str(path.relative_to(policy.workspace))
        folders = "|".join(re.escape(str(f)) for f in Path(name).parents if f.name)
        above = rf"|(?<![\w./-])(?:{folders})/?(?![\w./-])" if folders else ""
        if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-]){above}", line):
            if ".git" in path.parts:
                return f"[the sandbox keeps {name} read-only for this command; {_UNCONFINED}]"
            return (
                f"[the sandbox keeps {name} read-only for commands, as other programs obey it; "
                f"change it with write_file or patch; {_UNCONFINED}]"
            )
    return ""


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _find_wall(
    path: Path, wanted: Path, policy: SandboxPolicy, *, missing: bool
) -> Literal["read", "write", "missing", ""]:
    """Which access the policy denies; empty when something else than the sandbox does."""
    if path.parts[1:2] in _KERNEL or not os.path.lexists(wanted) or wanted == Path("/"):
        return ""
    private = any(wanted.is_relative_to(folder) and wanted != folder for folder in _PRIVATE)
    covered = private or not policy.allows_reading(wanted)
    if wanted == path and covered:
        return "read"
    if missing:
        return "missing" if covered and wanted not in _PRIVATE else ""
    return "write" if os.access(wanted, os.W_OK) else ""

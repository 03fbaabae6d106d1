"""Tier 2 on macOS: writes the Seatbelt profile under which `sandbox-exec` starts a command."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from hermes.core.errors import ToolError
from hermes.exec.sandbox.limits import limit_instructions
from hermes.exec.sandbox.network import parse_proxy_address, proxy_environment
from hermes.exec.sandbox.policy import LaunchPlan, SandboxPolicy

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
_MAC_PATHS = """
    /private/etc /private/var/db/dyld /private/var/db/timezone /private/var/select
    /System/Volumes/Preboot/Cryptexes /Library/Developer
""".split()
"""Where links of the system lead, and what every program reads when it starts."""


def plan_launch(argv: Sequence[str], policy: SandboxPolicy, env: Mapping[str, str]) -> LaunchPlan:
    """How to start `argv` under Seatbelt."""
    scratch = f"/private/tmp/hermes-{os.urandom(8).hex()}"
    inside = {**env, "TMPDIR": scratch, "HOME": scratch}
    if policy.network:
        inside |= proxy_environment(policy.network)
    words = (SANDBOX_EXEC, "-p", write_profile(policy, scratch), *argv)
    links = [(os.fsencode(name), os.fsencode(path)) for name, path in policy.home_links]
    setup = limit_instructions(policy.limits)
    setup |= {"scratch": os.fsencode(scratch), "scratch_links": links}
    return LaunchPlan(words, inside, setup)


def write_profile(policy: SandboxPolicy, scratch: str) -> str:
    """The profile of a policy. The last rule that matches decides, so outer paths come first."""
    lines = [Path(__file__).with_suffix(".sb").read_text("ascii")]
    shown = {*map(str, (*policy.readable, *policy.visible, *policy.caches)), *_MAC_PATHS, scratch}
    writable = {str(path) for path in policy.writable} | {scratch}
    if policy.mode == "workspace-write":
        writable.add(str(policy.workspace))
    shown |= writable | {str(path) for path in (*policy.granted, policy.workspace)}
    hidden = set(map(str, policy.hidden)) - shown
    for path in sorted(shown | hidden, key=lambda p: (p.count("/"), p)):
        if path in hidden:
            lines.append(_write_rule("deny file-read* file-write*", "subpath", path))
        else:
            actions = "file-read* file-write*" if path in writable else "file-read*"
            lines.append(_write_rule(f"allow {actions}", "subpath", path))
    ancestors = {str(parent) for path in shown for parent in Path(path).parents}
    lines += [
        _write_rule("allow file-read-metadata", "literal", path) for path in sorted(ancestors)
    ]
    closed = {*policy.protected, *policy.kept_missing, *policy.removed_after}
    lines += [_write_rule("deny file-write*", "subpath", str(path)) for path in sorted(closed)]
    # Moved away together with the folder it is in, a path would have no rule any more.
    above = {folder for path in (*closed, *policy.hidden) for folder in path.parents}
    folders = sorted(folder for folder in above if folder.is_relative_to(policy.workspace))
    lines += [_write_rule("deny file-write-unlink", "literal", str(path)) for path in folders]
    if policy.network:
        port = parse_proxy_address(policy.network)[1]
        lines.append(f'(allow network-outbound (remote ip "localhost:{port}"))')
    return "\n".join(lines) + "\n"


def _write_rule(action: str, kind: str, path: str) -> str:
    if not path.isprintable():
        raise ToolError(f"{path!r} cannot be named in a sandbox profile. Nothing was run.")
    quoted = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'({action} ({kind} "{quoted}"))'

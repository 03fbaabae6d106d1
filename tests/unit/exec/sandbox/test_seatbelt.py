"""The profile that confines commands on macOS, as text: it decides as the policy does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes.core.errors import ToolError
from hermes.exec.sandbox import SandboxPolicy, SandboxTier, confine_command
from hermes.exec.sandbox.seatbelt import write_profile

WORK = Path("/Users/me/work")
HOME = Path("/Users/me")
SCRATCH = "/private/tmp/scratch"
POLICY = SandboxPolicy(
    "workspace-write",
    WORK,
    hidden=(HOME, WORK / "box" / "keys", Path("/etc/ssl/private")),
    protected=(WORK / ".git", WORK / "sub" / ".git" / "hooks"),
    kept_missing=(WORK / ".hermes",),
    visible=(HOME / ".cargo/bin",),
    writable=(Path("/data/shared"),),
    caches=(HOME / ".cargo/registry",),
)
_RULE = re.compile(r'^\((allow|deny) ([a-z*\- ]+) \((subpath|literal) "(.*)"\)\)$')


def decide(profile: str, action: str, path: str) -> bool:
    """What Seatbelt does: the last rule that matches decides, and without one the answer is no."""
    answer = False
    for line in profile.splitlines():
        if not (found := _RULE.match(line)):
            continue
        verdict, actions, kind, name = found.groups()
        name = re.sub(r"\\(.)", r"\1", name)
        covers = path == name or (kind == "subpath" and path.startswith(name.rstrip("/") + "/"))
        named = actions.split()
        if covers and (action in named or f"{action.rpartition('-')[0]}*" in named):
            answer = verdict == "allow"
    return answer


@pytest.mark.parametrize(
    ("action", "path", "allowed"),
    [
        ("file-read*", "/usr/bin/git", True),
        ("file-read*", f"{WORK}/src/a.py", True),
        ("file-read*", f"{HOME}/.ssh/id_ed25519", False),
        ("file-read*", f"{HOME}/notes.txt", False),
        ("file-read*", f"{WORK}/box/keys/a", False),
        ("file-read*", "/etc/ssl/private/key.pem", False),
        ("file-read*", f"{HOME}/.cargo/bin/rg", True),
        ("file-read*", f"{HOME}/.cargo/credentials.toml", False),
        ("file-read*", "/Volumes/backup/a", False),
        ("file-read-metadata", str(HOME), True),
        ("file-write*", f"{WORK}/src/a.py", True),
        ("file-write*", f"{WORK}/box/keys/a", False),
        ("file-write*", f"{WORK}/.git/config", False),
        ("file-write*", f"{WORK}/.hermes", False),
        ("file-write*", f"{WORK}/sub/.git/hooks/pre-commit", False),
        ("file-write*", f"{WORK}/sub/other", True),
        ("file-write-unlink", f"{WORK}/sub", False),
        ("file-write-unlink", f"{WORK}/box", False),
        ("file-write-unlink", f"{WORK}/other", True),
        ("file-write*", f"{HOME}/.cargo/bin/rg", False),
        ("file-write*", f"{HOME}/.cargo/registry/x", False),
        ("file-write*", "/data/shared/x", True),
        ("file-write*", f"{SCRATCH}/x", True),
        ("file-write*", "/usr/local/bin/x", False),
        ("file-write*", "/Users/me/work2/x", False),
    ],
)
def test_the_profile_decides_as_the_policy(action: str, path: str, allowed: bool) -> None:
    assert decide(write_profile(POLICY, SCRATCH), action, path) is allowed


def test_read_only_writes_nothing_but_scratch() -> None:
    policy = SandboxPolicy("read-only", WORK)
    profile = write_profile(policy, SCRATCH)
    assert not decide(profile, "file-write*", f"{WORK}/a")
    assert decide(profile, "file-read*", f"{WORK}/a")


def test_everything_that_is_not_named_is_denied() -> None:
    lines = write_profile(POLICY, SCRATCH).splitlines()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    assert not any("network" in line for line in lines)


def test_a_grant_of_network_opens_the_proxy_only() -> None:
    policy = SandboxPolicy("workspace-write", WORK, network="http://user:secret@127.0.0.1:4711")
    plan = confine_command(
        ["/bin/sh"], policy, SandboxTier(2, "Seatbelt", seatbelt=True), env={"PATH": "/usr/bin"}
    )
    assert plan.argv[:2] == ("/usr/bin/sandbox-exec", "-p") and plan.argv[3:] == ("/bin/sh",)
    network = [line for line in plan.argv[2].splitlines() if "network" in line]
    assert network == ['(allow network-outbound (remote ip "localhost:4711"))']
    assert "secret" not in " ".join(plan.argv) and "secret" in plan.env["https_proxy"]


def test_odd_names_cannot_end_a_rule() -> None:
    odd = Path('/Users/me/a") (allow file-read* (subpath "') / "b\\"
    profile = write_profile(SandboxPolicy("workspace-write", odd), SCRATCH)
    assert not decide(profile, "file-read*", "/anything")
    assert decide(profile, "file-write*", f"{odd}/x")
    with pytest.raises(ToolError):
        write_profile(SandboxPolicy("workspace-write", Path("/Users/me/a\nb")), SCRATCH)

"""Finds out by trying how strongly commands can be confined here."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import tempfile
from pathlib import Path
from shlex import join

import msgspec
from msgspec import Struct

from hermes.config.paths import private_folder
from hermes.core.errors import ToolError
from hermes.exec.launcher import cgroup
from hermes.exec.launcher.libc import call
from hermes.exec.process.local import Command, run
from hermes.exec.process.output_capture import Capture
from hermes.exec.sandbox.policy import Policy, Tier
from hermes.exec.sandbox.seccomp import MACHINES
from hermes.version import VERSION

log = logging.getLogger(__name__)
BWRAP = (
    "/usr/bin/bwrap",
    "/usr/local/bin/bwrap",
    "/bin/bwrap",
    "/run/current-system/sw/bin/bwrap",
)
"""Where it may be: never where PATH leads, which anybody's folder may be part of."""
_LANDLOCK_CREATE = 444
_VERSION = 1
"""Raised when the sandbox changes so that an old finding says nothing about it."""
_FILE = "sandbox.json"
_SETTINGS = (
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/user/max_user_namespaces",
    "/sys/kernel/security/lsm",
)
_TIMEOUT = 15.0
_NAMES = {1: "bubblewrap: namespaces, seccomp", 2: "Landlock and seccomp", 3: "none"}
_GROUPS = "memory and processes are counted by control groups"
_LOST_ALWAYS = ("many files can fill the disk of the workspace: only the size of each is limited",)
_LOST_ALONE = (
    "the list of processes and their command lines can be read",
    "private /tmp and home are an ordinary folder, and there is no /dev/shm",
    "sockets on loopback or in the file system cannot be used: only the proxy of a granted network",
)
_LOST_ALL = (
    "anything: commands can do what this user can; whatever does not only read asks first",
)
_known: Tier | None = None


class _Finding(Struct):
    key: list[str]
    tier: Tier


async def probe(cache: Path | None = None, *, fresh: bool = False) -> Tier:
    """The strongest tier whose canary failed at everything it must not do.

    Once per process; with a folder `cache`, once as long as nothing changes that it depends on.
    Only the strongest tier that this machine has the parts for is remembered there: a canary that
    failed may have had a bad day. `fresh`: try again, whatever is known.
    """
    global _known
    if _known is None or fresh:
        key = _key()
        before = _recall(cache)
        if before and before.key == key and not fresh:
            _known = before.tier
        else:
            found = await _find()
            _known = _compared(found, before)
            if found.level == min((tier.level for tier in candidates()), default=3):
                _remember(cache, _Finding(key, found))
            elif before:  # to be tried again by the next process, and compared again
                _remember(cache, _Finding([], before.tier))
    return _known


def _compared(found: Tier, before: _Finding | None) -> Tier:
    """Never weaker without a word."""
    if before is None or before.tier.level >= found.level:
        return found
    why = next(iter(found.evidence), "its parts are gone")
    text = f"commands are confined less than before: tier {found.level}, it was {before.tier.level}"
    log.warning("%s (%s)", text, why)
    return msgspec.structs.replace(found, evidence=(text, *found.evidence), lowered=True)


async def _find() -> Tier:
    evidence: list[str] = []
    for candidate in candidates():
        tier, why = await attempt(candidate)
        if tier:
            return msgspec.structs.replace(tier, evidence=(*evidence, *tier.evidence))
        evidence.append(f"tier {candidate.level} ({candidate.name}) cannot be used: {why}")
    if not evidence:
        evidence.append("neither bubblewrap nor Landlock is here")
    return Tier(3, _NAMES[3], tuple(evidence), _LOST_ALL)


def candidates() -> list[Tier]:
    """Tiers whose parts are here, strongest first; untried."""
    if sys.platform != "linux" or os.uname().machine not in MACHINES:
        return []
    found: list[Tier] = []
    version = landlock_version()
    bwrap = next((path for path in BWRAP if os.access(path, os.X_OK)), "")
    counted = cgroup.possible()
    always = _LOST_ALWAYS if counted else (*_LOST_ALWAYS, _uncounted())
    evidence = (_GROUPS,) if counted else ()
    if bwrap:
        found.append(Tier(1, _NAMES[1], evidence, always, version, bwrap))
    if version:
        lost = [*_LOST_ALONE, *always]
        if version < 6:
            lost.append("signals can be sent to other processes of this user (Landlock before 6)")
        name = f"{_NAMES[2]} (version {version})"
        found.append(Tier(2, name, evidence, tuple(lost), version))
    return found


async def attempt(tier: Tier) -> tuple[Tier | None, str]:
    """The tier with what the canary found; or None, and why not."""
    with tempfile.TemporaryDirectory(prefix="hermes-canary-") as folder:
        base = Path(folder).resolve()  # noqa: ASYNC240 - once per boot
        for name in ("workspace", "outside", "home"):
            (base / name).mkdir()
        (base / "home" / "secret").write_text("secret")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            results = await _run(base, listener.getsockname()[1], tier)
            with contextlib.suppress(BlockingIOError):
                listener.accept()[0].close()
                results["reach the network"] = ""
        if (base / "outside" / "written").exists():
            results["write outside the workspace"] = ""
    return _judge(tier, results)


async def _run(base: Path, port: int, tier: Tier) -> dict[str, str]:
    # As a text, and by the interpreter beneath a virtual environment: where we are installed may
    # be hidden in the sandbox, a home or a temporary folder.
    script = Path(__file__).with_name("sandbox").joinpath("self_test.py").read_text()
    python = os.path.realpath(sys.executable)  # noqa: ASYNC240 - once per boot
    words = [python, "-I", "-S", "-c", script, str(base / "outside")]
    words += [str(base / "home" / "secret"), str(port), str(os.getpid())]
    policy = Policy(
        "workspace-write",
        base / "workspace",
        (base / "home",),
        visible=(base / "outside", Path(sys.base_prefix)),
    )
    command = Command(join(words), base / "workspace", {}, _TIMEOUT, policy, tier)
    out, err = Capture(20_000, base), Capture(20_000, base)
    try:
        await run(command, out, err)
        return msgspec.json.decode(out.text(), type=dict[str, str])
    except ToolError as error:
        return {"failure": str(error)}
    except msgspec.DecodeError:
        return {"failure": f"the canary died: {err.text().strip()}"[:500]}
    finally:
        out.close()
        err.close()


def _judge(tier: Tier, results: dict[str, str]) -> tuple[Tier | None, str]:
    if failure := results.pop("failure", ""):
        return None, failure
    if reason := results.pop("write in the workspace"):
        return None, f"nothing can be written in the workspace ({reason})"
    if tier.level == 2:
        del results["read the first process's environment"]  # not one of ours
        if tier.landlock < 6:
            del results["signal the agent"]
    if worked := [name for name, reason in results.items() if not reason]:
        return None, f"the canary could {', '.join(worked)}"
    facts = tuple(f"tried to {name}: {reason}" for name, reason in results.items())
    return msgspec.structs.replace(tier, evidence=(*facts, *tier.evidence)), ""


def landlock_version() -> int:
    try:
        return call(_LANDLOCK_CREATE, None, 0, 1)
    except OSError:
        return 0


def _uncounted() -> str:
    if os.geteuid():
        return "memory is limited per process only: there are no control groups for us"
    return "the number of processes is not limited, memory per process only: no control groups"


def _key() -> list[str]:
    """What the finding depends on: the kernel and its settings, and who, where and what we are."""
    key = [VERSION, str(_VERSION), os.uname().release, os.uname().machine, str(os.geteuid())]
    key += [os.path.realpath(sys.executable), str(cgroup.possible())]
    for path in _SETTINGS:
        with contextlib.suppress(OSError):
            key.append(f"{path} {Path(path).read_text(encoding='utf-8', errors='replace').strip()}")
    for name in ("mnt", "user"):
        with contextlib.suppress(OSError):
            key.append(str(Path(f"/proc/self/ns/{name}").readlink()))
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
        key += [line for line in lines if line.startswith(("NoNewPrivs:", "Seccomp:", "CapEff:"))]
    for path in BWRAP:
        with contextlib.suppress(OSError):
            found = Path(path).stat()
            key.append(f"{path} {found.st_mtime_ns} {found.st_size} {found.st_ino}")
    return key


def _recall(cache: Path | None) -> _Finding | None:
    if cache is None:
        return None
    try:
        found = msgspec.json.decode((cache / _FILE).read_bytes(), type=_Finding)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.tier.bwrap in ("", *BWRAP) else None


def _remember(cache: Path | None, finding: _Finding) -> None:
    if cache is None:
        return
    with contextlib.suppress(OSError):
        private_folder(cache)
        temporary = cache / f"{_FILE}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(temporary, flags, 0o600), "wb") as file:  # noqa: PTH123
            file.write(msgspec.json.encode(finding))
        temporary.replace(cache / _FILE)

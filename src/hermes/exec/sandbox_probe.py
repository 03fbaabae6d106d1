"""Finds out, by trying, how strongly commands can be confined on this machine."""

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

from hermes.config.paths import make_private_folder
from hermes.config.private_files import replace_file
from hermes.core.errors import ToolError
from hermes.exec.launcher import cgroup
from hermes.exec.launcher.libc import make_syscall
from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.sandbox import seatbelt
from hermes.exec.sandbox.policy import SandboxPolicy, SandboxTier
from hermes.exec.sandbox.seccomp import MACHINES, can_broker_sockets
from hermes.exec.tier_record import TIER_FILE
from hermes.version import VERSION

log = logging.getLogger(__name__)
BWRAP_PATHS = (
    "/usr/bin/bwrap /usr/local/bin/bwrap /bin/bwrap /run/current-system/sw/bin/bwrap".split()
)
"""Never looked up on PATH, which may contain folders that others can write to."""
_LANDLOCK_CREATE = 444
_PROBE_VERSION = 3
"""Increased when the sandbox changes so much that an earlier result no longer holds."""
_KERNEL_SETTINGS = (
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/user/max_user_namespaces",
    "/sys/kernel/security/lsm",
)
_TIMEOUT = 15.0
_TIER_NAMES = {1: "bubblewrap: namespaces, seccomp", 2: "Landlock and seccomp", 3: "none"}
_CGROUPS_FOUND = "control groups limit memory and processes"
_LOST_ALWAYS = ("the number of files in the workspace; only the size of each is limited",)
_LOST_WITHOUT_NAMESPACES = (
    "the list of processes and their command lines, which commands can read",
    "private /tmp and home: they are an ordinary folder",
    "ports of commands from other programs of this machine; they may take any above 1023",
)
_LOST_WITH_SEATBELT = (
    "servers on loopback: commands can neither offer nor reach one, except the granted proxy",
    "anything, perhaps: this confinement has never been tried on a Mac",
)
_PORTABLE_ATTEMPTS = (
    "write outside the workspace",
    "read a hidden file",
    "reach the network",
    "signal the agent",
)
_LOST_BEFORE_5_6 = "Unix sockets of other programs in visible folders (Linux before 5.6)"
_LOST_ALL = ("anything: commands can do what this user can, so all but reading needs approval",)
_known_tier: SandboxTier | None = None


class _CachedTier(Struct):
    """The result of an earlier probe, and what it depends on."""

    key: list[str]
    tier: SandboxTier
    last: int = 0


async def probe_tier(cache: Path | None = None, *, fresh: bool = False) -> SandboxTier:
    """The strongest tier whose self-test failed at everything it must not be able to do. Cached,
    unless a stronger one should work here: its failure may have been an accident."""
    global _known_tier
    if _known_tier is None or fresh:
        key = _cache_key()
        before = _load_cached(cache)
        if before and before.key == key and not fresh:
            _known_tier = before.tier
        else:
            found = await _find_strongest()
            _known_tier = _warn_if_weaker(found, before)
            if found.level == min((tier.level for tier in list_candidates()), default=3):
                _save_cached(cache, _CachedTier(key, found, found.level))
            else:  # the next process tries and compares again
                known = before.tier if before else found
                _save_cached(cache, _CachedTier([], known, found.level))
    return _known_tier


def _warn_if_weaker(found: SandboxTier, before: _CachedTier | None) -> SandboxTier:
    """Log a warning, and mark the tier, when an earlier probe found a stronger one."""
    if before is None or before.tier.level >= found.level:
        return found
    why = next(iter(found.evidence), "its parts are missing")
    levels = f"tier {found.level} instead of {before.tier.level}"
    text = f"commands are less confined than before: {levels}"
    log.warning("%s (%s)", text, why)
    return msgspec.structs.replace(found, evidence=(text, *found.evidence), lowered=True)


async def _find_strongest() -> SandboxTier:
    evidence: list[str] = []
    for candidate in list_candidates():
        tier, why = await try_tier(candidate)
        if tier:
            return msgspec.structs.replace(tier, evidence=(*evidence, *tier.evidence))
        evidence.append(f"tier {candidate.level} ({candidate.name}) cannot be used: {why}")
    if not evidence:
        evidence.append("neither bubblewrap nor Landlock nor Seatbelt is available")
    return SandboxTier(3, _TIER_NAMES[3], tuple(evidence), _LOST_ALL)


def list_candidates() -> list[SandboxTier]:
    """Tiers this machine has the parts for, strongest first; not tried yet."""
    if sys.platform == "darwin" and os.access(seatbelt.SANDBOX_EXEC, os.X_OK):
        lost = (*_LOST_WITH_SEATBELT, *_LOST_ALWAYS)
        return [SandboxTier(2, "Seatbelt (macOS)", lost=lost, seatbelt=True)]
    if sys.platform != "linux" or os.uname().machine not in MACHINES:
        return []
    found: list[SandboxTier] = []
    version = landlock_version()
    bwrap = next((path for path in BWRAP_PATHS if os.access(path, os.X_OK)), "")
    has_cgroups = cgroup.can_limit()
    always = _LOST_ALWAYS if has_cgroups else (*_LOST_ALWAYS, _describe_missing_cgroups())
    evidence = (_CGROUPS_FOUND,) if has_cgroups else ()
    if bwrap:
        lost = always if can_broker_sockets() else (*always, _LOST_BEFORE_5_6)
        found.append(SandboxTier(1, _TIER_NAMES[1], evidence, lost, version, bwrap))
    if version:
        lost = (*_LOST_WITHOUT_NAMESPACES, *always)
        if version < 6:
            lost += ("other processes of this user from signals (Landlock before version 6)",)
        name = f"{_TIER_NAMES[2]} (version {version})"
        found.append(SandboxTier(2, name, evidence, lost, version))
    return found


async def try_tier(tier: SandboxTier) -> tuple[SandboxTier | None, str]:
    """The tier with the evidence of its self-test; or None, and why it cannot be used."""
    with tempfile.TemporaryDirectory(prefix="hermes-self-test-") as folder:
        base = Path(folder).resolve()  # noqa: ASYNC240 - once per boot
        for name in ("workspace", "outside", "home"):
            (base / name).mkdir()
        (base / "home" / "secret").write_text("secret")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            results = await _run_self_test(base, listener.getsockname()[1], tier)
            with contextlib.suppress(BlockingIOError):
                listener.accept()[0].close()
                results["reach the network"] = ""
        if (base / "outside" / "written").exists():
            results["write outside the workspace"] = ""
    return _judge_results(tier, results)


async def _run_self_test(base: Path, port: int, tier: SandboxTier) -> dict[str, str]:
    # Passed as text, to the interpreter beneath a virtual environment: the folder we are installed
    # in may be hidden in the sandbox.
    script = Path(__file__).with_name("sandbox").joinpath("self_test.py").read_text()
    python = os.path.realpath(sys.executable)  # noqa: ASYNC240 - once per boot
    words = [python, "-I", "-S", "-c", script, str(base / "outside")]
    words += [str(base / "home" / "secret"), str(port), str(os.getpid())]
    policy = SandboxPolicy(
        "workspace-write",
        base / "workspace",
        (base / "home",),
        visible=(base / "outside", Path(sys.base_prefix)),
    )
    command = CommandSpec(join(words), base / "workspace", {}, _TIMEOUT, policy, tier)
    out, err = OutputCapture(20_000, base), OutputCapture(20_000, base)
    try:
        await run_command(command, out, err)
        return msgspec.json.decode(out.text(), type=dict[str, str])
    except ToolError as error:
        return {"failure": str(error)}
    except msgspec.DecodeError:
        return {"failure": f"the self-test crashed: {err.text().strip()}"[:500]}
    finally:
        out.close()
        err.close()


def _judge_results(tier: SandboxTier, results: dict[str, str]) -> tuple[SandboxTier | None, str]:
    if failure := results.pop("failure", ""):
        return None, failure
    if reason := results.pop("write_inside"):
        return None, f"nothing can be written in the workspace ({reason})"
    if tier.seatbelt:
        results = {name: results[name] for name in _PORTABLE_ATTEMPTS}
    elif tier.level == 2:
        del results["read the environment of the first process"]  # the machine's, not ours
        if tier.landlock < 6:
            del results["signal the agent"]
    if worked := [name for name, reason in results.items() if not reason]:
        return None, f"the self-test could {', '.join(worked)}"
    facts = tuple(f"tried to {name}: {reason}" for name, reason in results.items())
    return msgspec.structs.replace(tier, evidence=(*facts, *tier.evidence)), ""


def landlock_version() -> int:
    try:
        return make_syscall(_LANDLOCK_CREATE, None, 0, 1)
    except OSError:
        return 0


def _describe_missing_cgroups() -> str:
    if os.geteuid():
        return "memory as a whole: without control groups it is limited per process"
    return "the number of processes, and memory as a whole: there are no control groups"


def _cache_key() -> list[str]:
    """What the result depends on: the kernel and its settings, the user, the program itself."""
    key = [VERSION, str(_PROBE_VERSION), os.uname().release, os.uname().machine, str(os.geteuid())]
    key += [os.path.realpath(sys.executable), str(cgroup.can_limit())]
    for path in _KERNEL_SETTINGS:
        with contextlib.suppress(OSError):
            key.append(f"{path} {Path(path).read_text(encoding='utf-8', errors='replace').strip()}")
    for name in ("mnt", "user"):
        with contextlib.suppress(OSError):
            key.append(str(Path(f"/proc/self/ns/{name}").readlink()))
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
        key += [line for line in lines if line.startswith(("NoNewPrivs:", "Seccomp:", "CapEff:"))]
    for path in BWRAP_PATHS:
        with contextlib.suppress(OSError):
            found = Path(path).stat()
            key.append(f"{path} {found.st_mtime_ns} {found.st_size} {found.st_ino}")
    return key


def _load_cached(cache: Path | None) -> _CachedTier | None:
    if cache is None:
        return None
    try:
        found = msgspec.json.decode((cache / TIER_FILE).read_bytes(), type=_CachedTier)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.tier.bwrap in ("", *BWRAP_PATHS) else None


def _save_cached(cache: Path | None, result: _CachedTier) -> None:
    if cache is None:
        return
    with contextlib.suppress(OSError):
        make_private_folder(cache)
        replace_file(cache / TIER_FILE, msgspec.json.encode(result))

"""Starts, stops and inspects the gateway from another process."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from hermes.cli.gateway.process import EXIT_RUNNING, command_line, find_log
from hermes.config.paths import make_private_folder
from hermes.core.errors import ConfigError
from hermes.gateway.process.state_file import find_pid, read_status

_START_SECONDS = 30.0
_STOP_SECONDS = 60.0


def start_gateway(home: Path, profile: str) -> str:
    """Start it in the background; returns what to say."""
    if (pid := find_pid(home)) is not None:
        raise ConfigError(f"The gateway is already running (pid {pid}).")
    log = find_log(home)
    make_private_folder(log.parent)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            command_line(profile),
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            start_new_session=True,
        )
    finally:
        os.close(handle)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ConfigError(f"The gateway did not start. {_read_last_line(log)}".strip())
        found = read_status(home)
        if found and found["running"] and found["gateway_state"] == "running":
            return f"The gateway is running (pid {process.pid})."
        time.sleep(0.05)
    return f"The gateway is starting (pid {process.pid}). See: hermes gateway status"


def _read_last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").splitlines()
    return lines[-1].removeprefix("hermes: ") if lines else ""


def stop_gateway(home: Path) -> str:
    """Ask it to stop and wait until it has."""
    pid = _require_pid(home)
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while find_pid(home) is not None:
        if time.monotonic() > deadline:
            return f"The gateway (pid {pid}) is still finishing its work. Nothing is lost."
        time.sleep(0.02)
    return "The gateway has stopped."


def restart_gateway(home: Path) -> str:
    pid = _require_pid(home)
    os.kill(pid, signal.SIGUSR1)
    return f"The gateway (pid {pid}) restarts when its running turns have ended."


def _require_pid(home: Path) -> int:
    pid = find_pid(home)
    if pid is None:
        raise ConfigError("The gateway is not running. Start it with: hermes gateway start")
    return pid


def describe_status(home: Path) -> tuple[int, dict[str, Any]]:
    """The exit status and the state; 3 when it does not run."""
    found = read_status(home) or {"running": False, "gateway_state": "stopped", "platforms": {}}
    return (0 if found["running"] else EXIT_RUNNING), found


def format_status(found: dict[str, Any]) -> list[str]:
    state = str(found["gateway_state"]) if found["running"] else "not running"
    if found.get("stalled"):
        state = "stalled (it has not reported for more than 30 s)"
    lines = [f"gateway: {state}" + (f" (pid {found['pid']})" if found["running"] else "")]
    if found.get("crash_loop"):
        lines.append("crash loop: interrupted turns are not resumed")
    for name, status in found["platforms"].items():
        error = f" ({status['error_message']})" if status.get("error_message") else ""
        lines.append(f"{name}: {status['state']}{error}")
    for box in ("inbox", "outbox"):
        if counts := found.get(box):
            lines.append(f"{box}: " + ", ".join(f"{n} {word}" for word, n in counts.items()))
    return lines

"""The gateway as a service of the user: a systemd unit, or a launchd agent on macOS."""

import re
import shlex
import subprocess
from html import escape
from pathlib import Path

from hermes.cli.gateway.process import command_line, find_log
from hermes.config import paths
from hermes.config.env import get_environment, get_platform_name
from hermes.core.errors import ConfigError

_UNIT = """\
[Unit]
Description=Hermes gateway ({profile})
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart={command}
Environment={root}
WorkingDirectory={folder}
Restart=on-failure
RestartForceExitStatus=75
RestartPreventExitStatus=2 3
RestartSec=2
TimeoutStopSec=90
NotifyAccess=main

[Install]
WantedBy=default.target
"""
_PLIST = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" \
"http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>{label}</string>
  <key>ProgramArguments</key><array>{arguments}</array>
  <key>EnvironmentVariables</key><dict><key>HERMES_HOME</key><string>{root}</string></dict>
  <key>WorkingDirectory</key><string>{folder}</string>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
  <key>StandardErrorPath</key><string>{log}</string>
</dict>
</plist>
"""


def quote_word(word: str) -> str:
    """A word as systemd reads it in a unit."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if re.search(r"[^\w@%+=:,./-]", word) else escaped


def unit_name(profile: str) -> str:
    return "hermes-gateway" + (f"-{profile}" if profile not in ("", "default") else "")


def unit_path(profile: str) -> Path:
    """Where the service of this user is described."""
    environ = get_environment()
    user_home = Path(environ.get("HOME") or Path.home())
    if get_platform_name() == "macOS":
        return user_home / "Library" / "LaunchAgents" / f"{unit_name(profile)}.plist"
    folder = Path(environ.get("XDG_CONFIG_HOME") or user_home / ".config")
    return folder / "systemd" / "user" / f"{unit_name(profile)}.service"


def install_unit(home: Path, profile: str) -> str:
    """Write the service and start it; returns what to say."""
    path = unit_path(profile)
    root = str(paths.find_home(get_environment(), paths.DEFAULT_PROFILE))
    command = command_line(profile)
    if path.suffix == ".plist":
        text = _PLIST.format(
            label=unit_name(profile),
            arguments="".join(f"<string>{escape(word)}</string>" for word in command),
            root=escape(root),
            folder=escape(str(Path.cwd())),
            log=escape(str(find_log(home))),
        )
        start = ["launchctl", "load", "-w", str(path)]
    else:
        text = _UNIT.format(
            profile=profile or "default",
            command=" ".join(quote_word(word).replace("$", "$$") for word in command),
            root=quote_word(f"HERMES_HOME={root}"),
            folder=str(Path.cwd()).replace("%", "%%"),
        )
        start = ["systemctl", "--user", "enable", "--now", path.name]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return _try_command(start, f"Installed {path}. The gateway starts with your login.", path)


def uninstall_unit(profile: str) -> str:
    path = unit_path(profile)
    if not path.exists():
        raise ConfigError(f"The gateway is not installed ({path} does not exist).")
    stop = ["systemctl", "--user", "disable", "--now", path.name]
    if path.suffix == ".plist":
        stop = ["launchctl", "unload", "-w", str(path)]
    said = _try_command(stop, f"Removed {path}.", path)
    path.unlink()
    return said


def _try_command(command: list[str], text: str, path: Path) -> str:
    """Run a command of the service manager; where there is none, say what to run later."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        failure = done.stderr.strip().splitlines()[-1:] if done.returncode else None
    except (OSError, subprocess.TimeoutExpired) as error:
        failure = [str(error)]
    if failure is None:
        return text
    about = failure[0] if failure else "unknown error"
    return f"{text} But `{shlex.join(command)}` failed: {about}"

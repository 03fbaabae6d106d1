"""The scripts of jobs: plain files of the operator, run without secrets and with limits."""

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.core.errors import ConfigError, ToolError
from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture

SCRIPT_SECONDS = 120.0
SCRIPT_BYTES = 64 * 1024
_PROGRAMS = {".sh": ("/usr/bin/env", "bash"), ".py": (sys.executable,)}


class ScriptResult(Struct, frozen=True):
    output: str
    error: str = ""
    """Why it failed; empty: it did not."""

    @property
    def wakes_agent(self) -> bool:
        """Whether there is anything for the agent to do."""
        lines = self.output.strip().splitlines()
        if not lines:
            return False
        try:
            found = msgspec.json.decode(lines[-1])
        except msgspec.DecodeError:
            return True
        return not (isinstance(found, dict) and found.get("wakeAgent") is False)


class _BoundedCapture(OutputCapture):
    """Forgets what comes after the limit."""

    def feed(self, data: bytes) -> None:
        if room := SCRIPT_BYTES - self.size:
            super().feed(data[:room])


def find_script(home: Path, name: str) -> Path:
    """The script of that name; ConfigError unless it is a plain file of the folder `scripts`."""
    folder = home / "scripts"
    path = folder / name
    if Path(name).name != name or name.startswith(".") or "\0" in name:
        raise ConfigError(f"Script {name!r} is not a plain file name of {folder}.")
    if path.suffix not in _PROGRAMS:
        raise ConfigError(f"Script {name!r} must end in .sh or .py.")
    try:
        mode = path.lstat().st_mode
    except OSError:
        raise ConfigError(f"There is no script {name!r} in {folder}.") from None
    if not stat.S_ISREG(mode):
        raise ConfigError(f"Script {name!r} is not a plain file of {folder}.")
    return path


async def run_script(path: Path, cwd: Path, env: Mapping[str, str]) -> ScriptResult:
    """Run a script to its end; every process it started has ended then if it took too long."""
    out, err = (_BoundedCapture(SCRIPT_BYTES, Path(os.devnull)) for _ in range(2))
    command = CommandSpec((*_PROGRAMS[path.suffix], str(path)), cwd, env, SCRIPT_SECONDS)
    try:
        result = await run_command(command, out, err)
    except ToolError as error:
        return ScriptResult("", f"The script {path.name} could not be run. {error}")
    if result.status is None:
        error_text = f"The script {path.name} took longer than {SCRIPT_SECONDS:.0f} s."
        return ScriptResult(out.text(), error_text)
    if result.status:
        words = err.text().strip().splitlines()[-1:]
        return ScriptResult(out.text(), ": ".join([f"Exit status {result.status}", *words]))
    return ScriptResult(out.text())

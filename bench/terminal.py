"""Programs at a terminal: python -m bench.terminal URL PEER

A program is started on a pseudo-terminal of its own. It takes keys when it has turned the line's
own echo off and shows what is typed itself; what is typed is printed by nothing else.
"""

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from bench.measure import emit
from bench.peers import SCRATCH

SIZE = struct.pack("HHHH", 40, 120, 0, 0)
STARTS = 7
FIRST = 0x4E00
TICK = os.sysconf("SC_CLK_TCK")
PATIENCE = 60.0
PI = SCRATCH / "pi" / "node_modules" / ".bin" / "pi"
PI_PACKAGE = "@mariozechner/pi-coding-agent@0.73.1"


class Terminal:
    """One program, and everything it has shown."""

    def __init__(self, command: list[str]) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, SIZE)
        env = dict(os.environ) | {"TERM": "xterm-256color"}
        env.pop("PYTHONPATH", None)
        self.began = time.perf_counter()
        self.child = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self.shown = bytearray()
        self.typed = 0

    def read(self, wait: float) -> None:
        if select.select((self.master,), (), (), wait)[0]:
            self.shown += os.read(self.master, 1 << 16)
            if b"\x1b[6n" in self.shown[-64:]:  # it asks where the cursor is
                os.write(self.master, b"\x1b[10;1R")

    def until(self, text: bytes, since: int = 0, patience: float = PATIENCE) -> float:
        """When it was shown."""
        end = time.perf_counter() + patience
        while text not in self.shown[since:]:
            if time.perf_counter() > end:
                raise RuntimeError(f"{text!r} never came: {bytes(self.shown[-500:])!r}")
            self.read(0.01)
        return time.perf_counter()

    def takes_keys(self) -> float:
        """Milliseconds from its start until what is typed is shown by it."""
        while termios.tcgetattr(self.master)[3] & termios.ECHO:
            self.read(0.002)
            if time.perf_counter() - self.began > PATIENCE:
                raise RuntimeError(f"no prompt: {bytes(self.shown[-500:])!r}")
        # Programs that throw away what came before their prompt are typed at again.
        while time.perf_counter() - self.began < PATIENCE:
            try:
                return (self.key(0.1)[1] - self.began) * 1e3
            except RuntimeError:
                continue
        raise RuntimeError(f"no echo: {bytes(self.shown[-500:])!r}")

    def key(self, patience: float = PATIENCE) -> tuple[float, float]:
        """Type a character nobody else prints; when it was typed, and when it was shown."""
        char = chr(FIRST + self.typed).encode()
        self.typed += 1
        since = len(self.shown)
        typed = time.perf_counter()
        os.write(self.master, char)
        return typed, self.until(char, since, patience)

    def cpu_ms(self) -> float:
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1e3 / TICK

    def memory_mb(self) -> float:
        lines = Path(f"/proc/{self.child.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def settle(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.read(0.05)

    def say(self, text: str) -> None:
        os.write(self.master, b"\x15" + text.encode())
        self.settle(0.1)
        os.write(self.master, b"\r")

    def close(self) -> None:
        for number in (signal.SIGHUP, signal.SIGKILL):
            if self.child.poll() is None:
                os.killpg(self.child.pid, number)
                try:
                    self.child.wait(3)
                except subprocess.TimeoutExpired:
                    continue
        os.close(self.master)


def start(command: list[str], metric: str, rounds: int = STARTS) -> None:
    for number in range(-1, rounds):
        terminal = Terminal(command)
        try:
            took = terminal.takes_keys()
        finally:
            terminal.close()
        if number >= 0:  # the first one fills the page cache
            emit(metric, took)


def at_rest(command: list[str]) -> None:
    """Memory when everything is there, and CPU while nothing happens."""
    terminal = Terminal(command)
    try:
        terminal.takes_keys()
        terminal.settle(5)
        emit("repl_memory", terminal.memory_mb())
        before = terminal.cpu_ms()
        terminal.settle(10)
        emit("repl_idle", terminal.cpu_ms() - before)
    finally:
        terminal.close()


def streaming(command: list[str]) -> None:
    """Keys while 200 deltas a second arrive; then long answers."""
    terminal = Terminal(command)
    try:
        terminal.takes_keys()
        terminal.settle(2)
        terminal.say("paced-2000-5")
        terminal.until(b"wxyz")
        waits = []
        for _ in range(150):
            typed, shown = terminal.key()
            waits.append((shown - typed) * 1e3)
            terminal.settle(0.05)
        emit("repl_echo", sorted(waits)[int(len(waits) * 0.99)])
        emit("repl_echo_median", sorted(waits)[len(waits) // 2])
        terminal.settle(3)
        per_line = {count: line_cost(terminal, count) for count in (2000, 20_000)}
        emit("repl_line", per_line[20_000])
        emit("repl_line_growth", per_line[20_000] / per_line[2000])
    finally:
        terminal.close()


def line_cost(terminal: Terminal, count: int) -> float:
    """Microseconds of CPU per line of an answer."""
    terminal.settle(1)
    before, since = terminal.cpu_ms(), len(terminal.shown)
    terminal.say(f"lines-{count}")
    terminal.until(f"line {count - 1} ".encode(), since, patience=120)
    terminal.settle(1)
    return (terminal.cpu_ms() - before) * 1e3 / count


def pi() -> list[str] | None:
    """A peer on node, where npm can bring it."""
    if not PI.exists() and shutil.which("npm"):
        print("installing pi into .bench/pi …", file=sys.stderr)
        PI.parents[2].mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(PI.parents[2])]
        subprocess.run([*install, PI_PACKAGE], capture_output=True, check=False)
    return [str(PI)] if PI.exists() else None


def main() -> None:
    peer = sys.argv[2]
    command = [str(Path(sys.executable).parent / "hermes")]
    if peer == "original":
        start(command, "repl_start", 3)
        at_rest(command)
        return
    asked = [*command, "--model", "asked"]
    start(asked, "repl_start")
    at_rest(asked)
    streaming(asked)
    if (node := pi()) is not None:
        start(node, "floor:repl_start", 3)


if __name__ == "__main__":
    main()

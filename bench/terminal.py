"""Programs at a terminal, as their users meet them.

A program is started on a pseudo-terminal of its own. Its editor takes keys when it has turned the
line's own echo off and shows what is typed itself; what is typed is printed by nothing else. Ours
shows a prompt before that, and keeps what is typed there: that is checked.
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
from collections.abc import Callable
from pathlib import Path

from bench.peers import SCRATCH, Home

SIZE = struct.pack("HHHH", 40, 120, 0, 0)
ECHO = "import os, tty; tty.setraw(0)\nwhile True: os.write(1, os.read(0, 1024))"
Add = Callable[..., None]
Attempt = Callable[[str, Callable[[], None]], None]
FIRST = 0x4E00
TICK = os.sysconf("SC_CLK_TCK")
PATIENCE = 60.0
PI = SCRATCH / "pi" / "node_modules" / ".bin" / "pi"
PI_PACKAGE = "@mariozechner/pi-coding-agent@0.73.1"


class Terminal:
    """One program, and everything it has shown."""

    def __init__(self, command: list[str], home: Home) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, SIZE)
        env = home.env | {"TERM": "xterm-256color"}
        self.began = time.perf_counter()
        self.child = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=home.cwd,
            start_new_session=True,
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

    def keeps_keys(self, prompt: bytes) -> float:
        """Milliseconds until what is typed at its prompt is shown; and it must still be there
        when the program has drawn its own editor."""
        self.until(prompt)
        char = chr(FIRST + self.typed).encode()
        shown = self.key()[1]
        since = len(self.shown)
        self.takes_keys()
        self.until(char, since)
        return (shown - self.began) * 1e3

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


def starts(commands: dict[str, tuple[list[str], Home]], add: Add, rounds: int) -> None:
    """In turn, so that other work on the machine hits all alike."""
    for number in range(-1, rounds):
        for peer, (command, home) in commands.items():
            terminal = Terminal(command, home)
            try:
                if peer == "ours":
                    took = terminal.keeps_keys("❯".encode())
                    editor = (time.perf_counter() - terminal.began) * 1e3
                else:
                    took = editor = terminal.takes_keys()
                spent = terminal.cpu_ms()
            finally:
                terminal.close()
            if number >= 0:  # the first one fills the page cache
                add(peer, "repl_start", took)
                add(peer, "repl_editor", editor)
                add(peer, "repl_start_cpu", spent)


def at_rest(peer: str, command: list[str], home: Home, add: Add) -> None:
    """Memory when everything is there, and CPU while nothing happens."""
    terminal = Terminal(command, home)
    try:
        terminal.takes_keys()
        terminal.settle(5)
        add(peer, "repl_memory", terminal.memory_mb())
        before = terminal.cpu_ms()
        terminal.settle(10)
        add(peer, "repl_idle", terminal.cpu_ms() - before)
    finally:
        terminal.close()


def streaming(command: list[str], home: Home, add: Add) -> None:
    """Keys while 200 deltas a second arrive, in turn with a program that does nothing but show
    them; then long answers."""
    terminal, bare = Terminal(command, home), Terminal([sys.executable, "-c", ECHO], home)
    try:
        terminal.takes_keys()
        bare.takes_keys()
        terminal.settle(2)
        terminal.say("paced-2400-5")
        terminal.until(b"wxyz")
        waits: dict[str, list[float]] = {"ours": [], "floor": []}
        for _ in range(150):
            for peer, one in (("ours", terminal), ("floor", bare)):
                typed, shown = one.key()
                waits[peer].append((shown - typed) * 1e3)
                terminal.settle(0.03)
        for peer, found in waits.items():
            add(peer, "repl_echo", sorted(found)[int(len(found) * 0.99)])
            add(peer, "repl_echo_median", sorted(found)[len(found) // 2])
        terminal.settle(3)
        per_line = {count: line_cost(terminal, count) for count in (2000, 20_000)}
        add("ours", "repl_line", per_line[20_000])
        add("ours", "repl_line_growth", per_line[20_000] / per_line[2000])
    finally:
        terminal.close()
        bare.close()


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
        options = ["--no-audit", "--no-fund", "--fetch-retries=0", "--fetch-timeout=20000"]
        install = ["npm", "install", *options, "--prefix", str(PI.parents[2])]
        subprocess.run([*install, PI_PACKAGE], capture_output=True, check=False)
    return [str(PI)] if PI.exists() else None


def measure(homes: dict[str, Home], add: Add, attempt: Attempt, rounds: int) -> None:
    ours = [str(homes["ours"].bin / "hermes"), "--model", "asked"]
    commands = {"ours": (ours, homes["ours"])}
    if "original" in homes:
        theirs = [str(homes["original"].bin / "hermes")]
        commands = {"original": (theirs, homes["original"]), **commands}
    if (node := pi()) is not None:
        commands["floor"] = (node, homes["floor"])
    attempt("terminal starts", lambda: starts(commands, add, rounds))
    for peer in ("original", "ours"):
        if peer in commands:
            command, home = commands[peer]
            attempt(f"{peer} terminal", lambda p=peer, c=command, h=home: at_rest(p, c, h, add))
    attempt("ours terminal", lambda: streaming(ours, homes["ours"], add))

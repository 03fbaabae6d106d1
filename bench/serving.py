"""The servers of all three as processes, under load from another process."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import peers
from bench.measure import median

KEY = "sk-bench-0123456789abcdef0123456789"
TICK = os.sysconf("SC_CLK_TCK")
CHUNKS, PACE = 80, 100
"""Of a stream that is held: so many chunks, one every so many milliseconds."""
Add = Callable[..., None]


class Size:
    """How much of each is asked of a program: the original would take hours for what the others
    need to be measured at all."""

    def __init__(self, *, starts: int, rounds: int, alone: int, sixteen: int, many: int) -> None:
        self.starts = starts
        self.rounds = rounds
        self.alone = alone
        self.sixteen = sixteen
        self.many = many


SIZES = {
    "original": Size(starts=3, rounds=1, alone=30, sixteen=80, many=256),
    "ours": Size(starts=7, rounds=5, alone=300, sixteen=1600, many=1536),
    "floor": Size(starts=7, rounds=5, alone=300, sixteen=1600, many=1536),
}
LEVELS = {"original": (3, 6, 9, 12, 18, 24), "ours": (500, 1000), "floor": (500, 1000)}
"""Streams to hold, more and more until they slow down."""


class Running:
    """A server that has been started and answers."""

    def __init__(
        self,
        command: list[str],
        port: int,
        home: peers.Home,
        env: dict[str, str],
        probe: str = "/health",
    ):
        self.url = f"http://127.0.0.1:{port}"
        self.log = home.path / "server.log"
        begin = time.perf_counter()
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(
                command, env=env, cwd=home.cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        while True:
            if _asked(port, f"GET {probe} HTTP/1.1\r\n"):
                break
            if self.child.poll() is not None or time.perf_counter() > begin + 60:
                self.stop()
                raise RuntimeError(f"{' '.join(command)}: {self.log.read_text()[-2000:]}")
            time.sleep(0.002)
        self.listening_ms = (time.perf_counter() - begin) * 1e3
        answer = _asked(port, f"GET /v1/models HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\n")
        self.ready_ms = (time.perf_counter() - begin) * 1e3 if answer else None

    def cpu_ms(self) -> float:
        """User and system time of all its threads, and of children it waited for."""
        stat = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, stat[11:15])) * 1e3 / TICK

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def stop(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


def _asked(port: int, head: str) -> bool:
    """Whether it answers that, with 200; that a port can be connected to may mean less."""
    with socket.socket() as probe:
        probe.settimeout(5)
        if probe.connect_ex(("127.0.0.1", port)):
            return False
        try:
            probe.sendall(f"{head}Host: 127.0.0.1\r\n\r\n".encode())
            return probe.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(peer: str, home: peers.Home, url: str) -> Running:
    port = free_port()
    env = home.env
    if peer == "floor":
        command = [sys.executable, "-m", "bench.echo", url, str(port)]
        env = env | {"PYTHONPATH": str(peers.ROOT)}
    elif peer == "ours":
        command = [str(home.bin / "hermes"), "serve", "--port", str(port)]
        env = env | {"API_SERVER_KEY": KEY}
    else:
        command = [str(home.bin / "hermes"), "gateway", "run"]
        env = env | {
            "API_SERVER_ENABLED": "true",
            "API_SERVER_PORT": str(port),
            "API_SERVER_KEY": KEY,
        }
    return Running(command, port, home, env)


def prepare(peer: str, home: peers.Home) -> None:
    """The answer is chosen by what is asked; the original's own limit of ten runs is lifted."""
    path = home.path / ".hermes" / "config.yaml"
    config = path.read_text().replace("default: text", "default: asked")
    if peer == "original":
        config += "gateway:\n  api_server:\n    max_concurrent_runs: 0\n"
    path.write_text(config)


def _client(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.load", *arguments],
        cwd=peers.ROOT,
        env={"PATH": os.defpath, "BENCH_SERVER_KEY": KEY},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def load(*arguments: object) -> dict[str, Any]:
    child = _client(*map(str, arguments))
    out, _ = child.communicate()
    if child.returncode:
        raise RuntimeError(f"bench.load {' '.join(map(str, arguments))} failed")
    return dict(json.loads(out))


def asked(url: str, concurrency: int, count: int, script: str, *kind: str) -> dict[str, Any]:
    found = load("requests", url, concurrency, count, script, *kind)
    if found["ok"] < count:
        raise RuntimeError(f"{count} requests for {script}: {found['statuses']}")
    return found


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# -- what is measured --------------------------------------------------------------------------


def first_token(peer: str, server: Running, direct: float, add: Add) -> None:
    found = asked(server.url, 1, SIZES[peer].alone, "text", "stream")
    add(peer, "serve_first", median(found["first"]) - direct)


def sixteen(peer: str, server: Running, direct: float, add: Add) -> None:
    before = server.cpu_ms()
    found = asked(server.url, 16, SIZES[peer].sixteen, "text")
    add(peer, "serve_rate", found["rate"])
    add(peer, "serve_cpu", (server.cpu_ms() - before) / found["ok"])


def many(peer: str, server: Running, direct: float, add: Add) -> None:
    found = asked(server.url, 256, SIZES[peer].many, "text", "stream")
    add(peer, "serve_p99", percentile(found["first"], 0.99))


def long_streams(peer: str, server: Running, direct: float, add: Add) -> None:
    count = 5 if peer == "original" else 40
    for metric, script in (("serve_stream", "stream-2000"), ("serve_each", "stream-2000-each")):
        before = server.cpu_ms()
        asked(server.url, 1, count, script, "stream")
        add(peer, metric, (server.cpu_ms() - before) / count)


def held(peer: str, server: Running, direct: float, add: Add) -> None:
    most = 0
    found: dict[str, float] = {}
    for streams in LEVELS[peer]:
        with _watched(server) as seen:
            got = load("hold", server.url, streams, CHUNKS, PACE)
        full = min(got["held"], got["together"]) == streams
        if full or not found:
            found = seen
        if not full:
            break
        most = streams
    add(peer, "serve_held", most)
    add(peer, "serve_memory", found["rss"])
    add(peer, "serve_health", found["health"])


@contextmanager
def _watched(server: Running) -> Iterator[dict[str, float]]:
    """Its greatest memory and the p99 of /health meanwhile, there on leaving."""
    probe = _client("health", server.url)
    sizes: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            sizes.append(server.rss_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    seen: dict[str, float] = {}
    try:
        yield seen
    finally:
        ended.set()
        watcher.join()
        out, _ = probe.communicate()
    seen["rss"] = max(sizes)
    seen["health"] = percentile(json.loads(out)["took"], 0.99)


STEPS = (first_token, sixteen, many, long_streams, held)


def measure(
    homes: Mapping[str, peers.Home],
    url: str,
    add: Add,
    attempt: Callable[[str, Callable[[], None]], None],
) -> None:
    """All servers stay up; they are asked in turn, so that noise hits all alike."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    servers: dict[str, Running] = {}
    try:
        for peer, home in homes.items():
            prepare(peer, home)
            attempt(f"{peer} server", lambda p=peer, h=home: _up(p, h, url, servers, add))
        origin = url.removesuffix("/v1")
        direct = median(load("requests", origin, 1, 300, "text", "stream")["first"])
        for step in STEPS:
            for number in range(5):
                for peer, server in servers.items():
                    if number < (1 if step in (many, held) else SIZES[peer].rounds):
                        attempt(
                            f"{peer} {step.__name__}",
                            lambda s=step, p=peer, r=server: s(p, r, direct, add),
                        )
    finally:
        for server in servers.values():
            server.stop()


def _up(peer: str, home: peers.Home, url: str, servers: dict[str, Running], add: Add) -> None:
    for number in range(-1, SIZES[peer].starts):
        if peer in servers:
            servers.pop(peer).stop()
        servers[peer] = start(peer, home, url)
        if number >= 0:  # the first one writes byte code and fills the page cache
            add(peer, "serve_listen", servers[peer].listening_ms)
            if (ready := servers[peer].ready_ms) is not None:
                add(peer, "serve_ready", ready)
    asked(servers[peer].url, 4, 16 if peer == "original" else 200, "text", "stream")

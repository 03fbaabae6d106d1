"""make bench: one table, measured in one run. See docs/benchmarks.md."""

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import batches, browsing, messenger, peers, serving, terminal
from bench.measure import median, process

GROUPS = (
    "cold",
    "session",
    "turn",
    "stream",
    "tools",
    "sandbox",
    "store",
    "search",
    "schedule",
    "mcp",
    "knowledge",
    "server",
    "gateway",
    "repl",
    "web",
    "batch",
    "replay",
)
IN_PROCESS = GROUPS[1:]
PEERS = ("original", "ours", "floor")
ALONE = {
    "store": "bench.storage",
    "search": "bench.storage",
    "sandbox": "bench.sandbox",
    "schedule": "bench.schedule",
    "mcp": "bench.mcp_calls",
    "knowledge": "bench.knowledge",
    "replay": "bench.recordings",
}
"""Groups of ours that are measured without a runtime around them."""
NOT_THEIRS = ("search", "sandbox", "schedule", "mcp", "knowledge", "replay")


@dataclass(frozen=True)
class Row:
    group: str
    metric: str
    title: str
    unit: str = "ms"
    faster: float = 0
    """Target: at least this many times less than the original."""
    stretch: float = 0
    of_floor: float = 0
    """Target: at most this many times the floor."""
    at_most: float = 0
    """Target: at most this, in the row's unit."""
    at_least: float = 0
    more: bool = False
    """More is better: ratios are the other way round."""


ROWS = (
    Row("cold", "version_cpu", "hermes --version, CPU", faster=8),
    Row("cold", "help_cpu", "hermes --help, CPU", faster=8),
    Row("cold", "version_modules", "  modules imported", "n"),
    Row("cold", "version_instructions", "  instructions", "M"),
    Row("cold", "first", "one-shot: start to first request", faster=8, stretch=14),
    Row("cold", "oneshot_wall", "one-shot in all, wall", faster=8),
    Row("cold", "oneshot_cpu", "one-shot in all, CPU", faster=8),
    Row("cold", "oneshot_rss", "one-shot, peak memory", "MB", at_most=50),
    Row("cold", "oneshot_modules", "  modules imported", "n"),
    Row("cold", "oneshot_instructions", "  instructions", "M"),
    Row("cold", "oneshot_body", "  request body for 'hi'", "B", at_most=12 * 1024),
    Row("session", "session_cpu", "another session, CPU", faster=300),
    Row("session", "session_kb", "another session, memory", "kB", at_most=15),
    Row("session", "session_used_kb", "  after its first turn", "kB"),
    Row("session", "session_child", "a subagent's session, times a session, CPU", "x", at_most=2),
    Row("turn", "turn_cpu", "warm text turn, durable, CPU", faster=25),
    Row("stream", "stream", "1,000 chunks, coalesced, CPU", faster=25, of_floor=1.5),
    Row("stream", "stream_each", "1,000 chunks, one by one, CPU", of_floor=1.5),
    Row("tools", "tools_20", "tool step, turn of 20, CPU", faster=50),
    Row("tools", "tools_400", "tool step, turn of 400, CPU", faster=50),
    Row("tools", "tools_growth", "step 400 compared with step 20", "x", at_most=1.3),
    Row("sandbox", "sandbox_start", "sandbox start: added to a command", at_most=40),
    Row("sandbox", "sandbox_command", "  a command, wall"),
    Row("sandbox", "judge_large", "  judging a command of up to 128 KB, CPU", at_most=50),
    Row("sandbox", "judge_memory", "  memory for that", "MB", at_most=20),
    Row("sandbox", "sandbox_probe", "  canary, once until something changes"),
    Row("sandbox", "file_read", "read_file (floor: plain Python)"),
    Row("sandbox", "file_patch", "patch (floor: plain Python)"),
    Row("sandbox", "file_write", "write_file over a file (floor: plain Python)"),
    Row("store", "append_cpu", "append a message, CPU", faster=3),
    Row("store", "append_wall", "  the same, wall"),
    Row("store", "resume_cpu", "resume 10,000 messages, CPU", faster=3),
    Row("search", "search", "search 100,000, four queries, CPU", of_floor=1.5),
    Row("search", "search_0", "  a word found once"),
    Row("search", "search_1", "  a common word"),
    Row("search", "search_2", "  two words"),
    Row("search", "search_3", "  a phrase"),
    Row("search", "search_p95", "  p95, parts of words and CJK too", at_most=50),
    Row("schedule", "schedule_tick", "look at 1,000 jobs, none due, CPU", at_most=5),
    Row("mcp", "mcp_call", "call a tool of an MCP server, stdio"),
    Row("mcp", "mcp_ratio", "  times the bare library", "x", at_most=1.3),
    Row("knowledge", "skills_cached", "list 1,000 skills, cached, CPU", at_most=5),
    Row("knowledge", "skills_cold", "  for the first time", at_most=150),
    Row("knowledge", "recall_p95", "search 10,000 facts, p95", at_most=5),
    Row("knowledge", "hook_call", "a plugin's hook, added to a call", at_most=0.2),
    Row("knowledge", "hook_step", "  added to a tool step, CPU", at_most=0.2),
    Row("knowledge", "hook_none", "  a look for hooks where there are none", "µs", at_most=5),
    Row("knowledge", "hook_share", "  all looks of a tool step, share of it", "%", at_most=1),
    Row(
        "knowledge", "full_first", "'hi' with much of everything: first request", "x", at_most=1.15
    ),
    Row("knowledge", "full_cpu", "  CPU in all", "x"),
    Row("knowledge", "full_memory", "  peak memory, added", "MB", at_most=4),
    Row("knowledge", "full_body", "  request body", "B", at_most=12 * 1024),
    Row("knowledge", "acp_start", "hermes acp: start to initialize answered", at_most=1000),
    Row("server", "serve_rate", "requests, 16 at a time", "/s", faster=28, stretch=57, more=True),
    Row("server", "serve_cpu", "  CPU of each", faster=40),
    Row("server", "serve_first", "first token, added by the server", faster=25),
    Row("server", "serve_p99", "first token, 256 at a time, p99", at_most=1000),
    Row("server", "serve_stream", "2,000 chunks through it, CPU", faster=20),
    Row("server", "serve_each", "  one by one"),
    Row("server", "serve_held", "streams held at full pace", "n", at_least=1000, more=True),
    Row("server", "serve_memory", "  memory meanwhile", "MB", at_most=150),
    Row("server", "serve_health", "  /health meanwhile, p99", at_most=100),
    Row("server", "serve_listen", "start to listening", faster=6),
    Row("server", "serve_ready", "  until a request with a key is answered"),
    Row("gateway", "gateway_start", "gateway: start to first poll", at_most=600),
    Row("gateway", "gateway_offline", "  without a network", at_most=600),
    Row("gateway", "gateway_memory", "gateway: memory at rest", "MB", at_most=60),
    Row("gateway", "gateway_first", "gateway: first message to its answer", at_most=300),
    Row("gateway", "gateway_cpu", "gateway: a message, CPU", at_most=6),
    Row("gateway", "gateway_new", "  in a new conversation", at_most=10),
    Row("gateway", "gateway_growth", "gateway: 40 new conversations, memory", "MB", at_most=2),
    Row("gateway", "gateway_evicted", "  1,000, after eviction", "MB", at_most=30),
    Row("repl", "repl_start", "terminal: start to a key shown (floor: pi)", faster=6, of_floor=1),
    Row("repl", "repl_editor", "  until the whole editor is there"),
    Row("repl", "repl_start_cpu", "  CPU until then"),
    Row("repl", "repl_memory", "terminal: memory at the prompt", "MB", faster=2),
    Row("repl", "repl_idle", "terminal: CPU of 10 s at rest", at_most=10),
    Row("repl", "repl_echo", "terminal: key to echo, 200 deltas/s, p99", at_most=30),
    Row("repl", "repl_echo_median", "  median"),
    Row("repl", "repl_line", "terminal: line of a 20,000-line answer, CPU", "µs"),
    Row("repl", "repl_line_growth", "  compared with one of 2,000", "x", at_most=1.3),
    Row("web", "web_start", "dashboard: start to its page"),
    Row("web", "web_paint", "dashboard: first paint", faster=1 / 0.35),
    Row("web", "web_kb", "  first load", "kB", at_most=60),
    Row("web", "web_requests", "  requests", "n", at_most=14),
    Row("web", "web_memory", "  memory of its server", "MB"),
    Row("web", "web_unused_ms", "serve with the dashboard on (floor: off)", of_floor=1.1),
    Row("web", "web_unused_mb", "  memory", "MB"),
    Row("web", "web_open_mb", "  with one chat open, more", "MB", at_most=6),
    Row("web", "web_script", "1,000 deltas at 200/s: script", at_most=350),
    Row("web", "web_cpu", "  server CPU", at_most=100),
    Row("web", "web_bytes", "  received", "kB", at_most=70),
    Row("web", "web_late", "5 s at 1,000 deltas/s: drawn after the last", at_most=500),
    Row("web", "web_echo", "  key to echo, p95", at_most=100),
    Row("web", "web_first", "10,000 messages: first ones", at_most=800),
    Row("web", "web_long_task", "  longest task", at_most=120),
    Row("web", "web_heap", "  heap after reading all", "MB", at_most=60),
    Row("web", "web_keys", "  25 keys", at_most=500),
    Row("web", "web_list", "500 sessions: slowest answer", at_most=100),
    Row("web", "web_tab", "the twelfth tab: load and a request", at_most=1000),
    Row("batch", "batch_cpu", "batch: an item of 5 tool steps, CPU", faster=80),
    Row("batch", "batch_rate", "batch: items of one process", "/s", faster=100, more=True),
    Row("batch", "batch_memory", "batch: memory, 64 at a time", "MB", at_most=100),
    Row("batch", "batch_export", "batch: trajectories, by CPU", "/s", at_least=1500, more=True),
    Row("batch", "batch_resume", "batch: resume at 99 of 100 thousand", at_most=3000),
    Row("batch", "batch_resume_cpu", "  CPU until then"),
    Row("replay", "replay_step", "replay: a step, CPU", at_most=3),
    Row("replay", "record_cost", "replay: recording, added to a turn", "%", at_most=5),
    Row("replay", "trace_turn", "trace: a turn of 10 spans, CPU (floor: SDK)", of_floor=0.2),
)


@dataclass
class Results:
    values: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: {peer: defaultdict(list) for peer in PEERS}
    )
    failures: list[str] = field(default_factory=list)

    def add(self, peer: str, metric: str, *values: float) -> None:
        self.values[peer][metric] += values

    def get(self, peer: str, metric: str) -> float | None:
        found = self.values[peer].get(metric)
        return median(found) if found else None


def verdict(row: Row, results: Results) -> tuple[str, str, str, str]:
    """Ratio to the original, ratio to the floor, the target, and whether it is met."""
    theirs, ours, floor = (results.get(peer, row.metric) for peer in PEERS)
    times = theirs / ours if theirs and ours else None
    of_floor = ours / floor if floor and ours else None
    if row.more:
        times = 1 / times if times else None
    targets, met = [], []
    if row.faster:
        stretch = f" ({row.stretch:g})" if row.stretch else ""
        targets.append(f">={row.faster:g}x{stretch}")
        met.append(None if times is None else times >= row.faster)
    if row.of_floor:
        targets.append(f"<={row.of_floor:g}x floor")
        met.append(None if of_floor is None else of_floor <= row.of_floor)
    if row.at_most:
        targets.append(f"<={row.at_most:g} {row.unit}")
        met.append(None if ours is None else ours <= row.at_most)
    if row.at_least:
        targets.append(f">={row.at_least:g}")
        met.append(None if ours is None else ours >= row.at_least)
    if not targets:
        mark = ""
    elif False in met:
        mark = "MISS"
    else:
        mark = "?" if None in met else "ok"
    return (
        f"{times:.1f}x" if times else "",
        f"{of_floor:.2f}x" if of_floor else "",
        ", ".join(targets),
        mark,
    )


def number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit in ("n", "B", "M"):
        return f"{value:,.0f}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def table(results: Results, groups: list[str]) -> str:
    head = ("what", "unit", *PEERS, "original/ours", "ours/floor", "target", "")
    lines = [head]
    for row in ROWS:
        numbers = [results.get(peer, row.metric) for peer in PEERS]
        if row.group in groups and any(n is not None for n in numbers):
            cells = (number(n, row.unit) for n in numbers)
            lines.append((row.title, row.unit, *cells, *verdict(row, results)))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    out = []
    for line in lines:
        cells = [
            cell.ljust(width) if i < 2 or i > 6 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        out.append("  ".join(cells).rstrip())
    out.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(out)


@contextmanager
def provider() -> Iterator[str]:
    child = subprocess.Popen(
        [sys.executable, str(peers.ROOT / "bench" / "provider.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin and child.stdout
    try:
        yield f"http://127.0.0.1:{child.stdout.readline().split()[1]}/v1"
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


class Bench:
    def __init__(self, options: argparse.Namespace, url: str, homes: dict[str, peers.Home]) -> None:
        self.options = options
        self.url = url
        self.homes = homes
        self.results = Results()

    def attempt(self, what: str, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:  # one broken program must not hide the others' figures
            self.results.failures.append(f"{what}: {error}")

    # cold start: whole processes, in turn, so that noise hits all alike

    def commands(self) -> dict[str, dict[str, list[str]]]:
        theirs = str(peers.ORIGINAL / "bin" / "hermes")
        ours = str(Path(sys.executable).parent / "hermes")
        floor = [sys.executable, "-m", "bench.floor", self.url]
        return {
            "original": {
                "version": [theirs, "--version"],
                "help": [theirs, "--help"],
                "oneshot": [theirs, "chat", "-Q", "-q", "hi"],
            },
            "ours": {
                "version": [ours, "--version"],
                "help": [ours, "--help"],
                "oneshot": [ours, "chat", "-q", "hi"],
            },
            "floor": {
                "version": [sys.executable, "-c", "pass"],
                "help": [sys.executable, "-c", "pass"],
                "oneshot": floor,
            },
        }

    def environment(self, peer: str) -> dict[str, str]:
        env = self.homes[peer].env
        return env | {"PYTHONPATH": str(peers.ROOT)} if peer == "floor" else env

    def cold(self) -> None:
        broken: set[tuple[str, str]] = set()
        commands = self.commands()
        for round_number in range(-1, self.options.rounds):
            for peer in self.homes:
                for what, command in commands[peer].items():
                    if (peer, what) not in broken:
                        self.cold_once(peer, what, command, round_number, broken)
        for peer in self.homes:
            for what in ("version", "oneshot"):
                if (peer, what) not in broken:
                    self.attempt(peer, lambda p=peer, w=what: self.modules(p, w))
                    if self.options.callgrind:
                        self.attempt(peer, lambda p=peer, w=what: self.instructions(p, w))

    def cold_once(
        self, peer: str, what: str, command: list[str], round_number: int, broken: set
    ) -> None:
        url = self.url if what == "oneshot" else ""
        # The interpreter alone is quick: repeat short commands to get a steady median.
        for _ in range(1 if url or round_number < 0 else 3):
            try:
                got = process(command, self.environment(peer), self.homes[peer].cwd, url)
            except RuntimeError as error:
                self.results.failures.append(f"{peer} {what}: {error}")
                broken.add((peer, what))
                return
            if round_number < 0:  # fills the page cache and writes byte code
                return
            self.results.add(peer, f"{what}_cpu", got["cpu_ms"])
            if url:
                self.results.add(peer, "oneshot_wall", got["wall_ms"])
                self.results.add(peer, "oneshot_rss", got["rss_mb"])
                self.results.add(peer, "oneshot_body", got["body_bytes"])
                self.results.add(peer, "first", got["first_ms"])

    def run(self, peer: str, command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            env=self.environment(peer) | env,
            cwd=self.homes[peer].cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-3000:]}")
        return done

    def modules(self, peer: str, what: str) -> None:
        done = self.run(peer, self.commands()[peer][what], PYTHONPROFILEIMPORTTIME="1")
        count = sum(line.startswith("import time:") for line in done.stderr.splitlines()) - 1
        self.results.add(peer, f"{what}_modules", count)

    def instructions(self, peer: str, what: str) -> None:
        command = self.commands()[peer][what]
        if not command[0].endswith("python"):
            command = [str(self.homes[peer].bin / "python"), *command]
        valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        done = self.run(peer, [*valgrind, *command], PYTHONHASHSEED="0")
        found = re.search(r"Collected : (\d+)", done.stderr)
        if found:
            self.results.add(peer, f"{what}_instructions", int(found.group(1)) / 1e6)

    def full_home(self) -> None:
        """`chat -q hi` in a home that has everything, in turn with one that has nothing."""
        homes = {"empty": peers.our_home(self.url), "full": peers.our_home(self.url)}
        command = self.commands()["ours"]["oneshot"]
        got: dict[str, list[dict[str, float]]] = {name: [] for name in homes}
        try:
            fill = [sys.executable, "-m", "bench.full_home", homes["full"].env["HERMES_HOME"]]
            self.run("ours", fill, PYTHONPATH=str(peers.ROOT))
            for round_number in range(-1, self.options.rounds):
                for name, home in homes.items():
                    run = process(command, home.env, home.cwd, self.url)
                    if round_number >= 0:
                        got[name].append(run)
        finally:
            for home in homes.values():
                home.remove()

        def take(name: str, metric: str) -> float:
            return median([run[metric] for run in got[name]])

        add = self.results.add
        add("ours", "full_first", take("full", "first_ms") / take("empty", "first_ms"))
        add("ours", "full_cpu", take("full", "cpu_ms") / take("empty", "cpu_ms"))
        add("ours", "full_memory", take("full", "rss_mb") - take("empty", "rss_mb"))
        add("ours", "full_body", take("full", "body_bytes"))

    # everything else: inside one warm process of each program

    def probe(self, peer: str, group: str) -> None:
        python = str(self.homes[peer].bin / "python")
        module = (peer == "ours" and ALONE.get(group)) or f"bench.{peer}"
        done = self.run(peer, [python, "-m", module, self.url, group], PYTHONPATH=str(peers.ROOT))
        for line in done.stdout.splitlines():
            if line.startswith('{"metric"'):
                record = json.loads(line)
                name, _, metric = record["metric"].rpartition(":")
                self.results.add(name or peer, metric, *record["values"])

    def measure(self, groups: list[str]) -> None:
        for group in groups:
            print(f"measuring {group} …", file=sys.stderr, flush=True)
            if group == "cold":
                self.cold()
                continue
            if group == "server":
                serving.measure(self.homes, self.url, self.results.add, self.attempt)
                continue
            if group == "gateway":
                messenger.measure(self.homes, self.url, self.results.add, self.attempt)
                continue
            if group == "batch":
                batches.measure(self.homes, self.url, self.results.add, self.attempt)
                continue
            if group == "repl":
                terminal.measure(self.homes, self.results.add, self.attempt, self.options.rounds)
                continue
            if group == "knowledge":
                self.attempt("ours full home", self.full_home)
            if group == "web":
                browsing.measure(self.homes, self.results.add, self.attempt)
                continue
            # The floor runs inside our process, interleaved with ours.
            for peer in ("original", "ours"):
                if peer in self.homes and not (peer == "original" and group in NOT_THEIRS):
                    self.attempt(f"{peer} {group}", lambda p=peer, g=group: self.probe(p, g))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    parser.add_argument("--only", default=",".join(GROUPS), help=f"of {','.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, default=7, help="of every cold start (7)")
    parser.add_argument("--json", action="store_true", help="medians and all values, as JSON")
    parser.add_argument("--callgrind", action="store_true", help="count instructions (minutes)")
    parser.add_argument("--no-original", action="store_true", help="only ours and the floor")
    found = parser.parse_args()
    found.groups = [g for g in GROUPS if g in found.only.split(",")]
    if unknown := set(found.only.split(",")) - set(GROUPS):
        parser.error(f"unknown group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    if found.callgrind and not shutil.which("valgrind"):
        parser.error("--callgrind needs valgrind")
    return found


def main() -> int:
    given = options()
    if not given.no_original:
        peers.install_original()
    if "replay" in given.groups:
        peers.install_sdk()
    isolated = peers.isolate()
    with provider() as url:
        homes = {"ours": peers.our_home(url), "floor": peers.our_home(url)}
        if not given.no_original:
            homes = {"original": peers.original_home(url), **homes}
        try:
            bench = Bench(given, url, homes)
            bench.measure(given.groups)
        finally:
            for home in homes.values():
                home.remove()
    results = bench.results
    if given.json:
        rows = {
            row.metric: {
                "title": row.title.strip(),
                "unit": row.unit,
                **{peer: results.get(peer, row.metric) for peer in PEERS},
                "verdict": verdict(row, results)[3],
                "values": {peer: results.values[peer].get(row.metric, []) for peer in PEERS},
            }
            for row in ROWS
            if row.group in given.groups
        }
        print(json.dumps({"rows": rows, "failures": results.failures}, indent=1))
    else:
        where = "loopback only" if isolated else "network not isolated"
        print(f"\nPython {platform.python_version()}, {platform.machine()}, {where}; medians\n")
        print(table(results, given.groups))
        for failure in results.failures:
            print(f"\nfailed: {failure}")
    missed = any(verdict(row, results)[3] == "MISS" for row in ROWS)
    return 1 if missed or results.failures else 0


if __name__ == "__main__":
    sys.exit(main())

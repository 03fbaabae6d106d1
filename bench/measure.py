"""What the driver and every probe need to measure. Standard library only: the original's
interpreter imports it too."""

import gc
import json
import os
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

STEMS = (
    "alpha bravo deploy docker kernel memory python server socket thread vector window yellow"
    " zebra packet query index"
)
ENDS = ("", "s", "ing", "ed", "er", "able", "ness", "ly", "ful", "less")
WORDS = [stem + end for stem in STEMS.split(" ") for end in ENDS]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def emit(metric: str, *values: float) -> None:
    """One result of a probe, read by the driver."""
    print(json.dumps({"metric": metric, "values": values}), flush=True)


def rss_kb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def cpu_ms(run: Callable[[], Any]) -> float:
    """CPU of all threads of this process, user and system."""
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1e3


def spread(run: Callable[[], Any], count: int) -> list[float]:
    return [cpu_ms(run) for _ in range(count)]


def grow(make: Callable[[], Any], count: int) -> tuple[float, float]:
    """CPU milliseconds and kilobytes of each of `count` objects that stay alive."""
    keep = [make() for _ in range(3)]
    gc.collect()
    before, start = rss_kb(), time.process_time()
    keep += [make() for _ in range(count)]
    spent = (time.process_time() - start) * 1e3
    gc.collect()
    return spent / count, (rss_kb() - before) / count


def call(url: str, path: str, method: str = "GET") -> dict[str, Any]:
    request = urllib.request.Request(url.removesuffix("/v1") + path, method=method)
    with urllib.request.urlopen(request, timeout=10) as response:
        return dict(json.load(response))


def process(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, url: str = ""
) -> dict[str, float]:
    """Run a command to its end: CPU (with the children it waited for), wall, peak memory, and
    with `url` the time from the fork to the arrival of its first request."""
    if url:
        call(url, "/reset", "POST")
    start = time.monotonic_ns()
    child = subprocess.Popen(
        command,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert child.stderr
    noise = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    end = time.monotonic_ns()
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)}: {noise.decode(errors='replace')[-2000:]}")
    out = {
        "wall_ms": (end - start) / 1e6,
        "cpu_ms": (usage.ru_utime + usage.ru_stime) * 1e3,
        "rss_mb": usage.ru_maxrss / 1024,
    }
    if url:
        stats = call(url, "/stats")
        if not stats["first_ns"]:
            raise RuntimeError(f"{' '.join(command)}: no request arrived at the provider")
        out["first_ms"] = (stats["first_ns"] - start) / 1e6
        out["body_bytes"] = stats["body_bytes"]
    return out


def text(number: int) -> str:
    """Forty words that depend on the number alone, and one word of its own."""
    state, words = number * 2654435761 % 2**32, []
    for _ in range(40):
        state = (state * 1664525 + 1013904223) % 2**32
        words.append(WORDS[(state >> 8) % len(WORDS)])
    return " ".join(words) + f" m{number}"

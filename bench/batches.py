"""Runs of many prompts as processes, ours and the original's, and what follows them."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from bench import peers
from bench.measure import call, process

STEPS = 5
MANY, DONE = 100_000, 99_000
"""The items of a large run, and how many of them have ended."""
ORIGINAL_RUN = """\
import batch_runner
batch_runner.sample_toolsets_from_distribution = lambda name: ["todo"]
batch_runner.main(**{options})
"""
"""With the same tool as ours: no distribution of its own has only a cheap one."""
Add = Callable[..., None]


def measure(
    homes: Mapping[str, peers.Home],
    url: str,
    add: Add,
    attempt: Callable[[str, Callable[[], None]], None],
) -> None:
    ours = homes["ours"]
    if "original" in homes:
        attempt("original batch", lambda: _measure_original(homes["original"], url, add))
    attempt("ours batch", lambda: _measure_ours(ours, add))
    attempt("ours resume", lambda: _measure_resume(ours, url, add))


def _write_prompts(file: Path, count: int) -> None:
    file.write_text("".join(json.dumps({"prompt": f"item {n}"}) + "\n" for n in range(count)))


def _measure_original(home: peers.Home, url: str, add: Add) -> None:
    """Its start is taken off: one item is measured, and eleven."""
    runs = []
    for count in (1, 11):
        file = home.cwd / f"p{count}.jsonl"
        _write_prompts(file, count)
        options = {
            "dataset_file": str(file),
            "batch_size": count,
            "run_name": f"r{count}",
            "distribution": "minimal",
            "model": f"tools-{STEPS}",
            "base_url": url,
            "api_key": "sk-bench-0123456789abcdef",
            "num_workers": 1,
        }
        script = ORIGINAL_RUN.format(options=options)
        runs.append(process([str(home.bin / "python"), "-c", script], home.env, home.cwd))
    one, eleven = runs
    add("original", "batch_cpu", (eleven["cpu_ms"] - one["cpu_ms"]) / 10)
    add("original", "batch_rate", 10_000 / (eleven["wall_ms"] - one["wall_ms"]))
    add("original", "batch_memory", eleven["rss_mb"])


def _measure_ours(home: peers.Home, add: Add) -> None:
    program = str(home.bin / "hermes")
    options = ("--toolsets", "todo", "--model", f"tools-{STEPS}", "--concurrency", "64")
    runs = []
    for count in (1, 1001):
        file = home.cwd / f"p{count}.jsonl"
        _write_prompts(file, count)
        runs.append(process([program, "batch", "run", str(file), *options], home.env, home.cwd))
    one, many = runs
    add("ours", "batch_cpu", (many["cpu_ms"] - one["cpu_ms"]) / 1000)
    add("ours", "batch_rate", 1_000_000 / (many["wall_ms"] - one["wall_ms"]))
    add("ours", "batch_memory", many["rss_mb"])
    export = [program, "batch", "export", "p1001", "--format", "hermes", "-o", "out.jsonl"]
    nothing = process([program, "batch", "export", "p1", "-o", "out.jsonl"], home.env, home.cwd)
    for _ in range(3):
        found = process(export, home.env, home.cwd)
        add("ours", "batch_export", 1_000_000 / (found["cpu_ms"] - nothing["cpu_ms"]))


def _measure_resume(home: peers.Home, url: str, add: Add) -> None:
    """From the start of `hermes batch resume` to the arrival of its first request."""
    file = home.cwd / "large.jsonl"
    _write_prompts(file, MANY)
    folder = Path(home.env["HERMES_HOME"]) / "batch" / "large"
    program = str(home.bin / "hermes")
    begin = [program, "batch", "run", str(file), "--toolsets", "none", "--concurrency", "1"]
    _run_to_first_request(begin, home, url)
    subprocess.run(
        [sys.executable, "-m", "bench.batches", str(folder / "run.db"), "large"],
        env={**home.env, "PYTHONPATH": str(peers.ROOT)},
        check=True,
    )
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = _run_to_first_request([program, "batch", "resume", "large"], home, url)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        add("ours", "batch_resume", spent)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        add("ours", "batch_resume_cpu", cpu * 1e3)


def _run_to_first_request(command: list[str], home: peers.Home, url: str) -> float:
    """Milliseconds to the first request; the run is killed then."""
    call(url, "/reset", "POST")
    start = time.monotonic_ns()
    child = subprocess.Popen(
        command,
        env=home.env,
        cwd=home.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not (first := call(url, "/stats")["first_ns"]):
            if child.poll() is not None:
                raise RuntimeError(f"{' '.join(command)}: ended without a request")
            time.sleep(0.02)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return float(first - start) / 1e6


async def _end_items(database: Path, name: str) -> None:
    """Note the end of most items of a run, as a run that did them would have."""
    from hermes.batch.results import ItemRecord, Results
    from hermes.store.sqlite import SqliteStore

    store = SqliteStore(database)
    try:
        results = Results(store, name)
        for first in range(1, DONE + 1, 1000):
            async with asyncio.TaskGroup() as group:
                for line in range(first, first + 1000):
                    record = ItemRecord(str(line), "done", f"s{line}", "2026-01-01", 1.0, "m", "d")
                    group.create_task(results.record_end(record))
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(_end_items(Path(sys.argv[1]), sys.argv[2]))

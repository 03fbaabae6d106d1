"""A batch run in the foreground: progress, signals, and the processes that share the work."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes.batch.coordinator import Coordinator, RunEnd, encode_progress, run_worker
from hermes.batch.run_folder import RunFolder, RunSettings
from hermes.batch.runner import RunProgress
from hermes.cli.main import print_stderr
from hermes.cli.process import SignalHandler, raise_file_limit, tune_garbage_collection
from hermes.config.load import Setup
from hermes.config.paths import cache_folder
from hermes.core.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from hermes.batch.nodes.cluster_run import ClusterCoordinator

_LINE_SECONDS = 10.0
_BAR_SECONDS = 0.5
_BAR_WIDTH = 24
_EXIT_SOME = 3
"""Some items are not answered."""


async def continue_run(setup: Setup, folder: RunFolder, settings: RunSettings, profile: str) -> int:
    """Run what is left of a run; the exit status of the command."""
    await _require_sandbox(setup, settings)
    raise_file_limit()
    tune_garbage_collection()

    def name_worker(name: str) -> Sequence[str]:
        chosen = ["-p", profile] if profile else []
        return [sys.executable, "-m", "hermes", *chosen, "batch", "resume", name, "--share"]

    try:
        with folder.lock_run():
            folder.write_settings(settings)
            coordinator: Coordinator | ClusterCoordinator
            if settings.cluster:
                from hermes.batch.nodes.cluster_run import ClusterCoordinator

                coordinator = ClusterCoordinator(setup, folder, settings, print_stderr)
            else:
                coordinator = Coordinator(setup, folder, settings, name_worker)
            end = await _run_shown(coordinator)
    except StoreError as error:
        print_stderr(f"{error} To resume: hermes batch resume {settings.name}")
        return _EXIT_SOME
    except OSError as error:
        print_stderr(
            f"{folder.path} cannot be written: {error.strerror}. No answer is lost. To resume: "
            f"hermes batch resume {settings.name}"
        )
        return _EXIT_SOME
    _print_end(folder, settings, end)
    return end.exit_code


async def forget_failures(setup: Setup, folder: RunFolder, settings: RunSettings) -> None:
    """Have the items that failed answered anew."""
    from hermes.batch.nodes.run_store import open_run_store
    from hermes.batch.results import Results

    with folder.lock_run():
        async with open_run_store(setup, folder, settings) as store:
            await Results(store, settings.name).forget_failures()


async def _run_shown(coordinator: Coordinator | ClusterCoordinator) -> RunEnd:
    """Run what is left; signals stop it, and its progress is shown."""
    SignalHandler().attach(coordinator.stop)
    shown = asyncio.create_task(_show_progress(coordinator))
    try:
        return await coordinator.run()
    finally:
        shown.cancel()
        await asyncio.wait({shown})


async def work_for_run(setup: Setup, folder: RunFolder) -> int:
    """A further process of a run that is going on, which reads on stdout what it has done. It ends
    with the one that started it."""
    import msgspec

    raise_file_limit()
    tune_garbage_collection()
    stop = asyncio.Event()
    SignalHandler().attach(stop.set)
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), lambda: os.read(sys.stdin.fileno(), 1) or os._exit(1))

    def report(progress: RunProgress) -> None:
        print(msgspec.json.encode(progress).decode(), flush=True)

    await run_worker(setup, folder, stop, report)
    return 0


async def _require_sandbox(setup: Setup, settings: RunSettings) -> None:
    """Nobody is there to approve, so commands must be confined."""
    if settings.image or settings.toolsets == ("none",) or settings.cluster:
        return
    from hermes.exec.sandbox_probe import probe_tier

    if (await probe_tier(cache_folder(setup.home))).level == 3:
        raise ConfigError(
            "This machine has no sandbox, and nobody would approve commands: give --image, or "
            "--toolsets none. Nothing was started. See hermes doctor."
        )


async def _show_progress(coordinator: Coordinator | ClusterCoordinator) -> None:
    """A line that is redrawn on a terminal, else a line of JSON now and then."""
    began = time.monotonic()
    is_terminal = sys.stderr.isatty()
    try:
        while True:
            await asyncio.sleep(_BAR_SECONDS if is_terminal else _LINE_SECONDS)
            seconds = time.monotonic() - began
            if is_terminal:
                sys.stderr.write(f"\r\x1b[K{draw_progress(coordinator.progress, seconds)}")
                sys.stderr.flush()
            else:
                print(encode_progress(coordinator.progress, seconds).decode(), file=sys.stderr)
    finally:
        if is_terminal:
            sys.stderr.write("\r\x1b[K")


def draw_progress(progress: RunProgress, seconds: float) -> str:
    ended = progress.done + progress.failed
    part = ended / progress.total if progress.total else 0.0
    filled = round(part * _BAR_WIDTH)
    rate = ended / seconds if seconds else 0.0
    left = f", {_format_time((progress.total - ended) / rate)} left" if rate else ""
    failed = f", {progress.failed} failed" if progress.failed else ""
    return (
        f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {ended}/{progress.total}{failed}, "
        f"{rate:.1f}/s, ${progress.cost:.4f}{left}"
    )


def _format_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _print_end(folder: RunFolder, settings: RunSettings, end: RunEnd) -> None:
    left = end.items - end.complete
    print_stderr(f"{settings.name}: {end.complete} of {end.items} items are done. {folder.path}")
    if end.over_budget and settings.max_usd is None:
        print_stderr(
            "The configured budget is used up; nothing is lost. Raise budget in config.yaml, then "
            f"run: hermes batch resume {settings.name}"
        )
    elif end.over_budget:
        print_stderr(
            "The budget of the run is used up; nothing is lost. To resume: hermes batch resume "
            f"{settings.name} --max-usd X"
        )
    elif left and end.stopped:
        print_stderr(f"Stopped. To resume: hermes batch resume {settings.name}")
    elif left:
        print_stderr(
            f"{left} failed (see failed.jsonl there) or are partial. To begin what failed anew: "
            f"hermes batch resume {settings.name} --retry-failed"
        )

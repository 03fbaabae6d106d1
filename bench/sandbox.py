"""A command in the sandbox beside plain bash, in turn: python -m bench.sandbox URL GROUP...

Both go through the same launcher, so what is left is the walls; plain bash is `floor:metric`.
"""

import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.measure import emit, median
from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.sandbox import SandboxPolicy, SandboxTier, build_policy
from hermes.exec.sandbox_probe import probe_tier

ROUNDS = 60
LARGE = (
    "ls -la foo && git status | grep bar\n", "rm -rf a/b/c ", "find . -exec rm {} \\; ", "sudo ",
    "echo a | |", "echo ((a)) ", "echo $(a) ", "x=1; ", "$a", "a\\\n", "for i in a; do ", "$(", ";",
    "cat <<E\n", "[[ ! ", "{a,b}", "a",
)  # fmt: skip
ENV = {"PATH": os.defpath, "HOME": str(Path.home())}


async def once(folder: Path, policy: SandboxPolicy | None, tier: SandboxTier | None) -> float:
    out = OutputCapture(1000, folder)
    begin = time.perf_counter()
    outcome = await run_command(CommandSpec("echo x", folder, ENV, 20, policy, tier), out)
    took = (time.perf_counter() - begin) * 1e3
    if outcome.status != 0 or out.text() != "x\n":
        raise RuntimeError(f"the command failed: {outcome} {out.text()}")
    await asyncio.sleep(0.05)  # as between two steps of a model: the next keeper is made meanwhile
    return took


def judge_large_commands() -> None:
    """The slowest judgement of a command of up to 128 KB, and the memory that all of them took."""
    from hermes.exec.command_policy import CommandRules, judge_command

    def judge(text: str) -> float:
        begin = time.process_time()
        judge_command(
            text,
            workspace=Path("/srv/w"),
            home=Path("/srv/h"),
            rules=CommandRules(),
            sandboxed=True,
        )
        return (time.process_time() - begin) * 1e3

    judge("ls")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    slowest = max(
        min(judge(unit * (size // len(unit))) for _ in range(3))
        for unit in LARGE
        for size in (2048, 8192, 16384, 131072)
    )
    emit("judge_large", slowest)
    emit("judge_memory", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


async def time_file_tools(base: Path) -> None:
    """A file read and changed by a tool, and by plain Python in a thread."""

    from hermes.core.message import ToolCall
    from hermes.core.services import Services
    from hermes.core.tool import Toolbox, ToolContext, UserAccess, Workspace
    from hermes.tools.patch import patch
    from hermes.tools.read_file import read_file
    from hermes.tools.write_file import write_file

    file = base / "work" / "file.py"
    place = Workspace(base / "work", base / "home", base / "home" / "outputs", {})
    ctx = ToolContext(ToolCall("c", "tool"), "s", place, Services(), UserAccess(), Toolbox({}))

    async def edit() -> None:
        file.write_text("a = 1\nb = 2\n" * 50 + "c = 3\n")
        change = {"path": "file.py", "old_string": "c = 3", "new_string": "c = 4"}
        await patch.run(patch.parse_params(change), ctx)

    async def write() -> None:
        lines = (f"v{n} = {n if n % 40 else time.perf_counter_ns()}\n" for n in range(100))
        change = {"path": "written.py", "content": "".join(lines)}
        await write_file.run(write_file.parse_params(change), ctx)

    def write_plainly() -> None:
        lines = (f"v{n} = {n if n % 40 else time.perf_counter_ns()}\n" for n in range(100))
        with file.with_suffix(".new").open("w") as new:
            new.write("".join(lines))
            new.flush()
            os.fsync(new.fileno())
        file.with_suffix(".new").replace(file.with_name("plain.py"))

    def edit_plainly() -> None:
        file.write_text("a = 1\nb = 2\n" * 50 + "c = 3\n")
        new = file.with_suffix(".new")
        new.write_text(file.read_text().replace("c = 3", "c = 4"))
        new.replace(file)

    works: dict[str, Callable[[], Awaitable[object]]] = {
        "file_patch": edit,
        "floor:file_patch": lambda: asyncio.to_thread(edit_plainly),
        "file_write": write,
        "floor:file_write": lambda: asyncio.to_thread(write_plainly),
        "file_read": lambda: read_file.run(read_file.parse_params({"path": "file.py"}), ctx),
        "floor:file_read": lambda: asyncio.to_thread(file.read_text),
    }
    for name, work in works.items():
        await work()
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            await work()
            emit(name, (time.perf_counter() - begin) * 1e3)


async def main() -> None:
    judge_large_commands()
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        for folder in ("work", "home"):
            (base / folder).mkdir()
        cache = base / "home" / "cache"
        begin = time.perf_counter()
        tier = await probe_tier(cache)
        emit("sandbox_probe", (time.perf_counter() - begin) * 1e3)
        if tier.level == 3:
            raise RuntimeError("commands cannot be confined here: " + "; ".join(tier.evidence))
        work = base / "work"
        policy = build_policy("workspace-write", work, base / "home", Path(ENV["HOME"]))
        confined, plain = [], []
        for _ in range(ROUNDS):
            confined.append(await once(work, policy, tier))
            plain.append(await once(work, None, None))
        emit("sandbox_command", *confined)
        emit("floor:sandbox_command", *plain)
        emit("sandbox_start", median(confined) - median(plain))
        await time_file_tools(base)


if __name__ == "__main__" and "sandbox" in sys.argv[2:]:
    asyncio.run(main())

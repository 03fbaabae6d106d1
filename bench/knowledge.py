"""Skills, facts and hooks at their limits: python -m bench.knowledge URL GROUP..."""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from bench.awaited import in_turn
from bench.floor import Client
from bench.measure import cpu_ms, emit, median, text
from bench.ours import Ours
from hermes.app.extensions.plugin_thread import PluginThread
from hermes.app.runtime import Runtime
from hermes.config.load import load_setup
from hermes.config.schema import MemorySection
from hermes.core.hooks import (
    Hook,
    HookedSession,
    HookOwner,
    HookTable,
    SessionHooks,
    parse_decision,
)
from hermes.memory.notebook import Change, Notebook
from hermes.memory.page import Author
from hermes.memory.scope import PROFILE_SCOPE
from hermes.skills.index_block import build_skills_block
from hermes.skills.library import SkillLibrary, SkillRoot
from hermes.store.sqlite import SqliteStore

SKILLS = 1000
FACTS = 10_000
QUERIES = 300
CALLS = 300
STEPS = 20
LOOKS = 5
"""Looks for hooks in a tool step: two around the model call, three around the tool call."""
STARTS = 5


def write_skills(root: Path) -> None:
    for number in range(SKILLS):
        place = root / f"skill-{number:04}"
        place.mkdir(parents=True)
        about = f"---\nname: {place.name}\ndescription: How to do {number}.\n---\n"
        (place / "SKILL.md").write_text(f"{about}{text(number)}\n")


def measure_skills(folder: Path) -> None:
    root = folder / "skills"
    write_skills(root)

    def list_all(cache: Path) -> None:
        found = SkillLibrary([SkillRoot(str(root), "user")], cache).list_skills()
        assert len(found) == SKILLS and build_skills_block(found, {}, 2048)

    emit("skills_cold", *(cpu_ms(partial(list_all, folder / f"cold{n}")) for n in range(5)))
    list_all(folder / "cache")
    emit("skills_cached", *(cpu_ms(partial(list_all, folder / "cache")) for _ in range(9)))


async def measure_facts(folder: Path) -> None:
    store = SqliteStore(folder / "ours.db")
    book = Notebook(store.facts, folder, MemorySection(), PROFILE_SCOPE, str)
    for first in range(0, FACTS, 500):
        changes = [Change("add", "memory", text(first + n)[:300]) for n in range(500)]
        await book.apply_changes(changes, Author())
    took = []
    for number in range(QUERIES):
        words = " ".join(text(number * 31).split()[:2])
        begun = time.perf_counter()
        assert await book.search_facts(words, 10)
        took.append((time.perf_counter() - begun) * 1e3)
    emit("recall_p95", sorted(took)[int(0.95 * len(took))])
    await store.close()


async def measure_hooks(folder: Path) -> None:
    thread, table = PluginThread("bench"), HookTable()

    async def call(keywords: dict[str, Any], cwd: Path) -> Any:
        return await thread.call(lambda **_: None, **keywords)

    async def confirm(*_: Any) -> None:
        return None

    session = HookedSession("cli", folder, "local", lambda: "s", lambda *_: None, confirm)
    hooks = SessionHooks(table, session)
    took = {}
    for name in ("none", "one"):
        begun = time.perf_counter()
        for _ in range(CALLS):
            await hooks.ask_first(
                "pre_tool_call", parse_decision, tool_name="x", args={}, tool_call_id="c"
            )
        took[name] = (time.perf_counter() - begun) * 1e3 / CALLS
        table.add_hook("pre_tool_call", Hook(HookOwner("bench"), call, 5))
    emit("hook_call", took["one"] - took["none"])
    emit("hook_none", took["none"] * 1e3)
    await measure_steps(Hook(HookOwner("bench"), call, 5), took["none"])


async def measure_steps(hook: Hook, look: float) -> None:
    """Tool steps of whole turns, without hooks and with one, in turn; `look`: milliseconds of a
    look for hooks where there are none."""
    async with (
        Runtime.open(load_setup()) as plain,
        Runtime.open(load_setup()) as hooked,
        aiohttp.ClientSession() as http,
    ):
        hooked.services.hooks.add_hook("pre_tool_call", hook)
        client = Client(sys.argv[1], http)
        kinds = {"none": Ours(plain, client), "one": Ours(hooked, client)}
        for kind in kinds.values():
            await kind.turn("text")
        found = await in_turn(
            {name: lambda k=kind: k.turn(f"tools-{STEPS}") for name, kind in kinds.items()}, 25
        )
    none, one = (median(found[name]) / STEPS for name in ("none", "one"))
    emit("hook_step", one - none)
    emit("hook_share", 100 * LOOKS * look / none)


async def measure_editor() -> None:
    """From the start of the program to its answer to an editor's first message."""
    program = Path(sys.executable).parent / "hermes"
    wish = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    took = []
    for _ in range(STARTS):
        begun = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(str(program), "acp"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(wish).encode() + b"\n")
        answer = json.loads(await process.stdout.readline())
        took.append((time.perf_counter() - begun) * 1e3)
        assert answer["result"]["protocolVersion"] == 1
        process.stdin.close()
        await process.wait()
    emit("acp_start", *took)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure_skills(folder)
        await measure_facts(folder)
        await measure_hooks(folder)
        await measure_editor()


if __name__ == "__main__":
    asyncio.run(main())

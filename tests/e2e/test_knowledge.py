"""Memory and skills in the program: what nobody uses costs nothing, what is there costs little."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.config.paths import database_file
from hermes.core.store import Fact
from hermes.cron.job_editor import JobEditor, JobWishes
from hermes.mcp.definitions import ToolDefinition
from hermes.mcp.pins import PinStore
from hermes.mcp.server_config import parse_server
from hermes.memory.scope import PROFILE
from hermes.store.sqlite import SqliteStore
from tests.flow.test_first_request import PROGRAM
from tests.kit import Home, Provider, run_hermes, say
from tests.kit.bodies import messages, system
from tests.kit.skills import write_skill

UNUSED = (
    "hermes.memory.notebook",
    "hermes.memory.page",
    "hermes.memory.prompt_block",
    "hermes.skills.bundle",
    "hermes.skills.installer",
    "hermes.skills.scan",
    "hermes.skills.skill_tools",
    "hermes.skills.session_skills",
    "hermes.app.knowledge.review",
    "zipfile",
    "tarfile",
)


def loaded_modules(home: Home) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**home.env, "PYTHONPATH": ":".join(sys.path)},
        cwd=home.work,
        capture_output=True,
        text=True,
        timeout=90,
    )
    answer, loaded = ran.stdout.splitlines() or ["", ran.stderr]
    assert answer == "Hello.", loaded
    return set(loaded.split())


def test_a_home_without_them_loads_nothing_of_them(tmp_path: Path) -> None:
    with Provider([say("Hello.")]) as provider:
        loaded = loaded_modules(Home.of(tmp_path, provider))
    assert [name for name in UNUSED if name in loaded] == []


def fill_notes(home: Home, length: int) -> None:
    """Fill both files with notes of that many characters."""
    memories = home.path / "memories"
    memories.mkdir(mode=0o700, exist_ok=True)
    for name, limit in (("MEMORY.md", 2200), ("USER.md", 1375)):
        notes = [f"{n:x<{length}}" for n in range((limit + 3) // (length + 3))]
        (memories / name).write_text("\n§\n".join(notes))


UNLOADED = (
    *("mcp", "acp", "pydantic", "cronsim", "httpx2", "hermes.cron.scheduler"),
    *("hermes.skills.installer", "tarfile"),
)


async def test_hi_stays_small_with_everything_there_is(tmp_path: Path) -> None:
    """Full notes, 1,000 skills, 20 servers of 50 tools each, 5 jobs, 3 plugins not enabled."""
    async with Provider([say("Hello.")] * 5) as p:
        started = tmp_path / "started"
        entry = {"command": "touch", "args": [str(started)]}
        names = [f"server-{n:02}" for n in range(20)]
        home = Home.of(tmp_path, p, mcp_servers=dict.fromkeys(names, entry))
        pins = PinStore(home.path)
        rows = [ToolDefinition(f"tool{n}", f"Does {n}.", {"type": "object"}) for n in range(50)]
        for name in names:
            pins.save_pin(name, parse_server(name, dict(entry)).digest, rows)
        (home.path / "plugins").mkdir(mode=0o700)
        for name in ("one", "two", "three"):
            (home.path / f"plugins/{name}.py").write_text(f"open({str(started)!r}, 'w')")
        store = SqliteStore(database_file(home.path))
        editor = JobEditor(store.jobs, home.path, "UTC")
        for n in range(5):
            await editor.add_job(editor.draft_job(JobWishes("every 1h", f"job {n}")))
        await store.close()
        fill_notes(home, 117)
        for n in range(1000):
            write_skill(home.path / "skills", f"skill-{n:04}")
        ran = await run_hermes(["chat", "-q", "hi"], home)
        assert ran.rc == 0, ran
        body = p.requests[0].body
        assert len(body) < 12 * 1024 and b"<memory>" in body and b"<skills>" in body
        prompt = system(p.requests[0])
        block = prompt[prompt.index("<skills>") : prompt.index("</skills>") + len("</skills>")]
        assert len(block.encode()) <= 2048
        (line,) = [row for row in prompt.splitlines() if row.startswith("MCP servers")]
        assert len(line.encode()) <= 300 and "server-00 (50" in line
        loaded = await asyncio.to_thread(loaded_modules, home)
        assert [name for name in UNLOADED if name in loaded] == []
        for length in (60, 20, 3):
            fill_notes(home, length)
            ran = await run_hermes(["chat", "-q", "hi"], home)
            assert ran.rc == 0 and len(p.requests[-1].body) < 12_000, (length, ran)
            prompt = system(p.requests[-1])
            assert "About the user [" in prompt and 'more: skills_list {"query"' in prompt
            assert ('more: memory {"action":"search"}' in prompt) == (length < 30)
        assert not started.exists(), "no server was started, no plugin imported"


async def test_the_program_runs_a_skill_and_shows_what_it_remembers(tmp_path: Path) -> None:
    async with Provider([say("looks good")]) as p:
        home = Home.of(tmp_path, p)
        ran = await run_hermes(["chat", "-q", "/code-review the last commit"], home)
        assert ran.rc == 0 and ran.stdout.strip() == "looks good", ran
        asked = messages(p.requests[0])[-1].text
        assert asked.startswith("# Code review") and asked.endswith("\n\nthe last commit")
        ran = await run_hermes(["chat", "-q", "/code-revue it"], home)
        assert ran.rc == 2 and "Unknown command" in ran.stderr
        ran = await run_hermes(["memory", "add", "Heron is the server."], home)
        assert ran.stdout == "kept f1 (memory, 20/2200)\n"
        ran = await run_hermes(["chat", "-q", "/memory"], home)
        assert "- Heron is the server. (" in ran.stdout


async def test_notes_that_cannot_be_read_stop_no_conversation(tmp_path: Path) -> None:
    async with Provider([say("hello")]) as p:
        home = Home.of(tmp_path, p)
        (home.path / "memories/MEMORY.md").mkdir(parents=True)
        os.mkfifo(home.path / "memories/USER.md")
        ran = await run_hermes(["chat", "-q", "hi"], home)
        assert ran.rc == 0 and ran.stdout == "hello\n", ran
        prompt = system(p.requests[0])
        assert "About the user: USER.md could not be read (not a plain file)." in prompt
        assert "About the work: MEMORY.md could not be read (not a plain file)." in prompt
        ran = await run_hermes(["memory", "add", "A fact."], home)
        told = "USER.md could not be read (not a plain file). Nothing was changed."
        assert (ran.rc, ran.stderr) == (2, f"hermes: {told}\n")
        rows = (await run_hermes(["doctor", "--json"], home)).json
        (check,) = [row for row in rows if row["name"] == "memory"]
        assert check["state"] == "note" and len(check["details"]) == 2


async def test_doctor_and_status_know_the_provider_and_what_is_not_delivered(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    address = "http://127.0.0.1:9/"  # nobody listens
    home.configure(memory={"provider": "http", "http": {"url": address}})
    ran = await run_hermes(["memory", "add", "Heron is the server."], home)
    assert ran.rc == 0 and ran.stdout == "kept f1 (memory, 20/2200)\n", ran
    ran = await run_hermes(["memory", "status", "--json"], home)
    (row,) = json.loads(ran.stdout)
    assert row["provider"].startswith("failed: /health") and row["undelivered"] == 1
    ran = await run_hermes(["doctor", "--json"], home)
    checks = {check["name"]: check for check in json.loads(ran.stdout)}
    assert checks["memory"]["state"] == "note"
    assert "1 delivery to the memory provider not made yet" in checks["memory"]["details"]
    assert checks["skills"]["state"] == "ok" and checks["plugins"]["state"] == "ok"


@pytest.mark.parametrize("page", ["memory", "skills", "schedule", "plugins"])
async def test_a_page_begins_with_something_to_paste(tmp_path: Path, page: str) -> None:
    """In a fresh home; without what needs the internet or never ends."""
    text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text()
    found = re.search(r"```(?:sh)?\n(.*?)```", text, re.DOTALL)
    assert found and text.index(found[0]) < 200
    async with Provider([say("Answered.")] * 2) as p:
        home = Home.of(tmp_path, p)
        lines = [
            line.replace("~/.hermes", str(home.path))
            for line in found[1].splitlines()
            if not line.startswith(("hermes skills install", "hermes gateway run"))
        ]
        home.env["PATH"] = f"{Path(sys.executable).parent}:{home.env['PATH']}"
        ran = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-ec", "\n".join(lines)],
            env=home.env,
            cwd=home.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )
    assert ran.returncode == 0, ran
    assert ran.stdout.splitlines()[-1] in ("Answered.", "Hello world!"), ran


async def test_commands_about_one_target_leave_the_other_alone(tmp_path: Path) -> None:
    home = Home(tmp_path)

    async def memory(*words: str) -> str:
        ran = await run_hermes(["memory", *words], home)
        assert ran.rc == 0, ran
        return ran.stdout

    store = SqliteStore(database_file(home.path))
    for target in ("memory", "user"):
        fact = Fact(0, PROFILE, target, f"about {target}", "pending", 1.0)
        await store.facts.change(lambda table, fact=fact: table.insert_fact(fact))
    await store.close()
    waiting = await memory("pending", "--target", "user")
    assert "about user" in waiting and "about memory" not in waiting
    assert await memory("approve", "all", "--target", "user") == "kept f2 (user, 10/1375)\n"
    assert "about memory" in await memory("pending")
    await memory("add", "work")
    told = await memory("clear", "--yes", "--target", "user")
    assert told == "forgot 1 fact; each can be restored for 30 days\n"
    assert [row["text"] for row in json.loads(await memory("list", "--json"))] == ["work"]

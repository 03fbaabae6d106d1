"""Fills a home with much of everything: python -m bench.full_home FOLDER."""

import asyncio
import sys
from pathlib import Path

from bench.knowledge import write_skills
from hermes.config.paths import database_file
from hermes.cron.job_editor import JobEditor, JobWishes
from hermes.mcp.definitions import ToolDefinition
from hermes.mcp.pins import PinStore
from hermes.mcp.server_config import parse_server
from hermes.store.sqlite import SqliteStore


async def fill_home(home: Path) -> None:
    """Full notes, 1,000 skills, 20 servers of 50 tools, 5 jobs, 3 plugins that are not enabled."""
    memories = home / "memories"
    memories.mkdir(mode=0o700)
    for name, limit in (("MEMORY.md", 2200), ("USER.md", 1375)):
        notes = [f"{n:x<60}" for n in range((limit + 3) // 63)]
        (memories / name).write_text("\n§\n".join(notes))
    write_skills(home / "skills")
    entry = {"command": "false"}
    names = [f"server-{number:02}" for number in range(20)]
    rows = [ToolDefinition(f"tool{n}", f"Does {n}.", {"type": "object"}) for n in range(50)]
    with (home / "config.yaml").open("a") as file:
        file.write(
            "mcp_servers:\n" + "".join(f"  {name}: {{command: 'false'}}\n" for name in names)
        )
    for name in names:
        PinStore(home).save_pin(name, parse_server(name, dict(entry)).digest, rows)
    (home / "plugins").mkdir(mode=0o700)
    for name in ("one", "two", "three"):
        (home / "plugins" / f"{name}.py").write_text("def register(api): ...\n")
    store = SqliteStore(database_file(home))
    editor = JobEditor(store.jobs, home, "UTC")
    for number in range(5):
        await editor.add_job(editor.draft_job(JobWishes("every 1h", f"job {number}")))
    await store.close()


if __name__ == "__main__":
    asyncio.run(fill_home(Path(sys.argv[1])))

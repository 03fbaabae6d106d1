"""Memory and skills in the program: what nobody uses costs nothing, what is there costs little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.flow.test_first_request import PROGRAM
from tests.kit import Home, Provider, run_hermes, say
from tests.kit.bodies import messages
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


async def test_hi_stays_small_with_full_notes_and_a_thousand_skills(tmp_path: Path) -> None:
    async with Provider([say("hello")]) as p:
        home = Home.of(tmp_path, p)
        memories = home.path / "memories"
        memories.mkdir(mode=0o700)
        for name, limit in (("MEMORY.md", 2200), ("USER.md", 1375)):
            entries = ["x" * 97] * ((limit + 3) // 100)
            (memories / name).write_text(
                "\n§\n".join(f"{n:02}{e[2:]}" for n, e in enumerate(entries))
            )
        for n in range(1000):
            write_skill(home.path / "skills", f"skill-{n:04}")
        ran = await run_hermes(["chat", "-q", "hi"], home)
        assert ran.rc == 0, ran
        body = p.requests[0].body
        assert len(body) < 12 * 1024 and b"<memory>" in body and b"<skills>" in body


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

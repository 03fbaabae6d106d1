"""The examples work as their README says, and the pages about them, on a scripted model."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say
from tests.kit.bodies import messages

pytestmark = pytest.mark.e2e
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider([], then=answer) as p:
        yield p


@pytest.fixture
def home(tmp_path: Path, provider: Provider) -> Home:
    return Home.of(tmp_path, provider)


def answer(request: Received) -> Reply:
    seen = messages(request)
    if seen[-1].results:
        return say("It is b.txt now.")
    if "Rename" in seen[-1].text:
        return call(("c1", "terminal", {"command": "mv a.txt b.txt"}))
    if "returns -1" in seen[-1].text:
        return call(("c1", "terminal", {"command": "sed -i 's/a - b/a + b/' calculator.py"}))
    if "ZeroDivisionError" in seen[-1].text:
        return call(("c1", "terminal", {"command": "sed -i 's/len(values)/1/' calculator.py"}))
    return say("42")


async def test_the_prompts(home: Home) -> None:
    file = str(EXAMPLES / "prompts.jsonl")
    ran = await run_hermes(["batch", "run", file, "--toolsets", "none"], home)
    assert ran.rc == 0, ran
    lines = (home.path / "batch/prompts/trajectories.jsonl").read_text().splitlines()
    assert len(lines) == 20


async def test_the_tasks(home: Home, tmp_path: Path) -> None:
    repos = tmp_path / "repos"
    subprocess.run(["sh", EXAMPLES / "make_repository.sh", repos], check=True)
    file = str(EXAMPLES / "tasks.jsonl")
    ran = await run_hermes(["swe", "run", file, "--repos", str(repos)], home)
    assert ran.rc == 0, ran
    text = (home.path / "batch/tasks/predictions.jsonl").read_text()
    found = [json.loads(line)["model_patch"] for line in text.splitlines()]
    assert "+    return a + b" in found[0] and "+    return sum(values) / 1" in found[1]


async def test_the_cases(home: Home) -> None:
    ran = await run_hermes(["eval", str(EXAMPLES / "cases.yaml"), "--json"], home)
    assert ran.rc == 0, ran
    assert [row["passed"] for row in ran.json["results"]] == [True, True]


def list_blocks(page: str, language: str) -> list[str]:
    text = (EXAMPLES.parent / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


async def run_block(home: Home, block: str) -> tuple[int | None, str]:
    """Run a block of a page in a shell, in the home of a user; the status, and what it printed."""
    hidden = home.work.parent / ".hermes"
    if not hidden.is_symlink():
        hidden.symlink_to(home.path)
    env = {**home.env, "PATH": f"{Path(sys.executable).parent}:{home.env['PATH']}"}
    process = await asyncio.create_subprocess_exec(
        *("sh", "-e", "-c", block), cwd=home.work, env=env, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


async def test_the_page_about_batches(home: Home, tmp_path: Path) -> None:
    first, tasks, _ = list_blocks("batch.md", "sh")
    status, said = await run_block(home, first)
    rows = [json.loads(line) for line in said.splitlines()]
    assert status == 0
    assert [row["conversations"][1]["value"] for row in rows] == [
        "What is 2+2?",
        "Name a prime above 100.",
    ]
    repos = home.work.parent / "repos"
    subprocess.run(["sh", EXAMPLES / "make_repository.sh", repos], check=True)
    (home.work / "tasks.jsonl").write_bytes((EXAMPLES / "tasks.jsonl").read_bytes())
    status, _ = await run_block(home, tasks)
    assert status == 0 and (home.path / "batch/tasks/predictions.jsonl").exists()


async def test_the_page_about_replays(home: Home, provider: Provider) -> None:
    def look(request: Received) -> Reply:
        count = sum(len(m.results) for m in messages(request))
        return call((f"c{count}", "read_file", {"path": f"{count}"})) if count < 3 else say("None.")

    provider.then = look
    record, play = list_blocks("replay.md", "sh")[:2]
    assert (await run_block(home, record))[0] == 0
    (session,) = (await run_hermes(["sessions", "list", "--json"], home)).json
    command, shown = play.splitlines()
    assert await run_block(home, command.replace("ID", session["id"])) == (0, f"{shown}\n")


async def test_the_page_about_evaluations(home: Home, provider: Provider) -> None:
    row = {"base_url": provider.base_url, "api_key_env": "KIT_KEY"}
    home.configure(providers={"lab": row})
    (cases,) = list_blocks("eval.md", "yaml")
    (home.work / "cases.yaml").write_text(cases)
    (command,) = list_blocks("eval.md", "sh")
    status, said = await run_block(home, command)
    assert status == 0
    assert [line.split()[:3] for line in said.splitlines()] == [["pass", "rename", "5/5"]] * 2
    assert {request.json["model"] for request in provider.requests} == {"small", "big"}

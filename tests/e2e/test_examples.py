"""The examples work as their README says, on a scripted model."""

from __future__ import annotations

import json
import subprocess
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

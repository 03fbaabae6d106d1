"""`hermes model` as a process: what is listed, what is chosen, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.kit import Home, run_hermes

pytestmark = pytest.mark.e2e

NOWHERE = {"HTTPS_PROXY": "http://127.0.0.1:9", "PIP_NO_INDEX": "1"}


async def test_the_list_says_size_licence_and_place(tmp_path: Path) -> None:
    ran = await run_hermes(["model", "list", "--json"], Home(tmp_path))
    rows = {row["name"]: row for row in ran.json}
    assert ran.rc == 0
    assert rows["qwen2.5-coder-0.5b"]["bytes"] == 491_400_064
    assert all(row["licence"] and not row["file"] for row in rows.values())


async def test_a_file_becomes_the_model_and_the_rest_of_the_settings_stays(tmp_path: Path) -> None:
    home = Home(tmp_path, agent={"max_turns": 7})
    file = home.file("my model: 1.gguf", b"GGUF....")
    ran = await run_hermes(["model", "local", file.name], home)
    assert ran.rc == 0, ran.stderr
    written = yaml.safe_load((home.path / "config.yaml").read_text())
    assert written["model"] == {"provider": "local", "default": str(file)}
    assert written["agent"] == {"max_turns": 7}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["local", "note.txt"], "is not a GGUF file"),
        (["local", "absent.gguf"], "Could not read"),
        (["local"], "needs a .gguf file"),
        (["pull", "gpt-5"], "There is no embedded model 'gpt-5'"),
    ],
)
async def test_what_cannot_be_is_a_sentence_and_changes_nothing(
    tmp_path: Path, args: list[str], says: str
) -> None:
    home = Home(tmp_path, agent={"max_turns": 7})
    home.file("note.txt", "hello")
    before = (home.path / "config.yaml").read_bytes()
    ran = await run_hermes(["model", *args], home)
    assert ran.rc == 2 and says in ran.stderr and ran.stdout == ""
    assert (home.path / "config.yaml").read_bytes() == before


async def test_a_download_that_cannot_be_had_says_why_and_what_to_do(tmp_path: Path) -> None:
    ran = await run_hermes(["model", "pull"], Home(tmp_path), env=NOWHERE)
    assert ran.rc == 1
    assert "could not be downloaded" in ran.stderr and "hermes model pull" in ran.stderr
    assert "Traceback" not in ran.stderr

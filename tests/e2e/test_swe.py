"""`hermes swe run` on a generated repository: patches that apply, and nothing given away."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say
from tests.kit.bodies import messages

pytestmark = pytest.mark.e2e
SECRET = "the gold patch says forty-two"


def run_git(folder: Path, *words: str, given: str = "") -> str:
    env = {
        **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "T"),
        **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "t@example.org"),
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
    }
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env=env,
        input=given,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str]:
    folder = tmp_path / "repos" / "acme__calc"
    folder.mkdir(parents=True)
    run_git(folder, "init", "-q", "-b", "main")
    (folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (folder / "old.txt").write_text("goes away\n" * 5)
    (folder / "name.txt").write_text("is renamed\n" * 20)
    (folder / "picture.bin").write_bytes(bytes(range(256)) * 4)
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-q", "-m", "base")
    base = run_git(folder, "rev-parse", "HEAD")
    (folder / "calc.py").write_text(f"# {SECRET}\ndef add(a, b):\n    return a + b\n")
    run_git(folder, "commit", "-qam", f"fix: {SECRET}")
    run_git(folder, "tag", "later")
    return folder, base


CHANGE = (
    "sed -i 's/a - b/a + b/' calc.py; rm old.txt; mv name.txt new_name.txt; mkdir d; "
    "printf '\\000\\001\\002' > d/new.bin; printf x >> picture.bin; "
    "git log --all --oneline; git remote -v; git tag; ls -la ..; "
    "grep -rs 'gold patch' .. /tmp /home /root | head -3; echo end"
)


async def test_patches_apply_and_nothing_is_given_away(
    tmp_path: Path, repository: tuple[Path, str]
) -> None:
    folder, base = repository
    seen: list[str] = []

    def answer(request: Received) -> Reply:
        last = messages(request)[-1]
        if last.results:
            seen.extend(map(str, last.results))
            return say("fixed")
        return call(("c1", "terminal", {"command": CHANGE}))

    async with Provider([], then=answer) as provider:
        home = Home.of(tmp_path, provider)
        tasks: list[dict[str, Any]] = [
            {
                "instance_id": f"acme__calc-{n}",
                "repo": "acme/calc",
                "base_commit": base,
                "problem_statement": "add subtracts",
                "patch": SECRET,
                "test_patch": SECRET,
            }
            for n in (1, 2)
        ]
        file = tmp_path / "tasks.jsonl"
        file.write_text("\n".join(map(json.dumps, tasks)))
        args = ["swe", "run", str(file), "--repos", str(folder.parent), "--toolsets", "terminal"]
        ran = await run_hermes(args, home)
        assert ran.rc == 0, ran
        assert all("add subtracts" in json.dumps(r.json) for r in provider.requests)
        assert all(SECRET not in json.dumps(r.json) for r in provider.requests)
    assert len(seen) == 2 and all(SECRET not in text and "later" not in text for text in seen)
    assert all(text.count("base") == 1 for text in seen), "its past is there"
    lines = (home.path / "batch" / "tasks" / "predictions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["instance_id"] for row in rows] == ["acme__calc-1", "acme__calc-2"]
    for row in rows:
        assert set(row) == {"instance_id", "model_name_or_path", "model_patch"}
        fresh = tmp_path / row["instance_id"]
        run_git(tmp_path, "clone", "-q", str(folder), str(fresh))
        run_git(fresh, "checkout", "-q", base)
        run_git(fresh, "apply", "-", given=row["model_patch"])
        assert "a + b" in (fresh / "calc.py").read_text()
        assert not (fresh / "old.txt").exists() and not (fresh / "name.txt").exists()
        assert (fresh / "new_name.txt").exists()
        assert (fresh / "d" / "new.bin").read_bytes() == b"\0\1\2"
        assert (fresh / "picture.bin").read_bytes().endswith(b"\xffx")


async def test_a_task_without_its_repository_is_named(tmp_path: Path) -> None:
    async with Provider([]) as provider:
        home = Home.of(tmp_path, provider)
        file = tmp_path / "tasks.jsonl"
        task = {
            "instance_id": "a",
            "repo": "no/where",
            "base_commit": "x",
            "problem_statement": "p",
        }
        file.write_text(json.dumps(task))
        ran = await run_hermes(["swe", "run", str(file), "--repos", str(tmp_path)], home)
    assert ran.rc == 2 and "line 1" in ran.stderr and "no__where" in ran.stderr

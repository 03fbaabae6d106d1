"""`hermes swe run` on a generated repository: patches that apply, and nothing given away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say
from tests.kit.bodies import messages
from tests.kit.repositories import make_repository, run_git, write_tasks

pytestmark = pytest.mark.e2e
SECRET = "the gold patch says forty-two"


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str]:
    return make_repository(tmp_path / "repos" / "acme__calc", SECRET)


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
        file = write_tasks(tmp_path, base, SECRET)
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


async def test_file_tools_find_neither_the_tasks_nor_the_repositories(
    tmp_path: Path, repository: tuple[Path, str]
) -> None:
    folder, base = repository
    file = write_tasks(tmp_path, base, SECRET)
    calls = [
        ("read_file", {"path": str(file)}),
        ("read_file", {"path": str(folder / "calc.py")}),
        ("read_file", {"path": str(folder / ".git" / "packed-refs")}),
        ("read_file", {"path": "../../../../../.." + str(file)}),
        ("search_files", {"pattern": "gold patch", "path": str(tmp_path)}),
        ("search_files", {"pattern": "instance_id", "path": "/"}),
        ("read_file", {"path": "calc.py"}),
    ]
    seen: list[str] = []

    def answer(request: Received) -> Reply:
        found = [str(result) for m in messages(request) for result in m.results]
        if found:
            seen[:] = found
            return say("looked")
        return call(*((f"c{n}", name, args) for n, (name, args) in enumerate(calls)))

    async with Provider([], then=answer) as provider:
        home = Home.of(tmp_path, provider)
        args = ["swe", "run", str(file), "--repos", str(folder.parent), "--toolsets", "file"]
        ran = await run_hermes([*args, "--limit", "1"], home)
        assert ran.rc == 0, ran
    *outside, inside = seen
    assert len(outside) == len(calls) - 1 and "a - b" in inside
    for (name, args), text in zip(calls, outside, strict=False):
        given_away = (SECRET, "add subtracts", "acme__calc-1", "a + b", "return a", "refs/tags")
        assert not any(words in text for words in given_away), (name, args, text)


@pytest.mark.parametrize("kind", ["swe", "batch"])
async def test_solutions_are_hidden_also_where_tools_may_read(tmp_path: Path, kind: str) -> None:
    """Toolchains of the home are open to tools, as the folders of the system are."""
    place = tmp_path / "sdk"
    folder = place / "repos" / "acme__calc"
    if kind == "swe":
        _, base = make_repository(folder, SECRET)
        file = write_tasks(place, base, SECRET)
        args = ["swe", "run", str(file), "--repos", str(folder.parent), "--limit", "1"]
    else:
        place.mkdir()
        file = place / "data.jsonl"
        file.write_text(json.dumps({"prompt": "add", "metadata": {"answer": SECRET}}))
        args = ["batch", "run", str(file), "--output", str(place / "out")]
    (place / "seen.txt").write_text("an open file")
    looks = f"cat {place}/*.*; cat {place}/*/*.*; grep -rs 'gold' {place}; git -C {folder} log"
    calls = [
        ("terminal", {"command": looks}),
        ("read_file", {"path": str(file)}),
        ("search_files", {"pattern": "gold|open", "path": str(place)}),
        ("search_files", {"pattern": "gold|open", "path": str(tmp_path)}),
    ]
    seen: list[str] = []

    def answer(request: Received) -> Reply:
        found = [str(result) for m in messages(request) for result in m.results]
        if found:
            seen[:] = found
            return say("looked")
        return call(*((f"c{n}", name, args) for n, (name, args) in enumerate(calls)))

    async with Provider([], then=answer) as provider:
        home = Home.of(tmp_path, provider)
        ran = await run_hermes([*args, "--toolsets", "terminal,file"], home)
        assert ran.rc == 0, ran
    assert len(seen) == len(calls) and SECRET not in "".join(seen), seen
    assert "an open file" in seen[0] and "an open file" in seen[2], seen
    if kind == "swe":
        assert "a + b" not in "".join(seen), seen


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"repo": ".."}, "line 1: "),
        ({"repo": "../../acme__calc"}, "line 1: "),
        ({"base_commit": "--upload-pack=touch planted"}, "is not the name of a commit"),
        ({"base_commit": "--output=planted"}, "is not the name of a commit"),
        ({"base_commit": "HEAD:calc.py"}, "is not the name of a commit"),
        ({"base_commit": "0" * 40}, "has no commit"),
        ({"base_commit": ""}, "is not the name of a commit"),
        ({"instance_id": 5}, "line 1: "),
    ],
)
async def test_tasks_of_strangers_reach_no_other_repository_and_no_option_of_git(
    tmp_path: Path, repository: tuple[Path, str], changes: dict[str, str], said: str
) -> None:
    folder, base = repository
    async with Provider([]) as provider:
        home = Home.of(tmp_path, provider)
        file = write_tasks(tmp_path, base, SECRET)
        task = {**json.loads(file.read_text().splitlines()[0]), **changes}
        file.write_text(json.dumps(task))
        run_git(tmp_path, "init", "-q", str(folder.parent.parent))
        ran = await run_hermes(["swe", "run", str(file), "--repos", str(folder.parent)], home)
        assert ran.rc == 2 and said in ran.stderr and "Nothing was started" in ran.stderr, ran
        assert not provider.requests
    assert not list(tmp_path.rglob("planted")) and not (home.path / "batch" / "tasks").exists()


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

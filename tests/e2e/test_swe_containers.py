"""`hermes swe run --image`: tasks in containers of a real Docker daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say
from tests.kit.bodies import messages
from tests.kit.engine import Engine, engine
from tests.kit.repositories import make_repository, run_git, write_tasks

pytestmark = pytest.mark.e2e
SECRET = "the gold patch says forty-two"
FIXED = "def add(a, b):\n    return a + b\n"
CHANGE = (
    "cd /testbed && rm old.txt && mv name.txt new_name.txt && mkdir d && "
    "printf '\\000\\001' > d/new.bin && cat built.o made.log && id -u && ls /testbed .git && "
    "grep -rs 'gold patch' . /tmp /home /root | head -3; ls -d /testbed/.git/refs/tags/*; echo end"
)


@pytest.fixture(scope="module")
def docker() -> Iterator[Engine]:
    with engine() as found:
        if isinstance(found, str):
            pytest.skip(found)
        yield found


@pytest.fixture
def image(docker: Engine, tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    """A pattern, the commit to begin at, and the repository that is in /testbed of the images:
    checked out at the base, with built files, its future still in `.git`."""
    folder, base = make_repository(tmp_path / "testbed", SECRET)
    run_git(folder, "checkout", "-q", base)
    run_git(folder, "remote", "add", "origin", "https://example.org/acme/calc")
    (folder / ".git" / "info" / "exclude").write_text("*.o\n")
    (folder / "built.o").write_text("an object file\n")
    (folder / "made.log").write_text("neither tracked nor ignored\n")
    made = docker.docker("create", docker.image, "/bin/sh")
    names = [f"swe-test.acme__calc-{n}:1" for n in (1, 2)]
    try:
        docker.docker("cp", f"{folder}", f"{made}:/testbed")
        for name in names:
            docker.docker("commit", made, name)
    finally:
        docker.docker("rm", "-f", made)
    yield "swe-test.{id}:1", base, folder
    docker.docker("rmi", "-f", *names)


async def test_tasks_work_on_the_repository_of_their_image(
    tmp_path: Path, docker: Engine, image: tuple[str, str, Path]
) -> None:
    pattern, base, folder = image
    seen: list[str] = []

    def answer(request: Received) -> Reply:
        last = messages(request)[-1]
        if not last.results:
            return call(("c1", "terminal", {"command": CHANGE}))
        seen.extend(map(str, last.results))
        if "c2" not in str(request.json):
            return call(("c2", "write_file", {"path": "calc.py", "content": FIXED}))
        return say("fixed")

    async with Provider([], then=answer) as provider:
        home = Home.of(tmp_path, provider)
        file = write_tasks(tmp_path, base, SECRET)
        args = ["swe", "run", str(file), "--image", pattern, "--toolsets", "terminal,file"]
        ran = await run_hermes(args, home, env=docker.env)
        assert ran.rc == 0, ran
        assert all("/testbed" in json.dumps(r.json) for r in provider.requests)
        assert all(SECRET not in json.dumps(r.json) for r in provider.requests)
    first = [text for text in seen if "an object file" in text]
    assert len(first) == 2 and all("neither tracked nor ignored" in text for text in first)
    assert all(SECRET not in text and "refs/tags/later" not in text for text in seen)
    assert not docker.containers()
    lines = (home.path / "batch" / "tasks" / "predictions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["instance_id"] for row in rows] == ["acme__calc-1", "acme__calc-2"]
    for row in rows:
        fresh = tmp_path / row["instance_id"]
        run_git(tmp_path, "clone", "-q", str(folder), str(fresh))
        run_git(fresh, "checkout", "-q", base)
        run_git(fresh, "apply", "-", given=row["model_patch"])
        assert (fresh / "calc.py").read_text() == FIXED
        assert not (fresh / "old.txt").exists() and (fresh / "new_name.txt").exists()
        assert (fresh / "d" / "new.bin").read_bytes() == b"\0\1"
        assert "made.log" not in row["model_patch"] and "built.o" not in row["model_patch"]


async def test_a_missing_image_is_named_before_anything_runs(
    tmp_path: Path, docker: Engine
) -> None:
    async with Provider([]) as provider:
        home = Home.of(tmp_path, provider)
        file = write_tasks(tmp_path, "x", SECRET)
        args = ["swe", "run", str(file), "--image", "no-such.{id}:1"]
        ran = await run_hermes(args, home, env=docker.env)
        assert ran.rc == 2 and not provider.requests
        said = "line 1: the image no-such.acme__calc-1:1 is missing"
        assert said in ran.stderr and "Nothing was started" in ran.stderr
        assert not (home.path / "batch" / "tasks").exists()
        rows = [{"prompt": "x"}, {"prompt": "y", "image": "no-such:2"}]
        (home.work / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
        ran = await run_hermes(["batch", "run", "data.jsonl"], home, env=docker.env)
        assert ran.rc == 2 and not provider.requests
        assert "The image no-such:2 is missing" in ran.stderr
        assert not (home.path / "batch" / "data").exists()


async def test_an_item_that_takes_too_long_ends_with_its_container(
    tmp_path: Path, docker: Engine, mark: str
) -> None:
    async with Provider(
        [], then=call(("c1", "terminal", {"command": f"sleep {mark}"}))
    ) as provider:
        home = Home.of(tmp_path, provider)
        (home.work / "data.jsonl").write_text('{"prompt": "wait"}\n')
        args = ["batch", "run", "data.jsonl", "--image", docker.image, "--item-seconds", "4"]
        ran = await run_hermes([*args, "--toolsets", "terminal"], home, env=docker.env)
    assert ran.rc == 1, ran
    failed = json.loads((home.path / "batch" / "data" / "failed.jsonl").read_text())
    assert failed["error"]["code"] == "timeout", "and it is not tried again"
    assert len(provider.requests) == 1
    assert not docker.containers()

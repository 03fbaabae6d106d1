"""`hermes batch` as a process: every item once, limits, formats, bad datasets."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kit import (
    Gate,
    Home,
    Provider,
    Received,
    Reply,
    call,
    run_hermes,
    say,
    start_hermes,
    status,
    think,
)
from tests.kit.answers import Tokens
from tests.kit.bodies import messages
from tests.kit.processes import living

pytestmark = pytest.mark.e2e
MINUTES = int(os.environ.get("HERMES_BATCH_MINUTES", "0"))
"""How long the pace of a run is counted; 0: tests/unit/batch does it on a clock of its own."""


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider([], then=lambda request: say(f"answer to {read_prompt(request)}")) as p:
        yield p


@pytest.fixture
def home(tmp_path: Path, provider: Provider) -> Home:
    return Home.of(tmp_path, provider)


def read_prompt(request: Received) -> str:
    found = [m for m in messages(request) if m.role == "user"]
    return found[-1].text


def write_items(home: Home, *rows: Any, name: str = "data.jsonl") -> str:
    file = home.work / name
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


def read_lines(home: Home, file: str, run: str = "data") -> list[dict[str, Any]]:
    path = home.path / "batch" / run / file
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_statistics(home: Home, run: str = "data") -> dict[str, Any]:
    return dict(json.loads((home.path / "batch" / run / "statistics.json").read_text()))


async def test_every_item_is_answered_in_its_own_workspace(home: Home, provider: Provider) -> None:
    def answer(request: Received) -> Reply:
        if messages(request)[-1].results:
            return think("it is there") + say("done")
        return call(("c1", "terminal", {"command": "echo the file says; cat a/x.txt; ls"}))

    provider.then = answer
    file = write_items(
        home,
        *(
            {"id": f"i{n}", "prompt": "read it", "files": {"a/x.txt": f"text {n}"}}
            for n in range(6)
        ),
    )
    ran = await run_hermes(["batch", "run", file, "--toolsets", "terminal"], home)
    assert ran.rc == 0, ran
    lines = read_lines(home, "trajectories.jsonl")
    assert [line["prompt_index"] for line in lines] == list(range(6))
    for number, line in enumerate(lines):
        head, human, first, tool, last = line["conversations"]
        assert (head["from"], human["value"]) == ("system", "read it")
        assert '"name": "terminal"' in head["value"]
        assert first["value"].startswith('<think>\n</think>\n<tool_call>\n{"name": "terminal", ')
        assert f"text {number}" in tool["value"] and tool["from"] == "tool"
        assert last["value"] == "<think>\nit is there\n</think>\ndone"
        assert line["completed"] is True and line["partial"] is False and line["api_calls"] == 2
        assert line["toolsets_used"] == ["terminal"]
        assert line["tool_stats"]["terminal"] == {"count": 1, "success": 1, "failure": 0}
    found = read_statistics(home)
    assert found["items"] == 6 and found["states"] == {"done": 6} and found["abandoned"] == 0
    assert found["tools"]["terminal"]["count"] == 6
    assert found["reasoning"] == {"with": 6, "without": 6}
    assert read_lines(home, "failed.jsonl") == []
    assert not list(home.work.glob("a*"))
    status_line = await run_hermes(["batch", "status", "data", "--json"], home)
    assert status_line.rc == 0, status_line
    assert status_line.json["states"] == {"done": 6} and status_line.json["running"] is None
    exported = await run_hermes(["batch", "export", "data"], home)
    file_text = (home.path / "batch" / "data" / "trajectories.jsonl").read_text()
    assert exported.stdout == file_text, "the same columns in every process"


async def test_only_items_without_files_share_a_folder(home: Home, provider: Provider) -> None:
    rows = [{"prompt": "a"}, {"prompt": "b"}, {"prompt": "c", "files": {"x": "y"}}]
    file = write_items(home, *rows)
    for name, toolsets, folders in (("a", "todo", 2), ("b", "none", 2), ("c", "todo,file", 3)):
        provider.requests.clear()
        args = ["batch", "run", file, "--name", name, "--toolsets", toolsets]
        assert (await run_hermes(args, home)).rc == 0
        sent = [r.json["messages"][0]["content"] for r in provider.requests]
        lines = {line for text in sent for line in text.splitlines() if "directory: /" in line}
        assert len(lines) == folders, lines


async def test_a_run_whose_items_were_damaged_says_so(home: Home, provider: Provider) -> None:
    file = write_items(home, {"prompt": "one"}, {"prompt": "two"})
    args = ["batch", "run", file, "--toolsets", "none"]
    assert (await run_hermes(args, home)).rc == 0
    items = home.path / "batch" / "data" / "items.jsonl"
    items.write_bytes(items.read_bytes()[:-20])
    for action in ("resume", "status", "export"):
        ran = await run_hermes(["batch", action, "data"], home)
        assert ran.rc == 2 and "items.jsonl cannot be read" in ran.stderr, ran
    ran = await run_hermes(args, home)
    assert ran.rc == 0 and len(provider.requests) == 2, ran


async def test_a_second_run_of_the_same_name_repeats_nothing(
    home: Home, provider: Provider
) -> None:
    file = write_items(home, {"prompt": "one"}, {"prompt": "one"})
    assert (await run_hermes(["batch", "run", file, "--toolsets", "none"], home)).rc == 0
    assert len(provider.requests) == 2
    assert (await run_hermes(["batch", "run", file, "--toolsets", "none"], home)).rc == 0
    assert (await run_hermes(["batch", "resume", "data"], home)).rc == 0
    assert len(provider.requests) == 2
    write_items(home, {"prompt": "two"})
    ran = await run_hermes(["batch", "run", file, "--toolsets", "none"], home)
    assert ran.rc == 2 and "another dataset" in ran.stderr
    write_items(home, {"prompt": "one"}, {"prompt": "one"}, {"prompt": "three"})
    ran = await run_hermes(["batch", "run", file, "--toolsets", "none", "--extend"], home)
    assert ran.rc == 0 and len(provider.requests) == 3
    assert len(read_lines(home, "trajectories.jsonl")) == 3


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (['{"prompt": "a"}', "{nonsense"], "line 2: "),
        (['{"prompt": "a", "id": "x"}', '{"prompt": "b", "id": "x"}'], 'line 2: the id "x"'),
        (['{"text": "a"}'], "line 1: it needs either `prompt` or `messages`"),
        (['{"prompt": "  "}'], "line 1: the prompt is empty"),
        (['{"prompt": "a", "files": {"../x": "y"}}'], "line 1: the path '../x' is outside"),
        (['{"prompt": "a", "files": {"/x": "y"}}'], "line 1: the path '/x' is outside"),
        (['{"prompt": "a", "files": {"a": "x", "a/b": "y"}}'], "line 1: 'a' is both a file"),
        (['{"prompt": "a", "image": "--privileged"}'], "line 1: '--privileged' is not the name"),
        (['{"prompt": "a"}', '{"prompt": "a", "toolsets": ["fiel"]}'], "line 2: There is no tool"),
        (['{"messages": [{"role": "assistant", "content": "x"}]}'], "line 1: the last of"),
        (['{"prompt": "a", "id": "x\\u0000"}'], "line 1: the id has a NUL"),
        (
            ['{"prompt": "a", "metadata": {"a": ' + "[" * 99_999 + "]" * 99_999 + "}}"],
            "line 1: it is nest",
        ),
        (['{"prompt": "a", "workspace": "../home"}'], "line 1: the workspace"),
        (['{"prompt": "a", "workspace": "../.ssh"}'], "line 1: the workspace"),
        (['{"prompt": "a", "id": "\\u001b[2J"}'] * 2, 'line 2: the id "'),
        (['{"prompt": "a"}', "", '{"prompt": "cut'], "line 3: "),
        ([""], "has no items"),
    ],
)
async def test_a_bad_dataset_is_named_before_anything_runs(
    home: Home, provider: Provider, rows: list[str], said: str
) -> None:
    (home.work.parent / ".ssh").mkdir()
    file = write_items(home, *rows)
    ran = await run_hermes(["batch", "run", file, "--toolsets", "none"], home)
    assert ran.rc == 2 and said in ran.stderr and "Nothing was started" in ran.stderr
    assert "\x1b" not in ran.stderr
    assert not provider.requests and not (home.path / "batch" / "data").exists()


async def test_what_editors_and_tables_leave_in_a_file_is_fine(
    home: Home, provider: Provider
) -> None:
    file = home.work / "data.jsonl"
    big = "x" * 1_000_000
    names = "id image cwd files workspace toolsets model system metadata messages".split()
    empty = {**dict.fromkeys(names), "prompt": "two", "files": {"a.txt": None}}
    rows = [*map(json.dumps, ({"prompt": "one"}, empty)), "", json.dumps({"prompt": big}), "{bad"]
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(rows).encode())
    ran = await run_hermes(["batch", "run", str(file), "--toolsets", "none", "--skip-bad"], home)
    assert ran.rc == 0 and "1 bad line is left out" in ran.stderr
    assert len(read_lines(home, "trajectories.jsonl")) == 3
    assert {len(read_prompt(request)) for request in provider.requests} == {3, 1_000_000}


@pytest.mark.parametrize("option", ["--model", "--toolsets", "--limit", "--system", "--seed"])
async def test_what_a_run_keeps_cannot_be_changed_by_a_resume(
    home: Home, provider: Provider, option: str
) -> None:
    file = write_items(home, {"prompt": "one"})
    assert (await run_hermes(["batch", "run", file, "--toolsets", "none"], home)).rc == 0
    ran = await run_hermes(["batch", "resume", "data", option, "7"], home)
    assert ran.rc == 2 and f"{option}: a run keeps it" in ran.stderr
    ran = await run_hermes(["batch", "resume", "data", "--cluster"], home)
    assert ran.rc == 2 and "begun without --cluster" in ran.stderr


async def test_failures_are_listed_and_the_rest_goes_on(home: Home, provider: Provider) -> None:
    provider.then = lambda request: (
        status(400, "no") if "bad" in read_prompt(request) else say("fine")
    )
    file = write_items(home, {"prompt": "good"}, {"prompt": "bad"}, {"prompt": "good"})
    args = ["batch", "run", file, "--toolsets", "none", "--retries", "1"]
    ran = await run_hermes(args, home)
    assert ran.rc == 3
    (failed,) = read_lines(home, "failed.jsonl")
    assert failed["id"] == "2" and failed["state"] == "failed" and failed["error"]["message"]
    found = read_statistics(home)
    assert found["states"] == {"done": 2, "failed": 1}
    assert found["errors"] == {failed["error"]["code"]: 1} and found["abandoned"] == 1
    assert [line["prompt_index"] for line in read_lines(home, "trajectories.jsonl")] == [0, 2]


async def test_what_has_failed_is_done_again_if_asked(home: Home, provider: Provider) -> None:
    provider.then = lambda request: status(401, "no") if read_prompt(request) != "b" else say("b")
    file = write_items(home, *({"prompt": prompt} for prompt in "abc"))
    ran = await run_hermes(["batch", "run", file, "--toolsets", "none", "--retry-failed"], home)
    assert ran.rc == 2 and "--retry-failed is for resume" in ran.stderr, ran
    ran = await run_hermes(["batch", "run", file, "--toolsets", "none"], home)
    assert ran.rc == 3 and [row["id"] for row in read_lines(home, "failed.jsonl")] == ["1", "3"]
    provider.then = lambda request: say(f"now {read_prompt(request)}")
    asked = len(provider.requests)
    ran = await run_hermes(["batch", "resume", "data"], home)
    assert ran.rc == 3 and len(provider.requests) == asked, ran
    ran = await run_hermes(["batch", "resume", "data", "--retry-failed"], home)
    assert ran.rc == 0 and len(provider.requests) == asked + 2, ran
    answers = [
        line["conversations"][-1]["value"] for line in read_lines(home, "trajectories.jsonl")
    ]
    assert [answer.split()[-1] for answer in answers] == ["a", "b", "c"]
    found = read_statistics(home)
    assert found["states"] == {"done": 3} and found["abandoned"] == 2
    assert read_lines(home, "failed.jsonl") == []


async def test_a_refused_key_is_not_tried_again(home: Home, provider: Provider) -> None:
    provider.then = status(401, "no such key")
    file = write_items(home, {"prompt": "one"}, {"prompt": "two"})
    ran = await run_hermes(["batch", "run", file, "--toolsets", "none"], home)
    assert ran.rc == 1 and len(provider.requests) == 2
    assert read_statistics(home)["errors"] == {"auth": 2}
    assert read_statistics(home)["abandoned"] == 0


async def test_items_that_did_not_get_far_enough_are_partial(
    home: Home, provider: Provider
) -> None:
    provider.then = call(("c1", "read_file", {"path": "a.txt"}))
    file = write_items(home, {"prompt": "read", "files": {"a.txt": "alpha"}})
    words = ["batch", "run", file, "--toolsets", "file", "--max-turns", "1"]
    assert (await run_hermes(words, home)).rc == 1
    (line,) = read_lines(home, "trajectories.jsonl")
    assert line["partial"] is True and line["completed"] is False
    found = read_statistics(home)
    assert found["states"] == {"partial": 1} and found["errors"] == {"max_turns": 1}


async def test_a_link_of_the_copied_folder_leads_nowhere(home: Home, provider: Provider) -> None:
    (home.work / "start").mkdir()
    (home.work / "start" / "out").symlink_to(home.work)
    item = {"prompt": "p", "workspace": "start", "files": {"out/planted.txt": "x"}}
    ran = await run_hermes(["batch", "run", write_items(home, item), "--toolsets", "none"], home)
    assert ran.rc == 1 and not (home.work / "planted.txt").exists()
    (row,) = read_lines(home, "failed.jsonl")
    assert row["error"]["code"] == "config" and "leads out of the workspace" in str(row["error"])


async def test_a_copied_folder_has_nothing_that_no_tool_may_read(
    home: Home, provider: Provider
) -> None:
    """A dataset of strangers may name any folder of this machine."""
    root = home.work.parent
    for name in (".ssh/id", ".netrc", ".npmrc", ".hermes/.env", "code/.aws/x", "code/main.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"text of {name}")
    os.mkfifo(root / "code" / "pipe")
    show = "grep -rs 'text of' . ; find . -name '.*' -o -name pipe -o -name home; echo end"
    provider.then = lambda request: (
        say("done")
        if messages(request)[-1].results
        else call(("c1", "terminal", {"command": show}))
    )
    file = write_items(home, {"prompt": "look", "workspace": str(root), "cwd": "./"})
    ran = await run_hermes(["batch", "run", file, "--toolsets", "terminal"], home)
    assert ran.rc == 0, ran
    (result,) = messages(provider.last)[-1].results
    seen = str(result)
    assert "text of code/main.py" in seen and "end" in seen
    for name in ("id", ".netrc", ".npmrc", ".env", ".aws"):
        assert f"text of {name}" not in seen and f"/{name}:" not in seen
    assert "pipe" not in seen.replace("-name pipe", "")


async def test_answers_without_reasoning_are_filtered_not_dropped(
    home: Home, provider: Provider
) -> None:
    provider.then = lambda request: (
        think("hm") + say("yes") if "think" in read_prompt(request) else say("no")
    )
    file = write_items(home, {"prompt": "think"}, {"prompt": "talk"})
    args = ["batch", "run", file, "--toolsets", "none", "--require-reasoning"]
    assert (await run_hermes(args, home)).rc == 0
    assert len(read_lines(home, "trajectories.jsonl")) == 1
    (row,) = read_lines(home, "failed.jsonl")
    assert row["state"] == "filtered" and set(row["error"]) == {"code", "message"}
    found = read_statistics(home)
    assert found["states"] == {"done": 1, "filtered": 1} and found["errors"] == {}


async def test_a_history_a_system_text_and_a_prefill_reach_the_model(
    home: Home, provider: Provider
) -> None:
    (home.work / "system.txt").write_text("Speak in rhymes.")
    (home.work / "prefill.json").write_text(
        json.dumps([{"role": "user", "content": "p1"}, {"role": "assistant", "content": "p2"}])
    )
    past = [
        {"role": "system", "content": "You are a pirate."},
        {"role": "user", "content": "m1"},
        {"role": "assistant", "content": "m2"},
        {"role": "user", "content": "m3"},
    ]
    file = write_items(home, {"messages": past, "metadata": {"level": 3}})
    args = ["--toolsets", "none", "--system", "system.txt", "--prefill", "prefill.json"]
    ran = await run_hermes(
        ["batch", "run", file, *args, "--format", "hermes,openai,sharegpt"], home
    )
    assert ran.rc == 0, ran
    sent = provider.last.json["messages"]
    assert [m["content"] for m in sent[1:]] == ["p1", "p2", "m1", "m2", "m3"]
    assert "Speak in rhymes." in sent[0]["content"] and "You are a pirate." in sent[0]["content"]
    (line,) = read_lines(home, "trajectories.openai.jsonl")
    assert line["metadata"] == {"id": "1", "level": 3} and line["tools"] == []
    assert [m["role"] for m in line["messages"]] == [
        *("system", "user", "assistant", "user", "assistant", "user", "assistant")
    ]
    (line,) = read_lines(home, "trajectories.sharegpt.jsonl")
    assert line["conversations"][-1] == {"from": "gpt", "value": "answer to m3"}
    shown = await run_hermes(["batch", "export", "data", "--format", "raw"], home)
    assert json.loads(shown.stdout)["metadata"] == {"level": 3}


async def test_the_first_signal_takes_no_further_items(home: Home, provider: Provider) -> None:
    gate = Gate()
    provider.then = lambda request: say("late").hold(gate)
    file = write_items(home, *({"prompt": f"p{n}"} for n in range(5)))
    args = ["batch", "run", file, "--toolsets", "none", "--concurrency", "2"]
    process = await start_hermes(args, home)
    await gate.reached()
    shown = (await run_hermes(["batch", "status", "data", "--json"], home)).json
    assert 1 <= shown["states"]["running"] <= 2 and sum(shown["states"].values()) == 5
    assert shown["abandoned"] == 0 and shown["running"] == process.pid
    stopped = await run_hermes(["batch", "stop", "data"], home)
    assert stopped.rc == 0, stopped
    gate.open()
    _, said = await process.communicate()
    assert process.returncode == 3 and b"hermes batch resume data" in said
    begun = len(read_lines(home, "trajectories.jsonl"))
    assert 1 <= begun <= 2
    provider.then = say("now")
    assert (await run_hermes(["batch", "resume", "data"], home)).rc == 0
    assert len(read_lines(home, "trajectories.jsonl")) == 5


async def test_the_second_signal_ends_the_run_and_a_resume_begins_its_items_anew(
    home: Home, provider: Provider
) -> None:
    gate = Gate()
    provider.then = lambda request: say("late").hold(gate)
    file = write_items(home, *({"prompt": f"p{n}"} for n in range(3)))
    args = ["batch", "run", file, "--toolsets", "none", "--concurrency", "2"]
    process = await start_hermes(args, home)
    await gate.reached()
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(90):
        while process.returncode is None:
            with suppress(TimeoutError, ProcessLookupError):
                process.send_signal(signal.SIGINT)
                await asyncio.wait_for(process.wait(), 0.2)
    assert process.returncode == 130
    gate.open()
    provider.then = say("now")
    assert (await run_hermes(["batch", "resume", "data"], home)).rc == 0
    lines = read_lines(home, "trajectories.jsonl")
    assert [line["prompt_index"] for line in lines] == [0, 1, 2]
    assert all(line["conversations"][-1]["value"].endswith("now") for line in lines)
    assert read_statistics(home)["abandoned"] >= 1


async def test_a_database_that_cannot_grow_ends_the_run_in_a_sentence(
    home: Home, provider: Provider
) -> None:
    provider.then = say("x" * 20_000)
    file = write_items(home, *({"prompt": f"p{n}"} for n in range(60)))
    args = ["batch", "run", file, "--toolsets", "none", "--concurrency", "4"]
    limited = ("sh", "-c", 'ulimit -f 800; exec "$@"', "sh", sys.executable, "-m", "hermes", *args)
    process = await asyncio.create_subprocess_exec(
        *limited, cwd=home.work, env=home.env, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 3 and b"hermes batch resume data" in said, said
    assert b"internal error" not in said and b"Traceback" not in said
    ran = await run_hermes(["batch", "resume", "data"], home)
    assert ran.rc == 0, ran
    lines = read_lines(home, "trajectories.jsonl")
    assert [line["prompt_index"] for line in lines] == list(range(60))


async def test_results_that_cannot_be_written_are_said_and_written_later(
    home: Home, provider: Provider
) -> None:
    file = write_items(home, *({"prompt": f"p{n}"} for n in range(60)))
    args = ["batch", "run", file, "--toolsets", "none"]
    target = home.path / "batch" / "data" / "trajectories.jsonl"
    target.mkdir(parents=True)  # a file cannot take its place
    ran = await run_hermes(args, home)
    assert ran.rc == 3 and "hermes batch resume data" in ran.stderr, ran
    target.rmdir()
    asked = len(provider.requests)
    ran = await run_hermes(["batch", "resume", "data"], home)
    assert ran.rc == 0 and len(provider.requests) == asked == 60, ran
    assert len(read_lines(home, "trajectories.jsonl")) == 60


async def test_two_runners_of_one_run_are_refused(home: Home, provider: Provider) -> None:
    gate = Gate()
    provider.then = lambda request: say("late").hold(gate)
    file = write_items(home, {"prompt": "p"})
    process = await start_hermes(["batch", "run", file, "--toolsets", "none"], home)
    await gate.reached()
    ran = await run_hermes(["batch", "resume", "data"], home)
    assert ran.rc == 2 and f"pid {process.pid}" in ran.stderr
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    gate.open()
    await process.communicate()


async def test_the_bar_is_that_of_all_processes(home: Home, provider: Provider) -> None:
    async def answer_slowly(request: Received) -> Reply:
        await asyncio.sleep(0.1)
        return say("done")

    provider.then = answer_slowly
    file = write_items(home, *({"prompt": f"p{n}"} for n in range(60)))
    args = ["batch", "run", file, "--toolsets", "none", "--concurrency", "2", "--processes", "2"]
    ours, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hermes", *args, cwd=home.work, env=home.env, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while data := await asyncio.to_thread(os.read, ours, 65536):
            shown += data
    os.close(ours)
    assert await process.wait() == 0, shown
    bars = re.findall(rb"\] (\d+)/(\d+), ", shown)
    assert bars and {total for _, total in bars} == {b"60"}, shown


async def test_of_two_datasets_that_begin_at_once_one_is_refused(
    home: Home, provider: Provider
) -> None:
    files = [
        write_items(home, *({"prompt": f"{which}{n}"} for n in range(20)), name=f"{which}.jsonl")
        for which in "ab"
    ]
    begun = [
        await start_hermes(["batch", "run", file, "--name", "n", "--toolsets", "none"], home)
        for file in files
    ]
    said = [(await process.communicate())[1].decode() for process in begun]
    codes = [process.returncode for process in begun]
    assert sorted(codes) == [0, 2], said
    asked = {read_prompt(request) for request in provider.requests}
    assert asked == {f"{'ab'[codes.index(0)]}{n}" for n in range(20)}, said


async def test_an_item_that_takes_too_long_ends_with_its_processes(
    home: Home, provider: Provider, mark: str
) -> None:
    """One that the model waits for, one in the background, and one that left its group."""
    later = f"sleep {mark} & setsid sleep {mark} & sleep {mark}"
    provider.then = lambda request: (
        call(("c2", "terminal", {"command": later}))
        if messages(request)[-1].results
        else call(("c1", "terminal", {"command": f"sleep {mark}", "background": True}))
    )
    file = write_items(home, {"prompt": "wait"}, {"prompt": "wait too"})
    args = ["--toolsets", "terminal", "--item-seconds", "5", "--retries", "0"]
    ran = await run_hermes(["batch", "run", file, *args], home)
    assert ran.rc == 1
    codes = [row["error"]["code"] for row in read_lines(home, "failed.jsonl")]
    assert codes == ["timeout"] * 2
    async with asyncio.timeout(60):
        while living(mark):  # the kernel ends them
            await asyncio.sleep(0.05)


async def test_a_distribution_gives_the_same_toolsets_every_time(
    home: Home, provider: Provider
) -> None:
    home.configure(batch={"distributions": {"half": {"terminal": 50, "file": 50}}})
    file = write_items(home, *({"prompt": f"p{n}"} for n in range(12)))
    args = ["batch", "run", file, "--distribution", "half", "--seed", "7"]
    assert (await run_hermes([*args, "--name", "a"], home)).rc == 0
    assert (await run_hermes([*args, "--name", "b"], home)).rc == 0
    first, second = (
        [line["toolsets_used"] for line in read_lines(home, "trajectories.jsonl", run)]
        for run in ("a", "b")
    )
    assert first == second and {len(toolsets) for toolsets in first} == {1, 2}
    ran = await run_hermes(["batch", "run", file, "--distribution", "hlaf", "--name", "c"], home)
    assert ran.rc == 2 and "did you mean half?" in ran.stderr


async def test_the_budget_of_a_run_stops_it_and_a_resume_goes_on(
    home: Home, provider: Provider
) -> None:
    price = {"input": 10.0, "output": 100.0, "cache_read": 1.0}
    models = {"kit-model": {"price": price, "max_tokens": 1000}}
    home.configure(providers={"custom": {"models": models}})
    provider.then = say("fine").usage(Tokens(1000, 1000))  # $0.11 each
    file = write_items(home, *({"prompt": f"p{n}"} for n in range(8)))
    args = ["batch", "run", file, "--toolsets", "none", "--concurrency", "1", "--max-usd", "0.5"]
    ran = await run_hermes(args, home)
    assert ran.rc == 3 and "--max-usd X" in ran.stderr
    spent = read_statistics(home)
    assert 0.3 < spent["cost_usd"] <= 0.5 and spent["states"]["todo"] >= 4
    ran = await run_hermes(["batch", "resume", "data", "--max-usd", "5"], home)
    assert ran.rc == 0, ran
    found = read_statistics(home)
    assert found["states"] == {"done": 8} and found["cost_usd"] == pytest.approx(8 * 0.11)
    assert len(provider.requests) == 8


async def test_caps_of_conversations_do_not_hold_for_runs_and_those_of_a_day_do(
    home: Home, provider: Provider
) -> None:
    price = {"input": 10.0, "output": 100.0}
    models = {"kit-model": {"price": price, "max_tokens": 1000}}
    caps = {"session_usd": 0.01, "session_tokens": 10, "user_tokens": 10, "job_usd": 0.01}
    home.configure(providers={"custom": {"models": models}}, budget=caps)
    provider.then = say("fine").usage(Tokens(1000, 1000))  # $0.11 each
    args = ["--toolsets", "none", "--concurrency", "1"]
    file = write_items(home, *({"prompt": f"p{n}"} for n in range(4)))
    ran = await run_hermes(["batch", "run", file, *args], home)
    assert ran.rc == 0, ran
    ran = await run_hermes(["batch", "run", file, *args, "--name", "b", "--item-usd", "0.01"], home)
    assert ran.rc == 1
    errors = [row["error"] for row in read_lines(home, "failed.jsonl", "b")]
    assert len(errors) == 4 and {error["code"] for error in errors} == {"budget"}
    assert errors[0]["message"] == "The cap of the item, $0.01 (--item-usd), is reached."
    home.configure(budget={"daily_usd": 0.3})
    ran = await run_hermes(["batch", "run", file, *args, "--name", "c", "--item-usd", "5"], home)
    assert ran.rc == 3 and "The configured budget is used up" in ran.stderr
    assert read_statistics(home, "c")["states"]["done"] == 2


async def test_what_waits_for_its_turn_is_neither_stalled_nor_late(
    home: Home, provider: Provider
) -> None:
    """The last one waits longer than a provider or an item may take."""
    home.configure(providers={"custom": {"ttfb_timeout_seconds": 3}})
    file = write_items(home, *({"prompt": f"p{n}"} for n in range(8)))
    args = ["--toolsets", "none", "--rpm", "60", "--item-seconds", "4", "--retries", "0"]
    ran = await run_hermes(["batch", "run", file, *args], home)
    assert ran.rc == 0 and "stalled" not in ran.stderr, ran
    assert len(provider.requests) == 8


if MINUTES:

    @pytest.mark.timeout(240 + 60 * MINUTES)
    @pytest.mark.parametrize("processes", ["1", "2"])
    async def test_the_pace_of_a_run_as_its_provider_counts_it(
        home: Home, provider: Provider, processes: str
    ) -> None:
        file = write_items(home, *({"prompt": f"p{n}"} for n in range(60 * MINUTES + 5)))
        args = ["--toolsets", "none", "--rpm", "60", "--processes", processes]
        ran = await run_hermes(["batch", "run", file, *args], home, timeout=180 + 60 * MINUTES)
        assert ran.rc == 0, ran
        times = [request.at for request in provider.requests]
        whole = [begin for begin in times if begin <= times[-1] - 60]
        counts = [sum(begin <= at < begin + 60 for at in times) for begin in whole]
        assert counts and min(counts) > 55 and max(counts) <= 61, counts


async def test_a_rate_limit_of_the_provider_slows_the_run_and_loses_nothing(
    home: Home, provider: Provider
) -> None:
    count = itertools.count()

    def answer(request: Received) -> Reply:
        if next(count) % 6 == 0:
            return status(429, "slow down").headers(Retry_After="1")
        return say(f"answer to {read_prompt(request)}")

    provider.then = answer
    file = write_items(home, *({"prompt": f"p{n}"} for n in range(12)))
    args = ["batch", "run", file, "--toolsets", "none", "--concurrency", "4", "--retries", "0"]
    ran = await run_hermes(args, home)
    assert ran.rc == 0, ran
    lines = read_lines(home, "trajectories.jsonl")
    assert [line["conversations"][-1]["value"][-2:].strip() for line in lines] == [
        f"p{n}"[-2:] for n in range(12)
    ]
    found = read_statistics(home)
    assert found["states"] == {"done": 12} and found["abandoned"] == 0
    assert len(provider.requests) > 12


async def test_parquet_has_the_messages_of_the_openai_form(home: Home, provider: Provider) -> None:
    import pyarrow.parquet

    first = think("hm") + call(("c1", "read_file", {"path": "a.txt"}))
    provider.then = lambda request: (
        say("It says alpha.") if messages(request)[-1].results else first
    )
    rows = [
        {"prompt": "Read.", "files": {"a.txt": "alpha"}, "metadata": {"k": 1}},
        {"prompt": "Read it again.", "files": {"a.txt": "alpha"}, "metadata": {"other": "x"}},
    ]
    words = ["batch", "run", write_items(home, *rows), "--format", "openai,parquet"]
    ran = await run_hermes([*words, "--toolsets", "file"], home)
    assert ran.rc == 0, ran
    table = pyarrow.parquet.read_table(home.path / "batch/data/trajectories.parquet")
    lines = read_lines(home, "trajectories.openai.jsonl")
    for row, line in zip(table.to_pylist(), lines, strict=True):
        found = [{k: v for k, v in m.items() if v is not None} for m in row["messages"]]
        assert found == line["messages"]
        assert json.loads(row["tools"]) == line["tools"]
        assert {"id": row["id"], **json.loads(row["metadata"])} == line["metadata"]
    out = home.work / "again.parquet"
    words = ["batch", "export", "data", "--format", "parquet"]
    assert (await run_hermes(words, home)).rc == 2
    assert (await run_hermes([*words, "-o", str(out)], home)).rc == 0
    assert pyarrow.parquet.read_table(out).to_pylist() == table.to_pylist()
    provider.then = say("answer to hi")
    ran = await run_hermes(["chat", "-q", "hi", "--output", "json"], home)
    words = ["sessions", "export", ran.json["session_id"], "--format", "parquet"]
    assert (await run_hermes(words, home)).rc == 2
    assert (await run_hermes([*words, "-o", "one.parquet"], home)).rc == 0
    (row,) = pyarrow.parquet.read_table(home.work / "one.parquet").to_pylist()
    assert [m["content"] for m in row["messages"]][1:] == ["hi", "answer to hi"]
    assert (await run_hermes([*words, "-o", "one.parquet"], home)).rc == 2, "it is there already"


async def test_what_cannot_be_written_is_said_first(home: Home, provider: Provider) -> None:
    file = write_items(home, {"prompt": "p"})
    args = ["--toolsets", "none"]
    for output in (file, "/proc/none"):
        ran = await run_hermes(["batch", "run", file, *args, "--output", output], home)
        assert ran.rc == 2 and f"{output} cannot hold a run" in ran.stderr, ran
    assert not provider.requests and not (home.path / "batch" / "data").exists()
    ran = await run_hermes(["batch", "run", file, *args, "--output", "out"], home)
    assert ran.rc == 0 and (home.work / "out" / "trajectories.jsonl").exists()
    ran = await run_hermes(["batch", "run", file, *args, "--output", "out", "--name", "b"], home)
    assert ran.rc == 2 and "holds the run data" in ran.stderr
    (home.path / "batch" / "torn").mkdir()
    (home.path / "batch" / "torn" / "run.json").write_text("{")
    shown = await run_hermes(["batch", "list", "--json"], home)
    assert [row["name"] for row in shown.json] == ["data"]
    assert shown.rc == 0 and "torn is no run that can be read" in shown.stderr
    (home.work / "c.yaml").write_text("cases: [{name: a, prompt: b}]")
    provider.requests.clear()
    os.mkfifo(home.work / "pipe")
    for target in (".", "none/x", "pipe"):
        for words in (
            ["batch", "export", "data", "-o", target],
            ["batch", "export", "data", "--format", "parquet", "-o", target],
            ["batch", "compress", "out/trajectories.jsonl", "-o", target],
            ["eval", "c.yaml", "--junit", target],
        ):
            ran = await run_hermes(words, home)
            assert ran.rc == 2 and f"{target} cannot be written" in ran.stderr, ran
    assert not provider.requests and (home.work / "pipe").is_fifo()


async def test_compress_summarises_the_middle(home: Home, provider: Provider) -> None:
    long = "word " * 3000
    turns = [
        ("system", "s"),
        ("human", "h"),
        *[("gpt", "call"), ("tool", long)] * 5,
        ("gpt", "end"),
    ]
    row = {"conversations": [{"from": a, "value": b} for a, b in turns], "completed": True}
    file = write_items(home, row, {"conversations": [{"from": "human", "value": "short"}]})
    provider.then = say("what happened")
    words = ["batch", "compress", file, "-o", "short.jsonl", "--max-tokens", "12000"]
    ran = await run_hermes(words, home)
    assert ran.rc == 0 and "2 lines, 1 shortened" in ran.stderr, ran
    found = [json.loads(line) for line in (home.work / "short.jsonl").read_text().splitlines()]
    texts = [turn["value"] for turn in found[0]["conversations"]]
    assert "[CONTEXT SUMMARY]: what happened" in texts and texts[-1] == "end"
    assert found[0]["completed"] and len(texts) < len(turns)
    assert found[1]["conversations"] == [{"from": "human", "value": "short"}]
    (home.work / "bad.jsonl").write_text('{"conversations": [{"from": 1}]}')
    ran = await run_hermes(["batch", "compress", "bad.jsonl", "-o", "x"], home)
    assert ran.rc == 2 and "line 1" in ran.stderr


async def test_an_item_waits_for_its_subagents(tmp_path: Path) -> None:
    """Nobody can be told a result later: the session of an item ends with its answer."""

    def reply(request: Received) -> Reply:
        said = messages(request)
        if said[0].text.startswith("the part"):
            return say("the part is done")
        if said[-1].role == "user":
            return call(("c1", "delegate_task", {"goal": "the part", "background": True}))
        return say(said[-1].results[-1][1])

    async with Provider([], then=reply) as provider:
        home = Home.of(tmp_path, provider)
        file = write_items(home, {"prompt": "do it"})
        assert (await run_hermes(["batch", "run", file], home)).rc == 0
        assert "the part is done" in messages(provider.requests[-1])[-1].results[-1][1]

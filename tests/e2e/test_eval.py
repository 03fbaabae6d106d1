"""`hermes eval` as a process: every kind of expectation passes and fails as it should."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say
from tests.kit.bodies import messages, system

pytestmark = pytest.mark.e2e


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider([], then=rename_it) as p:
        yield p


@pytest.fixture
def home(tmp_path: Path, provider: Provider) -> Home:
    return Home.of(tmp_path, provider)


def rename_it(request: Received) -> Reply:
    seen = messages(request)
    if "Judge an answer" in seen[-1].text:
        return say("4" if "rubric one" in seen[-1].text else "2")
    if seen[-1].results:
        return say("It was renamed to b.txt.")
    if "no such" in seen[-1].text:
        return call(("c1", "terminal", {"command": "mv a.txt b.txt", "timeout": "no number"}))
    return call(("c1", "terminal", {"command": "mv a.txt b.txt"}))


def write_cases(home: Home, *cases: dict[str, Any], **defaults: Any) -> str:
    file = home.work / "cases.yaml"
    found = {"defaults": {"toolsets": ["terminal"], **defaults}, "cases": list(cases)}
    file.write_text(yaml.safe_dump(found))
    return str(file)


def make_case(name: str, **expect: Any) -> dict[str, Any]:
    return {"name": name, "prompt": "Rename it.", "files": {"a.txt": "one"}, "expect": expect}


def fails(name: str, **expect: Any) -> dict[str, Any]:
    """A case whose only call fails."""
    return {**make_case(name, **expect), "prompt": "Rename what there is no such file for."}


async def test_every_kind_of_expectation(home: Home, provider: Provider) -> None:
    models = {"kit-model": {"price": {"input": 100.0, "output": 100.0}, "max_tokens": 1000}}
    home.configure(providers={"custom": {"models": models}})  # $0.0036 a case
    file = write_cases(
        home,
        make_case(
            "good",
            text={"contains": ["b.txt"], "not": ["sorry"], "regex": "re[n]amed"},
            tools={"used": ["terminal"], "unused": ["web_search"], "max": 1, "errors": 0},
            files={"b.txt": {"equals": "one"}, "a.txt": "absent"},
            command={"run": "test -f b.txt", "exit": 0},
            judge={"rubric": "rubric one", "min": 4},
        ),
        make_case("contains", text={"contains": ["c.txt"]}),
        make_case("not", text={"not": ["renamed"]}),
        make_case("regex", text={"regex": "^never"}),
        make_case("used", tools={"used": ["read_file"]}),
        make_case("unused", tools={"unused": ["terminal"]}),
        make_case("max", tools={"max": 0}),
        fails("errors", tools={"errors": 0}),
        fails("one error", tools={"errors": 1, "max": 1}),
        make_case("equals", files={"b.txt": {"equals": "two"}}),
        make_case("file", files={"b.txt": {"contains": "n", "regex": "^o"}, "a.txt": "absent"}),
        make_case("file regex", files={"b.txt": {"contains": "n", "regex": "^e"}}),
        make_case("absent", files={"b.txt": "absent"}),
        make_case("unseen", files={"n" * 300: "absent"}),
        make_case("command", command={"run": "grep two b.txt"}),
        make_case("judge", judge={"rubric": "rubric two"}),
        make_case("cost", cost_usd=0.003),
        make_case("cheap", cost_usd=0.5),
    )
    ran = await run_hermes(["eval", file, "--json", "--junit", "report.xml"], home)
    assert ran.rc == 1, ran
    found = {row["name"]: row["failed"] for row in ran.json["results"]}
    assert found == {
        "good": [],
        "contains": ["text.contains"],
        "not": ["text.not"],
        "regex": ["text.regex"],
        "used": ["tools.used"],
        "unused": ["tools.unused"],
        "max": ["tools.max"],
        "errors": ["tools.errors"],
        "one error": [],
        "equals": ["files.b.txt"],
        "file": [],
        "file regex": ["files.b.txt"],
        "absent": ["files.b.txt"],
        "unseen": [f"files.{'n' * 300}"],
        "command": ["command"],
        "judge": ["judge"],
        "cost": ["cost_usd"],
        "cheap": [],
    }
    report = ElementTree.parse(home.work / "report.xml").getroot()
    assert (report.get("tests"), report.get("failures")) == ("18", "14")
    assert [case.get("name") for case in report if case.find("failure") is None] == [
        *("good[1]", "one error[1]", "file[1]", "cheap[1]")
    ]


async def test_a_report_is_xml_whatever_was_said(home: Home, provider: Provider) -> None:
    hostile = '\x1b[31m ]]> <failure/> & \x00 \ufffe \U0001f600 "quoted"'
    provider.then = say(hostile)
    case = make_case('<&" \x1b ü', text={"contains": ["]]> nothing"]})
    file = Path(write_cases(home, case)).rename(home.work / "a\x07&<b.yaml")
    ran = await run_hermes(["eval", str(file), "--junit", "report.xml"], home)
    assert ran.rc == 1 and "\x1b" not in ran.stdout + ran.stderr, ran
    report = ElementTree.parse(home.work / "report.xml").getroot()
    (found,) = report.iter("failure")
    assert "<failure/> &" in (found.text or "") and "\U0001f600" in (found.text or "")
    assert report.get("name") == "a?&<b" and report[0].get("name") == '<&" ? ü[1]'


async def test_repeats_give_a_rate_and_an_interval_that_holds_it(
    home: Home, provider: Provider
) -> None:
    answers = iter([*["right"] * 7, *["wrong"] * 3] * 2)
    provider.then = lambda request: say(next(answers))
    case = {"name": "coin", "prompt": "Toss.", "expect": {"text": {"contains": ["right"]}}}
    file = write_cases(home, case, toolsets=["none"])
    ran = await run_hermes(["eval", file, "--repeat", "20", "--json"], home)
    assert ran.rc == 1
    (rate,) = ran.json["rates"]
    assert (rate["passed"], rate["of"], rate["model"]) == (14, 20, "kit-model")
    assert 0.45 < rate["low"] < 0.7 < rate["high"] < 0.9


async def test_all_turns_of_a_case_share_its_time(home: Home, provider: Provider) -> None:
    async def answer_slowly(request: Received) -> Reply:
        await asyncio.sleep(0.8)
        return say("done")

    provider.then = answer_slowly
    case = {"name": "talk", "turns": ["one", "two"]}
    file = write_cases(home, case, toolsets=["none"], timeout=1.2)
    ran = await run_hermes(["eval", file, "--json"], home)
    assert ran.rc == 1 and ran.json["results"][0]["failed"] == ["timeout"], ran


async def test_a_longer_conversation_and_what_people_see(home: Home, provider: Provider) -> None:
    provider.then = lambda request: say(f"{len(messages(request))} messages")
    case = {
        "name": "talk",
        "turns": ["one", "two"],
        "expect": {"text": {"contains": ["3 messages"]}},
    }
    file = write_cases(home, case, toolsets=["none"])
    ran = await run_hermes(["eval", file], home)
    assert ran.rc == 0 and "pass  talk  1/1" in ran.stdout, ran
    assert "1 of 1 passed" in ran.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cases: [", "line 1"),
        ("cases: []", "it needs `cases`"),
        ("cases:\n  - name: a\n    prompt: x\n  - name: b\n", "line 4: a case needs either"),
        ("cases:\n  - name: a\n    prompt: x\n    expcet: {}\n", "line 4: "),
        ("cases:\n  - {name: a, prompt: x}\n  - {name: a, prompt: y}\n", "line 3: the name 'a'"),
        ("cases:\n  - {name: a, prompt: x, files: {../y: z}}\n", "line 2: the path '../y'"),
        ('cases:\n  - {name: a, prompt: x, files: {"a\\0b": z}}\n', "line 2: the path 'a\\x00b'"),
        ('cases:\n  - {name: a, prompt: x, files: {"": z}}\n', "line 2: the path ''"),
        ("defaults: {files: {../y: z}}\ncases: [{name: a, prompt: x}]\n", "line 1: the path"),
        ("defaults: {timeout: .inf}\ncases: [{name: a, prompt: x}]\n", "line 1: Expected `float`"),
        ("cases: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("cases:\n  - {name: a, prompt: x, toolsets: [fiel]}\n", "line 2: There is no toolset"),
        (
            "defaults:\n  timeout: -1\ncases:\n  - {name: a, prompt: x}\n",
            "line 2: Expected `float`",
        ),
        (
            "cases:\n  - name: a\n    prompt: x\n    expect:\n      tools:\n        used: [b, 5]\n",
            "line 6: Expected `str`",
        ),
        ("cases:\n  - {name: a, prompt: x}\nmodels: [a]\n", "line 3: unknown key models"),
    ],
)
async def test_a_bad_file_is_named_by_its_line(
    home: Home, provider: Provider, text: str, said: str
) -> None:
    (home.work / "cases.yaml").write_text(text)
    ran = await run_hermes(["eval", "cases.yaml", "--json"], home)
    assert ran.rc == 2 and said in ran.stderr and "Nothing was run." in ran.stderr
    assert not provider.requests and json.dumps(ran.stdout) == '""'


async def test_the_last_run_is_replayed_without_a_provider(home: Home, provider: Provider) -> None:
    """Tools run again, in a fresh folder: what they change is checked, also where the model named
    the folder of the run that was recorded."""

    def rename_whole_path(request: Received) -> Reply:
        seen = messages(request)
        if "Judge an answer" in seen[-1].text:
            return say("4")
        if seen[-1].results:
            return say("It was renamed to b.txt.")
        folder = next(
            line.split(": ", 1)[1] for line in system(request).splitlines() if ": /" in line
        )
        return call(("c1", "write_file", {"path": f"{folder}/b.txt", "content": "one"}))

    provider.then = rename_whole_path
    file = write_cases(
        home,
        make_case(
            "good", files={"b.txt": {"equals": "one"}}, judge={"rubric": "rubric one", "min": 4}
        ),
        make_case("bad", text={"contains": ["c.txt"]}),
        toolsets=["file"],
    )
    early = await run_hermes(["eval", file, "--replay"], home)
    assert early.rc == 2 and "no recorded run" in early.stderr
    ran = await run_hermes(["eval", file, "--json"], home)
    assert ran.rc == 1 and [row["passed"] for row in ran.json["results"]] == [True, False], ran
    args = ["--model", "kit-model", "--model", "other", "--repeat", "2"]
    twice = await run_hermes(["eval", file, "--json", *args], home)
    assert [row["model"] for row in twice.json["rates"]] == ["kit-model"] * 2 + ["other"] * 2
    longer = Path(file).with_name("cases-2.yaml")
    longer.write_text("cases: [{name: other, prompt: x, toolsets: [none]}]")
    await run_hermes(["eval", str(longer)], home)
    await provider.close()
    home.configure(model={"default": "gone:model"})
    again = await run_hermes(["eval", file, "--json", "--replay"], home)
    assert again.rc == 1, again
    keys = ("name", "model", "repeat", "passed", "failed")
    wanted = [[row[key] for key in keys] for row in twice.json["results"]]
    found = [[row[key] for key in keys] for row in again.json["results"]]
    assert found == wanted

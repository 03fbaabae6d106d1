"""The library as its users have it: the examples of the docs, its types, what it imports."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hermes
from tests.kit import Home, Provider, Ran, call, finish, say

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
PEARS = {"fruit": "pear", "count": 3}
SCRIPTS: list[tuple[list[Any], list[str]]] = [
    ([say("Three files.")], ["Three files."]),
    ([say("Three files.")], ["Three files.", "kit-model"]),
    (
        [call(("a", "terminal", {"command": "ls"})), say("There are none.")],
        ["[terminal {'command': 'ls'}]", "There are none.\ncompleted"],
    ),
    (
        [call(("a", "price_of", PEARS), ("b", "stock_of", {"fruit": "pear"})), say("180 cents.")],
        ["180 cents.", "price_of {'fruit': 'pear', 'count': 3} 180", '{"north":2,"south":5}'],
    ),
    (
        [call(("a", "delete_customer", {"number": 7})), say("It is gone.")],
        ["delete_customer {'number': 7}: every call of delete_customer needs", "It is gone."],
    ),
    (
        [say('{"number": "A-1", "total": 9.5}'), say("true")],
        ["A-1 9.5", "True"],
    ),
]
"""For each example: what the provider answers, and what is printed."""

CONSUMER = '''
import asyncio
from dataclasses import dataclass
from typing import Any, Literal, assert_never, assert_type

import hermes


@dataclass
class Invoice:
    number: str


@hermes.tool(risk="write")
def look_up(number: int) -> str:
    """Look something up."""
    return str(number)


@hermes.tool
async def wait(seconds: float) -> None: ...


async def approve(request: hermes.ApprovalRequest) -> hermes.Decision:
    return "session" if "session" in request.choices else request.command == "ls"


def describe(event: hermes.Event) -> str:
    match event:
        case hermes.TextDelta() | hermes.ReasoningDelta() | hermes.Question() | hermes.Notice():
            return assert_type(event.text, str)
        case hermes.ToolStarted() | hermes.ToolCompleted():
            return event.name
        case hermes.ApprovalRequest():
            return event.tool
        case hermes.Recovering():
            return event.action
        case hermes.Result():
            return event.text
        case _:
            assert_never(event)


async def main() -> None:
    async with hermes.Agent(
        model="m", tools=[look_up, wait], approve=approve, ask=lambda question: None, cwd="."
    ) as agent:
        result = await agent.run("hi")
        assert_type(result, hermes.Result[str])
        assert_type(result.output, str)
        assert_type(result.status, Literal["completed", "partial", "failed", "interrupted"])
        assert_type(result.cost_usd, float | None)
        async with agent.session(resume=result.session_id) as session:
            assert_type((await session.run("hi", output=Invoice)).output, Invoice)
            assert_type((await session.run("hi", output=list[str])).output, list[str])
            assert_type((await session.run("hi", output=int | None)).output, Any)
            async for event in session.stream("hi"):
                describe(event)
            assert_type(session.steer("x"), bool)
    assert_type(look_up(3), str)
    try:
        result.raise_for_status()
    except hermes.TurnError as error:
        assert_type(error.code, str)


assert_type(hermes.run_sync("hi", output=Invoice).output, Invoice)
hermes.no_such_name  # type: ignore[attr-defined]
hermes.Agent(nonsense=1)  # type: ignore[call-arg]
hermes.Agent("model")  # type: ignore[call-arg]
asyncio.run(main())
'''


async def run_program(code: str, home: Home, stdin: str = "") -> Ran:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        cwd=home.work,
        env=home.env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    return await finish(process, stdin.encode())


@pytest.mark.parametrize("number", range(len(SCRIPTS)))
async def test_the_examples_run(tmp_path: Path, number: int) -> None:
    replies, printed = SCRIPTS[number]
    async with Provider(replies) as provider:
        home = Home.of(tmp_path, provider)
        ran = await run_program(EXAMPLES[number], home, stdin="y\n")
        assert ran.rc == 0, ran.stderr
        assert ran.stderr == ""
        assert not provider.surprises and not provider.steps
    for text in printed:
        assert text in ran.stdout


def test_every_example_is_tested() -> None:
    assert len(EXAMPLES) == len(SCRIPTS)


async def test_what_the_library_stores_the_program_resumes(tmp_path: Path) -> None:
    code = "import hermes; print(hermes.run_sync('call me Ada').session_id)"
    async with Provider([say("hello Ada"), say("Ada")]) as provider:
        home = Home.of(tmp_path, provider)
        session = (await run_program(code, home)).stdout.strip()
        code = f"""
import asyncio, hermes
async def main():
    async with hermes.Agent() as agent, agent.session(resume={session!r}) as session:
        print((await session.run("who am I?")).text)
asyncio.run(main())
"""
        assert (await run_program(code, home)).stdout == "Ada\n"
        assert "call me Ada" in provider.requests[-1].body.decode()


def test_a_consumer_is_checked_strictly(tmp_path: Path) -> None:
    """Of our own modules only those are read that the public types come from: all of them would
    take a minute, and `make check` reads them."""
    followed = "hermes,hermes.api,hermes.app.structured_output,hermes.core.*,hermes.config.schema"
    config = tmp_path / "mypy.ini"
    config.write_text(
        "[mypy]\nstrict = True\nwarn_unreachable = True\n[mypy-hermes.*]\nfollow_imports = skip\n"
        f"[mypy-{followed}]\nfollow_imports = silent\n"
    )
    files = {"consumer.py": CONSUMER} | {f"example_{n}.py": e for n, e in enumerate(EXAMPLES)}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(config), *files],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def loaded_by(code: str) -> set[str]:
    """The modules a fresh interpreter has imported after this code, beyond those it begins with."""
    show = "import sys\nbefore = set(sys.modules)\n{}\nprint(*sorted(set(sys.modules) - before))"
    start = f"import sys; sys.path[:0] = {sys.path!r}\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", start + show.format(code)],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_imports_nothing_else() -> None:
    assert loaded_by("import hermes; dir(hermes)") == {"hermes"}


def test_the_program_does_not_import_the_library() -> None:
    loaded = loaded_by("from hermes.cli.main import main; main(['--version'])")
    ours = {name for name in loaded if name.partition(".")[0] == "hermes"}
    assert ours == {"hermes", "hermes.cli", "hermes.cli.main", "hermes.version"}


def test_what_is_public_is_documented() -> None:
    import hermes.api

    assert hermes.__all__ == hermes.api.__all__ == sorted(hermes.__all__)
    assert set(hermes.__all__) <= set(dir(hermes))
    assert (Path(hermes.__file__).parent / "py.typed").exists()
    public = DOCS.partition("## What is public")[2]
    for name in hermes.__all__:
        assert f"`{name}`" in public, name
        value = getattr(hermes, name)
        if not inspect.isclass(value) and not inspect.isfunction(value):
            continue
        assert inspect.getdoc(value), name
        for member, attribute in vars(value).items() if inspect.isclass(value) else ():
            if member[0] != "_" and inspect.isfunction(attribute):
                assert inspect.getdoc(getattr(value, member)), f"{name}.{member}"
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = hermes.nothing_like_it  # type: ignore[attr-defined]


FIELDS = {
    "ApprovalRequest": "id tool arguments reason command choices",
    "ErrorInfo": "code message detail",
    "Notice": "code text",
    "Question": "id text choices",
    "ReasoningDelta": "text",
    "Recovering": "kind action wait_seconds",
    "Result": "session_id status text reasoning error tool_calls model_calls usage cost_usd model "
    "provider _output",
    "TextDelta": "text",
    "ToolCall": "id name arguments result error",
    "ToolCompleted": "id name result error duration_ms",
    "ToolStarted": "id name arguments",
    "Usage": "input_tokens output_tokens cache_read_tokens cache_write_tokens reasoning_tokens",
}


@pytest.mark.parametrize("name", FIELDS)
def test_public_fields_stay(name: str) -> None:
    value = getattr(hermes, name)
    assert " ".join(value.__struct_fields__) == FIELDS[name]
    assert value.__struct_config__.frozen

"""The same conversations through the original's batch runner and through ours: equal lines."""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from hermes.app.agents import Options
from hermes.core.message import Media, Text, user_message
from hermes.core.tool import ToolContext, ToolResult, tool
from tests.e2e.clients.client_run import SCRIPTS, install_python
from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say, think
from tests.kit.bodies import messages
from tests.kit.rig import rig

ORIGINAL = ("hermes-agent==0.19.0", "edge-tts==7.2.7")
"""Without edge-tts it runs pip when it starts."""
PICTURE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def probe(id: str, words: str, **more: str) -> tuple[str, str, dict[str, str]]:
    return id, "probe", {"say": words, **more}


REASONED = think("It is clear.") + say("done")
"""The original drops conversations without any reasoning."""
CONVERSATIONS: Mapping[str, list[Reply]] = {
    "only text": [think("a plan\nin two lines") + say("  just text \n")],
    "reasoning in tags": [say("<think>in tags</think>\n\nafter them")],
    "text beside a call": [
        think("two steps") + say("I look. \n") + call(probe("a1", "plain text")),
        say("no thought, but an answer"),
    ],
    "calls at once": [
        think("three")
        + call(
            probe("b1", '{"ok": true, "n": [1, 2]}'),
            probe("b2", "[broken json"),
            probe("b3", "äöü ✓ 漢字 \U0001f600"),
        ),
        think("read") + call(probe("b4", " [1]\n")),
        REASONED,
    ],
    "an error": [think("fails") + call(probe("c1", '{"error": "it broke"}')), REASONED],
    "an error in words": [
        think("fails")
        + call(probe("c2", "Error: not there"), probe("c3", '{"error": null, "success": true}')),
        REASONED,
    ],
    "no success": [think("fails") + call(probe("c4", '{"success": false}')), REASONED],
    "markup in texts": [
        think("in angles") + call(probe("d1", "<b>bold</b> &amp; <think>")),
        say('<b>not ours</b> & "quoted" \\n'),
    ],
}
WITH_A_PERSON: Mapping[str, list[Reply]] = {
    "guidance": [
        think("wait") + call(probe("e1", "first"), probe("e2", "last", steer="use blue")),
        say("blue it is"),
    ],
    "pictures": [
        think("look") + call(probe("f1", "a red square", picture=PICTURE)),
        REASONED,
    ],
}
"""Nobody guides items of ours, and tools of plugins return text: these are played in sessions."""
PLUGIN = """\
def register(api):
    schema = {"description": "Says it.", "parameters": {"type": "object"}}
    api.register_tool(
        "probe", toolset="probe", schema=schema, handler=lambda args, **kw: args["say"], risk="read"
    )
"""


def answer(request: Received) -> Reply:
    seen = messages(request)
    found = {**CONVERSATIONS, **WITH_A_PERSON}
    steps = next((found[m.text] for m in seen if m.role == "user" and m.text in found), None)
    done = sum(m.role == "assistant" for m in seen)
    return steps[done] if steps else say("a title")


def write_prompts(file: Path, prompts: Mapping[str, Any]) -> None:
    file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))


class Words(Struct):
    say: str
    steer: str = ""
    picture: str = ""


async def play_with_person(root: Path, provider: Provider, prompt: str) -> dict[str, Any]:
    """The line of a session, as `sessions export` writes it."""

    @tool("Says it.", name="probe")
    async def say_it(p: Words, ctx: ToolContext) -> ToolResult | str:
        if p.steer:
            r.session.submit(user_message(p.steer), busy="steer")
        if p.picture:
            picture = Media("image/png", b64decode(p.picture.partition(",")[2]))
            return ToolResult((Text(p.say), picture) if p.say else (picture,))
        return p.say

    root.mkdir()
    options = Options(yolo=True, toolsets=("none",))
    async with rig(root, provider, tools=[say_it], options=options, check=False) as r:
        await r.turn(prompt)
        session, home = r.session.id, r.home
    shown = await run_hermes(["sessions", "export", session, "--format", "hermes"], home)
    assert shown.rc == 0, shown
    return read_lines(shown.stdout)[prompt]


async def run_original(root: Path, url: str) -> dict[str, Any]:
    """The lines that the original writes, by their prompts."""
    python = await asyncio.to_thread(install_python, ORIGINAL)
    state = root / ".hermes"
    state.mkdir(parents=True)
    model = {"default": "kit-model", "provider": "custom", "base_url": url}
    (state / "config.yaml").write_text(yaml.safe_dump({"model": {**model, "api_key": "sk-kit"}}))
    write_prompts(root / "prompts.jsonl", {**CONVERSATIONS, **WITH_A_PERSON})
    process = await asyncio.create_subprocess_exec(
        *(str(python), str(SCRIPTS / "original_batch.py"), "prompts.jsonl", url),
        cwd=root,
        env={"PATH": os.environ["PATH"], "HOME": str(root), "HERMES_HOME": str(state)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(200):
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()[-3000:]
    return read_lines((root / "data" / "run" / "trajectories.jsonl").read_text())


def read_lines(text: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in text.splitlines()]
    return {line["conversations"][1]["value"]: line for line in lines}


def drop_known_differences(line: dict[str, Any]) -> dict[str, Any]:
    """Without times, tools that were not called, and the text about tools."""
    head, *turns = line["conversations"]
    metadata = {**line["metadata"], "timestamp": ""}
    stats = {name: row for name, row in line["tool_stats"].items() if row["count"]}
    errors = {name: count for name, count in line["tool_error_counts"].items() if name in stats}
    found = {"conversations": [head["from"], *turns], "metadata": metadata}
    return {**line, **found, "tool_stats": stats, "tool_error_counts": errors}


async def test_lines_are_those_of_the_original(tmp_path: Path) -> None:
    async with Provider([], then=answer) as provider:
        wanted = await run_original(tmp_path / "original", provider.base_url)
        assert set(wanted) == {*CONVERSATIONS, *WITH_A_PERSON}
        (tmp_path / "ours").mkdir()
        home = Home.of(tmp_path / "ours", provider, plugins={"enabled": ["probe"]})
        (home.path / "plugins").mkdir(mode=0o700)
        (home.path / "plugins" / "probe.py").write_text(PLUGIN)
        write_prompts(home.work / "run.jsonl", CONVERSATIONS)
        ran = await run_hermes(["batch", "run", "run.jsonl", "--toolsets", "probe"], home)
        assert ran.rc == 0, ran
    found = read_lines((home.path / "batch" / "run" / "trajectories.jsonl").read_text())
    assert list(found) == list(CONVERSATIONS)
    for prompt, line in found.items():
        assert list(line) == list(wanted[prompt]), "the same keys in the same order"
        assert drop_known_differences(line) == drop_known_differences(wanted[prompt]), prompt
    for prompt in WITH_A_PERSON:
        provider = Provider([], then=answer)
        line = await play_with_person(tmp_path / prompt, provider, prompt)
        left = drop_known_differences(line)
        right = drop_known_differences(wanted[prompt])
        for key in ("conversations", "completed", "partial", "api_calls", "tool_stats"):
            assert left[key] == right[key], (prompt, key)


async def test_distributions_are_those_of_the_original(tmp_path: Path) -> None:
    python = await asyncio.to_thread(install_python, ORIGINAL)
    code = (
        "import json; from toolset_distributions import DISTRIBUTIONS as found; "
        "print(json.dumps({name: row['toolsets'] for name, row in found.items()}))"
    )
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-c", code), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    ran = await run_hermes(["batch", "distributions", "--json"], Home(tmp_path))
    assert ran.json == json.loads(out)

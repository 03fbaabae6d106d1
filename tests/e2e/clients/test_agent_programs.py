"""Programs of others work through the server: with their own tools, and with ours."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path

import pytest

from tests.e2e.clients.agent_programs import AS_JSON, Asking, prepare_program
from tests.e2e.clients.client_run import ClientRig, Ran, client_rig, start_client
from tests.e2e.clients.scripted_model import (
    AFTER_EFFECT,
    AFTER_TEXT,
    GREETING,
    MESSAGES,
    WEATHER,
)
from tests.server.exchanges import wait_until_idle

EVERY = tuple(before + name for name in MESSAGES for before in ("", AFTER_EFFECT, AFTER_TEXT))
_FINAL = ("overflow", *(AFTER_EFFECT + name for name in MESSAGES if name != "limit"))
FAILURES = {
    "claude": EVERY,
    "codex": EVERY,
    "opencode": (*_FINAL, *(AFTER_TEXT + name for name in ("key", "overflow", "gone"))),
    "aider": _FINAL,
}
"""Without and with an effect or a text before it; two programs repeat the others for minutes."""
OWN_WORDS = {
    ("codex", "limit"): "429 Too Many Requests",
    ("codex", "text-then-overflow"): "ran out of room",
}
"""What programs show instead of the message that they got."""
USAGE = {
    "claude": '"input_tokens":22,.*"output_tokens":14,',
    "codex": '"input_tokens":22,.*"output_tokens":14,',
    "opencode": '"total":36,"input":22,"output":14,',
}
"""What programs say of a turn with two calls of the model; aider guesses."""
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}


def build_asking(rig: ClientRig, order: str, *, ours: bool = False, image: bool = False) -> Asking:
    prompt = f"Please follow order:{order}"
    asking = Asking(rig.folder, rig.api.url, rig.api.key, prompt, ours)
    if image:
        asking.image = rig.folder / "image.png"
    return asking


async def ask(
    rig: ClientRig,
    program: str,
    order: str,
    *,
    ours: bool = False,
    options: tuple[str, ...] = (),
    package: str = "",
    seconds: float = 200,
) -> Ran:
    asking = build_asking(rig, order, ours=ours)
    asking.options = options
    asking.package = package or asking.package
    command = prepare_program(program, asking)
    return await rig.run(command.arguments, seconds=seconds, **command.env)


async def check_failure(
    folder: Path, program: str, order: str, *, package: str = "", seconds: float = 200
) -> None:
    """The person sees the reason of the failure, and what was before it happened once."""
    reason = OWN_WORDS.get((program, order), MESSAGES[order.rpartition("-then-")[2]])
    async with client_rig(folder) as rig:
        ran = await ask(rig, program, order, ours=True, package=package, seconds=seconds)
        assert reason in " ".join(ran.told.split()), (order, ran.told[-2000:])
        assert rig.effects == order.startswith(AFTER_EFFECT), order


@pytest.mark.parametrize("program", FAILURES)
async def test_a_greeting(tmp_path: Path, program: str) -> None:
    async with client_rig(tmp_path) as rig:
        ran = await ask(rig, program, "greet")
        assert ran.status == 0 and GREETING in ran.out, ran.told[-2000:]


@pytest.mark.parametrize("program", FAILURES)
async def test_an_edit_with_its_own_tools(tmp_path: Path, program: str) -> None:
    async with client_rig(tmp_path) as rig:
        (rig.folder / "draft.txt").write_text("draft\n")
        ran = await ask(rig, program, "edit-block" if program == "aider" else "edit")
        assert ran.status == 0, ran.told[-2000:]
        if program != "aider":  # the result of the last of three calls came back
            assert "The tool said" in ran.out and "edited" in ran.out.rpartition("tool said")[2]
        assert (rig.folder / "made.txt").read_text() == "edited\n"
        assert rig.effects == 0


@pytest.mark.parametrize("program", FAILURES)
async def test_an_edit_with_our_tools(tmp_path: Path, program: str) -> None:
    async with client_rig(tmp_path) as rig:
        draft = rig.api.home.work / "draft.txt"
        draft.write_text("draft\n")
        ran = await ask(rig, program, "server-edit", ours=True)
        assert ran.status == 0 and "The tool said" in ran.out, ran.told[-2000:]
        assert "edited" in ran.out.rpartition("tool said")[2]
        assert draft.read_text() == "edited\n"


@pytest.mark.parametrize("program", FAILURES)
async def test_a_task_with_our_tools(tmp_path: Path, program: str) -> None:
    async with client_rig(tmp_path) as rig:
        ran = await ask(rig, program, "server-tool", ours=True, options=AS_JSON.get(program, ()))
        assert ran.status == 0 and "The tool said" in ran.out, ran.told[-2000:]
        assert re.search(USAGE.get(program, ""), ran.out), ran.out[-2000:]
        assert rig.effects == 1


@pytest.mark.parametrize(
    ("program", "order"), [(program, order) for program in FAILURES for order in FAILURES[program]]
)
async def test_a_failure_is_shown_and_has_its_effect_once(
    tmp_path: Path, program: str, order: str
) -> None:
    await check_failure(tmp_path, program, order)


async def test_an_effect_is_not_repeated_after_a_summary(tmp_path: Path) -> None:
    """Over Messages a failure after an effect comes before anything that is shown: opencode would
    shorten a conversation that is too long, and ask again."""
    package = "@ai-sdk/anthropic"
    await check_failure(tmp_path, "opencode", "effect-then-overflow", package=package)


@pytest.mark.parametrize("enforcing", [False, True], ids=["checked", "enforced"])
@pytest.mark.parametrize("words", ["claude", "codex", "llm", "llm --no-stream"])
async def test_a_typed_answer(tmp_path: Path, words: str, enforcing: bool) -> None:
    program, *options = words.split()
    async with client_rig(tmp_path, enforcing=enforcing) as rig:
        asking = build_asking(rig, "structured")
        asking.schema, asking.options = SCHEMA, tuple(options)
        command = prepare_program(program, asking)
        ran = await rig.run(command.arguments, **command.env)
        assert json.loads(ran.out) == json.loads(WEATHER), ran.told[-2000:]


@pytest.mark.parametrize("program", FAILURES)
async def test_an_image(tmp_path: Path, program: str) -> None:
    async with client_rig(tmp_path) as rig:
        command = prepare_program(program, build_asking(rig, "image", image=True))
        ran = await rig.run(command.arguments, **command.env)
        assert "I see 1 image." in ran.out, ran.told[-2000:]


async def interrupt(process: asyncio.subprocess.Process) -> None:
    """Press Ctrl-C until the program has ended: Python programs lose one at a bad moment."""
    reading = asyncio.create_task(process.communicate())
    while not reading.done():
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await asyncio.wait([reading], timeout=5)


@pytest.mark.parametrize("program", [*FAILURES, "llm"])
async def test_an_interrupted_program_stops_its_turn(tmp_path: Path, program: str) -> None:
    async with client_rig(tmp_path) as rig:
        command = prepare_program(program, build_asking(rig, "slow"))
        at = (rig.folder, rig.api.url, rig.api.key)
        process = await start_client(command.arguments, *at, **command.env)
        assert process.stdin is not None
        process.stdin.close()  # some read their prompt from there as well
        try:
            async with asyncio.timeout(200):
                while not rig.api.provider.requests:
                    await asyncio.sleep(0.05)
                await interrupt(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        await wait_until_idle(rig.api)

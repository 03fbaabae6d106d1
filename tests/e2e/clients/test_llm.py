"""llm, a program for the terminal that others wrote, against the real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.clients.agent_programs import Asking, prepare_program
from tests.e2e.clients.client_run import ClientRig, Ran, client_rig
from tests.e2e.clients.scripted_model import AFTER_EFFECT, AFTER_TEXT, GREETING, MESSAGES

FUNCTION = 'def weather(city: str) -> str:\n    return f"25 degrees in {city}"\n'


async def run_llm(rig: ClientRig, order: str, *options: str) -> Ran:
    asking = Asking(rig.folder, rig.api.url, rig.api.key, f"Please follow order:{order}")
    asking.options = options
    command = prepare_program("llm", asking)
    return await rig.run(command.arguments, **command.env)


async def test_answers_in_llm(tmp_path: Path) -> None:
    async with client_rig(tmp_path) as rig:
        for options in ((), ("--no-stream",)):
            ran = await run_llm(rig, "greet", "--usage", *options)
            assert ran.status == 0 and GREETING in ran.out, ran.told
            assert "11 input, 7 output" in ran.error
        ran = await run_llm(rig, "server-tool", "--usage")
        assert "The tool said" in ran.out and "22 input, 14 output" in ran.error, ran.told
        ran = await run_llm(rig, "own-tool", "--functions", FUNCTION)
        assert "25 degrees in Bern" in ran.out, ran.told
        ran = await run_llm(rig, "image", "--attachment", str(rig.folder / "image.png"))
        assert "I see 1 image." in ran.out, ran.told
        assert rig.effects == 1


@pytest.mark.parametrize("failure", MESSAGES)
async def test_a_failure_in_llm(tmp_path: Path, failure: str) -> None:
    async with client_rig(tmp_path) as rig:
        for order in (failure, AFTER_TEXT + failure, AFTER_EFFECT + failure):
            ran = await run_llm(rig, order)
            assert ran.status and MESSAGES[failure] in ran.error, (order, ran.told)
        assert rig.effects == 1

"""Coding agents of others work through the server: with their own tools, and with ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.clients.client_run import ClientRig, Ran, client_rig, install_node
from tests.e2e.clients.scripted_model import GREETING, MESSAGES

VERSIONS = {
    "claude": "@anthropic-ai/claude-code@2.1.197",
    "codex": "@openai/codex@0.166.0",
    "opencode": "opencode-ai@1.18.33",
}
OURS = "X-Hermes-Tool-Execution"
SLOW = pytest.mark.skipif(
    "HERMES_TEST_PROGRAMS" not in os.environ, reason="opencode needs minutes: make test-programs"
)
PROGRAMS = ["claude", "codex", pytest.param("opencode", marks=SLOW)]


def _prepare_claude(rig: ClientRig, *, ours: bool) -> tuple[list[str], dict[str, str]]:
    env = {
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    if ours:
        env["ANTHROPIC_CUSTOM_HEADERS"] = f"{OURS}: server"
    return ["--model", "hermes-agent", "--dangerously-skip-permissions", "-p"], env


def _prepare_codex(rig: ClientRig, *, ours: bool) -> tuple[list[str], dict[str, str]]:
    home = rig.folder / "codex"
    home.mkdir(exist_ok=True)
    lines = [
        'model = "hermes-agent"',
        'model_provider = "hermes"',
        "[model_providers.hermes]",
        'name = "Hermes"',
        f'base_url = "{rig.api.url}/v1"',
        'env_key = "OPENAI_API_KEY"',
        'wire_api = "responses"',
        "request_max_retries = 1",
        "stream_max_retries = 2",
    ]
    if ours:
        lines.append(f'http_headers = {{ "{OURS}" = "server" }}')
    (home / "config.toml").write_text("\n".join(lines))
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ["exec", *options], {"CODEX_HOME": str(home)}


def _prepare_opencode(rig: ClientRig, *, ours: bool) -> tuple[list[str], dict[str, str]]:
    options = {"baseURL": f"{rig.api.url}/v1", "apiKey": rig.api.key}
    if ours:
        options["headers"] = {OURS: "server"}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Hermes",
        "options": options,
        "models": {"hermes-agent": {"name": "Hermes"}},
    }
    name = "hermes/hermes-agent"
    config = {"provider": {"hermes": provider}, "model": name, "small_model": name}
    (rig.folder / "opencode.json").write_text(json.dumps({**config, "permission": "allow"}))
    env = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return ["run", "-m", name], env


PREPARE: dict[str, Callable[..., tuple[list[str], dict[str, str]]]] = {
    "claude": _prepare_claude,
    "codex": _prepare_codex,
    "opencode": _prepare_opencode,
}


async def ask(rig: ClientRig, program: str, order: str, *, ours: bool = False) -> Ran:
    folder = install_node((VERSIONS[program],))
    arguments, env = PREPARE[program](rig, ours=ours)
    executable = folder / "node_modules" / ".bin" / program
    return await rig.run([executable, *arguments, f"Please follow order:{order}"], **env)


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_greeting(tmp_path: Path, program: str) -> None:
    async with client_rig(tmp_path) as rig:
        ran = await ask(rig, program, "greet")
        assert ran.status == 0 and GREETING in ran.out, ran.told[-2000:]


@pytest.mark.parametrize("program", PROGRAMS)
async def test_an_edit_with_its_own_tools(tmp_path: Path, program: str) -> None:
    async with client_rig(tmp_path) as rig:
        ran = await ask(rig, program, "edit")
        assert ran.status == 0 and "The tool said" in ran.out, ran.told[-2000:]
        assert (rig.folder / "made.txt").read_text() == "edited\n"
        assert rig.effects == 0


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_task_with_our_tools(tmp_path: Path, program: str) -> None:
    async with client_rig(tmp_path) as rig:
        ran = await ask(rig, program, "server-tool", ours=True)
        assert ran.status == 0 and "The tool said" in ran.out, ran.told[-2000:]
        assert rig.effects == 1


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_failure_is_shown_and_has_its_effect_once(tmp_path: Path, program: str) -> None:
    async with client_rig(tmp_path) as rig:
        ran = await ask(rig, program, "gone")
        assert MESSAGES["gone"] in ran.told, ran.told[-2000:]
        ran = await ask(rig, program, "effect-then-gone", ours=True)
        assert MESSAGES["gone"] in ran.told, ran.told[-2000:]
        assert rig.effects == 1

"""Programs of others that talk to the server: their versions, their settings, their commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.clients.client_run import install_node, install_python

PACKAGES = {
    "claude": "@anthropic-ai/claude-code@2.1.197",
    "codex": "@openai/codex@0.166.0",
    "opencode": "opencode-ai@1.18.33",
    "aider": "aider-chat==0.86.2",
    "llm": "llm==0.36",
}
OURS = "X-Hermes-Tool-Execution"
AS_JSON = {
    "claude": ("--output-format", "json"),
    "codex": ("--json",),
    "opencode": ("--format", "json"),
}
"""Options with which programs print what they know of an answer, its usage too."""


@dataclass
class Asking:
    """What a program is asked, and where."""

    folder: Path
    url: str
    key: str
    prompt: str
    ours: bool = False
    """Whether the tools of the server are wanted."""
    image: Path | None = None
    options: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    """What the answer must fit."""
    package: str = "@ai-sdk/openai-compatible"
    """With which opencode asks; each speaks another protocol."""


@dataclass
class Command:
    arguments: list[str]
    env: dict[str, str]


def _prepare_claude(asking: Asking) -> Command:
    env = {
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
    }
    if asking.ours:
        env["ANTHROPIC_CUSTOM_HEADERS"] = f"{OURS}: server"
    arguments = ["--model", "hermes-agent", "--dangerously-skip-permissions", *asking.options]
    if asking.schema:
        arguments += ["--json-schema", json.dumps(asking.schema)]
    mention = f"@{asking.image.name} " if asking.image else ""
    return Command([*arguments, "-p", mention + asking.prompt], env)


def _prepare_codex(asking: Asking) -> Command:
    home = asking.folder / "codex"
    home.mkdir(exist_ok=True)
    lines = [
        'model = "hermes-agent"',
        'model_provider = "hermes"',
        "[model_providers.hermes]",
        'name = "Hermes"',
        f'base_url = "{asking.url}/v1"',
        'env_key = "OPENAI_API_KEY"',
        'wire_api = "responses"',
        "request_max_retries = 1",
        "stream_max_retries = 2",
    ]
    if asking.ours:
        lines.append(f'http_headers = {{ "{OURS}" = "server" }}')
    (home / "config.toml").write_text("\n".join(lines))
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    options += asking.options
    if asking.schema:
        schema = asking.folder / "schema.json"
        schema.write_text(json.dumps(asking.schema))
        options.append(f"--output-schema={schema}")
    images = [f"--image={asking.image}"] if asking.image else []
    return Command(["exec", *options, *images, "--", asking.prompt], {"CODEX_HOME": str(home)})


def _prepare_opencode(asking: Asking) -> Command:
    options: dict[str, object] = {"baseURL": f"{asking.url}/v1", "apiKey": asking.key}
    if asking.ours:
        options["headers"] = {OURS: "server"}
    model = {
        "name": "Hermes",
        "attachment": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
    }
    provider = {
        "npm": asking.package,
        "name": "Hermes",
        "options": options,
        "models": {"hermes-agent": model},
    }
    name = "hermes/hermes-agent"
    config = {"provider": {"hermes": provider}, "model": name, "small_model": name}
    (asking.folder / "opencode.json").write_text(json.dumps({**config, "permission": "allow"}))
    env = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    images = [f"--file={asking.image}"] if asking.image else []
    return Command(["run", "-m", name, *asking.options, *images, "--", asking.prompt], env)


def _prepare_aider(asking: Asking) -> Command:
    metadata = asking.folder / "models.json"
    facts = {"max_input_tokens": 100000, "max_output_tokens": 8000, "supports_vision": True}
    metadata.write_text(
        json.dumps({"openai/hermes-agent": {**facts, "litellm_provider": "openai", "mode": "chat"}})
    )
    options = [
        *("--model", "openai/hermes-agent", "--model-metadata-file", str(metadata)),
        *("--no-git", "--yes-always", "--no-check-update", "--analytics-disable"),
        *("--no-show-release-notes", "--no-show-model-warnings", "--no-pretty", "--no-gitignore"),
        *("--edit-format", "whole", "--no-detect-urls", "--map-tokens", "0"),
    ]
    files = [str(asking.image)] if asking.image else []
    return Command([*options, "--message", asking.prompt, *files], {})


def _prepare_llm(asking: Asking) -> Command:
    config = asking.folder / "llm"
    config.mkdir(exist_ok=True)
    abilities = "supports_tools: true, supports_schema: true, vision: true"
    (config / "extra-openai-models.yaml").write_text(
        f'- {{model_id: hermes, model_name: hermes-agent, api_base: "{asking.url}/v1", '
        f"api_key_name: hermes, {abilities}}}\n"
    )
    (config / "keys.json").write_text(json.dumps({"hermes": asking.key}))
    images = ["--attachment", str(asking.image)] if asking.image else []
    schema = ["--schema", json.dumps(asking.schema)] if asking.schema else []
    arguments = ["-m", "hermes", *asking.options, *schema, *images, asking.prompt]
    return Command(arguments, {"LLM_USER_PATH": str(config)})


_PREPARE: dict[str, Callable[[Asking], Command]] = {
    "claude": _prepare_claude,
    "codex": _prepare_codex,
    "opencode": _prepare_opencode,
    "aider": _prepare_aider,
    "llm": _prepare_llm,
}


def locate_program(program: str) -> Path:
    """The executable of a program, which is installed first if it is missing."""
    package = PACKAGES[program]
    if "==" in package:
        return install_python((package,)).parent / program
    return install_node((package,)) / "node_modules" / ".bin" / program


def prepare_program(program: str, asking: Asking) -> Command:
    """The command that asks; what the program reads from files is written."""
    made = _PREPARE[program](asking)
    made.arguments.insert(0, str(locate_program(program)))
    return made

"""Hooks that are commands of the operator: they read an event as JSON and answer with JSON."""

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.config.schema import ShellHook
from hermes.core.errors import ConfigError
from hermes.core.hooks import HOOK_KEYWORDS, UNCALLED_HOOKS, Hook, HookOwner, HookTable

_BLOCKS = 2
"""The exit status that blocks, with stderr as the reason."""
_MAX_OUTPUT = 64 * 1024
_KILL_SECONDS = 3.0
_TEXT_HOOKS = frozenset({"transform_terminal_output", "transform_tool_result"})
_GENERAL = frozenset({"session_id", "platform", "tool_name", "args"})


class HookRun(Struct, frozen=True):
    """How a command ended, and what it says."""

    status: int | None
    """None: it took too long."""
    output: str
    errors: str

    def read_answer(self, event: str) -> Any:
        """What a function in its place would return; an exception for a fault."""
        if self.status == _BLOCKS:
            reason = self.errors.strip() or "a hook blocks it"
            return {"action": "block", "message": reason} if event == "pre_tool_call" else None
        if self.status:
            raise RuntimeError(f"exit status {self.status}: {self.errors.strip()[-200:]}")
        if not self.output.strip():
            return None
        try:
            answer = msgspec.json.decode(self.output)
        except msgspec.DecodeError:
            raise RuntimeError("it printed something that is not JSON") from None
        return _translate_answer(answer, event)


def _translate_answer(answer: Any, event: str) -> Any:
    """The answers that other programs' hooks give, in our own form."""
    match answer:
        case None | {"decision": "approve" | "allow"}:
            return None
        case {"decision": "block"} if event == "pre_tool_call":
            return {"action": "block", "message": str(answer.get("reason") or "a hook blocks it")}
        case {"result": str(text)} if event in _TEXT_HOOKS:
            return text
        case dict() if not answer:
            return None
    return answer


def list_hook_problems(settings: Mapping[str, tuple[ShellHook, ...]]) -> list[str]:
    """What keeps sessions with these commands from starting."""
    problems = []
    for event, rows in settings.items():
        if event not in HOOK_KEYWORDS and event not in UNCALLED_HOOKS:
            problems.append(f"hooks.{event}: there is no such event")
        for row in rows if event in HOOK_KEYWORDS else ():
            try:
                re.compile(row.matcher)
                problem = "" if shlex.split(row.command) else "a command is empty"
            except (re.error, ValueError) as error:
                problem = str(error)
            problems += [f"hooks.{event}: {problem}"] if problem else []
    return problems


def add_shell_hooks(
    table: HookTable, settings: Mapping[str, tuple[ShellHook, ...]], env: Mapping[str, str]
) -> None:
    """Add the configured commands; ConfigError for an event or a matcher that cannot be meant."""
    if problems := list_hook_problems(settings):
        raise ConfigError(f"{problems[0]}. Nothing was started.")
    for event, rows in settings.items():
        for row in rows if event in HOOK_KEYWORDS else ():
            owner = HookOwner(f"Hook {row.command}")
            call = partial(_call_command, event, shlex.split(row.command), env, row.timeout)
            matches = partial(_matches_tool, re.compile(row.matcher))
            table.add_hook(event, Hook(owner, call, row.timeout + _KILL_SECONDS, matches))


def _matches_tool(pattern: re.Pattern[str], keywords: dict[str, Any]) -> bool:
    if not pattern.pattern or "tool_name" not in keywords:
        return True
    return pattern.fullmatch(keywords["tool_name"]) is not None


async def _call_command(
    event: str,
    argv: list[str],
    env: Mapping[str, str],
    seconds: float,
    keywords: dict[str, Any],
    cwd: Path,
) -> Any:
    run = await run_hook_command(argv, env, seconds, build_payload(event, keywords, cwd), cwd)
    if run.status is None:
        raise RuntimeError(f"it took more than {seconds:g} s")
    return run.read_answer(event)


def build_payload(event: str, keywords: Mapping[str, Any], cwd: Path) -> bytes:
    extra = {name: value for name, value in keywords.items() if name not in _GENERAL}
    payload = {
        "hook_event_name": event,
        "tool_name": keywords.get("tool_name"),
        "tool_input": keywords.get("args"),
        "session_id": keywords.get("session_id", ""),
        "cwd": str(cwd),
        "extra": {"platform": keywords.get("platform", ""), **extra},
    }
    return msgspec.json.encode(payload, enc_hook=str)


async def run_hook_command(
    argv: list[str], env: Mapping[str, str], seconds: float, payload: bytes, cwd: Path
) -> HookRun:
    """Run a command to its end with the payload as its input; what it started ends with it."""
    from hermes.exec.process.local import CommandSpec, run_command
    from hermes.exec.process.output_capture import OutputCapture

    words = (_find_program(argv[0], env), *argv[1:])
    out, err = (OutputCapture(_MAX_OUTPUT, Path(os.devnull)) for _ in range(2))
    with tempfile.TemporaryFile() as stdin:
        stdin.write(payload)
        stdin.seek(0)
        command = CommandSpec(words, cwd, env, seconds, stdin=stdin.fileno())
        result = await run_command(command, out, err)
    return HookRun(result.status, out.text(), err.text())


def _find_program(word: str, env: Mapping[str, str]) -> str:
    """The full path of a program."""
    program = shutil.which(Path(word).expanduser(), path=env.get("PATH"))
    if program is None:
        raise FileNotFoundError(f"there is no program {word}")
    return str(Path(program).absolute())

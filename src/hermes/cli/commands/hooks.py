"""`hermes hooks`: lists hooks, and runs the commands of one event with a sample."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.cli.main import EXIT_FAILED
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent, run_async
from hermes.cli.terminal.text import print_report, strip_controls
from hermes.core.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from hermes.config.load import Setup

_EPILOG = """\
commands:
  list         list the hooks of plugins and of the configuration, in the order they are called
  test EVENT   run the configured commands of an event with a sample, and show what they answer

exit status of test: 0 every command answered properly, 1 one of them failed

examples:
  hermes hooks list
  hermes hooks test pre_tool_call
"""
_SAMPLES: dict[str, Any] = {
    "tool_name": "terminal",
    "args": {"command": "echo hello"},
    "tool_call_id": "call_1",
    "command": "echo hello",
    "output": "hello",
    "returncode": 0,
    "env_type": "local",
    "result": "hello",
    "status": "ok",
    "error_message": "",
    "duration_ms": 12,
    "user_message": "hello",
    "is_first_turn": True,
    "model": "sample",
    "provider": "sample",
    "assistant_response": "hello",
    "usage": {"input": 11, "output": 7},
    "text": "hello",
    "completed": True,
    "interrupted": False,
    "choice": "once",
}


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("hooks", "List hooks, and test those that are commands.", _EPILOG)
    choices = ["list", "test"]
    parser.add_action(choices, "list")
    parser.add_argument("event", nargs="?", default="", metavar="EVENT")
    parser.add_flag("--json", help="print JSON")
    args = parser.parse_command(argv, profile)
    if (args.action == "test") != bool(args.event):
        parser.error("test needs an EVENT" if args.action == "test" else "list takes no event")
    if args.action == "test":
        refuse_agent("run hooks")
    return run_async(_run_action(args))


async def _run_action(args: Namespace) -> int:
    setup = load_checked_setup(args.profile)
    rows = await (_test_event(setup, args.event) if args.event else _list_hooks(setup))
    lines = ["  ".join(str(value) for value in row.values() if value != "") for row in rows]
    print_report(rows, map(strip_controls, lines or ["There are no hooks."]), json=args.json)
    return EXIT_FAILED if any(row.get("outcome") == "failed" for row in rows) else 0


async def _list_hooks(setup: Setup) -> list[dict[str, Any]]:
    from hermes.app.extensions.plugins import try_loading
    from hermes.core.hooks import HOOK_KEYWORDS, UNCALLED_HOOKS, HookTable

    table = HookTable()
    await try_loading(setup, table)
    rows: list[dict[str, Any]] = []
    for event in HOOK_KEYWORDS:
        rows += [{"event": event, "owner": h.owner.label} for h in table.list_hooks(event)]
        for row in setup.config.hooks.get(event, ()):
            rows.append({"event": event, "owner": "config", "command": row.command})
            rows[-1] |= {"matcher": row.matcher, "timeout": row.timeout}
    rows += [
        {
            "event": event,
            "owner": "config",
            "problem": "nothing calls it" if event in UNCALLED_HOOKS else "there is no such event",
        }
        for event in setup.config.hooks
        if event not in HOOK_KEYWORDS
    ]
    return rows


async def _test_event(setup: Setup, event: str) -> list[dict[str, Any]]:
    from hermes.app.extensions.shell_hooks import add_shell_hooks
    from hermes.config.env import build_child_env
    from hermes.core.hooks import HOOK_KEYWORDS, HookTable, check_answer

    if event not in HOOK_KEYWORDS:
        raise ConfigError(f"There is no event {event}. There are: {', '.join(HOOK_KEYWORDS)}.")
    table = HookTable()
    add_shell_hooks(table, setup.config.hooks, build_child_env(setup.secrets))
    keywords = {name: _SAMPLES.get(name, "sample") for name in HOOK_KEYWORDS[event]}
    keywords |= {"session_id": "sample", "platform": "cli"}
    rows: list[dict[str, Any]] = []
    for hook in table.list_hooks(event):
        row: dict[str, Any] = {"owner": hook.owner.label, "outcome": "ok"}
        if not hook.matches(keywords):
            rows.append(row | {"outcome": "skipped", "answer": "its matcher does not fit"})
            continue
        try:
            row["answer"] = await hook.call(keywords, Path.cwd())
            check_answer(event, row["answer"])
        except (RuntimeError, OSError, ToolError, TypeError, ValueError) as error:
            row |= {"outcome": "failed", "answer": str(error)}
        rows.append(row)
    return rows

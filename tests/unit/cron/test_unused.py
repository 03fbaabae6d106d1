"""A conversation that uses no schedule imports nothing of it."""

from __future__ import annotations

import subprocess
import sys


def test_a_runtime_imports_no_schedule() -> None:
    code = (
        "import sys, hermes.app.runtime, hermes.cli.commands.chat\n"
        "from hermes.app.commands import load_commands\n"
        "from hermes.tools.registry import select_tools\n"
        "select_tools(None, platform='cli').list_specs(); load_commands()\n"
        "unwanted = {'cronsim', 'tzdata', 'zoneinfo'}\n"
        "print([m for m in sys.modules if m in unwanted or m.startswith('hermes.cron')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert done.stdout.strip() == "[]", done.stderr

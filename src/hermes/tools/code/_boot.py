"""Runs a script in its own interpreter; its module `hermes_tools` calls the agent's tools."""

# The interpreter gets this as text, so it imports nothing from this package. Standard input is a
# connected socket: its first line is the script, each later line the answer to a call.

from __future__ import annotations

import json
import linecache
import os
import sys
import threading
from types import ModuleType
from typing import Any, NoReturn

MAX_CALL_BYTES = 1_000_000
"""Bytes of one call; the agent closes the connection on a longer line."""
_SCRIPT_NAME = "script.py"


def main() -> NoReturn:
    channel = os.dup(0)  # not inherited by what the script starts
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    answers = open(channel, "rb")  # noqa: PTH123, SIM115 - as long as the process
    start = json.loads(answers.readline())
    tools = ModuleType("hermes_tools", "The agent's tools as functions; each returns text.")
    lock = threading.Lock()

    def call(tool: str, arguments: dict[str, Any]) -> str:
        given = {name: value for name, value in arguments.items() if value is not None}
        line = json.dumps({"tool": tool, "arguments": given}, default=str).encode() + b"\n"
        if len(line) > MAX_CALL_BYTES:
            raise tools.ToolError(f"{tool}: the arguments are longer than {MAX_CALL_BYTES} bytes.")
        with lock:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(channel, rest) :]
            answer = json.loads(answers.readline() or b'{"text": "The agent has hung up."}')
        if answer.get("ok"):
            return str(answer["text"])
        raise tools.ToolError(answer["text"])

    tools.__dict__["_call"] = call
    exec(compile(start["tools"], "hermes_tools", "exec"), tools.__dict__)
    sys.modules["hermes_tools"] = tools
    sys.exit(_run_script(start["code"]))


def _run_script(code: str) -> int:
    script = sys.modules["__main__"] = ModuleType("__main__")
    script.__dict__["__file__"] = _SCRIPT_NAME
    sys.argv = [_SCRIPT_NAME]
    linecache.cache[_SCRIPT_NAME] = (len(code), None, code.splitlines(keepends=True), _SCRIPT_NAME)
    try:
        exec(compile(code, _SCRIPT_NAME, "exec"), script.__dict__)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - as the interpreter would: shown, status 1
        import traceback

        first = error.__traceback__
        own = first and first.tb_next  # without this function
        if isinstance(error, SyntaxError) and own is None:
            traceback.print_exception(None, error.with_traceback(None), None)
        else:
            traceback.print_exception(type(error), error, own)
        return 1
    return 0


if __name__ == "__main__":
    main()

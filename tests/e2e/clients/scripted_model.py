"""A scripted model that does what the last word of the user says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.kit import call, say, status
from tests.kit.bodies import messages
from tests.kit.replies import Reply
from tests.kit.server import Received

GREETING = "Hello from Hermes."
WEATHER = '{"city": "Bern", "degrees": 25}'
EFFECT = "echo x >> effects.log"
EDITS = ("cat draft.txt", "sed s/draft/edited/ draft.txt > made.txt", "cat made.txt")
"""An editing task: it reads, writes and looks, one call after the other."""
SERVER_EDITS = (
    ("read_file", {"path": "draft.txt"}),
    ("patch", {"path": "draft.txt", "old_string": "draft", "new_string": "edited"}),
    ("terminal", {"command": "cat draft.txt"}),
)
"""The same with the tools of the server."""
FAILURES: dict[str, Callable[[], Reply]] = {
    "key": lambda: status(401, "the key is worthless"),
    "limit": lambda: status(429, "too fast").headers(Retry_After="1"),
    "broken": lambda: status(500, "the backend burned down"),
    "overflow": lambda: status(400, "maximum context length is 9 tokens"),
    "gone": lambda: status(404, "The model kit-model does not exist"),
    "cut": lambda: say("Half of", " the answer").cut(after="text", n=1),
}
MESSAGES = {
    "key": "rejected the key",
    "limit": "limits the rate",
    "broken": "burned down",
    "overflow": "too long",
    "gone": "does not know the model",
    "cut": "broke off",
}
"""What the person must be told."""
AFTER_EFFECT = "effect-then-"
AFTER_TEXT = "text-then-"


def answer_request(request: Received) -> Reply:
    seen = messages(request)
    last = seen[-1]
    order = _find_order([m.text for m in seen if m.role == "user"])
    order = order or _find_order([m.text for m in seen])
    results = sum(len(m.results) for m in seen)
    if order == "edit" and results < len(EDITS):
        return call((f"c3{results}", *_choose_shell_call(request, EDITS[results])))
    if order == "server-edit" and results < len(SERVER_EDITS):
        return call((f"c6{results}", *SERVER_EDITS[results]))
    if order.startswith(AFTER_EFFECT) and not _list_tools(request):
        return say(f"We are to follow order:{order}")
    before, _, failure = order.rpartition("-then-")
    if last.results or (before and results):
        if before:
            return FAILURES[failure]()
        return say("The tool said: ", last.results[-1][1][:200])
    if order in FAILURES:
        return FAILURES[order]()
    if order == "server-tool" or order.startswith(AFTER_EFFECT):
        return call(("c1", "terminal", {"command": EFFECT}))
    if order.startswith(AFTER_TEXT):
        return say("Half of the answer. ") + call(("c5", "todo", {}))
    match order:
        case "edit-block":
            return say("made.txt\n```\nedited\n```\n")
        case "own-tool":
            return call(("c2", _find_tool(request) or "weather", {"city": "Bern"}))
        case "structured":
            return _answer_typed(request, last.text)
        case "image":
            return say(f"I see {sum(len(m.images) for m in seen)} image.")
        case "slow":
            return say("One ", "two.").stall(after="text")
        case _:
            return say("Hello ", "from ", "Hermes.")


def _answer_typed(request: Received, text: str) -> Reply:
    """The weather, as a call of the client's tool or as text. A model whose endpoint does not
    enforce the schema forgets half of it at first."""
    if name := _find_tool(request):
        return call(("c4", name, json.loads(WEATHER)))
    body = request.json
    is_enforced = "response_format" in body or "format" in body.get("text", {})
    return say(WEATHER if is_enforced or "does not fit" in text else '{"city": "Bern"}')


def _find_order(texts: list[str]) -> str:
    orders = [word.strip("\"'.") for word in reversed(" ".join(texts).split())]
    return next((word[6:] for word in orders if word.startswith("order:")), "")


def _list_tools(request: Received) -> list[str]:
    tools: list[dict[str, Any]] = request.json.get("tools") or []
    return [tool.get("function", tool)["name"] for tool in tools]


def _choose_shell_call(request: Received, command: str) -> tuple[str, dict[str, Any]]:
    """A call of the client's own shell, in its folder."""
    names = _list_tools(request)
    if "exec_command" in names:
        return "exec_command", {"cmd": command}
    shell = "Bash" if "Bash" in names else "bash"
    return shell, {"command": command, "description": "Edit a file"}


def _find_tool(request: Received) -> str:
    """The client's tool for the weather or for a typed answer, whatever it calls it."""
    marks = ("weather", "final_result", "json", "structured")
    names = _list_tools(request)
    return next((name for name in names if any(mark in name.lower() for mark in marks)), "")

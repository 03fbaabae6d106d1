"""A scripted model that does what the last word of the user says."""

from __future__ import annotations

from typing import Any

from tests.kit import call, say, status
from tests.kit.replies import Reply
from tests.kit.server import Received

GREETING = "Hello from Hermes."
WEATHER = '{"city": "Bern", "degrees": 25}'
EFFECT = "echo x >> effects.log"
FAILURES = {
    "key": lambda: status(401, "the key is worthless"),
    "limit": lambda: status(429, "too fast").headers(Retry_After="3600"),
    "broken": lambda: status(500, "the backend burned down"),
    "overflow": lambda: status(400, "maximum context length is 9 tokens"),
    "gone": lambda: status(404, "The model kit-model does not exist"),
}
MESSAGES = {
    "key": "rejected the key",
    "limit": "rate",
    "broken": "burned down",
    "overflow": "too long",
    "gone": "does not know the model",
}
"""What the person must be told."""


def answer_request(request: Received) -> Reply:
    messages: list[dict[str, Any]] = request.json["messages"]
    order = _find_order(messages)
    last = messages[-1]
    if last["role"] == "tool":
        if order == "effect-then-gone":
            return FAILURES["gone"]()
        return say("The tool said: ", _read_text(last)[:200])
    match order:
        case "server-tool" | "effect-then-gone":
            return call(("c1", "terminal", {"command": EFFECT}))
        case "edit":
            return call(("c3", *_choose_shell_call(request)))
        case "own-tool":
            return call(("c2", _find_tool(request), {"city": "Bern"}))
        case "structured":
            return say(WEATHER)
        case "cut":
            return say("Half of", " the answer").cut(after="text", n=1)
        case name if name in FAILURES:
            return FAILURES[name]()
        case _:
            return say("Hello ", "from ", "Hermes.")


def _find_order(messages: list[dict[str, Any]]) -> str:
    texts = [_read_text(m) for m in messages if m["role"] == "user"]
    words = " ".join(texts).split()
    orders = [word.strip("\"'.") for word in reversed(words)]
    return next((word[6:] for word in orders if word.startswith("order:")), "")


def _read_text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def _choose_shell_call(request: Received) -> tuple[str, dict[str, Any]]:
    """A call of the client's own shell that makes a file in its folder."""
    names = {tool["function"]["name"] for tool in request.json.get("tools", ())}
    command = "echo edited > made.txt"
    if "exec_command" in names:
        return "exec_command", {"cmd": command}
    shell = "Bash" if "Bash" in names else "bash"
    return shell, {"command": command, "description": "Make a file"}


def _find_tool(request: Received) -> str:
    """The tool for the weather, whatever prefix a client gives it."""
    names = [tool["function"]["name"] for tool in request.json.get("tools", ())]
    return next((name for name in names if "weather" in name), names[0] if names else "weather")

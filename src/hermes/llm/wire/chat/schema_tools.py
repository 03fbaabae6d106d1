"""Tools for models that cannot call them: each answer is forced into one JSON object, a step."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hermes.core.message import Media, Message, Part, Text, ToolCall, ToolReturn
from hermes.core.provider import ToolSpec
from hermes.llm.wire.convert import as_dict, describe_media, parse_arguments

ABOUT = "about"
ANSWER = "answer"
TOOL = "tool"
KNOWLEDGE, RESULT, COMPUTER = "knowledge", "result", "computer"
"""A step first says what it is about: a small model that has said "computer" then calls a tool
instead of inventing an answer."""
_SMALL_TOOLS = ("terminal", "read_file", "write_file", "patch")
"""The tools that a small model gets if the endpoint names no favourites."""
MAX_TOOLS = 5
"""How many other tools a small model can tell apart, if it has none of these."""
_LONGEST_HINT = 80
_HEAD = """\
You are Hermes, an assistant on the user's computer. Reply with one JSON object.
Greetings and general knowledge: {"about": "knowledge", "answer": TEXT}"""
_WITH_TOOLS = """\
Anything about this computer, its folders, files, users, programs or time needs a tool:"""
_AFTER = """\
After a tool result: {"about": "result", "answer": TEXT} with what it says. \
Never invent files or output."""
_HINTS = {
    "terminal": "run a shell command: list, find, count, copy, move, rename, look up anything",
    "read_file": "show the text of one file",
    "write_file": "create or replace one file",
}
"""Shorter than the tools' own descriptions, which are written for larger models."""


class Example(NamedTuple):
    """One exchange: what the model is told, by the user or by a tool, and the step it takes."""

    said: str
    answer: str = ""
    tool: str = ""
    """The tool that the step calls, if it is no answer."""
    args: Mapping[str, str] = {}
    result_of: str = ""
    """The tool that said it."""


def _run_example(request: str, command: str, output: str, answer: str) -> tuple[Example, Example]:
    call = Example(request, tool="terminal", args={"command": command})
    return call, Example(output, answer, result_of="terminal")


_EXAMPLES: tuple[Example, ...] = (
    Example("hello", "Hello! What can I do for you?"),
    Example("explain what a compiler does", "A compiler translates source code into machine code."),
    Example("how do I see free disk space in Linux?", "Run `df -h` in a terminal."),
    Example("how much is 12 * 4?", "12 * 4 is 48."),
    Example(
        "save a program a.py that adds 1 and 2",
        tool="write_file",
        args={"path": "a.py", "content": "print(1 + 2)\n"},
    ),
    Example("Created a.py", "Done: I wrote a.py.", result_of="write_file"),
    *_run_example("which kernel is running here?", "uname -r", "6.1.0", "Kernel 6.1.0 is running."),
    *_run_example("who is logged in?", "whoami", "sam", "You are sam."),
    *_run_example("remove the folder tmp", "rm -r tmp", "", "Done: the folder tmp is removed."),
    *_run_example("rename x.txt to y.txt", "mv x.txt y.txt", "", "Done: x.txt is now y.txt."),
    *_run_example("append 'tea' to list.md", "echo 'tea' >> list.md", "", "Done: tea is added."),
    *_run_example(
        "tell me about this repository",
        "cat README.md",
        "# Tides\n\nPredicts high water.",
        "It is Tides, a program that predicts high water.",
    ),
    Example("repair half.py", tool="terminal", args={"command": "cat half.py"}),
    Example(
        "def half(n):\n    return n * 2",
        tool="write_file",
        args={"path": "half.py", "content": "def half(n):\n    return n / 2\n"},
        result_of="terminal",
    ),
    Example("Replaced half.py", "Done: half(n) now divides by 2.", result_of="write_file"),
    *_run_example(
        "what does job.py do?",
        "cat job.py",
        "for n in range(3):\n    print(n * n)",
        "job.py prints the squares of 0, 1 and 2.",
    ),
    *_run_example(
        "which files are here?",
        "ls",
        "main.py\nutil.py",
        "The folder contains main.py and util.py.",
    ),
    *_run_example(
        "print the file todo.md",
        "cat todo.md",
        "- buy milk\n- call Eve",
        "todo.md says:\n- buy milk\n- call Eve",
    ),
    Example("what is the largest planet?", "Jupiter is the largest planet."),
)
"""The order was measured: the last examples weigh most, and one without a tool must be among them
(docs/local-model.md)."""


def select_tools(tools: Sequence[ToolSpec], favourites: Sequence[str]) -> list[ToolSpec]:
    """The tools offered to a small model: the favourites, else the first ones."""
    usable = [t for t in tools if not {ABOUT, TOOL, ANSWER} & set(_required_names(t))]
    return [t for t in usable if t.name in (favourites or _SMALL_TOOLS)] or usable[:MAX_TOOLS]


def response_format(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The schema to enforce: an answer, or a call of one of the tools. Optional arguments are left
    out, because a small model fills them with anything."""
    subjects = [KNOWLEDGE, RESULT] if tools else [KNOWLEDGE]
    steps = [_object_schema({ABOUT: {"enum": subjects}, ANSWER: {"type": "string"}})]
    for tool in tools:
        properties = as_dict(tool.parameters.get("properties"))
        given = {name: properties.get(name, {}) for name in _required_names(tool)}
        call = {ABOUT: {"const": COMPUTER}, TOOL: {"const": tool.name}, **given}
        steps.append(_object_schema(call))
    schema = {"anyOf": steps} if tools else steps[0]
    wrapped = {"name": "step", "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": wrapped}


def opening_messages(tools: Sequence[ToolSpec], system: str) -> list[dict[str, Any]]:
    """The system message and the examples. They are the same bytes for the same tools, so that a
    server with a prompt cache reads them once; text of the session comes last."""
    about_tools = [_WITH_TOOLS, *map(_tool_line, tools), _AFTER] if tools else []
    lines = [_HEAD, *about_tools, *([system] if system else [])]
    messages = [{"role": "system", "content": "\n".join(lines)}]
    names = {tool.name for tool in tools}
    for example in _EXAMPLES:
        if not {example.tool, example.result_of} - {""} <= names:
            continue
        said, source = example.said, example.result_of
        message = format_result(source, said) if source else said
        answer = _answer_step(example.answer, result=bool(source))
        step = _call_step(example.tool, example.args) if example.tool else answer
        messages.append({"role": "user", "content": message})
        messages.append({"role": "assistant", "content": _encode_step(step)})
    return messages


def encode_group(group: Message, before: Message) -> Iterable[dict[str, Any]]:
    """The messages of a group, in the form of the examples."""
    if group.role == "assistant":
        after = any(isinstance(part, ToolReturn) for part in before.parts)
        yield {"role": "assistant", "content": "\n".join(_encode_steps(group.parts, after))}
        return
    words: list[str] = []
    for part in group.parts:
        match part:
            case ToolReturn(name=name, content=content):
                words.append(format_result(name, "".join(_content_texts(content))))
            case Text() | Media():
                words += _content_texts([part])
    yield {"role": "user", "content": "\n\n".join(words)}


def format_result(tool: str, text: str) -> str:
    return f"Result of {tool}:\n{text.strip() or '(no output)'}"


def _answer_step(text: str, *, result: bool) -> dict[str, Any]:
    return {ABOUT: RESULT if result else KNOWLEDGE, ANSWER: text}


def _call_step(tool: str, args: Mapping[str, Any]) -> dict[str, Any]:
    return {ABOUT: COMPUTER, TOOL: tool, **args}


def _encode_steps(parts: Sequence[Part], result: bool) -> Iterable[str]:
    for part in parts:
        match part:
            case Text(text=text) if text.strip():
                yield _encode_step(_answer_step(text, result=result))
            case ToolCall(name=name, args=args):
                yield _encode_step(_call_step(name, parse_arguments(args)))


def _content_texts(parts: Iterable[Text | Media]) -> list[str]:
    return [p.text if isinstance(p, Text) else describe_media(p) for p in parts]


def _tool_line(tool: ToolSpec) -> str:
    hint = _HINTS.get(tool.name) or tool.description.partition(". ")[0][:_LONGEST_HINT]
    example = _call_step(tool.name, {name: name.upper() for name in _required_names(tool)})
    return f"{_encode_step(example)} - {hint}"


def _required_names(tool: ToolSpec) -> list[str]:
    names = tool.parameters.get("required")
    return [n for n in names if isinstance(n, str)] if isinstance(names, list) else []


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _encode_step(step: dict[str, Any]) -> str:
    """The step as JSON with spaces, as a model writes it, so that the prompt cache matches."""
    return json.dumps(step, ensure_ascii=False)

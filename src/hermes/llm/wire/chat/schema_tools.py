"""Tools for models that cannot call them: each answer is forced into one JSON object, a step."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hermes.core.message import Media, Message, Part, Text, ToolCall, ToolReturn
from hermes.core.provider import ToolSpec
from hermes.llm.wire.convert import as_dict, describe_media, parse_arguments

ABOUT = "about"
ANSWER = "answer"
TOOL = "tool"
KNOWLEDGE, RESULT, LOOK, CHANGE = "knowledge", "result", "look", "change"
"""A step first says what it is about: a small model that has said "look" then calls a tool instead
of inventing an answer, and writes no file."""
_WRITERS = frozenset({"write_file", "patch"})
_FAILED = "[exit status "
_SHOWN_FILE = "This is its text:\n"
"""How a refused change shows the file that the model had not read."""
_SMALL_TOOLS = ("terminal", "read_file", "write_file")
"""The tools that a small model gets if the endpoint names no favourites. The others have optional
arguments, which it is not shown."""
MAX_TOOLS = 5
"""How many other tools a small model can tell apart, if it has none of these."""
_LONGEST_HINT = 80
_HEAD = """\
You are Hermes, an assistant on the user's computer. Reply with one JSON object.
Greetings, "how do I" questions and general knowledge: {"about": "knowledge", "answer": TEXT}"""
_WITH_TOOLS = """\
Questions about this computer, its folders, files, users, programs or time ("look"), and requests \
to make or change something ("change"), need a tool:"""
_AFTER = """\
After a tool result: {"about": "result", "answer": TEXT} with what it says. \
Never invent files or output."""
_HINTS = {
    ("terminal", LOOK): "run a shell command: list, show, find, count, look up anything",
    ("terminal", CHANGE): "run a shell command: copy, move, rename, remove, add a line",
    ("read_file", LOOK): "show the text of one file",
    ("write_file", CHANGE): "create or replace one file",
}
"""Shorter than the tools' own descriptions, which are written for larger models."""


class Example(NamedTuple):
    """One exchange: what the model is told, by the user or by a tool, and the step it takes."""

    said: str
    step: dict[str, Any]
    source: str = ""
    """The tool that said it."""


def _answer_step(text: str, *, result: bool) -> dict[str, Any]:
    return {ABOUT: RESULT if result else KNOWLEDGE, ANSWER: text}


def _call_step(tool: str, args: Mapping[str, Any], about: str) -> dict[str, Any]:
    return {ABOUT: about, TOOL: tool, **args}


def _show_talk(said: str, answer: str) -> tuple[Example, ...]:
    return (Example(said, _answer_step(answer, result=False)),)


def _show_command(
    said: str, command: str, output: str, answer: str, about: str = LOOK
) -> tuple[Example, ...]:
    call = _call_step("terminal", {"command": command}, about)
    reply = _answer_step(answer, result=True)
    return Example(said, call), Example(output, reply, "terminal")


def _show_writing(path: str, content: str) -> dict[str, Any]:
    return _call_step("write_file", {"path": path, "content": content}, CHANGE)


_MISSING = "ls: cannot access 'Makefile': No such file or directory\n[exit status 2]"
_EXAMPLES: tuple[tuple[Example, ...], ...] = (
    _show_talk("hello", "Hello! What can I do for you?"),
    _show_talk(
        "explain what a compiler does", "A compiler translates source code into machine code."
    ),
    _show_talk("how much is 12 * 4?", "12 * 4 is 48."),
    (
        Example("save a program a.py that adds 1 and 2", _show_writing("a.py", "print(1 + 2)\n")),
        Example("Created a.py", _answer_step("Done: I wrote a.py.", result=True), "write_file"),
    ),
    _show_command("remove the folder tmp", "rm -r tmp", "", "Done: tmp is removed.", CHANGE),
    _show_command("copy a.csv to b.csv", "cp a.csv b.csv", "", "Done: b.csv is a copy.", CHANGE),
    _show_command("rename x.txt to y.txt", "mv x.txt y.txt", "", "Done: it is y.txt now.", CHANGE),
    (
        Example(
            "fix the mistake in half.py", _call_step("terminal", {"command": "cat half.py"}, CHANGE)
        ),
        Example(
            "def half(n):\n    return n * 2",
            _show_writing("half.py", "def half(n):\n    return n / 2\n"),
            "terminal",
        ),
        Example(
            "Replaced half.py",
            _answer_step("Done: half(n) now divides by 2.", result=True),
            "write_file",
        ),
    ),
    _show_command("which kernel is running here?", "uname -r", "6.1.0", "Kernel 6.1.0 is running."),
    _show_command("start task.py", "python3 task.py", "7", "It printed 7."),
    _show_command("count the words of a.txt", "wc -w a.txt", "12 a.txt", "a.txt has 12 words."),
    _show_command(
        "where is cat mentioned?", "grep -rn cat .", "./pets.md:1:a cat", "In pets.md: a cat"
    ),
    _show_command(
        "tell me about this repository",
        "cat README.md",
        "# Tides\n\nPredicts high water.",
        "It is Tides, a program that predicts high water.",
    ),
    _show_command(
        "explain what job.py does",
        "cat job.py",
        "for n in range(3):\n    print(n * n)",
        "job.py prints the squares of 0, 1 and 2.",
    ),
    _show_command(
        "print the file todo.md",
        "cat todo.md",
        "- buy milk\n- call Eve",
        "todo.md says:\n- buy milk\n- call Eve",
    ),
    _show_command(
        "which files are here?",
        "ls",
        "main.py\nutil.py",
        "The folder contains main.py and util.py.",
    ),
    _show_command(
        "is there a Makefile?", "ls Makefile", _MISSING, "No, there is no Makefile in this folder."
    ),
    _show_command(
        "add 'tea' to list.md", "echo 'tea' >> list.md", "", "Done: it is added.", CHANGE
    ),
    _show_command("show the last line of a.log", "tail -n 1 a.log", "bye", "It is: bye"),
    _show_talk("what is your name?", "I am Hermes, an assistant. I run commands and write files."),
    _show_talk("say 'good morning' in Italian", "Buongiorno."),
    _show_talk("what is the largest planet?", "Jupiter is the largest planet."),
    _show_talk("how do I see the free disk space in Linux?", "Run `df -h`: it lists the disks."),
)
"""The order was measured: the last examples weigh most, and one without a tool must be among them
(docs/local-model.md)."""
_ENOUGH_EXAMPLES = frozenset(
    {
        "save a program a.py that adds 1 and 2",
        "rename x.txt to y.txt",
        "fix the mistake in half.py",
        "where is cat mentioned?",
        "start task.py",
        "which files are here?",
        "add 'tea' to list.md",
        "what is the largest planet?",
    }
)
"""How those begin that a larger model needs: the rest only makes its requests longer."""
_TABLE_EXAMPLE = _show_command(
    "add up the hours in work.csv", "awk -F, '{n += $2} END {print n}' work.csv", "31", "31 hours."
)
"""A larger model can work with columns."""


def select_tools(tools: Sequence[ToolSpec], favourites: Sequence[str]) -> list[ToolSpec]:
    """The tools offered to a small model: the favourites, else the first ones."""
    usable = [t for t in tools if not {ABOUT, TOOL, ANSWER} & set(_required_names(t))]
    return [t for t in usable if t.name in (favourites or _SMALL_TOOLS)] or usable[:MAX_TOOLS]


def response_format(
    tools: Sequence[ToolSpec], *, has_results: bool = True, must_call: bool = False
) -> dict[str, Any]:
    """The schema to enforce: an answer, or a call of one of the tools. Optional arguments are left
    out, because a small model fills them with anything."""
    subjects = [KNOWLEDGE, RESULT] if has_results else [KNOWLEDGE]
    answer = _object_schema({ABOUT: {"enum": subjects}, ANSWER: {"type": "string"}})
    steps = [] if must_call and tools else [answer]
    for tool in tools:
        properties = as_dict(tool.parameters.get("properties"))
        given = {name: properties.get(name, {}) for name in _required_names(tool)}
        call = {ABOUT: {"enum": _subjects(tool.name)}, TOOL: {"const": tool.name}, **given}
        steps.append(_object_schema(call))
    schema = {"anyOf": steps} if tools else steps[0]
    wrapped = {"name": "step", "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": wrapped}


def opening_messages(
    tools: Sequence[ToolSpec], system: str, *, small: bool
) -> list[dict[str, Any]]:
    """The system message and the examples, all of them for a small model. They are the same bytes
    for the same tools, so that a server with a prompt cache reads them once; text of the session
    comes last."""
    about_tools = (
        [_WITH_TOOLS, *(line for t in tools for line in _tool_lines(t)), _AFTER] if tools else []
    )
    lines = [_HEAD, *about_tools, *([system] if system else [])]
    messages = [{"role": "system", "content": "\n".join(lines)}]
    names = {"", *(tool.name for tool in tools)}
    enough = [e for e in _EXAMPLES if e[0].said in _ENOUGH_EXAMPLES]
    examples = _EXAMPLES if small else (*enough[:-1], _TABLE_EXAMPLE, enough[-1])
    for exchange in examples:
        if not all({e.source, e.step.get(TOOL, "")} <= names for e in exchange):
            continue
        for said, step, source in exchange:
            message = format_result(source, said) if source else said
            messages.append({"role": "user", "content": message})
            messages.append({"role": "assistant", "content": _encode_step(step)})
    return messages


def has_answer(group: Message, before: Message) -> bool:
    """Whether a result answers the question for which the model looked something up."""
    looked = before.calls and all((call.extra or {}).get(ABOUT) == LOOK for call in before.calls)
    results = [part for part in group.parts if isinstance(part, ToolReturn)]
    failed = any(part.error or _FAILED in part.text for part in results)
    return bool(looked and results) and not failed


def is_unfinished(group: Message) -> bool:
    """Whether the change that the model tried was refused with the text of the file. A small model
    takes this for success; it needs another step."""
    results = [part for part in group.parts if isinstance(part, ToolReturn)]
    return any(part.error and _SHOWN_FILE in part.text for part in results)


def is_step(call: ToolCall) -> bool:
    """Whether the model was forced to make this call, because it cannot call tools on its own."""
    return ABOUT in (call.extra or {})


def encode_group(group: Message, before: Message) -> Iterable[dict[str, Any]]:
    """The messages of a group, in the form of the examples."""
    if group.role == "assistant":
        after = any(isinstance(part, ToolReturn) for part in before.parts)
        yield {"role": "assistant", "content": "\n".join(_encode_steps(group.parts, after))}
        return
    if is_unfinished(group) and len(group.parts) == 1:
        yield from _show_reading(group.parts[0])
        return
    words: list[str] = []
    for part in group.parts:
        match part:
            case ToolReturn(name=name, content=content):
                words.append(format_result(name, "".join(_content_texts(content))))
            case Text() | Media():
                words += _content_texts([part])
    yield {"role": "user", "content": "\n\n".join(words)}


def _show_reading(part: Part) -> Iterable[dict[str, Any]]:
    """The refused change, and after it the text of the file as if the model had asked for it: the
    next step then follows the examples instead of repeating the change."""
    assert isinstance(part, ToolReturn)
    refusal, _, text = "".join(_content_texts(part.content)).partition(_SHOWN_FILE)
    mark = refusal[: refusal.find("\n") + 1] if refusal.startswith("<") else ""
    name = refusal.removeprefix(mark).partition(" exists and ")[0]
    reading = _call_step("terminal", {"command": f"cat {shlex.quote(name)}"}, CHANGE)
    refused = f"{refusal.rstrip()}\n{mark.replace('<', '</')}"
    yield {"role": "user", "content": format_result(part.name, refused)}
    yield {"role": "assistant", "content": _encode_step(reading)}
    yield {"role": "user", "content": format_result("terminal", mark + text)}


def format_result(tool: str, text: str) -> str:
    return f"Result of {tool}:\n{text.strip() or '(no output)'}"


def _encode_steps(parts: Sequence[Part], result: bool) -> Iterable[str]:
    for part in parts:
        match part:
            case Text(text=text) if text.strip():
                yield _encode_step(_answer_step(text, result=result))
            case ToolCall(name=name, args=args, extra=extra):
                about = (extra or {}).get(ABOUT) or _subjects(name)[0]
                yield _encode_step(_call_step(name, parse_arguments(args), about))


def _content_texts(parts: Iterable[Text | Media]) -> list[str]:
    return [p.text if isinstance(p, Text) else describe_media(p) for p in parts]


def _tool_lines(tool: ToolSpec) -> Iterable[str]:
    """How the tool is called, for each thing a call may be about that has a hint, or once."""
    args = {name: name.upper() for name in _required_names(tool)}
    hints = {s: _HINTS[tool.name, s] for s in _subjects(tool.name) if (tool.name, s) in _HINTS}
    default = {_subjects(tool.name)[0]: tool.description.partition(". ")[0][:_LONGEST_HINT]}
    for subject, hint in (hints or default).items():
        yield f"{_encode_step(_call_step(tool.name, args, subject))} - {hint}"


def _subjects(tool: str) -> list[str]:
    """What a call of the tool may be about, the usual one first."""
    return [CHANGE] if tool in _WRITERS else [LOOK, CHANGE]


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

"""Calls as models write them into their text, and text about calls that is not one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.wire.test_chat_calling import cuts, heard, parts

LS = [("terminal", {"command": "ls"})]
READ = [("read_file", {"path": "a.txt"})]
CALL = '{"name": "terminal", "arguments": {"command": "ls"}}'
DOUBLED = '{{"name": "terminal", "arguments": {{"command": "ls"}}}}'
INVOKED = '<invoke name="read_file"><parameter name="path">a.txt</parameter></invoke>'
FUNCTION = "<function=read_file>\n<parameter=path>\na.txt\n</parameter>\n</function>"
DEEPSEEK = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file\n```json\n"
    '{"path": "a.txt"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)

FORMS: dict[str, tuple[str, list[Any]]] = {
    "tools": (f"<tools>\n{CALL}\n</tools>", LS),
    "tools not closed": (f"<tools>\n{CALL}\n", LS),
    "tool-result": (f"<tool-result>\n{CALL}\n</tool-result>", LS),
    "tool_calls": (f"<tool_calls>[{CALL}]</tool_calls>", LS),
    "function_call": (f"<function_call>{CALL}</function_call>", LS),
    "tool request": (f"[TOOL_REQUEST]{CALL}[END_TOOL_REQUEST]", LS),
    "mistral": (f"[TOOL_CALLS] [{CALL}]", LS),
    "llama": ('<|python_tag|>{"name": "terminal", "parameters": {"command": "ls"}}', LS),
    "llama function": ('<function=read_file>{"path": "a.txt"}</function>', READ),
    "qwen coder": (FUNCTION, READ),
    "qwen coder in a tag": (f"<tool_call>\n{FUNCTION}\n</tool_call>", READ),
    "two functions": (f"{FUNCTION}\n{FUNCTION}", READ * 2),
    "invoke": (f"<function_calls>\n{INVOKED}\n</function_calls>", READ),
    "bare invoke": (INVOKED, READ),
    "element": ("<read_file>\n<path>a.txt</path>\n</read_file>", READ),
    "element with JSON": ('<read_file>{"path": "a.txt"}</read_file>', READ),
    "liquid": ('<|tool_call_start|>[read_file(path="a.txt")]<|tool_call_end|>', READ),
    "phi": (f"<|tool_call|>[{CALL}]<|/tool_call|>", LS),
    "deepseek": (DEEPSEEK, READ),
    "doubled braces": (DOUBLED, LS),
    "doubled braces in a fence": (f"```json\n{DOUBLED}\n```", LS),
    "doubled braces in a tag": (f"<tool_call>\n{DOUBLED}\n</tool_call>", LS),
    "tool and its arguments side by side": ('{"tool": "terminal", "command": "ls"}', LS),
    "tool as key": ('```json\n{"terminal": {"command": "ls"}}\n```', LS),
    "tool_name": ('{"tool_name": "terminal", "tool_input": {"command": "ls"}}', LS),
    "action": ('{"action": "terminal", "action_input": {"command": "ls"}}', LS),
    "arguments as text": ('{"name": "terminal", "arguments": "{\\"command\\": \\"ls\\"}"}', LS),
    "prefix": ('{"name": "functions.terminal", "arguments": {"command": "ls"}}', LS),
    "openai": (f'{{"id": "1", "type": "function", "function": {CALL}}}', LS),
    "react": ('Action: read_file\nAction Input: {"path": "a.txt"}', READ),
    "react with a made-up result": (
        'Action: read_file\nAction Input: {"path": "a.txt"}\nObservation: nothing',
        READ,
    ),
    "message of the API": (f'{{"tool_calls": [{{"type": "function", "function": {CALL}}}]}}', LS),
    "glaive": (
        """<functioncall> {"name": "read_file", "arguments": '{"path": "a.txt"}'}""",
        READ,
    ),
    "mistral with arguments": ('[TOOL_CALLS]read_file[ARGS]{"path": "a.txt"}', READ),
    "two of mistral": (
        '[TOOL_CALLS]read_file[CALL_ID]abc[ARGS]{"path": "a.txt"}'
        '[TOOL_CALLS]terminal[ARGS]{"command": "ls"}',
        READ + LS,
    ),
    "deepseek in XML": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read_file">\n'
        '<｜DSML｜parameter name="path" string="true">a.txt</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        READ,
    ),
    "functionary": ('>>>read_file\n{"path": "a.txt"}', READ),
    "two of functionary": (
        '>>>read_file\n{"path": "a.txt"}>>>terminal\n{"command": "ls"}',
        READ + LS,
    ),
    "functionary with recipients": (
        '<|from|>assistant\n<|recipient|>read_file\n<|content|>{"path": "a.txt"}<|stop|>',
        READ,
    ),
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0"
        '<|tool_call_argument_begin|>{"path": "a.txt"}<|tool_call_end|><|tool_calls_section_end|>',
        READ,
    ),
    "glm": (
        "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>a.txt</arg_value>\n</tool_call>",
        READ,
    ),
    "internlm": (f"<|action_start|><|plugin|>{CALL}<|action_end|>", LS),
    "harmony": (
        "<|start|>assistant<|channel|>commentary to=functions.read_file <|constrain|>json"
        '<|message|>{"path": "a.txt"}<|call|>',
        READ,
    ),
    "harmony in another order": (
        '<|start|>assistant to=functions.read_file<|channel|>commentary json<|message|>{"path": '
        '"a.txt"}<|call|>',
        READ,
    ),
    "named element": ('<tool name="read_file">{"path": "a.txt"}</tool>', READ),
    "nemotron": (f"<TOOLCALL>[{CALL}]</TOOLCALL>", LS),
    "function gemma": (
        "<start_function_call>call:read_file{path:<escape>a.txt<escape>}<end_function_call>",
        READ,
    ),
    "apertus": ('<|tools_prefix|>[{"read_file": {"path": "a.txt"}}]<|tools_suffix|>', READ),
    "hunyuan": (
        '<tool_calls>\n<tool_call>read_file\n```json\n{"path": "a.txt"}\n```\n</tool_call>\n'
        "</tool_calls>",
        READ,
    ),
    "command": (
        'Action: ```json\n[\n    {\n        "tool_name": "terminal",\n        "parameters": '
        '{"command": "ls"}\n    }\n]\n```',
        LS,
    ),
    "python": ('read_file(path="a.txt")', READ),
    "python by position": ('terminal("ls")', LS),
    "python list": ('[read_file(path="a.txt"), terminal(command="ls")]', READ + LS),
    "tool_code": ('```tool_code\nread_file(path="a.txt")\n```', READ),
    "tool_code printed": ('```tool_code\nprint(read_file(path="a.txt"))\n```', READ),
    "python fence": ('```python\nread_file("a.txt")\nterminal(command="ls")\n```', READ + LS),
}
SEPARATED = ("python", "python by position", "python list", "python fence")
"""Forms that are calls only when they are the whole answer."""


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_a_call_however_it_is_cut(form: str) -> None:
    said, calls = FORMS[form]
    for pieces in ([said], list(said), [said[:9], said[9:]], [f"\n{said}\n"]):
        text, found = parts(heard(pieces, "text"))
        assert (text.strip(), found) == ("", calls)


@pytest.mark.parametrize("form", [form for form in FORMS if form not in SEPARATED])
def test_words_before_a_call_are_kept(form: str) -> None:
    said, calls = FORMS[form]
    for pieces in ([f"I will look.\n{said}"], list(f"I will look.\n{said}")):
        text, found = parts(heard(pieces, "text"))
        assert (text.strip(), found) == ("I will look.", calls)


def test_words_after_an_object_on_a_line_of_their_own_are_kept() -> None:
    text, found = parts(heard([f"Sure.\n{CALL}\n\nThis lists the files."], "text"))
    assert (text.split("\n"), found) == (["Sure.", "", "", "This lists the files."], LS)


def test_an_object_in_a_list_over_several_lines_is_a_call() -> None:
    _, found = parts(heard([f"I will look:\n[\n    {CALL}\n]"], "text"))
    assert found == LS


NOT_CALLS = (
    f"A call looks like this, for example:\n```json\n{CALL}\n```",
    f"The format is:\n{CALL}",
    f"Models such as this one write:\n```json\n{CALL}\n```\nand the runtime executes it.",
    f"You write `{CALL}` to list files.",
    f"In JSON: {CALL} is what you send.",
    '```json\n{"name": "terminal", "version": "1.2.0", "main": "index.js"}\n```',
    '```json\n{"name": "read_file", "description": "R", "parameters": {"type": "object"}}\n```',
    '<tools>\n{"name": "read_file", "parameters": {"type": "object", "properties": {}}}\n</tools>',
    '```json\n{"terminal": {"integrated.fontSize": 12}}\n```',
    '```json\n{"tool": "terminal", "rating": 5}\n```',
    'You can call read_file(path="a.txt") to see it.',
    'Use this:\n```python\nread_file("a.txt")\n```',
    '```python\nread_file("a.txt")\n```\nThis function reads a file.',
    "```python\ndef read_file(path):\n    return open(path).read()\n```",
    '```python\nx = read_file("a.txt")\nprint(x)\n```',
    "```python\nfor f in files:\n    read_file(f)\n```",
    "read_file(path) reads a file, terminal(command) runs one.",
    "terminal(s) are where commands run",
    "The <tool_call> tag holds a call of terminal.",
    "Use <tools> to declare terminal and read_file.",
    "Action: read the file terminal.log carefully.",
    "[read_file](docs/read_file.md) reads files.",
    "- terminal: runs commands\n- read_file: reads files",
    '{"colour": "red", "terminal": "green"}',
    '[{"name": "terminal", "price": 3}, {"name": "read_file", "price": 4}]',
    '{"name": "launch", "arguments": {"command": "ls"}}',
    f"The model wrote <tool_call>{CALL}</tool_call> in its answer, which is wrong.",
    f"Write `<tool_call>{CALL}</tool_call>` to list files.",
    f"1. The client sends:\n\n    {CALL}\n\n2. The server answers.",
    f"It sends:\n\n\t{CALL}\n",
    f"> {CALL}\n\nis what the log says.",
    ">>> read_file\nis what the log says.",
    ">>>read_file is what the log says.",
    "The token <|recipient|> names the tool, as in to=functions.read_file.",
)


@pytest.mark.parametrize("said", NOT_CALLS)
def test_text_about_tools_is_text(said: str) -> None:
    for pieces in ([said], list(said)):
        assert parts(heard(pieces, "text")) == (said, [])


WORDS = st.sampled_from(
    'I the file terminal read_file use can call JSON with a.txt <b> </b> [1] {x} it\'s "ok" '
    "name: arguments: tool function `ls` f(x) :-) 3 < 4 && a > b".split()
)
PROSE = st.lists(st.lists(WORDS, min_size=1, max_size=9).map(" ".join), max_size=6).map("\n".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["terminal", "read_file", "ls"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "version", "colour", "items", "title", "price"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(PROSE, VALUES, PROSE, st.booleans(), st.lists(st.integers(0, 400), max_size=8))
@settings(max_examples=300, deadline=None)
@example("terminal", {"name": "terminal"}, "", False, [])
def test_prose_with_data_in_it_is_text_however_it_is_cut(
    before: str, value: Any, after: str, fenced: bool, at: list[int]
) -> None:
    import json

    data = json.dumps(value)
    said = f"{before}\n" + (f"```json\n{data}\n```\n" if fenced else f"{data}\n") + after
    assert parts(heard(cuts(said, at), "text")) == (said, [])


@given(
    st.lists(
        st.sampled_from([said for said, _ in FORMS.values()]) | PROSE | st.just("\n"), max_size=4
    ),
    st.lists(st.integers(0, 600), max_size=10),
)
@settings(max_examples=300, deadline=None)
def test_cutting_changes_nothing(pieces: list[str], at: list[int]) -> None:
    said = "".join(pieces)
    assert parts(heard(cuts(said, at), "text")) == parts(heard([said], "text"))

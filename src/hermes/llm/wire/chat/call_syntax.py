"""The forms in which models write tool calls as text."""

import ast
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from hermes.llm.wire.lenient_json import decode_json, encode_json

OfferedTools: TypeAlias = Mapping[str, tuple[str, ...]]
"""Name of each tool -> the names of its parameters."""
FoundCall: TypeAlias = tuple[str, str]
"""The name of the tool and its arguments as JSON, possibly with slips that are repaired later."""

_NAME_KEYS = ("name", "tool", "tool_name", "function_name", "recipient_name", "action", "function")
_ARGUMENT_KEYS = (
    *("arguments", "parameters", "args", "params", "input", "tool_input", "action_input"),
    *("kwargs", "tool_args"),
)
_OTHER_KEYS = frozenset({"id", "type", "tool_call_id", "call_id", "index"})
_QUOTED = r"""["'](?:name|tool|tool_name)["']\s*:\s*["']([\w.-]+)["']"""
_BEGUN = re.compile(
    rf"""\{{+\s*{_QUOTED}\s*,\s*["'](?:arguments|parameters|args)["']\s*:\s*(?=\{{)"""
)
_MARK = re.compile(r"""[][{}]|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'""", re.S)
_OPTIONS = r"""(?:\s+\w+=["'][^"'>]*["'])*"""
_FUNCTION = re.compile(r"<function=([\w.-]+)>\s*(.*?)\s*(?:</function>|\Z)", re.S)
_INVOKE = re.compile(r"""<invoke\s+name=["']([\w.-]+)["']>\s*(.*?)\s*(?:</invoke>|\Z)""", re.S)
_NAMED = re.compile(
    r"""<(?:tool|function|tool_call)\s+name=["']([\w.-]+)["']>\s*(.*?)\s*"""
    r"(?:</(?:tool|function|tool_call)>|\Z)",
    re.S,
)
_PARAMETER = re.compile(
    rf"""<parameter(?:=|\s+name=["'])([\w.-]+)["']?{_OPTIONS}>\n?(.*?)\n?</parameter>"""
    r"|<arg_key>([\w.-]+)</arg_key>\s*<arg_value>(.*?)</arg_value>",
    re.S,
)
_ELEMENT = re.compile(r"<([\w.-]+)>(.*?)</\1>", re.S)
_DEEPSEEK = re.compile(
    r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?([\w.-]+)(?:<｜tool▁sep｜>|\s)\s*(?:```json\s*)?"
    r"(\{.*?\})\s*(?:```\s*)?<｜tool▁call▁end｜>",
    re.S,
)
_KIMI = re.compile(
    r"<\|tool_call_begin\|>\s*(?:functions\.)?([\w.-]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>"
    r"\s*(\{.*?\})\s*<\|tool_call_end\|>",
    re.S,
)
_MISTRAL = re.compile(
    r"(?:\[TOOL_CALLS\]\s*)?([\w.-]+)(?:\[CALL_ID\][\w-]+)?\[ARGS\]\s*(\{.*?\})\s*"
    r"(?=\[TOOL_CALLS\]|\Z)",
    re.S,
)
_HARMONY = re.compile(
    r"(?:<\|start\|>assistant\s*)?(?:<\|channel\|>\w+\s*)?to=(?:functions\.)?([\w.-]+)"
    r"\s*(?:<\|channel\|>\w+\s*)?(?:<\|constrain\|>)?(?:json)?\s*<\|message\|>\s*(\{.*?\})\s*"
    r"(?:<\|call\|>|\Z)",
    re.S,
)
_RECIPIENT = re.compile(
    r"(?:>>>|(?:<\|from\|>assistant\s*)?<\|recipient\|>)\s*([\w.-]+)\s*\n(?:<\|content\|>)?\s*"
    r"(\{.*?\})\s*(?=>>>|<\||\Z)",
    re.S,
)
_GLM = re.compile(r"([\w.-]+)\s*((?:<arg_key>.*?</arg_value>\s*)+)", re.S)
_HUNYUAN = re.compile(
    r"(?:<tool_call>\s*)?([\w.-]+)\s*\n```json\s*(\{.*?\})\s*```\s*(?:</tool_call>|\Z)", re.S
)
_GEMMA = re.compile(r"call:([\w.-]+)\s*(\{.*?\})\s*(?:<end_function_call>|\Z)", re.S)
_ESCAPED = re.compile(r"([\w.-]+):<escape>(.*?)<escape>", re.S)
_ACTION = re.compile(
    r"Action:\s*`?([\w.-]+)`?\s*\n\s*Action Input:\s*(\{.*?\})\s*(?=\n\s*Observation|\Z)", re.S
)
_FENCED_ACTION = re.compile(r"Action:\s*```(?:json)?\s*([\[{].*[\]}])\s*```", re.S)
_NAMED_FORMS = (
    *(_FUNCTION, _INVOKE, _NAMED, _DEEPSEEK, _KIMI, _MISTRAL, _HARMONY, _RECIPIENT, _GLM),
    *(_HUNYUAN, _GEMMA, _ACTION),
)
"""Forms that name the tool outside the JSON: group 1 is its name, group 2 the arguments."""
_AROUND = re.compile(
    r"<｜[^｜]*｜>|<\|[\w▁]+\|>|</?(?:function_calls|start_function_call|tool_calls?)>|Observation.*",
    re.S,
)
"""What may stand around such calls."""


def find_calls(text: str, tools: OfferedTools) -> list[FoundCall]:
    """The calls in a text that contains nothing else; empty if it contains anything else."""
    text = text.replace("｜DSML｜", "").strip()
    if not text:
        return []
    if fenced := _FENCED_ACTION.fullmatch(text):
        text = fenced[1]
    for pattern in _NAMED_FORMS:
        if pattern.match(text):
            return _match_calls(pattern, text, tools)
    if element := _ELEMENT.fullmatch(text):
        return _read_element(element[1], element[2], tools)
    if values := parse_values(text) or parse_values(_halve_braces(text)):
        return _read_values(values, tools)
    if found := _read_broken(text, tools):
        return found
    return _read_values(_parse_literal(text), tools) or read_python_calls(text, tools)


def split_leading_calls(text: str, tools: OfferedTools) -> tuple[list[FoundCall], str]:
    """The calls that a text begins with, and the rest of it, which begins on a line of its own."""
    if found := find_calls(text, tools):
        return found, ""
    with suppress(ValueError, RecursionError):
        value, end = json.JSONDecoder(strict=False).raw_decode(text.lstrip())
        rest = text.lstrip()[end:]
        if not rest.partition("\n")[0].strip():
            return find_calls(json.dumps(value), tools), rest
    return [], text


def read_python_calls(text: str, tools: OfferedTools) -> list[FoundCall]:
    """Calls in the syntax of Python, one a line or in a list."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    if len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.List):
        nodes: list[ast.AST] = list(body[0].value.elts)
    else:
        nodes = [node.value if isinstance(node, ast.Expr) else node for node in body]
    return _keep_complete(_read_python_call(node, tools) for node in nodes)


def _read_python_call(node: ast.AST, tools: OfferedTools) -> FoundCall | None:
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print" and node.args:
        node = node.args[0]
    if not isinstance(node, ast.Call):
        return None
    name = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
    if name not in tools or len(node.args) > len(tools[name]):
        return None
    try:
        values = [ast.literal_eval(value) for value in node.args]
        named = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    given = dict(zip(tools[name], values, strict=False)) | named
    known = len(named) == len(node.keywords) and set(given) <= set(tools[name])
    return (name, encode_json(given).decode()) if known else None


def _match_calls(pattern: re.Pattern[str], text: str, tools: OfferedTools) -> list[FoundCall]:
    """Every match, if there is nothing else in the text."""
    found = list(pattern.finditer(text))
    if _AROUND.sub("", pattern.sub("", text)).strip():
        return []
    return _keep_complete(_read_tagged(match[1], match[2], tools) for match in found)


def _read_tagged(name: str, inner: str, tools: OfferedTools) -> FoundCall | None:
    if name not in tools:
        return None
    if found := _PARAMETER.findall(inner):
        given = {name or other: text or value for name, text, other, value in found}
        return name, encode_json(given).decode()
    if given := dict(_ESCAPED.findall(inner)):
        return name, encode_json(given).decode()
    values = parse_values(inner or "{}")
    if len(values) == 1 and isinstance(values[0], dict):
        return name, encode_json(values[0]).decode()
    return None


def _read_element(name: str, inner: str, tools: OfferedTools) -> list[FoundCall]:
    """An element named like a tool, with an element for each argument, or JSON."""
    given = dict(_ELEMENT.findall(inner))
    has_only_elements = bool(given) and not _ELEMENT.sub("", inner).strip()
    if has_only_elements and name in tools and set(given) <= set(tools[name]):
        return [(name, encode_json({k: v.strip("\n") for k, v in given.items()}).decode())]
    return _keep_complete([_read_tagged(name, inner, tools)])


def _keep_complete(found: Iterable[FoundCall | None]) -> list[FoundCall]:
    """All of them, or none if one is no call."""
    calls = list(found)
    return [call for call in calls if call is not None] if None not in calls else []


def parse_values(text: str) -> list[Any]:
    """JSON values in sequence or in a list; empty if the text contains anything else."""
    with suppress(ValueError):
        value = decode_json(text)
        return value if isinstance(value, list) else [value]
    found, position = [], 0
    decoder = json.JSONDecoder(strict=False)
    while position < len(text):
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return []
        found.append(value)
        while text[position : position + 1] in (" ", "\t", "\r", "\n", ",", ";"):
            position += 1
    return found


def _parse_literal(text: str) -> list[Any]:
    """A dictionary in Python's syntax, or a list of them."""
    if not text.startswith(("{", "[")):
        return []
    with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        value = ast.literal_eval(text)
        return value if isinstance(value, list) else [value]
    return []


def _halve_braces(text: str) -> str:
    """The text of a template whose braces are doubled, as a model copied it."""
    return text.replace("{{", "{").replace("}}", "}") if text.startswith("{{") else ""


def _read_broken(text: str, tools: OfferedTools) -> list[FoundCall]:
    """A call whose JSON has a slip: it is repaired later, with all other arguments."""
    begun = _BEGUN.match(text)
    if begun is None or begun[1] not in tools or not _is_one_object(text, begun.end()):
        return []
    return [(begun[1], text[begun.end() :])]


def _is_one_object(text: str, start: int) -> bool:
    """Whether one object with a JSON error begins here, ends, and only brackets follow."""
    depth = 0
    for mark in _MARK.finditer(text, start):
        if mark[0] in "{[":
            depth += 1
        elif mark[0] in "}]":
            depth -= 1
            if depth == 0:
                return not text[mark.end() :].strip(" \t\r\n}]")
    return False


def _read_values(values: list[Any], tools: OfferedTools) -> list[FoundCall]:
    listed = (call for value in values for call in _list_values(value))
    return _keep_complete(_read_call(value, tools) for value in listed)


def _list_values(value: Any) -> list[Any]:
    """The calls in the list of calls that a message of the API holds; any other value is one."""
    inner = value.get("tool_calls") if isinstance(value, dict) else None
    if isinstance(inner, list) and inner and set(value) <= {"tool_calls", "content", "role"}:
        return inner
    return [value]


def _read_call(value: Any, tools: OfferedTools) -> FoundCall | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function") or value.get("tool_call") or value.get("function_call")
    if isinstance(inner, dict) and set(value) - _OTHER_KEYS <= {
        *("function", "tool_call", "function_call")
    }:
        return _read_call(inner, tools)
    if len(value) == 1:
        ((name, given),) = value.items()
        is_call = name in tools and isinstance(given, dict) and set(given) <= set(tools[name])
        return (name, encode_json(given).decode()) if is_call and given else None
    named = next((key for key in _NAME_KEYS if isinstance(value.get(key), str)), "")
    name = value.get(named, "").removeprefix("functions.")
    rest = {k: v for k, v in value.items() if k != named and k not in _OTHER_KEYS}
    if name not in tools or not rest:
        return None
    wrapped = next((key for key in _ARGUMENT_KEYS if key in rest), "")
    if wrapped and len(rest) == 1:
        return _read_arguments(name, rest[wrapped])
    # The arguments may stand beside the name; then all of them must be the tool's.
    return (name, encode_json(rest).decode()) if set(rest) <= set(tools[name]) else None


def _read_arguments(name: str, args: Any) -> FoundCall | None:
    if isinstance(args, str):
        return name, args
    if not isinstance(args, dict) or ("properties" in args and args.get("type") == "object"):
        return None  # the second is the declaration of a tool, not a call
    return name, encode_json(args).decode()

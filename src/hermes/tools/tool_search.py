"""Finds tools that requests do not declare, and forwards calls to them."""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from hermes.core.errors import ToolError
from hermes.core.tool import Tool, ToolContext, ToolResult, tool
from hermes.tools._services import DISCOVER_TOOLS

MAX_RESULTS = 12
_MAX_LISTED = 100
_CORE = "core"
_CALL_HINT = 'Call one with tool_search: {"name": "...", "arguments": {...}}'
_WORD_PATTERN = re.compile(r"[^\W_]+")
_STOP_WORDS = frozenset(
    "a an and any at by can could do does find for from get help how i in is it me my need of on "
    "or please something some take that the there this to tool tools use using want way we what "
    "which with you did about".split()
)


class Params(Struct, frozen=True):
    query: str = ""
    name: str = ""
    arguments: Annotated[Any, Meta(extra_json_schema={"type": "object"})] = None


def _resolve_target(p: Params) -> tuple[str, dict[str, Any]] | None:
    if not p.name:
        return None
    if p.arguments is None and p.query:  # the query is for the named tool
        return p.name, {"query": p.query}
    return p.name, _parse_arguments(p.arguments)


def _parse_arguments(value: Any) -> dict[str, Any]:
    """The arguments as an object; models sometimes write them as JSON text."""
    if isinstance(value, str):
        import orjson

        with suppress(orjson.JSONDecodeError):
            value = orjson.loads(value) if value.strip() else {}
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ToolError("`arguments` must be an object; nothing was executed.")
    return value


@tool(
    "More tools: web, browser, Python, images and others. {query} finds them by words, with their "
    "schemas; {name, arguments} calls one.",
    brings=(),
    forward=_resolve_target,
)
async def tool_search(p: Params, ctx: ToolContext) -> ToolResult:
    discover = ctx.services.get(DISCOVER_TOOLS)
    failures = await discover() if discover else []
    result = _search_tools(p, ctx)
    if failures and isinstance(result.content, str):
        text = "\n".join((result.content, "", *failures))
        return structs.replace(result, content=text)
    return result


def _search_tools(p: Params, ctx: ToolContext) -> ToolResult:
    deferred = [t for t in ctx.toolbox.tools.values() if t.toolset != _CORE]
    if not deferred:
        return ToolResult("There are no other tools.", data=[])
    found = rank_tools(p.query, deferred)[:MAX_RESULTS]
    if found:
        names = [t.name for t in found]
        text = "\n\n".join([*map(_format_entry, found), _CALL_HINT])
        return ToolResult(text, display=", ".join(names), data=names)
    head = f"No tool matches {p.query!r}; all tools:" if p.query.strip() else "All tools:"
    rows = [f"{t.name}: {_first_line(t)}" for t in deferred]
    if len(rows) > _MAX_LISTED:
        rows[_MAX_LISTED:] = [f"{len(rows) - _MAX_LISTED} more; search for them by words."]
    return ToolResult("\n".join([head, *rows]), data=[])


def rank_tools(query: str, tools: Iterable[Tool[Any]]) -> list[Tool[Any]]:
    """The tools that share words with the query, best first, equal ones by name."""
    wanted = _split_words(query) - _STOP_WORDS or _split_words(query)
    scored = [(_score_tool(wanted, t), t) for t in tools]
    return [t for score, t in sorted(scored, key=lambda s: (-s[0], s[1].name)) if score > 0]


def _score_tool(wanted: set[str], tool: Tool[Any]) -> float:
    name, text = _split_words(tool.name), f"{tool.toolset} {tool.description} {tool.words}"
    fields = _split_words(" ".join(tool.spec.parameters.get("properties", ())))
    total = 8.0 if wanted == name or wanted == {"".join(_WORD_PATTERN.findall(tool.name))} else 0.0
    weights = ((4.0, name), (2.0, _split_words(text)), (1.0, fields))
    for word in wanted:
        total += max(weight * _match_word(word, words) for weight, words in weights)
    return total


def _match_word(word: str, words: set[str]) -> float:
    if word in words:
        return 1.0
    close = (w for w in words if min(len(w), len(word)) >= 4)
    return 0.5 if any(w.startswith(word) or word.startswith(w) for w in close) else 0.0


def _split_words(text: str) -> set[str]:
    """The words of a text in lower case, without a plural s."""
    found = _WORD_PATTERN.findall(text.casefold())
    return {w[:-1] if len(w) > 3 and w.endswith("s") and w[-2] != "s" else w for w in found}


def _format_entry(tool: Tool[Any]) -> str:
    import orjson

    return f"{tool.name}: {_first_line(tool)}\n{orjson.dumps(tool.spec.parameters).decode()}"


def _first_line(tool: Tool[Any]) -> str:
    return tool.description.strip().partition("\n")[0]

"""Makes tools of Python functions: the schema comes from the signature and the docstring."""

import asyncio
import inspect
import re
from collections.abc import Callable
from itertools import repeat
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from hermes.core.errors import ToolError
from hermes.core.tool import Tool, ToolContext, tool

_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SECTION_HEADER = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Raises|Yields|Notes?|Examples?):$"
)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")
_SPHINX_ENTRY = re.compile(r":param\s+(?:[^:]*\s)?(\w+):\s*(.*)")
_IMMUTABLE_TYPES = (str, int, float, bool, type(None))


class FunctionOptions(Struct, frozen=True):
    """Options of a function as a tool; an empty name or description is taken from the function."""

    name: str = ""
    description: str = ""
    risk: Literal["read", "write", "network"] = "read"
    needs_approval: bool = False
    timeout: Annotated[float, Meta(gt=0)] = 600.0


def make_tool(function: Callable[..., Any], options: FunctionOptions) -> Tool[Any]:
    """A tool that calls the function. Raises TypeError when the function cannot be a tool."""
    if not callable(function):
        raise TypeError(f"{function!r} cannot be a tool: it is not a function.")
    name = options.name or getattr(function, "__name__", "")
    if not _TOOL_NAME.fullmatch(name):
        raise TypeError(
            f"{name or function!r} cannot be the name of a tool: use up to 64 letters, digits, _ "
            "and -, beginning with a letter. Set one with @hermes.tool(name=...)."
        )
    description, notes = read_docstring(inspect.getdoc(function) or "")

    async def run(p: Struct, ctx: ToolContext) -> str:
        arguments = {field: getattr(p, field) for field in p.__struct_fields__}
        try:
            return _encode_result(await call_function(function, **arguments))
        except SystemExit as error:
            raise ToolError(f"{name} failed: it called sys.exit({error.code!r}).") from None

    try:
        run.__annotations__["p"] = _make_params(name, function, notes)
        made: Tool[Any] = tool(
            options.description or description or name.replace("_", " "),
            name=name,
            risk=options.risk,
            timeout=options.timeout,
            asks=f"every call of {name} needs approval" if options.needs_approval else "",
        )(run)
        made.spec  # noqa: B018 - a type without a schema fails now, not in the first turn
    except (TypeError, NameError) as error:
        problem = str(error).splitlines()[-1]
        raise TypeError(f"{name} cannot be a tool: {problem}") from None
    return made


async def call_function(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call the function. One that is not async runs in a thread, so it may block; cancellation
    does not stop that thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)

    def call() -> Any:
        try:
            return function(*args, **kwargs)
        except StopIteration as error:  # a future cannot hold one: its task would wait for ever
            raise RuntimeError("StopIteration") from error

    result = await asyncio.to_thread(call)
    return await result if inspect.isawaitable(result) else result


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description and the notes on parameters, in Google or Sphinx style."""
    description: list[str] = []
    notes: dict[str, list[str]] = {}
    target, section, margin = description, "", 0
    for line in text.splitlines():
        words, indent = line.strip(), len(line) - len(line.lstrip())
        entry = _SPHINX_ENTRY.fullmatch(words)
        if found := _SECTION_HEADER.fullmatch(line):
            target, section, margin = [], found[1], 0
            continue
        if section in ("Args", "Arguments", "Parameters") and words:
            margin = margin or indent
            entry = _GOOGLE_ENTRY.fullmatch(words) if indent <= margin else entry
        if entry:
            target = notes.setdefault(entry[1], [])
            words = entry[2]
        elif words.startswith(":"):
            target = []
        target.append(words)
    return "\n".join(description).strip(), {k: " ".join(v).strip() for k, v in notes.items()}


def _make_params(name: str, function: Callable[..., Any], notes: dict[str, str]) -> type[Struct]:
    fields: list[Any] = []
    for each in inspect.signature(function, eval_str=True).parameters.values():
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            raise TypeError(f"its parameter {each} cannot be passed by name.")
        kind: Any = Any if each.annotation is each.empty else each.annotation
        if note := notes.get(each.name):
            kind = Annotated[kind, Meta(description=note)]
        default = each.default
        if default is each.empty:
            default = msgspec.NODEFAULT
        elif not isinstance(default, _IMMUTABLE_TYPES):
            default = msgspec.field(default_factory=repeat(default).__next__)
        fields.append((each.name, kind, default))
    return msgspec.defstruct(name, fields, kw_only=True, frozen=True)


def _encode_result(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "Done." if value is None else msgspec.json.encode(value, enc_hook=str).decode()

"""The module a script imports: one function for each tool it may call."""

from collections.abc import Iterable
from keyword import iskeyword
from typing import Any

from hermes.core.provider import ToolSpec

_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
}
_MODULE_START = '''\
class ToolError(Exception):
    """A call that failed, or was not allowed; its text says why."""
'''


def make_stub_module(specs: Iterable[ToolSpec]) -> str:
    """The Python source of the module. Schemas may come from untrusted servers: their texts appear
    only as checked names and as literals, never as code."""
    functions = [_make_function(spec) for spec in specs if _is_safe_name(spec.name)]
    return "\n\n".join([_MODULE_START, *functions])


def _make_function(spec: ToolSpec) -> str:
    fields: dict[str, Any] = spec.parameters.get("properties") or {}
    required = [name for name in spec.parameters.get("required") or () if name in fields]
    optional = [name for name in fields if name not in required]
    doc = repr(spec.description.strip())
    if not all(_is_safe_name(name) for name in fields):
        head, arguments = "**arguments", "arguments"
    else:
        parameters = [f"{n}: {_name_type(fields[n])}" for n in required]
        parameters += [f"{n}: {_name_type(fields[n])} | None = None" for n in optional]
        head = ", ".join(parameters)
        arguments = "{" + ", ".join(f"{n!r}: {n}" for n in (*required, *optional)) + "}"
    call = f"_call({spec.name!r}, {arguments})"
    return f"def {spec.name}({head}) -> str:\n    {doc}\n    return {call}\n"


def _is_safe_name(text: str) -> bool:
    """Whether the text is a Python name and stays itself: Python reads º as o."""
    if not text.isidentifier() or iskeyword(text) or text.startswith("_"):
        return False
    if text.isascii():
        return True
    from unicodedata import is_normalized

    return is_normalized("NFKC", text)


def _name_type(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return _TYPES.get(kind, "object") if isinstance(kind, str) else "object"

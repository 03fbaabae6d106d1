"""Adapts tool schemas to what an endpoint accepts, in the style its quirks name."""

from functools import reduce
from typing import Any, Literal, TypeAlias

from hermes.core.provider import ToolSpec

Schema: TypeAlias = dict[str, Any]
Style: TypeAlias = Literal["as_is", "gemini", "no_formats"]

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NODES = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAX_DEPTH = 24
"""A schema that refers to itself is cut here; no arguments are that deep."""

_COPIED = (
    "title", "description", "nullable", "minItems", "maxItems", "minimum", "maximum",
    "minLength", "maxLength", "minProperties", "maxProperties", "pattern",
)  # fmt: skip
_FORMATS = {
    "STRING": ("date-time", "enum"),
    "INTEGER": ("int32", "int64"),
    "NUMBER": ("float", "double"),
}


def describe_tool(tool: ToolSpec, style: Style, field: str) -> dict[str, Any]:
    """The name, the description if there is one, and in this field the schema of a tool."""
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, field: fit_schema(tool.parameters, style)}


def fit_schema(schema: Schema, style: Style) -> Schema:
    """The schema of an arguments object in that style; the original is not changed."""
    if style == "gemini":
        return _to_openapi(schema, schema, 0)
    if style == "no_formats":
        schema = _drop_formats(schema)
    # The type is required by every API.
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def _drop_formats(node: Any) -> Any:
    """The schema without patterns and formats, which grammar compilers of local servers refuse."""
    if not isinstance(node, dict):
        return node
    out = {k: v for k, v in node.items() if k not in ("format", "pattern")}
    for key, value in out.items():
        if key in _MAPS and isinstance(value, dict):
            out[key] = {name: _drop_formats(inner) for name, inner in value.items()}
        elif key in _NODES:
            out[key] = _drop_formats(value)
        elif key in _LISTS and isinstance(value, list):
            out[key] = [_drop_formats(inner) for inner in value]
    return out


def _to_openapi(node: Any, root: Schema, depth: int) -> Schema:
    """The schema in the keywords of the `parameters` field; any other causes a 400."""
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        return {"type": "STRING"}
    node = _resolve_node(node, root)
    out: Schema = {k: node[k] for k in _COPIED if node.get(k) is not None}
    kind = _openapi_type(node, out)
    listed = node.get("anyOf") or node.get("oneOf") or ()
    options = [o for o in listed if o != {"type": "null"}]
    if len(options) != len(listed):
        out["nullable"] = True
    if len(options) == 1:
        return {**_to_openapi(options[0], root, depth + 1), **out}
    if options:
        out["anyOf"] = [_to_openapi(o, root, depth + 1) for o in options]
        return out
    out["type"] = kind
    if node.get("format") in _FORMATS.get(kind, ()):
        out["format"] = node["format"]
    _add_enum_values(node, kind, out)
    if kind == "ARRAY":
        out["items"] = _to_openapi(node.get("items"), root, depth + 1)
    elif kind == "OBJECT" and node.get("properties"):
        inner = {k: _to_openapi(v, root, depth + 1) for k, v in node["properties"].items()}
        out["properties"] = inner
        required = [k for k in node.get("required") or () if k in inner]
        if required:
            out["required"] = required
    return out


def _resolve_node(node: Schema, root: Schema) -> Schema:
    """The node with references and `allOf` written out."""
    for _ in range(_MAX_DEPTH):
        ref = node.get("$ref")
        if isinstance(ref, str) and ref.startswith("#/"):
            found: Any = root
            for step in ref[2:].split("/"):
                found = found.get(step) if isinstance(found, dict) else None
            rest = {k: v for k, v in node.items() if k != "$ref"}
            node = {**found, **rest} if isinstance(found, dict) else rest
        elif isinstance(node.get("allOf"), list):
            rest = {k: v for k, v in node.items() if k != "allOf"}
            parts = [_resolve_node(part, root) for part in node["allOf"] if isinstance(part, dict)]
            node = reduce(_merge_schemas, [*parts, rest])
        else:
            break
    return node


def _merge_schemas(a: Schema, b: Schema) -> Schema:
    out = {**a, **b}
    if isinstance(a.get("properties"), dict) and isinstance(b.get("properties"), dict):
        out["properties"] = {**a["properties"], **b["properties"]}
    if a.get("required") and b.get("required"):
        out["required"] = [*a["required"], *b["required"]]
    return out


def _openapi_type(node: Schema, out: Schema) -> str:
    kind = node.get("type")
    if isinstance(kind, list):
        if "null" in kind:
            out["nullable"] = True
        kind = next((k for k in kind if k != "null"), "string")
    if not isinstance(kind, str):
        kind = "object" if "properties" in node else "array" if "items" in node else "string"
    return kind.upper()


def _add_enum_values(node: Schema, kind: str, out: Schema) -> None:
    """Add the allowed values: as an enum for strings, else in the description."""
    values = node.get("enum") if isinstance(node.get("enum"), list) else None
    if values is None and "const" in node:
        values = [node["const"]]
    values = [v for v in values or () if v is not None]
    if not values:
        return
    if kind == "STRING":
        out["enum"] = [str(v) for v in values]
    else:
        listed = "one of: " + ", ".join(map(str, values))
        out["description"] = f"{out['description']} ({listed})" if "description" in out else listed

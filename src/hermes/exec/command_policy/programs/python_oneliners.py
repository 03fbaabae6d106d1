"""Recognises harmless Python one-liners: versions, arithmetic, imports."""

from __future__ import annotations

import ast
import warnings

_BUILTINS = frozenset(
    "print len str int float bool sorted sum min max range list dict set tuple repr round abs type "
    "enumerate zip isinstance hex bin oct ord chr format reversed any all divmod pow id".split()
)
_CALLS = frozenset(
    "json.dumps json.loads platform.python_version platform.platform platform.system "
    "platform.machine importlib.metadata.version metadata.version version sys.getsizeof time.time "
    "datetime.now datetime.datetime.now datetime.date.today math.sqrt math.floor math.ceil "
    "math.log os.getcwd os.cpu_count site.getsitepackages sysconfig.get_paths uuid.uuid4 "
    "torch.cuda.is_available secrets.token_hex".split()
)
_HEADS = _BUILTINS | {name.partition(".")[0] for name in _CALLS}
_KEYWORDS = frozenset("sep end flush indent sort_keys ensure_ascii reverse".split())
"""Not key= or default=: those call what they are given."""
_DUNDERS = frozenset("__version__ __file__ __name__ __doc__ __all__ __path__".split())
_NODES = (
    ast.Module, ast.Expr, ast.Import, ast.ImportFrom, ast.alias, ast.Assign, ast.Name, ast.Load,
    ast.Store, ast.Constant, ast.Attribute, ast.Call, ast.keyword, ast.BinOp, ast.operator,
    ast.UnaryOp, ast.unaryop, ast.BoolOp, ast.boolop, ast.Compare, ast.cmpop, ast.Tuple, ast.List,
    ast.Dict, ast.Set, ast.JoinedStr, ast.FormattedValue, ast.Subscript, ast.Slice, ast.IfExp,
    ast.ListComp, ast.GeneratorExp, ast.comprehension, ast.Assert,
)  # fmt: skip
_LIMIT = 2000


def is_harmless_python(code: str) -> bool:
    """Whether code only imports, reads attributes and calls functions without side effects."""
    if len(code) > _LIMIT:
        return False
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(_is_harmless_node(node) for node in ast.walk(tree))


def _is_harmless_node(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = _dotted_name(node.func)
        plain = all(keyword.arg in _KEYWORDS for keyword in node.keywords)
        return (
            plain
            and (name in _BUILTINS or name in _CALLS)
            and not (name == "type" and len(node.args) != 1)
        )
    if isinstance(node, ast.Name):
        return isinstance(node.ctx, ast.Load) or node.id not in _HEADS
    if isinstance(node, ast.Attribute):
        return not node.attr.startswith("__") or node.attr in _DUNDERS
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) for target in node.targets)
    if isinstance(node, ast.ImportFrom):
        trusted = node.module in ("importlib", "importlib.metadata", "datetime")
        return all(a.asname is None and (trusted or a.name not in _HEADS) for a in node.names)
    if isinstance(node, ast.Import):
        return all(alias.asname not in _HEADS for alias in node.names)
    return isinstance(node, _NODES)


def _dotted_name(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""

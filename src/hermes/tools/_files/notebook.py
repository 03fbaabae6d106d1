"""Shows a Jupyter notebook as the text of its cells and their outputs."""

from __future__ import annotations

import json
from typing import Any

_MAX_OUTPUT_CHARS = 2000
"""Characters of a cell's output that are shown."""


def render_notebook(data: bytes) -> str | None:
    """The cells as text; None when the data is not a notebook."""
    try:
        cells = json.loads(data)["cells"]
        shown = [_render_cell(number, cell) for number, cell in enumerate(cells, 1)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return "\n".join(shown) + "\n" if shown else ""


def _render_cell(number: int, cell: dict[str, Any]) -> str:
    kind = cell.get("cell_type", "?")
    rows = [f"# %% cell {number} ({kind})", _join_text(cell.get("source", ""))]
    for output in cell.get("outputs", ()):
        if text := _render_output(output):
            more = len(text) - _MAX_OUTPUT_CHARS
            rows.append(
                f"# output: {text[:_MAX_OUTPUT_CHARS]}" + (f" [+{more} characters]" * (more > 0))
            )
    return "\n".join(rows)


def _render_output(output: dict[str, Any]) -> str:
    if "text" in output:
        return _join_text(output["text"])
    if "ename" in output:
        return f"{output['ename']}: {output.get('evalue', '')}"
    data = output.get("data", {})
    if "text/plain" in data:
        return _join_text(data["text/plain"])
    return f"[{', '.join(data)}]" if data else ""


def _join_text(text: str | list[str]) -> str:
    return (text if isinstance(text, str) else "".join(text)).rstrip("\n")

"""How to start a command in a sandbox so that its web traffic reaches the egress proxy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

PORT = 3128


def source() -> str:
    """The relay as a program of its own: the sandbox need not see our files."""
    return Path(__file__).with_name("relay_script.py").read_text(encoding="utf-8")


def command(python: str, socket: Path | str, argv: Sequence[str], port: int = PORT) -> list[str]:
    """`argv` behind the relay. `python` and `socket` are paths as the sandbox sees them."""
    return [python, "-I", "-S", "-c", source(), str(socket), str(port), *argv]


def environment(port: int = PORT) -> dict[str, str]:
    """What makes curl, pip, git and most others use it."""
    url = f"http://127.0.0.1:{port}"
    names = ("http_proxy", "https_proxy", "all_proxy")
    return {form: url for name in names for form in (name, name.upper())}

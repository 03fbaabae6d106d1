"""The context of the file tools."""

from pathlib import Path

import pytest

from hermes.core.tool import ToolContext
from tests.kit.tools import tool_context


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToolContext:
    """A working folder, the agent's home and the user's, apart from one another."""
    for name in ("work", "user"):
        (tmp_path / name).mkdir()
    home = tmp_path / "user" / ".hermes"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path / "user")}
    return tool_context(tmp_path / "work", home, env=env)

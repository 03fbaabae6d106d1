"""Homes with a configuration, loaded as the program loads them."""

from __future__ import annotations

import stat
from pathlib import Path

from hermes.config.load import Setup, load_setup


def load_home(home: Path, text: str | bytes | None = None, **environ: str) -> Setup:
    home.mkdir(mode=0o700, exist_ok=True)
    if text is not None:
        data = text.encode() if isinstance(text, str) else text
        (home / "config.yaml").write_bytes(data)
    return load_setup(environ={"HERMES_HOME": str(home), **environ})


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)

"""A private file that leads a browser to an address, and is gone soon."""

import os
import secrets
import subprocess
import sys
from html import escape
from pathlib import Path

from hermes.config.paths import make_private_folder

_KEEP_SECONDS = 60


def write_link(home: Path, address: str) -> Path:
    folder = home / "run"
    make_private_folder(folder)
    file = folder / f"open-{secrets.token_hex(8)}.html"
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        target = escape(address, quote=True)
        out.write(
            '<!doctype html><meta charset="utf-8"><title>Hermes</title>'
            f'<meta http-equiv="refresh" content="0; url={target}">'
            f'<a href="{target}">Continue to Hermes</a>'
        )
    return file


def remove_later(file: Path) -> None:
    """Remove the file when the browser has read it, also if this process ends before."""
    script = f"import os, time; time.sleep({_KEEP_SECONDS}); os.unlink({str(file)!r})"
    subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

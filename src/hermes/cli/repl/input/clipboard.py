"""The image in the clipboard, read by the programs that desktops have for it."""

import asyncio
import shutil
import time
from pathlib import Path

from hermes.cli.prompt_input import read_image
from hermes.config.paths import make_private_folder
from hermes.core.errors import ConfigError

_SECONDS = 5.0
_MAC_SCRIPT = (
    'set f to open for access POSIX file "{path}" with write permission\n'
    "write (the clipboard as «class PNGf») to f\nclose access f"
)


async def read_clipboard_image(folder: Path) -> Path | None:
    """A new file with the image that is in the clipboard; None when there is none."""
    make_private_folder(folder)
    file = folder / f"clipboard-{time.time_ns()}.png"
    for command in (
        ("wl-paste", "--no-newline", "--type", "image/png"),
        ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ):
        if shutil.which(command[0]) and (data := await _read_output(*command)):
            file.write_bytes(data)
            break
    else:
        if shutil.which("osascript"):
            await _read_output("osascript", "-e", _MAC_SCRIPT.format(path=file))
    try:
        read_image(file)
    except ConfigError:  # no file, or no image
        file.unlink(missing_ok=True)
        return None
    return file


async def _read_output(*command: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(_SECONDS):
            data, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return b""
    return data if process.returncode == 0 else b""

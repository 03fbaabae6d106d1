"""The prompt of a single turn: -q, standard input and images as one message."""

import os
import select
import stat
from pathlib import Path

from hermes.core.errors import ConfigError
from hermes.core.message import Media, Message, user_message
from hermes.tools._files.images import detect_image_type

MAX_IMAGE = 20 << 20
MAX_INPUT = 16 << 20
_PARENT_SECONDS = 1.0
_ANCESTOR_SECONDS = 0.05


def read_prompt(query: str | None, images: list[str]) -> tuple[Message, str]:
    """The message, and a remark for the user or ""."""
    media = [read_image(Path(name)) for name in images]
    remark = ""
    if query is None or query == "-":
        if os.isatty(0) and query is None:
            raise ConfigError('There is no prompt: give one with -q "...", or pipe it in.')
        text = _read_all(0)
    else:
        piped, remark = _read_piped_text()
        text = f"{query}\n\n{piped}" if query.strip() and piped.strip() else query or piped
    if not text.strip() and not media:
        raise ConfigError('The prompt is empty: give one with -q "...", or pipe it in.')
    return user_message(text.strip("\n"), *media), remark


def read_image(file: Path) -> Media:
    """ConfigError when it cannot be read or is not an image."""
    try:
        size = file.stat().st_size
        if size > MAX_IMAGE:
            raise ConfigError(f"{file} has {size >> 20} MB; the limit is {MAX_IMAGE >> 20} MB.")
        with file.open("rb") as stream:
            data = stream.read(MAX_IMAGE + 1)
    except OSError as error:
        raise ConfigError(f"Image {file} cannot be read: {error.strerror}.") from None
    if len(data) > MAX_IMAGE:
        raise ConfigError(f"{file} is too large; the limit is {MAX_IMAGE >> 20} MB.")
    mime = detect_image_type(data)
    if not mime:
        raise ConfigError(f"{file} is not an image: PNG, JPEG, GIF and WebP are supported.")
    return Media(mime, data, name=file.name)


def _read_piped_text() -> tuple[str, str]:
    """Standard input beside -q, and a remark.

    Programs often start us with a pipe that they never write to. A pipe that only our parent
    holds open is therefore not waited for; one that another command feeds is.
    """
    mode = os.fstat(0).st_mode
    if os.isatty(0) or not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return "", ""
    if stat.S_ISREG(mode) or select.select((0,), (), (), 0)[0]:
        return _read_all(0), ""
    seconds = _wait_seconds(stat.S_ISFIFO(mode))
    if not select.select((0,), (), (), seconds)[0]:
        return "", "nothing arrived on standard input; continuing without it (-q - waits for it)"
    return _read_all(0), ""


def _wait_seconds(pipe: bool) -> float | None:
    """How long to wait for the first byte; None: until it arrives or the other side closes."""
    if not pipe:
        return _PARENT_SECONDS
    here = os.fstat(0)
    parent, first = os.getppid(), True
    while parent > 1:
        try:
            if _process_writes_to(parent, (here.st_dev, here.st_ino)):
                return _PARENT_SECONDS if first else _ANCESTOR_SECONDS
            status = Path(f"/proc/{parent}/stat").read_text()
        except OSError:
            break
        parent, first = int(status.rpartition(")")[2].split()[1]), False
    return None


def _process_writes_to(process: int, pipe: tuple[int, int]) -> bool:
    for entry in Path(f"/proc/{process}/fd").iterdir():
        try:
            target = entry.stat()
            if (target.st_dev, target.st_ino) != pipe:
                continue
            info = Path(f"/proc/{process}/fdinfo/{entry.name}").read_text()
        except OSError:
            continue
        flags = next(line for line in info.splitlines() if line.startswith("flags:"))
        if int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY:
            return True
    return False


def _read_all(number: int) -> str:
    data = bytearray()
    while len(data) <= MAX_INPUT:
        try:
            piece = os.read(number, 1 << 16)
        except BlockingIOError:
            select.select((number,), (), ())
            continue
        except OSError:
            break
        if not piece:
            break
        data += piece
    if len(data) > MAX_INPUT:
        raise ConfigError(f"Standard input is longer than {MAX_INPUT >> 20} MB.")
    return data.decode("utf-8", "replace")

"""The user's pager: $PAGER, or less."""

import asyncio

from hermes.config.env import get_environment

_DEFAULT_PAGER = "less -R"


async def run_pager(text: str) -> None:
    """Shows the text and returns when the user has left the pager."""
    environ = get_environment()
    command = environ.get("PAGER", "").strip() or _DEFAULT_PAGER
    # -X keeps the last screen in the scrollback; -R passes colours on, and no other codes.
    env = {"LESS": "-RX", **environ}
    process = await asyncio.create_subprocess_shell(command, stdin=asyncio.subprocess.PIPE, env=env)
    await process.communicate(text.encode("utf-8", "replace"))

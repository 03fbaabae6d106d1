"""`hermes acp`: the agent in code editors."""

from __future__ import annotations

import os
import stat
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, cast

from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, run_async
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

    from hermes.config.load import Setup

_EPILOG = """\
Speaks the Agent Client Protocol on stdin and stdout; editors such as Zed start it themselves. In
Zed's settings:

  "agent_servers": {"Hermes": {"command": "hermes", "args": ["acp"]}}

Modes: ask (edits in the workspace are free), confirm_edits, read_only. Needs the extra acp:
pip install 'hermes-runtime[acp]'

examples:
  hermes acp
  hermes -p work acp
"""
_BUFFER = 50 << 20


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("acp", "Run the agent in a code editor.", _EPILOG)
    args = parser.parse_command(argv, profile)
    return run_async(_serve_editor(args))


async def _serve_editor(args: Namespace) -> int:
    from importlib.util import find_spec

    if find_spec("acp") is None:
        raise ConfigError("The extra acp is not installed. Run: pip install 'hermes-runtime[acp]'")
    from hermes.cli.process import harden_process
    from hermes.server.editors.handshake import answer_initialize

    harden_process()
    setup = load_checked_setup(args.profile)
    reader, writer = await _open_streams()
    greeting = await answer_initialize(reader, writer)
    if greeting is None:
        return 0
    return await _run_agent(setup, reader, writer, greeting.get("clientCapabilities"))


async def _run_agent(
    setup: Setup, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, capabilities: object
) -> int:
    import acp

    from hermes.app.runtime import Runtime
    from hermes.cli.log_file import start_logging
    from hermes.server.editors.agent import EditorAgent

    start_logging(setup.home, setup.secrets.redactable_values())
    async with Runtime.open(setup) as runtime:
        agent = EditorAgent(runtime, capabilities)
        # It ignores parameters that it does not use, which the protocol's type does not know.
        connected = cast("acp.Agent", agent)
        try:
            await acp.run_agent(connected, writer, reader, use_unstable_protocol=True)
        finally:
            await agent.close()
    return 0


async def _open_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The protocol's own streams; what anything prints to stdout goes to stderr from now on."""
    import asyncio

    from hermes.server.editors.handshake import EditorReader

    if stat.S_ISREG(os.fstat(1).st_mode):
        raise ConfigError("An editor reads the output of hermes acp; it cannot go to a file.")
    loop = asyncio.get_running_loop()
    sys.stdout.flush()
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    reader = EditorReader(limit=_BUFFER)
    mode = os.fstat(0).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(0):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    else:  # a file, or nothing
        reader.feed_data(sys.stdin.buffer.read())
        reader.feed_eof()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, output)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

"""What a process that makes its first request has not loaded: weight that few of them need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kit import Home, Provider, say

PROGRAM = """
import asyncio, sys
from hermes.app.runtime import Runtime
from hermes.config.load import load_setup
from hermes.core.message import user_message
async def main():
    async with Runtime.open(load_setup()) as runtime:
        session = await runtime.open_session()
        print((await session.submit(user_message("hi"))).text)
asyncio.run(main())
print(*sorted(sys.modules))
"""
UNUSED = (
    "botocore",
    "xllamacpp",
    "hermes.llm.local",
    "hermes.llm.endpoints.embedded",
    "hermes.llm.endpoints.local_servers",
    "hermes.llm.endpoints.probe",
    "hermes.llm.auth.oauth",
    "hermes.llm.wire.chat.call_syntax",
    "hermes.llm.wire.chat.schema_tools",
    "hermes.llm.wire.chat.schema_decoder",
    "hermes.llm.wire.responses",
    "hermes.llm.wire.anthropic",
    "hermes.llm.wire.gemini",
    "hermes.llm.wire.bedrock",
    "hermes.llm.providers.",
)


def test_what_it_does_not_use_is_not_loaded(tmp_path: Path) -> None:
    with Provider([say("Hello.")]) as provider:
        home = Home.of(tmp_path, provider)
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**home.env, "PYTHONPATH": ":".join(sys.path)},
            cwd=home.work,
            capture_output=True,
            text=True,
            timeout=90,
        )
    answer, loaded = ran.stdout.splitlines() or ["", ran.stderr]
    assert answer == "Hello.", loaded
    assert "hermes.llm.wire.chat" in loaded.split()
    assert [name for name in loaded.split() if name.startswith(UNUSED)] == []

"""Clients live through a restart of the server in the middle of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.clients import test_node_clients, test_python_clients
from tests.e2e.clients.agent_programs import PACKAGES, Asking, prepare_program
from tests.e2e.clients.client_run import (
    SCRIPTS,
    install_node,
    install_python,
    locate_script,
    read_cases,
    start_client,
)
from tests.e2e.clients.scripted_model import GREETING, answer_request
from tests.kit import Home, Provider, Received, Reply, say
from tests.server.serve_process import SECRET, ServeProcess, serve


class Relay:
    """A port that leads to the server of the moment. `holding`: without one, connections wait."""

    def __init__(self, *, holding: bool = False) -> None:
        self.url = ""
        self.server_port = 0
        self.answered = b""
        self._server_changed = asyncio.Event()
        self._holding = holding

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[None]:
        listener = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            listener.close()

    def lead_to(self, server: ServeProcess) -> None:
        self.server_port = int(server.url.rpartition(":")[2])
        self._server_changed.set()

    async def wait_for_answer(self, text: bytes) -> None:
        """Wait until the server has sent this text to a client."""
        async with asyncio.timeout(200):
            while text not in self.answered:
                await asyncio.sleep(0.05)

    async def _connect(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        while True:
            self._server_changed.clear()
            try:
                far, out = await asyncio.open_connection("127.0.0.1", self.server_port)
            except ConnectionError:  # a client tries again before the server is back
                if self._holding:
                    await self._server_changed.wait()
                    continue
                back.close()
                return
            await asyncio.gather(self._copy(near, out), self._copy(far, back, keep=True))
            return

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, keep: bool = False
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if keep:
                    self.answered += data
                writer.write(data)
                await writer.drain()
        writer.close()


class Client:
    """A client that reads a stream, and goes on when it is told to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.out = ""

    async def read_until(self, mark: str) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(200):
            while mark not in self.out:
                data = await self.process.stdout.read(65536)
                assert data, (mark, self.out)
                self.out += data.decode()

    async def finish(self) -> dict[str, str]:
        out, error = await asyncio.wait_for(self.process.communicate(b"\n"), 200)
        self.out += out.decode()
        return {**read_cases(self.out), "errors": error.decode()[-1000:]}


def build_command(client: str, work: Path) -> list[str | Path]:
    kind, _, name = client.partition(":")
    if kind == "node":
        folder = install_node(test_node_clients.PACKAGES)
        script = locate_script(work, folder, "node_clients.mjs")
        return [folder / "node_modules" / ".bin" / "node", script, name, "restart"]
    python = install_python(test_python_clients.find_packages(name))
    return [python, SCRIPTS / "python_clients.py", name, "restart"]


GROUPS = {
    "sdks": ["python:openai", "python:openai_responses", "python:anthropic", "python:instructor"],
    "agents": [
        *("python:langchain", "python:langchain_messages", "python:langgraph"),
        *("python:pydantic_ai", "python:openai_agents"),
    ],
    "others": [
        *("python:litellm", "python:smolagents", "python:llama_index", "python:huggingface_hub"),
    ],
    "node": [f"node:{client}" for client in test_node_clients.CLIENTS],
}
"""Clients that are started together."""
ANSWERS = {"python:instructor": "25 degrees"}


@pytest.mark.parametrize("clients", GROUPS.values(), ids=GROUPS)
async def test_a_restart_in_the_middle_of_a_stream(tmp_path: Path, clients: list[str]) -> None:
    relay = Relay()
    async with Provider(then=answer_request) as provider, relay.listen():
        home = Home.of(tmp_path, provider)
        home.configure(platforms={"api_server": {"drain_seconds": 0}})
        reading: dict[str, Client] = {}
        try:
            async with serve(home) as s:
                relay.lead_to(s)
                for client in clients:
                    work = tmp_path / client
                    work.mkdir()
                    process = await start_client(
                        build_command(client, work), work, relay.url, SECRET
                    )
                    reading[client] = Client(process)
                for client in reading.values():
                    await client.read_until("== begun")
                async with asyncio.timeout(200):
                    while len(provider.requests) < len(clients):
                        await asyncio.sleep(0.05)
                assert await s.stop() == 0
            for client in reading.values():
                await client.read_until("== stopped")
            async with serve(home) as s:
                relay.lead_to(s)
                for name, client in reading.items():
                    found = await client.finish()
                    if name not in ANSWERS:  # nothing was shown, and it tried again by itself
                        assert "server stopped" in found["stopped"], (name, found)
                    answer = ANSWERS.get(name, f"{GREETING} usage=18")
                    assert answer in found["restart"], (name, found)
        finally:
            for client in reading.values():
                if client.process.returncode is None:
                    client.process.kill()


@pytest.mark.parametrize("program", PACKAGES)
async def test_a_program_lives_through_a_restart(tmp_path: Path, program: str) -> None:
    """It shows why its answer ended, or asks again by itself and shows the answer."""
    relay = Relay(holding=True)
    has_stopped = False

    def answer(request: Received) -> Reply:
        is_title = not request.json.get("tools")  # its stream is none that the person reads
        return say(GREETING) if has_stopped or is_title else answer_request(request)

    async with Provider(then=answer) as provider, relay.listen():
        home = Home.of(tmp_path, provider)
        home.configure(platforms={"api_server": {"drain_seconds": 0}})
        folder = tmp_path / "client"
        folder.mkdir()
        asking = Asking(folder, relay.url, SECRET, "Please follow order:slow")
        command = prepare_program(program, asking)
        at = (folder, relay.url, SECRET)
        async with serve(home) as s:
            relay.lead_to(s)
            process = await start_client(command.arguments, *at, **command.env)
            reading = asyncio.create_task(process.communicate(b""))
            try:
                await relay.wait_for_answer(b"One")
                has_stopped = True
                assert await s.stop() == 0
                async with serve(home) as restarted:
                    relay.lead_to(restarted)
                    out, error = await asyncio.wait_for(reading, 200)
                    told = (out + error).decode()
                    if GREETING not in told:
                        assert "server stopped" in told, told[-2000:]
                        process = await start_client(command.arguments, *at, **command.env)
                        out, _ = await asyncio.wait_for(process.communicate(b""), 200)
                        assert GREETING in out.decode(), told[-2000:]
            finally:
                if process.returncode is None:
                    process.kill()

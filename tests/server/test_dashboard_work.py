"""Work on a session in the dashboard: again, undo, compress, files, changes, trace, exports."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hermes.config.paths import cache_folder
from hermes.core.store import SessionMeta
from hermes.server.dashboard.uploads import Uploads
from tests.kit import call, say
from tests.kit.api import api
from tests.kit.dashboard import ON, Browser, sign_in

ALL = "/api/sessions"


async def converse(browser: Browser, session: str, text: str) -> None:
    async with browser.watch(f"{session}:-1") as feed:
        await feed.until("snapshot", session=session)
        await browser.send(session, text, f"client-{abs(hash(text))}")
        await feed.until("end", session=session)


async def read_texts(browser: Browser, session: str) -> list[str]:
    found = (await browser.get(f"{ALL}/{session}/messages")).json["data"]
    return [p["text"] for m in found for p in m["content"] if p["type"] == "text"]


async def test_the_last_message_is_answered_again_in_a_branch(tmp_path: Path) -> None:
    async with api(tmp_path, [say("First."), say("Second.")], config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        await converse(browser, session, "hello")
        again = await browser.post(f"{ALL}/{session}/retry")
        assert again.status == 202, again.body
        branch = again.json["session"]
        async with browser.watch(f"{branch}:-1") as feed:
            while await read_texts(browser, branch) != ["hello", "Second."]:
                await feed.next()
        assert await read_texts(browser, session) == ["hello", "First."]


async def test_undo_says_what_it_would_do_and_then_does_it(tmp_path: Path) -> None:
    async with api(tmp_path, [say("One."), say("Two.")], config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        await converse(browser, session, "first")
        await converse(browser, session, "second")
        preview = await browser.post(f"{ALL}/{session}/undo", {"dry_run": True})
        assert preview.json["session"] == session and "second" in preview.json["text"]
        done = (await browser.post(f"{ALL}/{session}/undo")).json
        assert done["session"] != session
        assert await read_texts(browser, done["session"]) == ["first", "One."]
        assert await read_texts(browser, session) == ["first", "One.", "second", "Two."]
        too_many = await browser.post(f"{ALL}/{session}/undo", {"turns": 9})
        assert too_many.status == 409 and "2 turns" in too_many.error["message"]


async def test_a_short_conversation_is_not_compressed(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("One."), config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        await converse(browser, session, "first")
        done = await browser.post(f"{ALL}/{session}/compress")
        assert done.status == 200 and done.json["session"] == session
        assert "too short" in done.json["text"]


async def test_changes_files_and_checkpoints(tmp_path: Path) -> None:
    written = call(("c1", "write_file", {"path": "note.txt", "content": "new\n"}))
    async with api(tmp_path, [written, say("Written.")], config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        work = Path((await browser.get(f"{ALL}/{session}")).json["cwd"])
        (work / "other.txt").write_text("old\n")
        await converse(browser, session, "write a note")
        changes = (await browser.get(f"{ALL}/{session}/changes")).json
        assert changes["files"] == [
            {"path": "note.txt", "state": "added", "added": 1, "removed": 0}
        ]
        assert "+new" in changes["diff"]
        found = await browser.get(f"{ALL}/{session}/file?path=note.txt")
        assert found.body == b"new\n" and "attachment" in found.headers["Content-Disposition"]
        secrets = a.server.runtime.setup.home / "config.yaml"
        for path in (str(secrets), "../../config.yaml", "/etc/shadow"):
            refused = await browser.get(f"{ALL}/{session}/file?path={path}")
            assert refused.status in (403, 404), path
        (made,) = (await browser.get(f"{ALL}/{session}/checkpoints")).json["data"]
        assert made["label"] == "write a note"
        restored = await browser.post(f"{ALL}/{session}/checkpoints/{made['id']}/restore")
        assert restored.json["removed"] == ["note.txt"] and not (work / "note.txt").exists()


async def test_changed_files_have_the_names_that_the_system_knows(tmp_path: Path) -> None:
    """Also those that git quotes, or that look like two names."""
    names = ['a "quoted" name.txt', "größe \\ 1.txt", "x b/x b/y.txt", "日本 b.txt"]
    written = [(f"c{n}", "write_file", {"path": p, "content": "x\n"}) for n, p in enumerate(names)]
    async with api(tmp_path, [call(*written), say("Written.")], config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        await converse(browser, session, "write")
        files = (await browser.get(f"{ALL}/{session}/changes")).json["files"]
        assert sorted(file["path"] for file in files) == sorted(names)
        for name in names:
            found = await browser.get(f"{ALL}/{session}/file?path={quote(name, safe='')}")
            assert found.status == 200 and found.body == b"x\n", name


async def test_a_result_says_what_it_changed(tmp_path: Path) -> None:
    written = call(("c1", "write_file", {"path": "note.txt", "content": "new\n"}))
    async with api(tmp_path, [written, say("Written.")], config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        work = Path((await browser.get(f"{ALL}/{session}")).json["cwd"])
        (work / "note.txt").write_text("old\n")
        async with browser.watch(f"{session}:-1") as feed:
            await feed.until("snapshot", session=session)
            await browser.send(session, "write")
            done = await feed.until("tool.done")
            assert done["error"] is False
            await feed.until("end")
        async with asyncio.timeout(90):
            while not (result := await read_result(browser, session))["diff"]:
                await asyncio.sleep(0.02)
        assert "-old" in result["diff"] and "+new" in result["diff"]
        assert done["diff"] == result["diff"]


async def read_result(browser: Browser, session: str) -> Any:
    found = (await browser.get(f"{ALL}/{session}/messages")).json["data"]
    return next(m for m in found if m["role"] == "tool")["content"][0]


async def test_the_trace_has_every_call(tmp_path: Path) -> None:
    steps = [call(("c1", "todo", {"todos": []})), say("Done.")]
    async with api(tmp_path, steps, config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        await converse(browser, session, "plan")
        (turn,) = (await browser.get(f"{ALL}/{session}/trace")).json["turns"]
        kinds = [span["kind"] for span in turn["spans"]]
        assert sorted(kinds) == ["model", "model", "tool"] and kinds[0] == "model"
        assert turn["seq"] == 0 and all(span["start"] >= 0 for span in turn["spans"])
        tool = next(span for span in turn["spans"] if span["kind"] == "tool")
        assert tool["name"] == "todo"


async def test_exports_hold_the_conversation_and_no_script(tmp_path: Path) -> None:
    async with api(tmp_path, [say("<script>alert(1)</script>")], config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        await converse(browser, session, "show <b>")
        shown: dict[str, Any] = {}
        for name in ("markdown", "json", "jsonl", "html"):
            found = await browser.get(f"{ALL}/{session}/export?format={name}")
            assert found.status == 200 and "attachment" in found.headers["Content-Disposition"]
            shown[name] = found.body.decode()
        assert "<script" not in shown["html"] and "&lt;script&gt;" in shown["html"]
        assert [m["role"] for m in json.loads(shown["json"])["messages"]] == ["user", "assistant"]
        assert (await browser.get(f"{ALL}/{session}/export?format=pdf")).status == 400


async def test_model_and_effort_are_chosen_for_one_session(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes."), config=ON) as a:
        browser = await sign_in(a)
        session, other = await browser.create_session(), await browser.create_session()
        path = f"{ALL}/{session}"
        changed = await browser.call("PATCH", path, {"model": "other-model", "effort": "low"})
        assert changed.status == 200 and changed.json["model"] == "other-model", changed.body
        await converse(browser, session, "one")
        await converse(browser, other, "two")
        models = [request.json["model"] for request in a.provider.requests]
        assert models[0] == "other-model" and models[1] != "other-model"
        assert (await browser.call("PATCH", path, {"effort": "huge"})).status == 400


def test_servers_of_one_home_keep_the_attached_files_of_each_other(tmp_path: Path) -> None:
    one, other = Uploads(tmp_path), Uploads(tmp_path)
    first = one.save_file("", "a.txt", "text/plain", b"a")
    second = other.save_file("", "b.txt", "text/plain", b"b")
    assert one.find_file("somebody", first.id) is None
    assert one.find_file("", first.id) == first
    one.remove_files([first])
    assert one.find_file("", first.id) is None and not first.file.exists()
    second.file.unlink()
    assert other.find_file("", second.id) is None


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
SMALL, BOMB = (PNG + (size).to_bytes(4, "big") * 2 + b"\x08\x06" for size in (8, 50_000))


async def attach(browser: Browser, name: str, mime: str, body: bytes) -> Any:
    headers = {**browser.headers, "X-File-Name": name, "Content-Type": mime}
    answer = await browser.api.call("POST", "/api/uploads", data=body, key="", headers=headers)
    assert answer.status == 201, answer.body
    return answer.json


async def test_only_pictures_that_models_accept_are_sent_as_pictures(tmp_path: Path) -> None:
    """What only claims to be one, has too many pixels, or can hold a script is a file."""
    async with api(tmp_path, then=say("Seen."), config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        work = Path((await browser.get(f"{ALL}/{session}")).json["cwd"])
        files = [
            await attach(browser, "real.png", "application/x-unknown", SMALL),
            await attach(browser, "claimed.png", "image/png", b"<script>alert(1)</script>"),
            await attach(browser, "drawn.svg", "image/svg+xml", b"<svg onload='alert(1)'/>"),
            await attach(browser, "bomb.png", "image/png", BOMB),
        ]
        assert [f["mime"] for f in files] == [
            *("image/png", "application/octet-stream", "image/svg+xml", "image/png")
        ]
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "look", uploads=[f["id"] for f in files])
            await feed.until("end", session=session)
        (sent,) = [m for m in a.provider.requests[0].json["messages"] if m["role"] == "user"]
        kinds = [part["type"] for part in sent["content"]]
        assert kinds.count("image_url") == 1
        written = {file.suffix: file for file in work.glob("upload-*")}
        assert sorted(file.suffix for file in work.glob("upload-*")) == [".png", ".png", ".svg"]
        assert written[".svg"].stat().st_mode & 0o777 == 0o600


async def test_attached_files_are_kept_when_a_message_is_refused(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Seen."), config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        work = Path((await browser.get(f"{ALL}/{session}")).json["cwd"])
        csv = (await attach(browser, "data.csv", "text/csv", b"a,b\n"))["id"]
        refused = await browser.send(session, "look", uploads=[csv, "0" * 32])
        assert refused.status == 400 and list(work.glob("upload-*")) == []
        async with browser.watch(f"{session}:-1") as feed:
            assert (await browser.send(session, "again", uploads=[csv])).status == 202
            await feed.until("end", session=session)
        assert [file.read_bytes() for file in work.glob("upload-*")] == [b"a,b\n"]
        assert (await browser.send(session, "once more", uploads=[csv])).status == 400


async def test_files_for_a_folder_that_is_gone_are_refused_and_kept(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Seen."), config=ON) as a:
        browser = await sign_in(a)
        meta = SessionMeta("old", source="web", key="/", cwd=str(tmp_path / "gone"))
        await a.server.runtime.store.sessions.create(meta)
        csv = (await attach(browser, "data.csv", "text/csv", b"a,b\n"))["id"]
        refused = await browser.send("old", "look", uploads=[csv])
        assert refused.status == 409 and "Nothing was sent" in refused.error["message"]
        (tmp_path / "gone").mkdir()
        assert (await browser.send("old", "look", uploads=[csv])).status == 202


async def test_attached_files_that_nobody_sends_are_removed_after_a_day(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        sent = [await attach(browser, f"{n}.csv", "text/csv", b"a,b\n") for n in range(2)]
        folder = cache_folder(a.home.path) / "uploads"
        old, new = (folder / file["id"] for file in sent)
        os.utime(old, (time.time() - 86_500,) * 2)
        os.utime(new, (time.time() - 86_000,) * 2)
        async with browser.watch() as feed:
            await feed.until("hello")
        assert new.exists() and not old.exists()

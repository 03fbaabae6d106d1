"""Work on a session in the dashboard: again, undo, compress, files, changes, trace, exports."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

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
            assert (await feed.until("tool.done"))["error"] is False
            await feed.until("end")
        async with asyncio.timeout(90):
            while "diff" not in (result := await read_result(browser, session)):
                await asyncio.sleep(0.02)
        assert "-old" in result["diff"] and "+new" in result["diff"]


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
    assert one.take_file("somebody", first.id) is None
    assert one.take_file("", first.id) == first and one.take_file("", first.id) is None
    second.file.unlink()
    assert other.take_file("", second.id) is None

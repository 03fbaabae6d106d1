"""Reading, searching, editing and planning through whole turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes.app.agents import Options
from hermes.core.events import Question
from hermes.core.message import ToolReturn
from tests.kit import call, say
from tests.kit.bodies import messages
from tests.kit.rig import Rig, rig

EDIT = """*** Begin Patch
*** Update File: src/app.py
@@ def greet():
-    return "hello"
+    return "hi"
*** Add File: tests/test_app.py
+from app import greet
*** Delete File: old.txt
*** End Patch"""


def work(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    return root / "work"


def returns(r: Rig) -> dict[str, tuple[str, bool]]:
    found = [
        p
        for m in r.session.transcript.history.messages
        for p in m.parts
        if isinstance(p, ToolReturn)
    ]
    return {p.call_id: ("".join(getattr(c, "text", "") for c in p.content), p.error) for p in found}


async def test_search_read_patch_and_read_again(tmp_path: Path) -> None:
    folder = work(
        tmp_path,
        {"src/app.py": 'def greet():\r\n    return "hello"\r\n', "old.txt": "x\n", "b.txt": "y\n"},
    )
    steps = [
        call(
            ("c1", "search_files", {"pattern": "def greet"}),
            ("c2", "search_files", {"pattern": "*.txt", "kind": "names"}),
        ),
        call(("c3", "patch", {"patch": EDIT})),
        call(("c4", "read_file", {"path": "src/app.py", "offset": -1, "end_line": 2})),
        say("done"),
    ]
    async with rig(tmp_path, steps) as r:
        assert (await r.turn("greet shorter")).status == "completed"
        said = returns(r)
        assert said["c1"] == ("src/app.py:1: def greet():", False)
        assert said["c2"] == ("b.txt\nold.txt", False)
        assert "Patched src/app.py (+1 -1)" in said["c3"][0] and "Deleted old.txt" in said["c3"][0]
        assert (
            said["c4"][0].startswith('2|    return "hi"') and "[ignored: end_line;" in said["c4"][0]
        )
        shown = [text for m in messages(r.requests[2]) for _, text in m.results]
        assert '+    return "hi"' in shown[-1], "the model sees the diff"
    assert (folder / "src/app.py").read_bytes() == b'def greet():\r\n    return "hi"\r\n'
    assert (folder / "tests/test_app.py").read_text() == "from app import greet\n"
    assert not (folder / "old.txt").exists()


async def test_edits_of_one_batch_do_not_lose_each_other(tmp_path: Path) -> None:
    """Ten calls edit one file at once, two of them by patches that touch another file too."""
    rows = [f"line {n}\n" for n in range(10)]
    folder = work(tmp_path, {"f.txt": "".join(rows), "g.txt": "start\n"})
    edits: list[tuple[str, str, dict[str, Any]]] = [
        (f"c{n}", "patch", {"path": "f.txt", "old": f"line {n}\n", "new": f"LINE {n}\n"})
        for n in range(8)
    ]
    for n in (8, 9):
        both = ["*** Update File: g.txt", " start", f"+{n}", "*** Update File: f.txt"]
        both += [f"-line {n}", f"+LINE {n}"]
        text = "\n".join(["*** Begin Patch", *both, "*** End Patch"])
        edits.append((f"c{n}", "patch", {"patch": text}))
    async with rig(tmp_path, [call(*edits), say("done")]) as r:
        assert (await r.turn("all of them")).status == "completed"
        assert not [text for text, error in returns(r).values() if error]
    assert (folder / "f.txt").read_text() == "".join(rows).upper()
    assert sorted((folder / "g.txt").read_text().split()) == ["8", "9", "start"]


async def test_a_patch_outside_the_working_folder_needs_approval_for_each_file(
    tmp_path: Path,
) -> None:
    folder = work(tmp_path, {"in.txt": "a\n"})
    outside = tmp_path / "outside.txt"
    outside.write_text("a\n")
    parts = ["*** Begin Patch", "*** Update File: in.txt", "-a", "+b"]
    parts += [f"*** Update File: {outside}", "-a", "+b", "*** End Patch"]
    steps = [call(("c1", "patch", {"patch": "\n".join(parts)})), say("no")]
    async with rig(tmp_path, steps, options=Options(yolo=False)) as r:
        assert (await r.turn("both")).status == "completed"
        text, error = returns(r)["c1"]
        assert error and "approval" in text
    assert outside.read_text() == (folder / "in.txt").read_text() == "a\n"


async def test_the_plan_outlives_the_turn(tmp_path: Path) -> None:
    plan = [{"content": "look", "status": "completed"}, {"content": "act", "status": "pending"}]
    steps = [
        call(("c1", "todo", {"todos": plan})),
        say("planned"),
        call(("c2", "todo", {})),
        say("still there"),
    ]
    async with rig(tmp_path, steps) as r:
        await r.turn("plan")
        await r.turn("go on")
        assert returns(r)["c1"] == ("Noted: 1 of 2 done.", False)
        assert returns(r)["c2"] == ("[x] 1. look\n[ ] 2. act\n[1 of 2 done]", False)


async def test_a_question_where_nobody_is(tmp_path: Path) -> None:
    steps = [call(("c1", "clarify", {"question": "Which one?"})), say("I took the first.")]
    async with rig(tmp_path, steps) as r:
        assert (await r.turn("choose")).status == "completed"
        text, error = returns(r)["c1"]
        assert error and "Decide yourself" in text


async def test_a_question_is_answered_while_the_turn_waits(tmp_path: Path) -> None:
    steps = [
        call(("c1", "clarify", {"question": "Which one?", "choices": ["red", "blue"]})),
        say("Blue it is."),
    ]
    async with rig(tmp_path, steps) as r:
        r.session.interactions.user_present = True
        turn = r.begin("choose")
        asked = await r.until(lambda e: isinstance(e, Question))
        assert isinstance(asked, Question)
        assert (asked.text, asked.choices) == ("Which one?", ("red", "blue"))
        assert not turn.done()
        assert r.session.interactions.answer_question(asked.id, "blue")
        assert (await turn).text == "Blue it is."
        assert returns(r)["c1"] == ("The user answers: blue", False)


async def test_an_interrupted_question_is_over(tmp_path: Path) -> None:
    async with rig(tmp_path, [call(("c1", "clarify", {"question": "Which?"}))]) as r:
        r.session.interactions.user_present = True
        turn = r.begin("choose")
        asked = await r.until(lambda e: isinstance(e, Question))
        r.session.interrupt()
        assert (await turn).status == "interrupted"
        assert "interrupted" in returns(r)["c1"][0]
        assert isinstance(asked, Question) and not r.session.interactions.answer_question(
            asked.id, "late"
        )

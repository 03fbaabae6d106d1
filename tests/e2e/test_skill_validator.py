"""`hermes skills validate` agrees with the reference validator of the format."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from hermes.skills.library import BUILTIN_FOLDER
from hermes.skills.validation import validate_skill
from tests.e2e.clients.client_run import install_python

pytestmark = pytest.mark.e2e

COUNT = 200
JUDGE = """
import sys
from pathlib import Path
from skills_ref.validator import validate
for line in sys.stdin:
    print(int(not validate(Path(line.rstrip(chr(10))))), flush=True)
"""
NAMES = (
    *("deed", "two-words", "a1", "x" * 64, "x" * 65, "Upper", "-first", "last-", "two--hyphens"),
    *("under_score", "dot.ted", "with space", "großes", "ＦＵＬＬ", "日本語", "émigré", ""),
)
VALUES = (
    *("Does it.", "", "   ", "x" * 1024, "x" * 1025, "[a, b]", "{a: b}", "'quoted: text'", '"x"'),
    *("|\n  a block\n  of lines", ">\n  folded\n  text", "12", "true", "null", "a: b", "# none"),
    *("&anchor x", "*alias", "!tag x", "- item", "\n  - item\n  - other", "~", "x # comment"),
)
EXTRAS = (
    *("", "license: MIT", "allowed-tools: Bash Read", "compatibility: any", "compatibility: [a]"),
    *(f"compatibility: {'x' * 500}", f"compatibility: {'x' * 501}", "version: 1", "author: me"),
    *("metadata:\n  author: me\n  version: 1", "metadata: {a: b}", "metadata: text", "metadata:"),
    *("metadata:\n  deep:\n    er: yes", "platforms: [macos]", "name: again", "\tbad: tab"),
)
WHOLE = (
    *("", "no front matter", "---\n", "---\n---\n", "---\nname: x\n", "\n---\nname: a\n---\n"),
    *("---\n- a\n- b\n---\n", "---\ntext\n---\n", "--- \nname: x\n---\n", "---\nname: [\n---\n"),
)


def write_cases(root: Path) -> list[Path]:
    dice = random.Random(7)
    folders = []
    for number in range(COUNT):
        name = dice.choice(NAMES)
        folder = root / str(number) / (name if name and dice.random() < 0.85 else "folder")
        folder.mkdir(parents=True)
        lines = [f"name: {name}", f"description: {dice.choice(VALUES)}"]
        lines += [line for line in (dice.choice(EXTRAS),) if line]
        if dice.random() < 0.1:
            lines.pop(dice.randrange(2))
        text = "---\n" + "\n".join(lines) + "\n---\nDo it.\n"
        if number < len(WHOLE):
            text = WHOLE[number]
        file = folder / ("SKILL.md" if dice.random() < 0.95 else "skill.md")
        file.write_text(text, encoding="utf-8")
        folders.append(folder)
    return folders


def test_both_say_the_same_of_200_folders(tmp_path: Path) -> None:
    folders = write_cases(tmp_path)
    folders += [file.parent for file in BUILTIN_FOLDER.rglob("SKILL.md")]
    python = install_python(["skills-ref"])
    judged = subprocess.run(
        [str(python), "-c", JUDGE],
        input="".join(f"{folder}\n" for folder in folders),
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    ).stdout.split()
    assert len(judged) == len(folders)
    ours = [str(int(not validate_skill(folder))) for folder in folders]
    differing = [
        f"reference {theirs}, ours {own}: {folder.name!r} {validate_skill(folder)}\n"
        + next(folder.glob("*.md")).read_text("utf-8")[:200]
        for folder, theirs, own in zip(folders, judged, ours, strict=True)
        if theirs != own
    ]
    assert not differing, "\n\n".join(differing)
    assert 10 < judged.count("1") < COUNT - 10, "both kinds are among them"
    assert set(judged[COUNT:]) == {"1"}, "the built-in skills are valid"

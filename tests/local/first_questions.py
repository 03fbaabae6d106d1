"""Thirty first questions to the embedded model, and what must be true after the whole turn."""

from __future__ import annotations

import getpass
import re
from pathlib import Path

from tests.local.tasks import Check, Task, has_text, prints_text, says

FILES = {
    "README.md": "# Birds\n\nCounts birds in a garden.\n",
    "count.py": "birds = ['robin', 'wren', 'robin']\nprint(len(birds))\n",
    "notes.txt": "buy seeds\nclean the feeder\ncall Ann\n",
}
BUG = "def area(width, height):\n    return width + height\n\nprint(area(3, 4))\n"


def _is_unchanged(folder: Path, _: str) -> bool:
    return all((folder / name).read_text() == text for name, text in FILES.items())


def _keeps_files(check: Check) -> Check:
    """A question changes nothing."""
    return lambda folder, answer: check(folder, answer) and _is_unchanged(folder, answer)


QUESTIONS = (
    *(
        Task(request, FILES, _keeps_files(says(pattern)))
        for request, pattern in (
            ("hello", r"."),
            ("who are you?", r"hermes|assistant"),
            ("what can you do?", r"command|file|question|help|assist"),
            ("what files are here?", r"count\.py"),
            ("list the files", r"notes\.txt"),
            ("show me README.md", r"garden"),
            ("what is in notes.txt?", r"seeds"),
            ("what does count.py do?", r"\b3\b|number|how many|length|bird"),
            ("explain count.py", r"\b3\b|number|how many|length|bird"),
            ("run count.py", r"\b3\b"),
            ("how many lines does notes.txt have?", r"\b3\b|three"),
            ("what is this project about?", r"bird|garden"),
            ("which Python version is installed?", r"3\.\d+"),
            ("what is the current folder?", r"work"),
            ("what time is it?", r"\d:\d\d"),
            ("which user am I?", re.escape(getpass.getuser())),
            ("what is the capital of Italy?", r"rome"),
            ("what is 17 + 25?", r"\b42\b"),
            ("what is a variable?", r"value|name|store"),
            ("translate 'thank you' into French", r"merci"),
            ("how do I list files in Linux?", r"\bls\b"),
            ("is there a file called setup.py here?", r"\bno\b|\bnot\b|n't"),
            ("find the word Ann in this folder", r"notes\.txt|call Ann"),
            ("show the first line of notes.txt", r"\A(?!.*feeder).*seeds"),
        )
    ),
    Task("create hello.py that prints hello", FILES, prints_text("hello.py", "hello")),
    Task("write 'done' into status.txt", FILES, has_text("status.txt", "done")),
    Task(
        "add 'water plants' to notes.txt",
        FILES,
        has_text("notes.txt", r"buy seeds\n.*call Ann\n.*water plants"),
    ),
    Task("copy notes.txt to old.txt", FILES, has_text("old.txt", "feeder")),
    Task("make a folder called data", FILES, lambda folder, _: (folder / "data").is_dir()),
    Task("fix the bug in area.py", {**FILES, "area.py": BUG}, prints_text("area.py", "12")),
)

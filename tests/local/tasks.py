"""Small tasks with files, and what must be true of the folder or the answer afterwards."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

Check = Callable[[Path, str], bool]
"""Of the folder and the answer."""


class Task(NamedTuple):
    request: str
    files: dict[str, str]
    check: Check


def has_text(name: str, pattern: str) -> Check:
    return lambda folder, _: (
        (folder / name).is_file() and bool(re.search(pattern, (folder / name).read_text(), re.S))
    )


def says(pattern: str) -> Check:
    return lambda _, answer: bool(re.search(pattern, answer, re.I))


def prints_text(name: str, text: str) -> Check:
    def run_program(folder: Path, _: str) -> bool:
        command = ["python3", name]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=20, check=False
        )
        return done.returncode == 0 and text in done.stdout

    return run_program


def _both(*checks: Check) -> Check:
    return lambda folder, answer: all(check(folder, answer) for check in checks)


def _is_gone(name: str) -> Check:
    return lambda folder, _: not (folder / name).exists()


FRUIT = "apple\nbanana\ncherry\n"
SALES = "name,amount\nann,10\nbob,20\ncyd,12\n"
BROKEN = "def add(a, b)\n    return a + b\n\nprint(add(2, 3))\n"
WRONG = "def double(n):\n    return n + 2\n\nprint(double(5))\n"
TESTED = {
    "calc.py": "def multiply(a, b):\n    return a + b\n",
    "test_calc.py": "from calc import multiply\n\nassert multiply(3, 4) == 12\nprint('passed')\n",
}

TASKS = (
    Task(
        "Create a file hello.txt with the text: good morning",
        {},
        has_text("hello.txt", "good morning"),
    ),
    Task("Make a folder named reports", {}, lambda folder, _: (folder / "reports").is_dir()),
    Task("Write a Python program seven.py that prints 7", {}, prints_text("seven.py", "7")),
    Task("Create an empty file called empty.log", {}, lambda f, _: (f / "empty.log").exists()),
    Task(
        "Rename draft.txt to final.txt",
        {"draft.txt": "text"},
        _both(has_text("final.txt", "text"), _is_gone("draft.txt")),
    ),
    Task(
        "Copy fruit.txt to backup.txt",
        {"fruit.txt": FRUIT},
        _both(has_text("backup.txt", "cherry"), has_text("fruit.txt", "cherry")),
    ),
    Task("Delete the file old.txt", {"old.txt": "x", "new.txt": "y"}, _is_gone("old.txt")),
    Task(
        "Add the line 'date' at the end of fruit.txt",
        {"fruit.txt": FRUIT},
        has_text("fruit.txt", r"apple\nbanana\ncherry\ndate"),
    ),
    Task(
        "Append 'dan,5' to sales.csv",
        {"sales.csv": SALES},
        has_text("sales.csv", r"cyd,12\ndan,5"),
    ),
    Task(
        "In fruit.txt, replace banana with mango",
        {"fruit.txt": FRUIT},
        has_text("fruit.txt", r"\Aapple\nmango\ncherry"),
    ),
    Task(
        "Change the port from 8080 to 9090 in app.ini",
        {"app.ini": "[server]\nhost = localhost\nport = 8080\n"},
        has_text("app.ini", r"host = localhost\nport = 9090"),
    ),
    Task("How many lines does fruit.txt have?", {"fruit.txt": FRUIT}, says(r"\b3\b|three")),
    Task(
        "How many .txt files are in this folder?",
        {"a.txt": "1", "b.txt": "2", "c.md": "3"},
        says(r"\b2\b|two"),
    ),
    Task("What is the sum of the amounts in sales.csv?", {"sales.csv": SALES}, says(r"\b42\b")),
    Task("Who has the largest amount in sales.csv?", {"sales.csv": SALES}, says("bob")),
    Task(
        "Which file contains the word zebra?",
        {"a.txt": "lion", "b.txt": "a zebra", "c.txt": "ape"},
        says(r"b\.txt"),
    ),
    Task("What is the second line of fruit.txt?", {"fruit.txt": FRUIT}, says("banana")),
    Task("What does add.py print? Run it.", {"add.py": "print(19 + 23)\n"}, says("42")),
    Task("Fix the syntax error in sum.py", {"sum.py": BROKEN}, prints_text("sum.py", "5")),
    Task(
        "Fix the bug in twice.py: it should print 10",
        {"twice.py": WRONG},
        prints_text("twice.py", "10"),
    ),
    Task("Make test_calc.py pass by fixing calc.py", TESTED, prints_text("test_calc.py", "passed")),
    Task(
        "Create the folder data and move sales.csv into it",
        {"sales.csv": SALES},
        _both(has_text("data/sales.csv", "bob"), _is_gone("sales.csv")),
    ),
    Task(
        "Write the number of lines of fruit.txt into count.txt",
        {"fruit.txt": FRUIT},
        has_text("count.txt", "3"),
    ),
    Task(
        "Sort the lines of names.txt and save them in sorted.txt",
        {"names.txt": "zoe\nann\nmax\n"},
        has_text("sorted.txt", r"ann\nmax\nzoe"),
    ),
)

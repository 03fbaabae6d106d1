"""Twenty small requests the examples in the prompt were not made for, and what counts as right."""

from __future__ import annotations

UNSEEN: tuple[tuple[str, str, str], ...] = (
    ("Show all hidden files in this directory", "terminal", r"ls\b.*-\w*[aA]|ls -d"),
    ("How many CPU cores does this machine have?", "terminal", r"nproc|lscpu|cpuinfo"),
    ("Open package.json and show it to me", "read_file|terminal", r"package\.json"),
    ("Write the text 'remember the milk' to reminder.txt", "write_file|terminal", r"reminder\.txt"),
    ("Who wrote Romeo and Juliet?", "answer", r"Shakespeare"),
    ("Which version of git is installed?", "terminal", r"git.*version"),
    ("How many words are in essay.txt?", "terminal", r"wc.*essay\.txt"),
    ("Good morning!", "answer", r"."),
    ("Find all files larger than 10 MB here", "terminal", r"find.*-size|du\b"),
    ("What is the chemical symbol of gold?", "answer", r"\bAu\b"),
    ("How much memory is free?", "terminal", r"free|meminfo|vmstat"),
    ("Show the last three git commits", "terminal", r"git log"),
    ("Rename draft.md to final.md", "terminal", r"mv.*draft\.md.*final\.md"),
    ("What is the opposite of hot?", "answer", r"(?i)cold"),
    ("Show me the first lines of server.log", "terminal|read_file", r"server\.log"),
    ("Search for the word password in settings.ini", "terminal", r"grep.*password.*settings\.ini"),
    ("What is the current working directory?", "terminal", r"pwd"),
    ("Create a shell script run.sh that prints done", "write_file|terminal", r"run\.sh"),
    ("How many days are in a leap year?", "answer", r"366"),
    ("Copy a.txt to b.txt", "terminal", r"cp.*a\.txt.*b\.txt"),
)
"""Request, who may answer it (`answer` or a tool), and a pattern its first step must match."""

"""Twenty small requests the prompt was not tuned on, and what counts as a right first step."""

from __future__ import annotations

UNSEEN: tuple[tuple[str, str, str], ...] = (
    ("Which directories are in here?", "terminal", r"ls|find"),
    ("How big is the file data.csv?", "terminal", r"(ls|du|stat|wc).*data\.csv"),
    ("Show me what is in Dockerfile", "terminal", r"Dockerfile"),
    ("Put the line 'hello team' into greeting.txt", "write_file|terminal", r"greeting\.txt"),
    ("Who painted the Mona Lisa?", "answer", r"Vinci|Leonardo"),
    ("Is docker installed on this machine?", "terminal", r"docker"),
    ("Count the number of lines in access.log", "terminal", r"wc.*access\.log|grep -c"),
    ("Hey, how are you?", "answer", r"."),
    ("Find every JSON file in this project", "terminal", r"find.*json|ls.*json"),
    ("What is the boiling point of water in Celsius?", "answer", r"100"),
    ("What is my IP address?", "terminal", r"ip |ifconfig|hostname|curl|dig"),
    ("Show the git status", "terminal", r"git status"),
    ("Delete the directory old_build", "terminal", r"rm.*old_build"),
    ("What does CPU stand for?", "answer", r"(?i)central processing"),
    ("Show the last 20 lines of error.log", "terminal", r"(tail|cat).*error\.log"),
    ("Search for the function main in app.py", "terminal", r"grep.*main.*app\.py"),
    ("What is today's date?", "terminal", r"date"),
    ("Write a Python file square.py that prints 5 squared", "write_file", r"square\.py"),
    ("Translate 'good night' to Spanish", "answer", r"(?i)buenas noches"),
    ("Show the environment variables", "terminal", r"env|printenv|export|set"),
)
"""Request, who may answer it (`answer` or a tool), and a pattern its first step must match."""

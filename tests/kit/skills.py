"""Skills for tests."""

from __future__ import annotations

from pathlib import Path


def write_skill(
    root: Path, name: str, body: str = "Do it well.", about: str = "", **files: str
) -> Path:
    """A skill folder below `root`; further files by their names."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {name}\ndescription: {about or f'How to do {name}.'}\n---\n{body}\n"
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    for file, content in files.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder

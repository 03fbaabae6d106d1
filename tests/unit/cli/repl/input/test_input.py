"""What the user types: pastes, chips, references to files, completion."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from hermes.cli.repl.input.completer import PromptCompleter, WorkspaceFiles
from hermes.cli.repl.input.message import (
    PasteChips,
    compose_message,
    find_dropped_image,
    find_references,
)
from hermes.cli.repl.input.paste_detection import is_paste


def test_long_pastes_become_chips(tmp_path: Path) -> None:
    chips = PasteChips()
    long = "\r\n".join("abc" for _ in range(11))
    assert chips.paste("short\rtwo", tmp_path) == "short\ntwo"
    assert chips.paste(long, tmp_path) == "[pasted 11 lines]"
    assert chips.paste(long, tmp_path) == "[pasted 11 lines #2]"
    assert chips.paste("row\n" * 12, tmp_path) == "[pasted 12 lines]"
    assert chips.paste("x" * 2001, tmp_path) == "[pasted 2,001 characters]"
    text, images = chips.expand("a [pasted 11 lines] b")
    assert text == f"a {long.replace(chr(13), '')} b" and images == []


def test_a_dropped_image(tmp_path: Path) -> None:
    file = tmp_path / "my pic.png"
    file.write_bytes(b"x")
    for name in (
        str(file),
        str(file).replace(" ", "\\ "),
        f"'{file}'",
        file.as_uri(),
        "my pic.png",
    ):
        assert find_dropped_image(name, tmp_path) == file
    assert find_dropped_image("no.png", tmp_path) is None
    assert find_dropped_image("\0.png", tmp_path) is None


def test_references(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A" * 10)
    (tmp_path / "b c.txt").write_text("```\nB")
    (tmp_path / "bin").write_bytes(b"\0\1")
    text = 'see @a.txt, @"b c.txt" and me@a.txt @none @bin @.'
    assert [name for name, _ in find_references(text, tmp_path)] == ["a.txt", "b c.txt", "bin", "."]
    message, problems = compose_message(text, [], tmp_path)
    assert message.text.startswith(text) and "AAAAAAAAAA" in message.text
    assert "````\n```\nB\n````" in message.text
    assert len(problems) == 1 and "bin" in problems[0]
    _, problems = compose_message("@a.txt @gone.txt, @you me@x.org @types/node", [], tmp_path)
    assert problems == ["@gone.txt does not exist; nothing was attached for it."]
    message, _ = compose_message("see @a.txt and pasted: @bin", [], tmp_path, typed="see [pasted]")
    assert message.text == "see @a.txt and pasted: @bin"  # a stranger's text fetches no file


def test_files_anywhere_are_completed(tmp_path: Path) -> None:
    for name in ("work/here.txt", "other/a b.txt", "other/.hidden", "other/sub/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    completing = PromptCompleter(lambda: ())
    completing.files = WorkspaceFiles(tmp_path / "work", tmp_path)

    def offered(text: str) -> list[str]:
        found = completing.get_completions(Document(text), CompleteEvent())
        return [one.text for one in found]

    assert offered("see @he") == ["@here.txt"]
    assert offered("see @../other/") == ['@"../other/a b.txt"', "@../other/sub/"]
    assert offered(f"@{tmp_path}/other/.h") == [f"@{tmp_path}/other/.hidden"]
    assert offered("@/no/such/place/") == [] == offered("me@he")


def test_a_large_file_is_cut(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("x" * 300_000)
    message, _ = compose_message("@big", [], tmp_path)
    assert len(message.text) < 110_000 and "of 300,000 bytes" in message.text


def typed(text: str) -> list[KeyPress]:
    return [KeyPress(Keys.ControlM if char == "\r" else char, char) for char in text]


@pytest.mark.parametrize(
    ("text", "paste"),
    [
        ("one line\rand two\rand a third", True),
        ("a\rbb\rcc\rdd\r", True),
        ("typed ahead, sent\rand the next is queued\t", False),
        ("one\rtwo\rthree\r", False),
        ("hello\r", False),
        ("/model x\rhello there\r", False),  # typed ahead, and sent
        ("hello there\rwh", False),
        ("y\r", False),
    ],
)
def test_lines_that_come_at_once_are_a_paste(text: str, paste: bool) -> None:
    assert is_paste(typed(text)) is paste
    assert not is_paste([*typed(text), KeyPress(Keys.Up, "\x1b[A")])

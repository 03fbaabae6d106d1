"""Files that answers send along: which ones, and what is said about the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes.core.tool import Workspace
from hermes.gateway.adapter import SendFailure, Target
from hermes.gateway.content.media import LARGEST_SENT, extract_files, read_sent_file
from hermes.gateway.content.reply import Content
from tests.unit.gateway.gated_platform import CHAT, NAME, Delivery, delivery, make_workspace

OUTSIDE = "is outside this session's folder)"
UNREADABLE = "the agent may not read it)"


def write(file: Path, text: str = "content") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_files_leave_the_sessions_folder_never(tmp_path: Path) -> None:
    folder, cache = tmp_path / "work", tmp_path / "cache"
    write(folder / "a.txt")
    (folder / "link").symlink_to("/etc/passwd")
    write(cache / "b.png")
    text = f"Done.\nMEDIA:a.txt\nMEDIA: {cache}/b.png\nMEDIA:link\nMEDIA:../x"
    shown, files = extract_files(text, make_workspace(folder), cache)
    assert files == (str(folder / "a.txt"), str(cache / "b.png"))
    assert shown == f"Done.\n\n(not sent: link {OUTSIDE}\n(not sent: ../x {OUTSIDE}"


def test_what_file_tools_may_not_read_is_not_sent(tmp_path: Path) -> None:
    """The folder a session works in may be the user's own, with keys and the agent's home in it."""
    home = tmp_path / ".hermes"
    workspace = Workspace(tmp_path, home, home / "outputs", {"HOME": str(tmp_path)})
    write(tmp_path / ".ssh" / "id_ed25519")
    write(home / ".env", "TELEGRAM_BOT_TOKEN=x")
    write(home / "auth.json")
    os.link(home / "auth.json", tmp_path / "copy.json")
    attachment = write(home / "cache" / "media" / "0123")
    names = (".ssh/id_ed25519", ".hermes/.env", ".hermes/auth.json", "copy.json")
    for name in names:
        shown, files = extract_files(f"MEDIA:{name}", workspace, attachment.parent)
        assert (shown, files) == (f"(not sent: {name}: {UNREADABLE}", ())
    _, files = extract_files(f"MEDIA:{attachment}", workspace, attachment.parent)
    assert files == (str(attachment),)


def test_no_link_that_came_meanwhile_is_followed(tmp_path: Path) -> None:
    file = write(tmp_path / "work" / "out" / "a.txt")
    secret = write(tmp_path / "secret" / "a.txt", "secret")
    assert read_sent_file(str(file)) == b"content"
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(SendFailure, match="no longer there"):
        read_sent_file(str(file))
    file.unlink()
    file.parent.rmdir()
    file.parent.symlink_to(secret.parent)
    with pytest.raises(SendFailure, match="no longer there"):
        read_sent_file(str(file))


def test_only_files_that_fit_into_memory_are_read(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    with pytest.raises(SendFailure, match="no longer a file"):
        read_sent_file(str(pipe))
    with large.open("wb") as file:
        file.truncate(LARGEST_SENT + 1)
    with pytest.raises(SendFailure, match="larger than 100,000,000 bytes"):
        read_sent_file(str(large))


async def deliver(d: Delivery, file: Path) -> list[str]:
    await d.outbox.post(NAME, CHAT, Content("Here it is.", files=(str(file),)))
    return list(await d.until_sent())


async def test_the_chat_learns_why_a_file_does_not_come(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    async with delivery(tmp_path / "store") as d:
        shown = await deliver(d, file)
        assert shown == ["Here it is.", "(not sent: a.txt: it is no longer there)"]
        assert await deliver(d, write(file)) == [
            *shown,
            "Here it is.",
            "(not sent: a.txt: files cannot be sent here)",
        ]
        assert not await d.store.mailbox.list_open_replies()


async def test_a_file_that_fails_for_a_while_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.gateway.outbox.FIRST_WAIT", 0.01)
    failures = [SendFailure("certain", "busy")]
    sent: list[tuple[str, bytes]] = []

    async def send_file(target: Target, content: bytes, name: str) -> str:
        if failures:
            raise failures.pop()
        sent.append((name, content))
        return "f1"

    async with delivery(tmp_path / "store") as d:
        d.platform.send_file = send_file
        assert await deliver(d, write(tmp_path / "a.txt")) == ["Here it is."]
        assert sent == [("a.txt", b"content")]

"""python-telegram-bot, which most bots are written with, speaks with our Telegram as with the real
one: what the gateway is tested against is no invention."""

from __future__ import annotations

import pytest
from telegram import InlineKeyboardButton, InlineKeyboardMarkup, Update
from telegram.constants import ParseMode
from telegram.error import BadRequest, Conflict, InvalidToken, RetryAfter
from telegram.ext import Application, ApplicationBuilder

from tests.kit.telegram import BOT, OWNER, TOKEN, Fault, Telegram, telegram

pytestmark = pytest.mark.e2e


def build_application(fake: Telegram) -> Application:  # type: ignore[type-arg]
    address = f"{fake.url}/bot"
    files = f"{fake.url}/file/bot"
    return ApplicationBuilder().token(TOKEN).base_url(address).base_file_url(files).build()


async def receive_update(library: Application) -> Update:  # type: ignore[type-arg]
    """The next update, which is confirmed."""
    (update,) = await library.bot.get_updates(timeout=5)
    await library.bot.get_updates(update.update_id + 1)
    return update


async def test_the_library_polls_writes_and_reads_files() -> None:
    async with telegram() as fake, build_application(fake) as library:
        assert library.bot.username == BOT["username"]
        await fake.say("/start now")
        update = await receive_update(library)
        assert update.message is not None
        assert (update.message.text, update.effective_user.id) == ("/start now", OWNER)  # type: ignore[union-attr]
        assert [e.type for e in update.message.entities] == ["bot_command"]
        button = InlineKeyboardButton("Yes", callback_data="y")
        sent = await update.message.reply_text(
            "<b>bold</b>", parse_mode=ParseMode.HTML, reply_markup=InlineKeyboardMarkup([[button]])
        )
        assert sent.text == "bold" and fake.sent[0].buttons[0]["text"] == "Yes"
        await fake.press(fake.sent[0], "Yes")
        pressed = await receive_update(library)
        assert pressed.callback_query is not None
        assert pressed.callback_query.data == "y"
        await pressed.callback_query.answer()
        await sent.edit_text("changed")
        await update.message.reply_document(b"content", filename="a.txt")
        assert [s.text for s in fake.sent] == ["changed", ""] and fake.sent[1].file == b"content"
        fake.files["f1"] = b"from a person"
        file = await library.bot.get_file("f1")
        assert bytes(await file.download_as_bytearray()) == b"from a person"
        await sent.delete()
        assert fake.texts() == [""]


async def test_the_library_understands_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "1")  # it warns otherwise
    async with telegram() as fake, build_application(fake) as library:
        flood = Fault(429, "Too Many Requests: retry after 7", {"retry_after": 7})
        fake.fault = lambda method, _: flood if method == "sendMessage" else None
        with pytest.raises(RetryAfter, match="7"):
            await library.bot.send_message(OWNER, "hi")
        fake.fault = lambda method, _: None
        with pytest.raises(BadRequest, match="parse entities"):
            await library.bot.send_message(OWNER, "<b>x", parse_mode=ParseMode.HTML)
        with pytest.raises(BadRequest, match="not found"):
            await library.bot.edit_message_text("x", OWNER, 1)
        await library.bot.set_webhook("https://bot.example.org/x", secret_token="s")
        fake.stop()
        with pytest.raises(Conflict):
            await library.bot.get_updates()
        fake.token = "another"
        with pytest.raises(InvalidToken):
            await library.bot.get_me()

"""Voice in chats: what people say becomes text, and answers become speech."""

from pathlib import Path

from hermes.app.session import Session
from hermes.core.errors import ToolError
from hermes.core.message import Media
from hermes.gateway import texts
from hermes.gateway.adapter import Attachment
from hermes.tools._services import MEDIA

_USUAL_TYPE = "audio/ogg"
_ENDINGS = {"audio/mpeg": "mp3", "audio/mp4": "m4a", "audio/opus": "ogg"}
"""Endpoints tell the format by the name; elsewhere it ends as the type does."""
LONGEST_SPEECH = 4000
"""What an endpoint takes at once, in characters; longer answers are text only."""


async def transcribe_note(session: Session, attachment: Attachment, path: Path) -> str:
    """The line with what was said; empty: no transcriber is configured."""
    media = session.services.get(MEDIA)
    if media is None or not media.has_model("transcription"):
        return ""
    try:
        text = await media.transcribe_audio(_read_audio(attachment, path))
        return texts.VOICE.format(text=text)
    except (ToolError, OSError) as error:
        return texts.VOICE_UNREAD.format(why=str(error).rstrip("."))


def _read_audio(attachment: Attachment, path: Path) -> Media:
    kind = attachment.type.partition(";")[0].strip() or _USUAL_TYPE
    ending = _ENDINGS.get(kind) or kind.partition("/")[2].removeprefix("x-")
    return Media(kind, path.read_bytes(), name=f"voice.{ending}")


def can_speak(session: Session) -> bool:
    media = session.services.get(MEDIA)
    return media is not None and media.has_model("speech")


async def speak_text(session: Session, text: str) -> bytes:
    """The text as MP3; ToolError says why there is none."""
    media = session.services.get(MEDIA)
    if media is None:
        raise ToolError("This session has no models for media.")
    return (await media.synthesize_speech(text)).data

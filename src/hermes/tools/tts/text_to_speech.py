"""Has a model speak a text and writes the sound to a file."""

from pathlib import Path

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._edit.new_file import require_new_file, write_new_file
from hermes.tools._files.paths import resolve_path
from hermes.tools._services import require_media

_MAX_TEXT = 4096
_FORMS = {".mp3": "mp3", ".ogg": "opus", ".opus": "opus", ".wav": "wav", ".flac": "flac"}


class Params(Struct, frozen=True):
    text: str
    path: str
    voice: str = ""


def _choose_lock(p: Params, cwd: Path) -> str:
    return str(resolve_path(p.path, cwd))


@tool(
    "Have a model speak a text and write the sound to a new file (.mp3, .ogg, .wav or .flac).",
    toolset="tts",
    risk="write",
    timeout=180,
    key=_choose_lock,
    asks_itself=True,
    words="voice audio say aloud read sound mp3 narrate",
)
async def text_to_speech(p: Params, ctx: ToolContext) -> ToolResult:
    text = p.text.strip()
    if not text or len(text) > _MAX_TEXT:
        raise ToolError(f"text must have between 1 and {_MAX_TEXT} characters; speak it in parts.")
    form = _FORMS.get(Path(p.path).suffix.lower())
    if form is None:
        raise ToolError(f"path must end in one of {', '.join(_FORMS)}.")
    path = await require_new_file(p.path, ctx)
    ctx.progress("the text is being spoken")
    sound = await require_media(ctx).synthesize_speech(text, p.voice.strip(), form)
    await write_new_file(path, sound.data, ctx)
    return ToolResult(
        f"Wrote {path} ({sound.mime}, {len(sound.data)} bytes)",
        data={"path": str(path), "mime": sound.mime, "bytes": len(sound.data)},
    )

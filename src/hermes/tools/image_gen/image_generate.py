"""Has a model make a picture and writes it to a file."""

from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._edit.new_file import require_new_file, write_new_file
from hermes.tools._files.images import detect_image_type
from hermes.tools._files.paths import resolve_path
from hermes.tools._services import require_media, require_web

_MAX_PROMPT = 32_000
_MAX_BYTES = 50 * 2**20
_ACCEPTED_TYPES = ("image/", "application/octet-stream", "")


class Params(Struct, frozen=True):
    prompt: str
    path: str
    size: str = ""


def _choose_lock(p: Params, cwd: Path) -> str:
    return str(resolve_path(p.path, cwd))


@tool(
    "Have a model make a picture from a description and write it to a new file (size such as "
    "1024x1024).",
    toolset="image_gen",
    risk="write",
    timeout=300,
    key=_choose_lock,
    asks_itself=True,
    words="draw paint illustration picture photo logo png create",
)
async def image_generate(p: Params, ctx: ToolContext) -> ToolResult:
    prompt = p.prompt.strip()
    if not prompt or len(prompt) > _MAX_PROMPT:
        raise ToolError(f"prompt must have between 1 and {_MAX_PROMPT} characters.")
    path = await require_new_file(p.path, ctx)
    ctx.progress("the picture is being made")
    picture = await require_media(ctx).generate_image(prompt, p.size.strip())
    data = picture.data or await _fetch_picture(picture.url, ctx)
    mime = detect_image_type(data)
    if not mime:
        raise ToolError("The model's answer is no picture. Nothing was written.")
    await write_new_file(path, data, ctx)
    return ToolResult(
        f"Wrote {path} ({mime}, {len(data)} bytes)",
        data={"path": str(path), "mime": mime, "bytes": len(data)},
    )


async def _fetch_picture(url: str, ctx: ToolContext) -> bytes:
    fetch = require_web(ctx).fetcher.fetch
    async with fetch(url, accept=_ACCEPTED_TYPES, max_bytes=_MAX_BYTES) as page:
        if not 200 <= page.status < 300:
            raise ToolError(f"{urlsplit(page.url).netloc} answered {page.status}.")
        return page.body

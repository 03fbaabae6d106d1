"""What tools changed in files, kept beside the transcript: the model is told less than that."""

from collections.abc import Iterable

from hermes.core.message import ToolReturn
from hermes.core.store import Objects, StoredMessage

_KIND = "tool_diff"
_MAX_KEPT = 2000


async def save_diff(objects: Objects, session_id: str, call_id: str, diff: str) -> None:
    body = diff.encode("utf-8", "replace")
    await objects.put(_KIND, f"{session_id}/{call_id}", body, keep_latest=_MAX_KEPT)


async def load_diffs(
    objects: Objects, session_id: str, messages: Iterable[StoredMessage]
) -> dict[str, str]:
    """By call: what the calls that these messages answer have changed."""
    found: dict[str, str] = {}
    for stored in messages:
        for part in stored.message.parts:
            if isinstance(part, ToolReturn) and part.name in WRITING:
                kept = await objects.get(_KIND, f"{session_id}/{part.call_id}", owner="")
                if kept is not None:
                    found[part.call_id] = kept.body.decode()
    return found


WRITING = ("write_file", "patch")
"""Tools that say what they changed."""

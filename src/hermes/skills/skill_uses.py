"""Counts how often skills are used."""

import time

import msgspec

from hermes.core.store import Objects

_USE_KIND = "skill-use"
_USE_SECONDS = 30 * 86400
_MAX_USED = 2000


class SkillUses:
    """How often skills were used in the last 30 days."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def note_use(self, name: str) -> None:
        now = time.time()
        stored = await self._objects.get(_USE_KIND, name, owner="")
        times = msgspec.msgpack.decode(stored.body, type=list[float]) if stored else []
        recent = [t for t in times if t > now - _USE_SECONDS][-99:]
        body = msgspec.msgpack.encode([*recent, now])
        await self._objects.put(_USE_KIND, name, body, keep_latest=_MAX_USED)

    async def count_uses(self) -> dict[str, int]:
        since = time.time() - _USE_SECONDS
        return {
            row.id: sum(t > since for t in msgspec.msgpack.decode(row.body, type=list[float]))
            for row in await self._objects.list_all(_USE_KIND)
        }

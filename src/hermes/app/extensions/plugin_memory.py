"""Memory providers of plugins: the calls of the HTTP provider, as methods of an object."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from hermes.app.extensions.plugin_thread import PluginThread
from hermes.core.text import describe_exception
from hermes.memory.provider import ProviderFailed, RecalledFact

_DELIVERY_SECONDS = 60.0
_TEMPORARY = (OSError, TimeoutError, asyncio.TimeoutError)


class PluginMemory:
    """Methods it lacks are not called. What fails because of the network is tried again."""

    def __init__(self, provider: Any, thread: PluginThread) -> None:
        self._provider = provider
        self._thread = thread

    async def recall_facts(self, scope: str, query: str, limit: int) -> tuple[RecalledFact, ...]:
        recall = self._find_method("recall")
        if recall is None:
            return ()
        try:
            found = await self._thread.call(recall, scope=scope, query=query, limit=limit)
            rows = [{"text": row} if isinstance(row, str) else row for row in found or ()]
            return msgspec.convert(rows, tuple[RecalledFact, ...])[:limit]
        except Exception as error:  # noqa: BLE001 - the code of others
            raise ProviderFailed(f"recall: {describe_exception(error)}") from None

    async def deliver(self, path: str, body: dict[str, Any], key: str) -> str:
        method = self._find_method(path.strip("/"))
        if method is None:
            return ""
        try:
            async with asyncio.timeout(_DELIVERY_SECONDS):
                await self._thread.call(method, **body)
        except _TEMPORARY as error:
            raise ProviderFailed(f"{path}: {describe_exception(error)}") from None
        except Exception as error:  # noqa: BLE001 - the code of others
            return f"{path}: {describe_exception(error)}"
        return ""

    async def check_health(self) -> None:
        return None

    async def close(self) -> None:
        return None

    def _find_method(self, name: str) -> Callable[..., Any] | None:
        found = getattr(self._provider, name, None)
        return found if callable(found) else None

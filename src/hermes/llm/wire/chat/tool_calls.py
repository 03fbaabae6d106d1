"""Tool calls of a chat answer, put together from fragments however a server numbers them."""

from __future__ import annotations

from typing import Any

import msgspec

from hermes.core.response_sink import ResponseSink
from hermes.llm.wire.convert import record, string
from hermes.llm.wire.lenient_json import text

_KEYS = frozenset({"index", "id", "type", "function", "custom"})


class _Call:
    """A call as far as it is known."""

    __slots__ = ("end", "id", "name", "slot")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.id = ""
        self.name = ""
        self.end = ""
        """The last fragment of its arguments."""


class Calls:
    """Names are atomic and the first id counts; argument fragments add up. What else stands on a
    call is the provider's own and goes back with it."""

    def __init__(self, sink: ResponseSink) -> None:
        self._sink = sink
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def cut(self) -> bool:
        """Whether the last call's arguments are not complete."""
        return not self._complete(self._calls[-1])

    def add(self, fragment: dict[str, Any]) -> None:
        function = record(fragment.get("function"))
        if not function and fragment.get("custom"):
            return
        name, id = string(function.get("name")), string(fragment.get("id"))
        call = self._of(fragment.get("index"), id, name)
        call.id = call.id or id
        call.name = name or call.name
        args = text(function.get("arguments"))
        call.end = args.rstrip() or call.end
        self._sink.add_call(call.slot, id=call.id, name=name, args=args)
        extra = {k: v for k, v in fragment.items() if k not in _KEYS and v}
        if extra:
            self._sink.add_extra(call.slot, "call", **extra)

    def _of(self, index: Any, id: str, name: str) -> _Call:
        """The call a fragment belongs to: by index; without one, by id; without either, the last.
        An index that comes again with another id and a name, when its call is complete or has
        another name, means a new call."""
        call: _Call | None
        if isinstance(index, int):
            call = self._by_index.get(index)
            if call is None or (id and call.id not in ("", id) and self._next(call, name)):
                call = self._by_index[index] = self._new()
            return call
        call = next((c for c in self._calls if id and c.id == id), None)
        if call is not None:
            return call
        call = self._calls[-1] if self._calls else None
        if call is None or (id and call.id) or self._next(call, name):
            call = self._new()
        return call

    def _next(self, call: _Call, name: str) -> bool:
        """Whether a name behind `call` begins another one, or only repeats its own."""
        return bool(name) and (name != (call.name or name) or self._complete(call))

    def _complete(self, call: _Call) -> bool:
        if not call.end.endswith("}"):
            return False
        try:
            return isinstance(msgspec.json.decode(self._sink.get_args(call.slot)), dict)
        except (ValueError, RecursionError):
            return False

    def _new(self) -> _Call:
        call = _Call(len(self._calls))
        self._calls.append(call)
        return call

"""Assembles the tool calls of a chat answer from fragments, however a server numbers them."""

from typing import Any

from msgspec import Struct

from hermes.core.provider import ResponseSink
from hermes.llm.wire.convert import as_dict, as_text
from hermes.llm.wire.lenient_json import is_object, to_text

_KEYS = frozenset({"index", "id", "type", "function", "custom"})


class _PendingCall(Struct):
    """What is known about a call."""

    slot: int
    id: str = ""
    name: str = ""
    end: str = ""
    """The last fragment of its arguments."""


class ToolCallAssembler:
    """Names are atomic, the first id counts, and argument fragments are joined. Other keys of a
    call are the provider's own and are sent back with it."""

    def __init__(self, sink: ResponseSink) -> None:
        self._sink = sink
        self._calls: list[_PendingCall] = []
        self._by_index: dict[int, _PendingCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def is_cut(self) -> bool:
        """Whether the arguments of the last call are incomplete."""
        return not self._is_complete(self._calls[-1])

    def add_fragment(self, fragment: dict[str, Any]) -> None:
        function = as_dict(fragment.get("function"))
        if not function and fragment.get("custom"):
            return
        name, id = as_text(function.get("name")), as_text(fragment.get("id"))
        call = self._find_call(fragment.get("index"), id, name)
        call.id = call.id or id
        call.name = name or call.name
        args = to_text(function.get("arguments"))
        call.end = args.rstrip() or call.end
        self._sink.add_call(call.slot, id=call.id, name=name, args=args)
        extra = {k: v for k, v in fragment.items() if k not in _KEYS and v}
        if extra:
            self._sink.add_extra(call.slot, "call", **extra)

    def _find_call(self, index: Any, id: str, name: str) -> _PendingCall:
        """The call that a fragment belongs to: by index, else by id, else the last one. An index
        that is repeated with another id and a name begins a new call if the old one is complete or
        has another name."""
        if isinstance(index, int):
            call = self._by_index.get(index)
            if call is None or (id and call.id not in ("", id) and self._begins_call(call, name)):
                call = self._by_index[index] = self._new_call()
            return call
        for call in self._calls:
            if id and call.id == id:
                return call
        call = self._calls[-1] if self._calls else None
        begins = call is None or (id and call.id) or self._begins_call(call, name)
        return self._new_call() if call is None or begins else call

    def _begins_call(self, call: _PendingCall, name: str) -> bool:
        """Whether a name after `call` begins another call rather than repeating its name."""
        return bool(name) and (name != (call.name or name) or self._is_complete(call))

    def _is_complete(self, call: _PendingCall) -> bool:
        return call.end.endswith("}") and is_object(self._sink.get_args(call.slot))

    def _new_call(self) -> _PendingCall:
        call = _PendingCall(len(self._calls))
        self._calls.append(call)
        return call

"""Encodes requests for one endpoint, by its quirks, and watches over its prompt cache."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct, structs

from hermes.core.events import Notice, StreamEvent
from hermes.core.provider import Request, ToolSpec
from hermes.llm.cache_guard import NOTICE_CODE, PromptRecord, explain_cache_loss, record_prompt
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.history_view import HistoryView
from hermes.llm.provider_spec import Quirks, overlay_quirks
from hermes.llm.reasoning_effort import fit_effort
from hermes.llm.wire import Wire, load_wire
from hermes.llm.wire.convert import as_dict
from hermes.llm.wire.request_fields import RequestHead


class _Profile(Struct, frozen=True):
    """The quirks in force, with a hashable key."""

    quirks: Quirks
    key: bytes


class EncodedRequest(Struct, frozen=True):
    url: str
    body: bytes
    quirks: Quirks
    streams: bool
    notices: list[StreamEvent]
    """Notices about it for the user."""
    offered_tools: dict[str, tuple[str, ...]]
    """Tools to look for in the text, where calls may be written there, and their parameters."""
    prompt: PromptRecord | None
    """How a prompt cache sees it; None: it is outside the conversation."""


class RequestEncoder:
    """Holds no state of a conversation: encoded messages are kept in its History."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self._endpoint = endpoint
        self._target = endpoint.target
        self._profiles: dict[bytes, _Profile] = {}
        self._notices_given: set[str] = set()

    @cached_property
    def wire(self) -> Wire:
        return load_wire(self._target.wire)

    def encode_request(self, request: Request) -> EncodedRequest:
        profile = self._find_profile(request.learned)
        quirks = profile.quirks
        request, notices = self._fit_effort(request, quirks)
        body, found = self._encode_body(request, profile)
        sent = request.history.sent
        if found and (text := explain_cache_loss(sent.get(self._target), found, self._target)):
            sent[self._target] = found
            notices.append(Notice(NOTICE_CODE, text))
        offers = quirks.calling != "native" and request.settings.tool_choice != "none"
        base_url, streams = self._endpoint.base_url, profile.quirks.stream
        return EncodedRequest(
            self.wire.build_url(base_url, self._target.model, stream=streams),
            body,
            quirks,
            streams,
            notices,
            _list_parameters(request.tools) if offers else {},
            found,
        )

    def remember_prompt(self, request: Request, encoded: EncodedRequest) -> None:
        """Record that the provider has read this prompt: the next one is compared with it."""
        if encoded.prompt is not None:
            request.history.sent[self._target] = encoded.prompt

    def _find_profile(self, learned: Mapping[str, Any]) -> _Profile:
        name = msgspec.json.encode(learned) if learned else b""
        found = self._profiles.get(name)
        if found is None:
            quirks = overlay_quirks(self._endpoint.quirks, learned)
            found = _Profile(quirks, msgspec.json.encode(quirks))
            self._profiles[name] = found
        return found

    def _fit_effort(self, request: Request, quirks: Quirks) -> tuple[Request, list[StreamEvent]]:
        """The request with an effort that the model supports, and a notice, once, if it differs."""
        asked = request.settings.effort
        effort = asked if quirks.effort == "omit" else fit_effort(asked, quirks.efforts)
        if effort == asked:
            return request, []
        settings = structs.replace(request.settings, effort=effort)
        request = structs.replace(request, settings=settings)
        used = f"using {effort!r}" if effort else "the model decides"
        text = f"{self._target.model} does not support the reasoning effort {asked!r}: {used}."
        if text in self._notices_given:
            return request, []
        self._notices_given.add(text)
        return request, [Notice("effort", text)]

    def _encode_body(
        self, request: Request, profile: _Profile
    ) -> tuple[bytes, PromptRecord | None]:
        """The body, and its record. Each message is serialised once; the rest is joining bytes."""
        views = request.history.views
        key = (self._target, profile.key)
        found = views.get(key)
        if found is None:
            encoder = self.wire.Encoder(self._target, profile.quirks)
            for other in [k for k in views if k[0] == self._target]:  # type: ignore[index]
                del views[other]
            view = HistoryView(self._target, profile.quirks, encoder.add_group)
            found = views[key] = view, encoder
        view, encoder = found
        view.add_new_messages(request.history)
        head = RequestHead(request.system, request.tools, request.settings, profile.quirks.stream)
        body: bytes = encoder.build_body(view.pending_groups(request.tail), head)
        return body, record_prompt(request, profile.quirks, encoder.messages.last_sent)


def _list_parameters(tools: Sequence[ToolSpec]) -> dict[str, tuple[str, ...]]:
    return {tool.name: tuple(as_dict(tool.parameters.get("properties"))) for tool in tools}

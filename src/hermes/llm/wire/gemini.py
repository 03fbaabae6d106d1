"""Google's generateContent protocol: request addresses, and the decoding of answers."""

from __future__ import annotations

from collections.abc import Mapping
from os import urandom
from typing import Any
from urllib.parse import quote

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.message import Stop
from hermes.core.response_sink import ResponseSink
from hermes.llm.errors.classifier import classify_error
from hermes.llm.provider_spec import Quirks, WireFacts
from hermes.llm.wire.base_decoder import BaseDecoder, can_stream
from hermes.llm.wire.convert import (
    as_dict,
    as_dicts,
    as_text,
    has_no_content,
    parse_document,
    sum_counts,
)
from hermes.llm.wire.gemini_encoder import Encoder
from hermes.llm.wire.gemini_tool_calls import PartialCall
from hermes.llm.wire.lenient_json import decode_json, encode_json

__all__ = ["FACTS", "STREAM_TYPE", "Decoder", "Encoder", "build_url", "can_stream", "read_error"]

FACTS = WireFacts(list_path="/models", list_marks=("supportedGenerationMethods",))
STREAM_TYPE = "text/event-stream"
_STOPS: dict[str, Stop] = {
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "filtered",
    "RECITATION": "filtered",
    "LANGUAGE": "filtered",
    "BLOCKLIST": "filtered",
    "PROHIBITED_CONTENT": "filtered",
    "SPII": "filtered",
    "MODEL_ARMOR": "filtered",
    "JAILBREAK": "filtered",
    "IMAGE_SAFETY": "filtered",
    "IMAGE_PROHIBITED_CONTENT": "filtered",
    "IMAGE_RECITATION": "filtered",
}
_ANSWER = ("candidates", "promptFeedback", "usageMetadata")
_MALFORMED = ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE")
_ROOTS = ("models/", "tunedModels/", "publishers/", "projects/", "endpoints/")


def build_url(base_url: str, model: str, *, stream: bool) -> str:
    path = quote(model if model.startswith(_ROOTS) else f"models/{model}", safe="/@.-_")
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"{base_url.rstrip('/')}/{path}:{verb}"


def read_error(body: Any, headers: Mapping[str, str]) -> tuple[str, str, str]:
    """Without `alt=sse`, the error of a streaming request comes in an array."""
    if isinstance(body, list):
        body = body[0] if body else None
    inner = as_dict(body).get("error")
    if not isinstance(inner, dict):
        return "", as_text(inner) or as_text(as_dict(body).get("message")), ""
    code = as_text(inner.get("status")) or str(inner.get("code") or "")
    message = as_text(inner.get("message"))
    for detail in as_dicts(inner.get("details")):
        # The message does not always repeat the reason and the delay given here.
        for key in ("reason", "retryDelay"):
            value = as_text(detail.get(key))
            if value and value not in message:
                message += f" ({key}: {value})"
    return code, message, ""


class Decoder(BaseDecoder):
    """Each chunk is an answer object with the new parts. Adjacent texts become one part unless
    either is signed: a signature belongs to the part it came with."""

    def __init__(self, sink: ResponseSink, quirks: Quirks) -> None:
        super().__init__(sink)
        self._slot = 0
        self._joins = ""
        """Kind of the last part if the next piece may be joined to it: text or thinking."""
        self._partial: PartialCall | None = None
        self._usage: dict[str, Any] = {}
        self._reason = ""
        self._blocked = ""

    @property
    def is_finished(self) -> bool:
        return self._done or self._reason != ""

    def decode_document(self, body: bytes) -> None:
        """Without `alt=sse` a stream is an array of chunks, complete when one of them says so."""
        if body.lstrip()[:1] != b"[":
            super().decode_document(body)
            return
        for chunk in as_dicts(parse_document(body)):
            self._decode_value(chunk)
        self._end_answer(complete=False)

    def _decode_events(self, events: list[tuple[str, bytes]]) -> None:
        for _, raw in events:
            try:
                chunk = decode_json(raw)
            except ValueError:
                chunk = self._decode_odd_event(raw)
            if self._done:
                return
            if isinstance(chunk, dict):
                self.activity += 1
                self._decode_chunk(chunk)

    def _decode_value(self, value: dict[str, Any]) -> None:
        self._decode_chunk(value)
        if not any(key in value for key in _ANSWER):
            raise ProviderError(Failure(Kind.NOT_API, "the answer is not a generateContent answer"))

    def _decode_chunk(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            self._raise_error(chunk)
        feedback = as_dict(chunk.get("promptFeedback"))
        if reason := as_text(feedback.get("blockReason")):
            self._blocked = reason
            self._sink.detail = as_text(feedback.get("blockReasonMessage")) or reason
        for candidate in as_dicts(chunk.get("candidates")):
            if candidate.get("index") in (None, 0):
                self._decode_candidate(candidate)
        self._count_usage(chunk.get("usageMetadata"))

    def _raise_error(self, chunk: dict[str, Any]) -> None:
        code, message, param = read_error(chunk, {})
        status = as_dict(chunk["error"]).get("code")
        if not isinstance(status, int) or isinstance(status, bool):
            status = None
        raise ProviderError(classify_error(status=status, code=code, message=message, param=param))

    # -- parts -------------------------------------------------------------------------------

    def _decode_candidate(self, candidate: dict[str, Any]) -> None:
        for part in as_dicts(as_dict(candidate.get("content")).get("parts")):
            self._decode_part(part)
        reason = as_text(candidate.get("finishReason"))
        if reason and reason != "FINISH_REASON_UNSPECIFIED":
            self._reason = reason
        if message := as_text(candidate.get("finishMessage")):
            self._sink.detail = message

    def _decode_part(self, part: dict[str, Any]) -> None:
        signature = part.get("thoughtSignature")
        if "functionCall" in part:
            self._decode_call(as_dict(part["functionCall"]), signature)
        elif isinstance(part.get("text"), str):
            self._add_text(part["text"], bool(part.get("thought")), signature)
        elif any(key not in ("thought", "thoughtSignature") for key in part):
            self._sink.set_native(self._next_slot(""), part)
        elif signature:
            self._add_text("", False, signature)

    def _add_text(self, text: str, thought: bool, signature: Any) -> None:
        if not text and not signature:
            return
        kind = "thinking" if thought else "text"
        slot = self._slot if self._joins == kind and not signature else self._next_slot(kind)
        if thought:
            self._sink.add_thinking(slot, text)
        else:
            self._sink.add_text(slot, text)
        if signature:
            self._joins = ""
            self._sink.add_extra(slot, kind, thoughtSignature=signature)

    def _decode_call(self, call: dict[str, Any], signature: Any) -> None:
        if self._partial is None or call.get("name"):
            self._settle_call()
            slot = self._begin_call(call, signature)
            if call.get("willContinue") or call.get("partialArgs"):
                self._partial = PartialCall(slot, call.get("args"))
        elif signature:
            self._sink.add_extra(self._partial.slot, "call", thoughtSignature=signature)
        if self._partial is not None:
            self._partial.add_pieces(call.get("partialArgs"))
            if not call.get("willContinue"):
                self._settle_call()

    def _settle_call(self) -> None:
        """Complete the call whose arguments came piece by piece."""
        if self._partial is not None:
            self._sink.set_args(self._partial.slot, encode_json(self._partial.args).decode())
            self._partial = None

    def _begin_call(self, call: dict[str, Any], signature: Any) -> int:
        slot = self._next_slot("")
        id = as_text(call.get("id"))
        extra = {"id": id} if id else {}
        if signature:
            extra["thoughtSignature"] = signature
        name, args = as_text(call.get("name")), encode_json(call.get("args") or {}).decode()
        self._sink.add_call(slot, id=id or f"call_{urandom(12).hex()}", name=name, args=args)
        if extra:
            self._sink.add_extra(slot, "call", **extra)
        return slot

    def _next_slot(self, joins: str) -> int:
        self._slot += 1
        self._joins = joins
        return self._slot

    # -- the end -----------------------------------------------------------------------------

    def _count_usage(self, usage: Any) -> None:
        for key, value in as_dict(usage).items():
            if value is not None:
                self._usage[key] = value
        usage = self._usage
        thoughts = usage.get("thoughtsTokenCount")
        self._sink.count_usage(
            input=sum_counts(usage.get("promptTokenCount"), usage.get("toolUsePromptTokenCount")),
            output=sum_counts(usage.get("candidatesTokenCount"), thoughts),
            cache_read=usage.get("cachedContentTokenCount"),
            reasoning=thoughts,
        )

    def _end_answer(self, *, complete: bool) -> None:
        sink = self._sink
        if not (complete or self._reason or self._blocked):
            sink.stop = "died"
            return
        self._settle_call()
        reason = self._reason or self._blocked
        sink.stop = _STOPS.get(reason) or ("tool_use" if sink.call_names else "end")
        if self._blocked and not self._reason:
            sink.stop = "filtered"
        if sink.stop == "filtered" and has_no_content(self._sink):
            raise ProviderError(Failure(Kind.CONTENT_POLICY, sink.detail or reason, code=reason))
        if reason == "MISSING_THOUGHT_SIGNATURE":
            raise ProviderError(Failure(Kind.REPLAY_REJECTED, sink.detail or reason, code=reason))
        if reason in _MALFORMED and not sink.call_names:
            # The call that the model wrote is lost, so the text before it is no complete answer.
            if has_no_content(self._sink):
                raise ProviderError(Failure(Kind.EMPTY, sink.detail or reason, code=reason))
            sink.stop = "died"

"""Google's generateContent protocol: requests that serialise each group once, and answers."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.message import (
    Media,
    Message,
    Native,
    Part,
    Stop,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from hermes.core.provider import ResponseSink, Settings, ToolSpec
from hermes.llm.errors.classifier import classify_error
from hermes.llm.http.tape import draw_hex
from hermes.llm.provider_spec import Quirks, WireFacts
from hermes.llm.wire.base_decoder import BaseDecoder
from hermes.llm.wire.convert import (
    BUDGETS,
    as_dict,
    as_dicts,
    as_text,
    has_no_content,
    inline_data,
    open_list,
    parse_arguments,
    parse_document,
    sum_counts,
)
from hermes.llm.wire.lenient_json import encode_json
from hermes.llm.wire.message_buffer import MessageForms
from hermes.llm.wire.request_fields import BaseEncoder, RequestHead, shape_fields
from hermes.llm.wire.tool_schema import fit_schema

__all__ = ["FACTS", "STREAM_TYPE", "Decoder", "Encoder", "build_url", "read_error"]

FACTS = WireFacts(list_path="/models", list_marks=("supportedGenerationMethods",))
STREAM_TYPE = "text/event-stream"
_FILTERED = (
    "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR JAILBREAK "
    "IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION"
).split()
_STOPS: dict[str, Stop] = {
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(_FILTERED, "filtered"),
}
_ANSWER = ("candidates", "promptFeedback", "usageMetadata")
_MALFORMED = ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE")
_ROOTS = ("models/", "tunedModels/", "publishers/", "projects/", "endpoints/")
EMPTY = "[empty]"
UNSIGNED = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""`skip_thought_signature_validator`, the documented stand-in for the signature of a call the
model did not make, as the base64 this field is declared as."""
_LEVELS = {"none": "minimal", "xhigh": "high"}
"""Efforts that have another name here."""
_MAX_STOPS = 5
_THINKING = frozenset(
    "thinking thinkingConfig thinkingLevel thinkingBudget thinking_config thinking_level "
    "thinking_budget".split()
)
"""The names that refusals use for the one field that asks for thoughts."""
_STEP = re.compile(r"""\.?([^.\[\]'"$]+)|\[(\d+)\]|\[(?:'([^']*)'|"([^"]*)")\]""")
_VALUES = ("stringValue", "numberValue", "boolValue")
_MOST = 10_000
"""Longest list; a larger index is a mistake of the provider."""


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


class Encoder(BaseEncoder):
    """Each closed group is serialised once. The bytes before the contents stay the same as long as
    system prompt, tools and settings do."""

    def _encode_head(self, head: RequestHead) -> bytes:
        quirks, settings, tools = self._quirks, head.settings, head.tools
        fields: dict[str, Any] = {}
        if head.system.strip():
            fields["systemInstruction"] = {"parts": [{"text": head.system}]}
        if tools and quirks.tools:
            declared = [_encode_function(tool, quirks) for tool in tools]
            fields["tools"] = [{"functionDeclarations": declared}]
            if settings.tool_choice == "none":
                fields["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
            elif settings.tool_choice == "required":
                calling: dict[str, Any] = {"mode": "ANY"}
                if settings.tool:
                    calling["allowedFunctionNames"] = [settings.tool]
                fields["toolConfig"] = {"functionCallingConfig": calling}
        if config := _generation_config(quirks, settings):
            fields["generationConfig"] = config
        return open_list(shape_fields(fields, quirks), "contents")

    def _encode_group(self, group: Message, before: Message) -> list[MessageForms]:
        if group.role == "assistant":
            role, parts = "model", self._encode_model(group.parts)
        else:
            own = {call.id for call in before.calls if call.extra and call.extra.get("id")}
            role, parts = "user", _encode_user(group.parts, own)
        return [(encode_json({"role": role, "parts": parts or [{"text": EMPTY}]}), b"")]

    def _encode_model(self, parts: Sequence[Part]) -> list[dict[str, Any]]:
        keep = self._quirks.thinking_replay == "keep"
        out: list[dict[str, Any]] = []
        for part in parts:
            signed: dict[str, Any] = {}
            if keep and not isinstance(part, Native | Media | ToolReturn) and part.extra:
                signed = {k: v for k, v in part.extra.items() if k == "thoughtSignature"}
            match part:
                case Text(text=text) if text or signed:
                    out.append({"text": text, **signed})
                case Thinking(text=text):
                    out.append({"text": text, "thought": True, **signed})
                case ToolCall(id=id, name=name, args=args, extra=extra):
                    call: dict[str, Any] = {"name": name, "args": parse_arguments(args)}
                    if extra and extra.get("id"):
                        call["id"] = id
                    out.append({"functionCall": call, **signed})
                case Native(data=data):
                    out.append(data)
        # Models with thinking levels refuse calls without a signature on the first one, and the
        # calls of other models have none.
        first = next((p for p in out if "functionCall" in p), None)
        if first is not None and self._quirks.effort == "level":
            first.setdefault("thoughtSignature", UNSIGNED)
        return out


def _generation_config(quirks: Quirks, settings: Settings) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if limit := settings.max_output or quirks.max_tokens_default:
        config["maxOutputTokens"] = limit
    if settings.temperature is not None:
        config["temperature"] = settings.temperature
    if settings.top_p is not None:
        config["topP"] = settings.top_p
    if settings.seed is not None:
        config["seed"] = settings.seed
    if settings.stop:
        config["stopSequences"] = list(settings.stop[:_MAX_STOPS])
    thinking = _thinking_config(quirks, settings)
    if thinking and not _THINKING & set(quirks.drop):
        config["thinkingConfig"] = thinking
    return {k: v for k, v in config.items() if k not in quirks.drop}


def _thinking_config(quirks: Quirks, settings: Settings) -> dict[str, Any]:
    effort = settings.effort
    match quirks.effort:
        case "budget" if effort == "none":
            return {"thinkingBudget": 0}
        case "budget" | "level" if effort is None:
            return {"includeThoughts": True}
        case "budget" if effort is not None:
            return {"thinkingBudget": BUDGETS[effort], "includeThoughts": True}
        case "level" if effort is not None:
            return {
                "thinkingLevel": _LEVELS.get(effort, effort),
                "includeThoughts": effort != "none",
            }
        case _:
            return {}


def _encode_function(tool: ToolSpec, quirks: Quirks) -> dict[str, Any]:
    """The declaration of a tool. JSON Schema goes into `parametersJsonSchema` unchanged;
    `parameters` is the older field, which takes a subset and no empty object."""
    out: dict[str, Any] = {"name": tool.name, "description": tool.description}
    schema = fit_schema(tool.parameters, quirks.schema)
    if quirks.schema != "gemini":
        out["parametersJsonSchema"] = schema
    elif schema.get("properties"):
        out["parameters"] = schema
    return out


def _encode_user(parts: Sequence[Part], own: Collection[str]) -> list[dict[str, Any]]:
    """`own`: ids that the provider itself gave to the calls before these results."""
    out: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case ToolReturn(call_id=id, name=name, content=content, error=failed):
                result: dict[str, Any] = {"name": name}
                if id in own:
                    result["id"] = id
                result["response"] = {"error" if failed else "result": part.text}
                if media := [_encode_media(p) for p in content if isinstance(p, Media)]:
                    result["parts"] = media
                out.append({"functionResponse": result})
            case Text(text=text) if text:
                out.append({"text": text})
            case Media():
                out.append(_encode_media(part))
    return out


def _encode_media(media: Media) -> dict[str, Any]:
    held = inline_data(media)
    if held:
        return {"inlineData": {"mimeType": held[0], "data": held[1]}}
    return {"fileData": {"mimeType": media.mime, "fileUri": media.url}}


class PartialCall:
    """A function call whose arguments arrive value by value, each with its path in the object.
    Fragments of a text are joined; of other values the last one counts."""

    __slots__ = ("args", "slot")

    def __init__(self, slot: int, args: Any) -> None:
        self.slot = slot
        self.args: dict[str, Any] = dict(args) if isinstance(args, dict) else {}

    def add_pieces(self, pieces: Any) -> None:
        for piece in as_dicts(pieces):
            steps = [
                int(at) if at else name or quoted or doubly
                for name, at, quoted, doubly in _STEP.findall(as_text(piece.get("jsonPath")))
            ]
            value = next((piece[k] for k in _VALUES if k in piece), None)
            if steps and isinstance(steps[0], str):
                _put_value(self.args, steps, value)


def _put_value(inside: Any, steps: list[str | int], value: Any) -> None:
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if isinstance(inside, list) and isinstance(step, int) and step < _MOST:
            inside.extend([None] * (step + 1 - len(inside)))
            before = inside[step]
        elif isinstance(inside, dict):
            step, before = str(step), inside.get(str(step))
        else:
            return
        if following is None:
            joined = isinstance(before, str) and isinstance(value, str)
            inside[step] = before + value if joined else value
        elif not isinstance(before, dict | list):
            inside[step] = [] if isinstance(following, int) else {}
        inside = inside[step]


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
        self._blocked = ""

    def decode_document(self, body: bytes) -> None:
        """Without `alt=sse` a stream is an array of chunks, complete when one of them says so."""
        if body.lstrip()[:1] != b"[":
            super().decode_document(body)
            return
        for chunk in as_dicts(parse_document(body)):
            self._decode_value(chunk)
        self._end_answer(complete=False)

    def _decode_value(self, value: dict[str, Any]) -> None:
        self._decode_event("", value)
        if not any(key in value for key in _ANSWER):
            raise ProviderError(Failure(Kind.NOT_API, "the answer is not a generateContent answer"))

    def _decode_event(self, name: str, event: dict[str, Any]) -> None:
        if "error" in event:
            code, message, param = read_error(event, {})
            status = as_dict(event["error"]).get("code")
            status = status if type(status) is int else None
            raise ProviderError(
                classify_error(status=status, code=code, message=message, param=param)
            )
        feedback = as_dict(event.get("promptFeedback"))
        if reason := as_text(feedback.get("blockReason")):
            self._blocked = reason
            self._sink.detail = as_text(feedback.get("blockReasonMessage")) or reason
        for candidate in as_dicts(event.get("candidates")):
            if candidate.get("index") in (None, 0):
                self._decode_candidate(candidate)
        self._count_usage(event.get("usageMetadata"))

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
        self._sink.add_call(slot, id=id or f"call_{draw_hex(12)}", name=name, args=args)
        if extra:
            self._sink.add_extra(slot, "call", **extra)
        return slot

    def _next_slot(self, joins: str) -> int:
        self._slot += 1
        self._joins = joins
        return self._slot

    def _count_usage(self, usage: Any) -> None:
        self._usage |= {k: v for k, v in as_dict(usage).items() if v is not None}
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
        malformed = reason in _MALFORMED and not sink.call_names
        kind = None
        if sink.stop == "filtered" and has_no_content(sink):
            kind = Kind.CONTENT_POLICY
        elif reason == "MISSING_THOUGHT_SIGNATURE":
            kind = Kind.REPLAY_REJECTED
        elif malformed and has_no_content(sink):
            kind = Kind.EMPTY
        if kind is not None:
            raise ProviderError(Failure(kind, sink.detail or reason, code=reason))
        if malformed:  # the call that the model wrote is lost, so the text is no complete answer
            sink.stop = "died"

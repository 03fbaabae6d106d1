"""Asks an endpoint for pictures, speech and transcripts, in the form that OpenAI gave them."""

import base64
import binascii
import secrets
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.message import Media, Usage
from hermes.llm.credential_use import CredentialUse
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.http.transport import Exchange, Transport
from hermes.llm.http.watchdog import Timeouts, Watchdog
from hermes.llm.response_reader import raise_for_status
from hermes.llm.wire.base_decoder import read_error

MAX_MEDIA_BYTES = 50 * 2**20
"""The largest response that is read."""
SPEECH_TYPES = {"mp3": "audio/mpeg", "opus": "audio/ogg", "wav": "audio/wav", "flac": "audio/flac"}
_WIRES = ("chat", "responses")


class MediaAnswer(Struct, frozen=True):
    """`media` has bytes, or the address at which the endpoint offers them."""

    media: Media
    usage: Usage


class TextAnswer(Struct, frozen=True):
    text: str
    usage: Usage


class MediaRequests:
    """ProviderError, without any secret, when there is no usable answer."""

    def __init__(
        self, endpoint: ModelEndpoint, transport: Transport, credentials: CredentialUse
    ) -> None:
        self._endpoint = endpoint
        self._transport = transport
        self._credentials = credentials

    async def generate_image(self, prompt: str, *, size: str = "") -> MediaAnswer:
        wish = {"model": self._endpoint.target.model, "prompt": prompt, "n": 1}
        body = msgspec.json.encode(wish | ({"size": size} if size else {}))
        answer = self._decode_object(await self._post("images/generations", body))
        rows = answer.get("data")
        row = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
        usage = _read_usage(answer.get("usage"), prompt)
        if isinstance(encoded := row.get("b64_json"), str) and encoded:
            try:
                return MediaAnswer(Media("", base64.b64decode(encoded, validate=True)), usage)
            except binascii.Error:
                pass
        if isinstance(url := row.get("url"), str) and url:
            if self._is_own_url(url):
                return MediaAnswer(Media("", await self._send("GET", url)), usage)
            return MediaAnswer(Media("", url=url), usage)
        raise self._describe_garbage("a picture")

    async def synthesize_speech(self, text: str, *, voice: str, form: str) -> MediaAnswer:
        """`form`: one of SPEECH_TYPES."""
        wish = {
            "model": self._endpoint.target.model,
            "input": text,
            "voice": voice,
            "response_format": form,
        }
        data = await self._post("audio/speech", msgspec.json.encode(wish))
        if not data or data.lstrip()[:1] == b"{":
            raise self._describe_garbage("speech")
        return MediaAnswer(Media(SPEECH_TYPES[form], data), _read_usage(None, text))

    async def transcribe_audio(self, audio: Media) -> TextAnswer:
        boundary = secrets.token_hex(16)
        fields = {"model": self._endpoint.target.model, "response_format": "json"}
        body = _encode_form(fields, audio, boundary)
        kind = f"multipart/form-data; boundary={boundary}"
        answer = self._decode_object(await self._post("audio/transcriptions", body, kind))
        text = answer.get("text")
        if not isinstance(text, str):
            raise self._describe_garbage("a transcript")
        return TextAnswer(text.strip(), _read_usage(answer.get("usage"), text))

    def _is_own_url(self, url: str) -> bool:
        """Whether the endpoint offers it at its own address, as servers on this machine do."""
        own, other = urlsplit(self._endpoint.base_url), urlsplit(url)
        return own[:2] == other[:2]

    async def _post(self, path: str, body: bytes, content_type: str = "") -> bytes:
        endpoint = self._endpoint
        if endpoint.target.wire not in _WIRES or "://" not in endpoint.base_url:
            text = f"{endpoint.target.provider} has no endpoint in OpenAI's form for this"
            raise ProviderError(Failure(Kind.MODEL_NOT_FOUND, text))
        url = f"{endpoint.base_url.rstrip('/')}/{path}"
        return await self._send("POST", url, body, content_type)

    async def _send(
        self, method: str, url: str, body: bytes = b"", content_type: str = ""
    ) -> bytes:
        endpoint = self._endpoint
        watchdog = Watchdog(Timeouts(0, 0, endpoint.timeouts.total), endpoint.host)
        exchange: Exchange | None = None
        try:
            headers = self._credentials.build_headers(await self._credentials.prepare_call())
            if content_type:
                headers["Content-Type"] = content_type
            sending = self._transport.send(method, url, headers=headers, body=body)
            exchange = await watchdog.wait(sending)
            await raise_for_status(exchange, watchdog, read_error)
            data = await watchdog.wait(exchange.read_all(MAX_MEDIA_BYTES + 1))
        except ProviderError as error:
            raise ProviderError(self._credentials.redact_failure(error.failure)) from None
        finally:
            watchdog.stop()
            if exchange is not None:
                exchange.close()
        if len(data) > MAX_MEDIA_BYTES:
            text = f"{endpoint.host} sent more than {MAX_MEDIA_BYTES >> 20} MB"
            raise ProviderError(Failure(Kind.ANSWER_TOO_LARGE, text))
        return data

    def _decode_object(self, data: bytes) -> dict[str, Any]:
        try:
            found = msgspec.json.decode(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._describe_garbage("JSON")
        return found

    def _describe_garbage(self, expected: str) -> ProviderError:
        text = f"{self._endpoint.host} answered without {expected}"
        return ProviderError(Failure(Kind.NOT_API, text))


def _encode_form(fields: dict[str, str], file: Media, boundary: str) -> bytes:
    name = "".join(c for c in file.name if c.isalnum() or c in "._-") or "audio"
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        f"Content-Type: {file.mime}\r\n\r\n"
    )
    return b"".join([*parts, head.encode(), file.data, f"\r\n--{boundary}--\r\n".encode()])


def _read_usage(reported: Any, text: str) -> Usage:
    """As reported in tokens, else estimated from the text."""
    if isinstance(reported, dict):
        given, made = reported.get("input_tokens"), reported.get("output_tokens")
        if isinstance(given, int) and isinstance(made, int) and min(given, made) >= 0:
            return Usage(given, made)
    return Usage(input=max(1, len(text) // 4), estimated=True)

"""The parts of aiohttp that the server uses, and every use of its private attributes.

Importing all of aiohttp.web takes 10 ms more, for its router, static files and websockets.
"""

from collections.abc import Mapping
from typing import TypeVar

from aiohttp.helpers import RequestKey as RequestKey
from aiohttp.http import HttpVersion11 as HttpVersion11
from aiohttp.http_exceptions import PayloadEncodingError as PayloadEncodingError
from aiohttp.web_exceptions import HTTPException as HTTPException
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_protocol import RequestPayloadError as RequestPayloadError
from aiohttp.web_request import BaseRequest as BaseRequest
from aiohttp.web_response import Response as Response
from aiohttp.web_response import StreamResponse as StreamResponse
from aiohttp.web_server import Server

REQUEST_ID = RequestKey("request_id", str)


def json_reply(body: bytes, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """A response with this JSON as its body."""
    return Response(body=body, status=status, headers=headers, content_type="application/json")


class HttpConnection(RequestHandler):
    """An aiohttp connection that can be asked for its state."""

    __slots__ = ()

    @property
    def has_request(self) -> bool:
        """Whether a request has arrived and is not answered yet."""
        return bool(self._messages) or self._request_in_progress

    @property
    def is_closing(self) -> bool:
        return bool(self._force_close)


C = TypeVar("C", bound=HttpConnection)


class ConnectionFactory(Server):
    """An aiohttp server whose connections are of a class of its own."""

    def make_connection(self, kind: type[C]) -> C:
        return kind(self, loop=self._loop, **self._kwargs)

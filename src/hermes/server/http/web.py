"""The part of aiohttp.web that is needed: its router, files and websockets take 10 ms to import."""

from aiohttp.helpers import RequestKey
from aiohttp.http import HttpVersion11
from aiohttp.web_exceptions import HTTPException
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server

__all__ = [
    "BaseRequest",
    "HTTPException",
    "HttpVersion11",
    "RequestHandler",
    "RequestKey",
    "RequestPayloadError",
    "Response",
    "Server",
    "StreamResponse",
]

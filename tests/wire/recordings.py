"""Recorded provider traffic, read from beside the project when it is there."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import orjson

ROOT = Path(__file__).resolve().parents[3] / "shared" / "recordings"


class Recording(msgspec.Struct):
    api: str
    host: str
    path: str
    status: int
    stream: str
    request: Any
    response_encoding: str
    response: Any
    name: str = ""

    @property
    def body(self) -> bytes:
        match self.response_encoding:
            case "json":
                return orjson.dumps(self.response)
            case "text":
                return self.response.encode()
            case _:
                return base64.b64decode(self.response)


def load(api: str) -> list[Recording]:
    out = []
    for file in sorted((ROOT / api).glob("*.json")):
        recording = msgspec.convert(json.loads(file.read_text()), Recording)
        recording.name = file.stem
        out.append(recording)
    return out

"""What the Python clients share: the prompts, a tool, a type, and one event loop."""

import asyncio
import base64
import os
from collections.abc import Generator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
MODEL = "hermes-agent"
IMAGE = Path(os.environ["CLIENT_IMAGE"])
DATA_URL = f"data:image/png;base64,{base64.b64encode(IMAGE.read_bytes()).decode()}"
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
Stream = Generator[str, None, int]
"""The pieces of an answer; its value is the total of the tokens."""


def ask(order: str) -> str:
    return f"Please follow order:{order}"


def say(order: str) -> list:
    """The messages of a chat; the picture is in it when it is asked about."""
    if order != "image":
        return [{"role": "user", "content": ask(order)}]
    picture = {"type": "image_url", "image_url": {"url": DATA_URL}}
    return [{"role": "user", "content": [{"type": "text", "text": ask(order)}, picture]}]


def say_item(order: str):
    """The input of a response."""
    if order != "image":
        return ask(order)
    picture = {"type": "input_image", "image_url": DATA_URL, "detail": "auto"}
    return [{"role": "user", "content": [{"type": "input_text", "text": ask(order)}, picture]}]


def weather(city: str) -> str:
    """The weather of a city."""
    return f"25 degrees in {city}"


def weather_model():
    from pydantic import BaseModel

    class Weather(BaseModel):
        city: str
        degrees: int

    return Weather


def weather_schema():
    return {"name": "weather", "schema": weather_model().model_json_schema(), "strict": True}


LOOP = asyncio.new_event_loop()
"""Clients keep connections from one call to the next: all calls run in one loop."""
Thread(target=LOOP.run_forever, daemon=True).start()


def run(work):
    return asyncio.run_coroutine_threadsafe(work, LOOP).result()


def drain(pieces) -> Stream:
    """An async generator as a plain one; its last item is the usage."""
    found = SimpleQueue()

    async def read_pieces():
        try:
            async for piece in pieces:
                found.put(piece)
        except Exception as failure:
            found.put(failure)
        finally:
            found.put(None)

    usage = 0
    reading = asyncio.run_coroutine_threadsafe(read_pieces(), LOOP)
    try:
        while (item := found.get()) is not None:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, int):
                usage = item
            else:
                yield item
    finally:
        reading.cancel()
    return usage

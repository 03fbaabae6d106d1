"""Typed slots that the tools of a session share, filled by the runtime and the tools."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, cast

from hermes.core.errors import ToolError
from hermes.core.message import Message

T = TypeVar("T")


class ServiceKey(Generic[T]):
    """Names a slot and the type of its content. Keys are compared by identity."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class ModelAccess(Protocol):
    """The models that tools may use."""

    @property
    def sees_images(self) -> bool:
        """Whether the conversation's own model takes images."""

    async def consult(
        self, job: str, prompt: Message, *, system: str = "", max_output: int = 1024
    ) -> str:
        """The answer of the model for that auxiliary job; ToolError when there is none."""


class NoModels:
    """For tools that run outside a session."""

    sees_images = True

    async def consult(
        self, job: str, prompt: Message, *, system: str = "", max_output: int = 1024
    ) -> str:
        raise ToolError(f"There is no model for {job}.")


class Services:
    """The slots of one session. Values with an `aclose` are closed with the session, in the order
    they were set."""

    def __init__(self, models: ModelAccess | None = None) -> None:
        self.models: ModelAccess = models or NoModels()
        self._slots: dict[ServiceKey[Any], Any] = {}

    def set(self, key: ServiceKey[T], value: T) -> None:
        self._slots[key] = value

    def get(self, key: ServiceKey[T]) -> T | None:
        return cast("T | None", self._slots.get(key))

    def get_or_make(self, key: ServiceKey[T], make: Callable[[], T]) -> T:
        """The content of the slot; `make` fills an empty one."""
        if key not in self._slots:
            self._slots[key] = make()
        return cast("T", self._slots[key])

    async def aclose(self) -> None:
        for value in list(self._slots.values()):
            if hasattr(value, "aclose"):
                await value.aclose()
        self._slots.clear()
        self.models = NoModels()

"""The parts of a platform that many messengers do not have."""

from collections.abc import Callable

from hermes.gateway.adapter import Attachment, Part, SendFailure, Target


class PlainPlatform:
    """A messenger that shows text: it changes nothing it has sent, and carries no files."""

    async def edit_part(self, target: Target, id: str, part: Part) -> None:
        raise SendFailure("rejected", "sent messages cannot be changed here")

    async def delete_part(self, target: Target, id: str) -> None:
        return None

    async def send_file(self, target: Target, path: str, name: str) -> str:
        raise SendFailure("rejected", "files cannot be sent here")

    async def show_typing(self, target: Target) -> None:
        return None

    async def fetch_attachment(
        self, attachment: Attachment, write: Callable[[bytes], None], limit: int
    ) -> None:
        raise SendFailure("rejected", "files cannot be received here")

    async def publish_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        return None

    async def close(self) -> None:
        return None

"""What a messenger is to the gateway: its capabilities, its messages and its failures."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from hermes.config.platforms import PlatformSettings
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.gateway.content.render import count_units
from hermes.tools._services import ServerAccess

ChatType: TypeAlias = Literal["dm", "group", "channel"]
ErrorCode: TypeAlias = Literal[
    "unauthorized",
    "intents",
    "conflict",
    "unreachable",
    "unconfigured",
    "missing_dependency",
    "port_in_use",
    "error",
]


class Capabilities(Struct, frozen=True):
    """What a platform can do; the renderer adapts to it."""

    longest_part: int = 4096
    """The most units of one message."""
    measure: Callable[[str], int] = count_units
    """Counts the units of a text: UTF-16 units, characters (`len`) or bytes."""
    render_markup: Callable[[str], str] | None = None
    """Turns Markdown into what the platform shows formatted; None: plain text."""
    edits: bool = False
    """Whether messages can be changed: then answers appear as they are written."""
    pace: float = 1.0
    """Seconds between two edits of a message."""
    group_pace: float = 3.0
    typing_seconds: float = 0.0
    """How often the typing indicator must be renewed; 0: there is none."""
    buttons: bool = False
    pairs: bool = True
    """Whether strangers can be given pairing codes."""
    commands: bool = True
    """Whether messages may be commands."""
    bang_commands: bool = False
    """Whether `!x` is `/x`, where clients keep the slash for themselves."""
    authenticates: bool = False
    """Whether the platform itself lets only permitted senders through."""
    marks_bots: bool = True
    """Whether messages of other programs are marked as theirs."""
    attended: bool = True
    """Whether a person reads the answers and can approve."""


class Attachment(Struct, frozen=True):
    ref: str
    """How the platform finds it again."""
    name: str = ""
    type: str = ""
    size: int = 0
    is_voice: bool = False
    """Whether it was recorded as a message."""


class Inbound(Struct, frozen=True):
    """A message of a person, in the words of no platform."""

    chat: str
    chat_type: ChatType
    user: str
    id: str
    text: str = ""
    thread: str = ""
    user_name: str = ""
    is_bot: bool = False
    addressed: bool = False
    """In a group: whether it mentions the bot, replies to it or is a command for it."""
    sent: float = 0.0
    """Unix seconds; 0: now."""
    quote: str = ""
    """The message it replies to."""
    attachments: tuple[Attachment, ...] = ()
    album: str = ""
    """Messages of one album have the same."""
    edited: bool = False
    session: str = ""
    """The conversation inside the chat, where the platform names it."""
    deliver: str = ""
    """Where the answer goes instead of the chat it came from."""
    deliver_only: bool = False
    """The text itself is delivered, and no model is called."""
    toolsets: tuple[str, ...] | None = None


class ButtonPress(Struct, frozen=True):
    """A press of a button under one of our messages."""

    id: str
    chat: str
    chat_type: ChatType
    user: str
    user_name: str
    data: str
    is_bot: bool = False


class Button(Struct, frozen=True):
    label: str
    data: str


class Target(Struct, frozen=True):
    """Where a message goes."""

    chat: str
    thread: str = ""
    reply_to: str = ""


class Part(Struct, frozen=True):
    """One message as it is sent: Markdown, rendered for the dialect of the platform."""

    text: str
    markup: str = ""
    """The same in the dialect; empty: plain text."""
    buttons: tuple[Button, ...] = ()


FailureKind: TypeAlias = Literal[
    "certain",
    "ambiguous",
    "wait",
    "gone",
    "markup",
    "too_long",
    "target",
    "moved",
    "edit_lost",
    "rejected",
    "fatal",
]
"""`certain`: it did not arrive and may be tried again; `ambiguous`: it may have arrived;
`gone`: the chat does not exist any more or blocks us; `edit_lost`: the message cannot be changed
any more; `rejected`: it will never be accepted; `fatal`: the platform refuses everything."""


class SendFailure(Exception):
    """A call to a platform that failed. The text holds no secret."""

    def __init__(self, kind: FailureKind, text: str, *, wait: float = 0.0, chat: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.wait = wait
        """Seconds until the next try."""
        self.chat = chat
        """The new id of a chat that moved."""


class ConnectionFailure(Exception):
    """A platform that cannot receive. `fatal`: trying again is pointless."""

    def __init__(
        self, code: ErrorCode, text: str, *, fatal: bool = False, wait: float | None = None
    ) -> None:
        super().__init__(text)
        self.code: ErrorCode = code
        self.fatal = fatal
        self.wait = wait


class MenuCommand(Struct, frozen=True):
    """A command as a platform's own menu shows it."""

    name: str
    help: str
    admin_only: bool


class PendingStep(ConfigError):
    """The token works, and something else is missing before anybody is answered."""


class Receiver(Protocol):
    """The gateway as a platform sees it. A message is stored when the call returns."""

    def report_connected(self) -> None: ...

    def open_folder(self) -> Path:
        """A private folder of the home for what the platform must keep."""

    async def receive_message(self, message: Inbound) -> bool:
        """Whether the message is new."""

    async def receive_press(self, press: ButtonPress) -> str:
        """What to show to the person who pressed; empty: nothing."""

    async def move_chat(self, old: str, new: str) -> None: ...

    async def list_chats(self) -> tuple[str, ...]:
        """The chats that have conversations."""

    async def load_cursor(self) -> str:
        """How far the platform had received, as it saved it; empty: nothing was saved."""

    async def save_cursor(self, cursor: str) -> None: ...


class Platform(Protocol):
    """One connection to a messenger."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def run(self, receiver: Receiver) -> None:
        """Receive until cancelled; raises ConnectionFailure."""

    async def send_part(self, target: Target, part: Part) -> str:
        """The id of the sent message; raises SendFailure."""

    async def edit_part(self, target: Target, id: str, part: Part) -> None: ...

    async def delete_part(self, target: Target, id: str) -> None: ...

    async def send_file(self, target: Target, content: bytes, name: str) -> str: ...

    async def show_typing(self, target: Target) -> None: ...

    async def fetch_attachment(
        self, attachment: Attachment, write: Callable[[bytes], None], limit: int
    ) -> None:
        """Hand over the content piece by piece; SendFailure when it is larger than `limit`."""

    async def publish_commands(
        self, commands: tuple[MenuCommand, ...], admins: tuple[str, ...]
    ) -> None:
        """Show the commands in the platform's own menu; where it can tell people apart, those of
        administrators to them alone."""

    async def close(self) -> None: ...


class PlainPlatform:
    """A messenger that shows text: it changes nothing it has sent, and carries no files."""

    async def edit_part(self, target: Target, id: str, part: Part) -> None:
        raise SendFailure("rejected", "sent messages cannot be changed here")

    async def delete_part(self, target: Target, id: str) -> None:
        return None

    async def send_file(self, target: Target, content: bytes, name: str) -> str:
        raise SendFailure("rejected", "files cannot be sent here")

    async def show_typing(self, target: Target) -> None:
        return None

    async def fetch_attachment(
        self, attachment: Attachment, write: Callable[[bytes], None], limit: int
    ) -> None:
        raise SendFailure("rejected", "files cannot be received here")

    async def publish_commands(
        self, commands: tuple[MenuCommand, ...], admins: tuple[str, ...]
    ) -> None:
        return None

    async def close(self) -> None:
        return None


@runtime_checkable
class ServerHost(Protocol):
    """A platform with servers that administrators may look into."""

    @property
    def servers(self) -> ServerAccess: ...


class PlatformSpec(Struct, frozen=True):
    """A row per platform: how it is configured and opened."""

    name: str
    variable: str
    """The variable that holds its token."""
    settings: type[PlatformSettings]
    open: Callable[[Any, Secrets], Platform]
    """Takes the settings and the secrets; ConfigError when they do not suffice."""
    check: Callable[[Any, Secrets], Awaitable[str]] | None = None
    """Tries the token with one real call and says who it belongs to; ConfigError when it does not
    work, PendingStep when more has to be done."""
    more_variables: tuple[str, ...] = ()
    """Further variables that `setup` asks for, in this order; they may stay empty."""
    alternative: str = ""
    """Another variable that turns it on."""

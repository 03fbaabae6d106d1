"""What the agent reads of messages: their text, whose it is, and what comes along with them."""

from collections.abc import Sequence

from hermes.app.session import Session
from hermes.config.schema import GatewaySection
from hermes.core.message import Media, Message, user_message
from hermes.core.taint import Taint
from hermes.core.untrusted_text import make_inert, wrap_text, wrapper_mark
from hermes.gateway import texts
from hermes.gateway.content.media import read_image
from hermes.gateway.content.voice import transcribe_note
from hermes.gateway.hub import CarriedResult, Hub, Item
from hermes.gateway.people.access import attribute_text, is_per_user, name_sender

LONGEST_QUOTE = 500


def quote_result(session: Session, result: CarriedResult) -> str:
    """What a scheduled job has sent to the chat, for the agent."""
    session.transcript.absorb_taint(Taint.from_bits(result.taint).sources)
    mark = wrapper_mark(session.id)
    text = wrap_text(make_inert(result.text), mark, begin=True, end=True)
    return f"{texts.CARRIED.format(job=result.job)}\n{text}"


async def build_prompt(
    hub: Hub, session: Session, items: Sequence[Item], notes: list[str]
) -> Message:
    """What the agent reads: notes, the messages, and their attachments."""
    lines = notes
    media: list[Media] = []
    for item in items:
        lines.append(write_text(hub.settings, item))
        platform = hub.platforms[item.platform].platform
        for attachment in item.message.attachments:
            line, path = await hub.media.fetch(platform, attachment)
            if path is not None and attachment.is_voice:
                async with hub.lock_voice(item.platform, item.message.chat):
                    lines.append(await transcribe_note(session, attachment, path))
            lines.append(line)
            picture = read_image(path) if path is not None else None
            media += [picture] if picture is not None else []
    if any(is_open_chat(hub, item) for item in items):
        session.transcript.absorb_taint({"untrusted"})
    return user_message("\n".join(filter(None, lines)), *media)


def is_open_chat(hub: Hub, item: Item) -> bool:
    """Whether people talk there whom nobody has let in."""
    settings = hub.platforms[item.platform].settings
    return item.role == "guest" or (settings.group_members and item.message.chat_type != "dm")


def write_text(settings: GatewaySection, item: Item) -> str:
    """The text of a message, with what it replies to and, in a shared session, its author."""
    message = item.message
    quote = message.quote[:LONGEST_QUOTE]
    quoted = "\n".join(f"> {line}" for line in quote.splitlines())
    is_shared = message.chat_type != "dm" and not is_per_user(
        message.chat_type,
        message.thread,
        settings.group_sessions_per_user,
        settings.thread_sessions_per_user,
    )
    person = name_sender(message.user_name) or message.user
    text = attribute_text(person, message.text) if is_shared else message.text
    return "\n".join(filter(None, (quoted, text.rstrip())))

"""Events of a signal-cli daemon in the gateway's words."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from hermes.gateway.adapter import Attachment, Inbound
from hermes.gateway.transport.payload import read_number

_UNREAD = frozenset({"reaction", "remoteDelete", "isExpirationUpdate", "pollVote", "adminDelete"})
_PLACEHOLDER = "\ufffc"


class SignalSelf(Struct, frozen=True):
    """The bot's own account; the id is known after the first call."""

    account: str
    uuid: str = ""

    def is_same(self, number: Any, uuid: Any) -> bool:
        return bool((self.uuid and uuid == self.uuid) or self.account in (number, uuid))


def read_event(event: Mapping[str, Any], me: SignalSelf, listed: tuple[str, ...]) -> Inbound | None:
    """A message of a person; None for everything else. `listed`: people as the settings name them,
    by id or by number."""
    envelope = event["envelope"]
    edit = envelope.get("editMessage")
    message = edit["dataMessage"] if edit else envelope.get("dataMessage")
    uuid, number = envelope.get("sourceUuid"), envelope.get("sourceNumber")
    if message is None or not (uuid or number) or me.is_same(number, uuid):
        return None
    if any(message.get(key) for key in _UNREAD):
        return None
    text, is_mentioned = read_mentions(str(message.get("message") or ""), message, me)
    attachments = _read_attachments(message)
    if not text and not attachments:
        return None
    group = (message.get("groupInfo") or {}).get("groupId")
    quote = message.get("quote") or {}
    sender = str(uuid or number)
    sent = int(edit["targetSentTimestamp"] if edit else message["timestamp"])
    return Inbound(
        chat=str(group or sender),
        chat_type="group" if group else "dm",
        user=_find_spelling(sender, str(number or ""), listed),
        id=f"{sent}:{sender}",
        text=text,
        user_name=str(envelope.get("sourceName") or number or ""),
        addressed=is_mentioned or me.is_same(quote.get("authorNumber"), quote.get("authorUuid")),
        sent=sent / 1000,
        quote=str(quote.get("text") or ""),
        attachments=attachments,
        edited=bool(edit),
    )


def _find_spelling(sender: str, number: str, listed: tuple[str, ...]) -> str:
    """The person as the settings name them: by id, else by number, with or without `+`."""
    if sender not in listed and number:
        for entry in listed:
            if entry.lstrip("+") == number.lstrip("+"):
                return entry
    return sender


def read_mentions(text: str, message: Mapping[str, Any], me: SignalSelf) -> tuple[str, bool]:
    """The text with names instead of placeholders, without mentions of the bot, and whether there
    was one. Offsets count UTF-16 units."""
    units = text.encode("utf-16-le", "surrogatepass")
    is_mentioned = False
    mentions = sorted(message.get("mentions") or (), key=lambda m: int(m["start"]), reverse=True)
    for mention in mentions:
        start, end = 2 * int(mention["start"]), 2 * (int(mention["start"]) + int(mention["length"]))
        is_own = me.is_same(mention.get("number"), mention.get("uuid"))
        is_mentioned = is_mentioned or is_own
        name = "" if is_own else f"@{mention.get('name') or mention.get('number') or 'somebody'}"
        units = units[:start] + name.encode("utf-16-le") + units[end:]
    return units.decode("utf-16-le", "replace").replace(_PLACEHOLDER, "").strip(), is_mentioned


def _read_attachments(message: Mapping[str, Any]) -> tuple[Attachment, ...]:
    return tuple(
        Attachment(
            str(file["id"]),
            str(file.get("filename") or ""),
            str(file.get("contentType") or ""),
            int(read_number(file.get("size"))),
            bool(file.get("voiceNote")),
        )
        for file in message.get("attachments") or ()
        if file.get("id")
    )

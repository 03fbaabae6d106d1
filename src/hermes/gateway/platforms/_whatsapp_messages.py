"""Deliveries of WhatsApp's Cloud API in the gateway's words, and messages in its own."""

from collections.abc import Iterator, Mapping
from typing import Any

from hermes.gateway import texts
from hermes.gateway.adapter import Attachment, Button, ButtonPress, ChatType, Inbound, Part, Target
from hermes.gateway.transport.payload import read_number

_FILES = ("image", "audio", "video", "document", "sticker")
MAX_BUTTONS = 3
_LONGEST_TITLE = 20
_LONGEST_BODY = 1024


def list_changes(payload: Mapping[str, Any], number_id: str) -> Iterator[Mapping[str, Any]]:
    """What is new about our number; statuses of sent messages and other numbers are not."""
    for entry in payload.get("entry") or ():
        for change in entry.get("changes") or ():
            value = change.get("value") or {}
            metadata = value.get("metadata") or {}
            if change.get("field") == "messages" and metadata.get("phone_number_id") == number_id:
                yield value


def read_message(
    message: Mapping[str, Any], value: Mapping[str, Any], listed: tuple[str, ...]
) -> Inbound | ButtonPress | None:
    """A message or a press of a person; None when it says nothing. `listed`: people as the
    settings name them."""
    sender = str(message["from"])
    user = next((entry for entry in listed if entry.lstrip("+") == sender.lstrip("+")), sender)
    names = {
        c.get("wa_id"): (c.get("profile") or {}).get("name") for c in value.get("contacts") or ()
    }
    name = str(names.get(sender) or "")
    group = message.get("group_id")
    chat, chat_type = str(group or sender), _find_type(group)
    kind = str(message.get("type"))
    interactive = message.get("interactive") or {}
    if kind == "interactive" and (press := interactive.get("button_reply")):
        return ButtonPress(str(message["id"]), chat, chat_type, user, name, str(press["id"]))
    content = message.get(kind) or {}
    text = str(content.get("body") or content.get("caption") or "")
    attachments = (_read_file(content),) if kind in _FILES and content.get("id") else ()
    if not text and not attachments:
        return None
    own = str((value.get("metadata") or {}).get("display_phone_number") or "")
    answered = str((message.get("context") or {}).get("from") or "")
    return Inbound(
        chat=chat,
        chat_type=chat_type,
        user=user,
        id=str(message["id"]),
        text=text,
        user_name=name,
        addressed=bool(own) and answered.lstrip("+") == own.lstrip("+"),
        sent=read_number(message.get("timestamp")),
        attachments=attachments,
    )


def _find_type(group: Any) -> ChatType:
    return "group" if group else "dm"


def _read_file(content: Mapping[str, Any]) -> Attachment:
    return Attachment(
        str(content["id"]),
        str(content.get("filename") or ""),
        str(content.get("mime_type") or ""),
        is_voice=bool(content.get("voice")),
    )


def is_group(chat: str) -> bool:
    """Whether an id is a group's; people are numbers."""
    return not chat.lstrip("+").isdecimal()


def address_message(target: Target, kind: str, content: Any) -> dict[str, Any]:
    """The body of a call that sends `content`."""
    body = {
        "messaging_product": "whatsapp",
        "recipient_type": "group" if is_group(target.chat) else "individual",
        "to": target.chat,
        "type": kind,
        kind: content,
    }
    if target.reply_to:
        body["context"] = {"message_id": target.reply_to}
    return body


def write_message(target: Target, part: Part) -> dict[str, Any]:
    """The body of a call that sends a part, with buttons where they fit."""
    text = part.markup or part.text
    buttons = choose_buttons(part.buttons)
    if not buttons or len(text) > _LONGEST_BODY:
        return address_message(target, "text", {"body": text, "preview_url": False})
    rows = [{"type": "reply", "reply": {"id": b.data, "title": b.label}} for b in buttons]
    content = {"type": "button", "body": {"text": text}, "action": {"buttons": rows}}
    return address_message(target, "interactive", content)


def choose_buttons(buttons: tuple[Button, ...]) -> tuple[Button, ...]:
    """At most three: of an approval's choices, `Always` is left to /approve. None where a choice
    would be cut or missing; the text has them by number."""
    if len(buttons) > MAX_BUTTONS:
        kept = tuple(b for b in buttons if b.label != texts.APPROVAL_LABELS["always"])
        buttons = kept if buttons[-1].label == texts.APPROVAL_LABELS["deny"] else ()
    fits = len(buttons) <= MAX_BUTTONS and all(len(b.label) <= _LONGEST_TITLE for b in buttons)
    return buttons if fits else ()

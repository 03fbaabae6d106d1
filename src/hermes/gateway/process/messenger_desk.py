"""What the operator sees and decides about the messengers of a home, outside the gateway."""

from typing import Any

from msgspec import structs

from hermes.app.control.doctor.check import Check
from hermes.config.load import Setup, reload_setup
from hermes.config.platforms import is_enabled, read_platform
from hermes.core.errors import ConfigError
from hermes.gateway import texts
from hermes.gateway.content.reply import Content, make_entry
from hermes.gateway.outbox import FOREIGN
from hermes.gateway.people.pairing_desk import PairingDesk
from hermes.gateway.platforms import find_token, list_names, load_platform, require_known
from hermes.gateway.process.connection_checks import check_messengers
from hermes.gateway.process.state_file import read_status
from hermes.store.tables.mailbox import MessengerStore

_OFF = {"state": "stopped", "error_code": "", "error_message": "", "since": None}


class MessengerDesk:
    """Reads what the gateway wrote; the running one finds decisions in the store, or the next."""

    def __init__(self, setup: Setup, store: MessengerStore) -> None:
        self._setup = setup
        self._store = store

    def describe_gateway(self) -> dict[str, Any] | None:
        return read_status(self._setup.home)

    def describe_platforms(self) -> list[dict[str, Any]]:
        status = read_status(self._setup.home) or {}
        states = status.get("platforms", {}) if status.get("running") else {}
        setup = reload_setup(self._setup)
        return [
            {"name": name, **_describe_settings(setup, name), **_OFF, **states.get(name, {})}
            for name in list_names()
        ]

    async def list_people(self, platform: str = "") -> list[dict[str, Any]]:
        return [
            {
                "platform": person.platform,
                "user": person.user,
                "name": person.name,
                "state": "paired" if person.approved else "waiting",
                "created": person.created,
            }
            for person in await self._store.pairings.list_all(platform)
        ]

    async def approve_code(self, platform: str, code: str) -> str:
        if not self._setup.config.plugins.enabled:  # otherwise one of them may know the name
            require_known(platform)
        person = await PairingDesk(self._store.pairings).approve_code(platform, code)
        mailbox = self._store.mailbox
        number = await mailbox.find_last_number() + 1
        entry = make_entry(number, person.platform, person.chat, Content(texts.PAIRED))
        await mailbox.put_reply(structs.replace(entry, inbox=FOREIGN))
        who = f"{person.name or person.user} ({person.platform} {person.user})"
        return f"{who} may talk to the agent."

    async def revoke_user(self, platform: str, user: str) -> str:
        if not await self._store.pairings.remove(platform, user):
            raise ConfigError(f"{user} was not let in on {platform}. See: hermes pairing list")
        return f"{user} may no longer talk to the agent on {platform}."

    async def check_connections(self, setup: Setup) -> list[Check]:
        return await check_messengers(setup)


def _describe_settings(setup: Setup, name: str) -> dict[str, Any]:
    """Whether a messenger is on, and what is wrong with its settings."""
    try:
        spec = load_platform(name)
        settings = read_platform(name, spec.settings, setup.config, setup.secrets)
        enabled = is_enabled(settings, find_token(spec, settings, setup.secrets))
    except (ConfigError, ImportError) as error:
        return {"enabled": False, "problem": str(error)}
    return {"enabled": enabled, "problem": ""}

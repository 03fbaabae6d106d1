"""Logins as credentials: finding one, deciding who may see its token, and keeping it valid."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.config.schema import ProviderSection
from hermes.config.secrets import Secrets
from hermes.core.errors import ProviderError
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.auth.key_pool import LOGIN_SOURCE, Credential
from hermes.llm.provider_spec import OAuthSpec, ProviderSpec

if TYPE_CHECKING:
    from hermes.llm.auth.oauth.login import Login
    from hermes.llm.http.transport import Transport

log = logging.getLogger(__name__)


def find_login_flow(spec: ProviderSpec | None, row: ProviderSection) -> OAuthSpec | None:
    """How to log in to a provider: its built-in flow with the configured settings on top."""
    settings = row.oauth
    changes = {n: value for n in settings.__struct_fields__ if (value := getattr(settings, n))}
    if spec is not None and spec.oauth is not None:
        return structs.replace(spec.oauth, **changes)
    if not (settings.flow and settings.client_id and settings.token_url):
        return None
    return OAuthSpec(**changes)


def find_login(
    secrets: Secrets, name: str, spec: ProviderSpec | None, row: ProviderSection, base_url: str
) -> tuple[Credential, ...]:
    """The stored login to a provider, if any. Its token goes to nobody but the provider that issued
    it; a gateway gets it only if the login was configured for that gateway."""
    file = secrets.find_login(name)
    if file is None or find_login_flow(spec, row) is None:
        return ()
    own = spec is not None and _url_origin(base_url) == _url_origin(spec.base_url)
    if not own and not row.oauth.token_url:
        return ()
    return (Credential(LOGIN_SOURCE + name, login=str(file)),)


def can_reach_model(spec: ProviderSpec | None, model: str) -> bool:
    """Whether a login to the provider covers this model; an empty name stands for any."""
    begins = spec.oauth.models if spec is not None and spec.oauth is not None else ()
    return not model or not begins or model.lower().startswith(begins)


class Logins:
    """The logins one endpoint is called with, opened on first use."""

    def __init__(self, row: OAuthSpec | None, transport: "Transport", cooldowns: Cooldowns) -> None:
        self._row = row
        self._cooldowns = cooldowns
        self._transport = transport
        self._open: dict[str, Login] = {}

    async def prepare_key(self, key: Credential) -> Credential:
        """The credential with its current token, renewed if it is about to expire."""
        token = await self._open_login(key).get_token()
        return structs.replace(key, value=token.access, id=token.account, token=token.refresh)

    async def renew_token(self, key: Credential) -> bool:
        """Renew the token; False when there is none but the one that was just used."""
        try:
            token = await self._open_login(key).renew_token(key.value)
        except ProviderError as error:
            log.warning("%s was not renewed: %s", key.source, error)
            return False
        return token.access != key.value

    def build_headers(self, key: Credential) -> dict[str, str]:
        assert self._row is not None
        found = {**self._row.headers, "Authorization": f"Bearer {key.value}"}
        if key.id and self._row.account_header:
            found[self._row.account_header] = key.id
        return found

    def _open_login(self, key: Credential) -> "Login":
        found = self._open.get(key.login)
        if found is None:
            from hermes.llm.auth.oauth.login import Login

            assert self._row is not None
            found = self._open[key.login] = Login(Path(key.login), self._row, self._transport)
        found.shared = self._cooldowns.shared
        return found


def _url_origin(url: str) -> str:
    return "/".join(url.lower().split("/", 3)[:3])

"""Logins to servers over HTTP: the stored tokens, and the browser that brings new ones."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)

from hermes.config.paths import logins_folder, make_private_folder
from hermes.config.private_files import replace_file
from hermes.core.errors import ConfigError
from hermes.llm.auth.oauth.loopback import (
    SECONDS,
    CallbackServer,
    wait_for_result,
)
from hermes.mcp.failures import LoginNeeded
from hermes.mcp.server_config import ServerConfig

_PATH = "/callback"


def locate_login(home: Path, name: str) -> Path:
    """The file with the tokens of a login."""
    return logins_folder(home) / f"mcp-{name}.json"


class LoginFile:
    """The tokens of one login, for one address; another address never receives them."""

    def __init__(self, file: Path, config: ServerConfig) -> None:
        self.context: Any = None
        """Of the flow that uses the file; it knows where tokens are renewed."""
        self._file = file
        self._url = config.settings.url
        self._options = config.settings.oauth

    def read_fields(self) -> dict[str, str | float]:
        try:
            data = self._file.read_bytes()
            found = msgspec.json.decode(data, type=dict[str, str | float])
        except (OSError, ValueError):
            return {}
        return found if found.get("url") == self._url else {}

    def forget_client(self) -> None:
        """A new login registers anew: its redirect address may differ."""
        self._write_fields({"client": ""})

    async def get_tokens(self) -> OAuthToken | None:
        found = self.read_fields()
        if not found.get("access"):
            return None
        return OAuthToken(
            access_token=str(found["access"]),
            refresh_token=str(found.get("refresh", "")) or None,
            scope=str(found.get("scope", "")) or None,
        )

    async def set_tokens(self, tokens: OAuthToken) -> None:
        metadata = self.context.oauth_metadata if self.context else None
        self._write_fields(
            {
                "access": tokens.access_token,
                "refresh": tokens.refresh_token or str(self.read_fields().get("refresh", "")),
                "scope": tokens.scope or "",
                "expires": time.time() + tokens.expires_in if tokens.expires_in else 0.0,
                "metadata": metadata.model_dump_json() if metadata else "",
            }
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        known = self._options
        if known.client_id and not known.client_id.startswith("https://"):
            method = "client_secret_basic" if known.client_secret else "none"
            return OAuthClientInformationFull(
                client_id=known.client_id,
                client_secret=known.client_secret or None,
                redirect_uris=None,
                token_endpoint_auth_method=method,
            )
        text = str(self.read_fields().get("client", ""))
        return OAuthClientInformationFull.model_validate_json(text) if text else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._write_fields({"client": client_info.model_dump_json(exclude_none=True)})

    def _write_fields(self, changes: dict[str, str | float]) -> None:
        make_private_folder(self._file.parent)
        fields = {**self.read_fields(), **changes, "url": self._url}
        try:
            replace_file(self._file, msgspec.json.encode(fields))
        except OSError as error:
            raise ConfigError(f"Could not store the login: {error.strerror}.") from None


class BrowserLogin:
    """One login by a person: the browser comes back to this machine, or they paste its address."""

    def __init__(
        self, show: Callable[[str], None], paste: Callable[[], Awaitable[str]] | None
    ) -> None:
        self.redirect_url = ""
        self._show = show
        self._paste = paste
        self._callback: CallbackServer | None = None

    async def listen(self, port: int) -> asyncio.Server:
        """Wait for the browser on this machine only."""
        try:
            server = await asyncio.start_server(self._serve_request, "127.0.0.1", port)
        except OSError as error:
            raise ConfigError(f"Port {port} cannot be used: {error.strerror}.") from None
        taken = server.sockets[0].getsockname()[1]
        self.redirect_url = f"http://127.0.0.1:{taken}{_PATH}"
        return server

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._callback is None:
            writer.close()
        else:
            await self._callback.serve_request(reader, writer)

    async def send_to_browser(self, address: str) -> None:
        state = parse_qs(urlsplit(address).query).get("state", [""])[0]
        self._callback = CallbackServer(_PATH, state)
        self._show(address)

    async def wait_for_code(self) -> AuthorizationCodeResult:
        assert self._callback is not None
        try:
            async with asyncio.timeout(SECONDS):
                found = await wait_for_result(self._callback, self._paste)
        except TimeoutError:
            raise ConfigError(
                f"The browser did not come back within {SECONDS / 60:.0f} minutes; nothing was "
                "changed."
            ) from None
        if found.error or not found.code:
            word = found.error if found.error.isidentifier() else "no code came back"
            raise ConfigError(f"The login was not completed ({word}); nothing was changed.")
        return AuthorizationCodeResult(code=found.code, state=found.state, iss=found.iss or None)


def make_auth(
    config: ServerConfig, home: Path, login: BrowserLogin | None = None
) -> OAuthClientProvider:
    """Adds the tokens of a login to requests and renews them. Without a `login`, one that is needed
    raises LoginNeeded."""

    async def refuse_redirect(address: str) -> None:
        raise LoginNeeded(config.name)

    async def refuse_callback() -> AuthorizationCodeResult:
        raise LoginNeeded(config.name)

    options = config.settings.oauth
    storage = LoginFile(locate_login(home, config.name), config)
    redirect = login.redirect_url if login else f"http://127.0.0.1:{options.redirect_port}{_PATH}"
    auth = OAuthClientProvider(
        config.settings.url,
        OAuthClientMetadata.model_validate(
            {
                "client_name": "Hermes",
                "redirect_uris": [redirect],
                "scope": options.scope or None,
            }
        ),
        storage,
        login.send_to_browser if login else refuse_redirect,
        login.wait_for_code if login else refuse_callback,
        # An address as client id names a document about the client.
        options.client_id if options.client_id.startswith("https://") else None,
    )
    storage.context = auth.context
    found = storage.read_fields()
    if login is not None:
        storage.forget_client()
    elif expires := found.get("expires"):
        auth.context.token_expiry_time = float(expires)
    if metadata := found.get("metadata"):
        auth.context.oauth_metadata = OAuthMetadata.model_validate_json(str(metadata))
    return auth

"""The account on a homeserver: its settings, its client, and what calls of it fail with."""

import asyncio
import io
import logging
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from hermes.config.env import find_proxy
from hermes.config.platforms import PlatformSettings, is_safe_address
from hermes.config.schema import Address
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.gateway.adapter import ConnectionFailure, SendFailure, Target
from hermes.llm.http.lazy_tls import load_aiohttp

TOKEN = "MATRIX_ACCESS_TOKEN"
PASSWORD = "MATRIX_PASSWORD"
CALL_SECONDS = 60.0


class MatrixSettings(PlatformSettings, frozen=True):
    homeserver: Address = ""
    user_id: str = ""
    encryption: bool = True


class MatrixAccount(Struct, frozen=True):
    homeserver: str
    user: str = ""
    token: str = ""
    password: str = ""
    device: str = ""

    def __repr__(self) -> str:
        return f"<MatrixAccount {self.user} on {self.homeserver}>"


class MatrixRefusal(Exception):
    """An answer of the homeserver that is no success."""

    def __init__(self, response: Any) -> None:
        transport = response.transport_response
        self.status = int(transport.status) if transport is not None else 0
        self.code = str(response.status_code or "")
        self.wait = float(response.retry_after_ms or 0) / 1000
        message = str(response.message or "")[:200]
        super().__init__(f"the homeserver answered {self.status}: {message}")


async def call_homeserver(answer: Awaitable[Any]) -> Any:
    """The answer of the homeserver; MatrixRefusal when it is no success."""
    from nio import ErrorResponse

    response = await answer
    if isinstance(response, ErrorResponse):
        raise MatrixRefusal(response)
    return response


async def deliver_call(target: Target, answer: Awaitable[Any]) -> Any:
    """As `call_homeserver`, with the failures of sending."""
    from nio.exceptions import EncryptionError, ProtocolError

    aiohttp = load_aiohttp()
    try:
        async with asyncio.timeout(CALL_SECONDS):
            return await call_homeserver(answer)
    except MatrixRefusal as refusal:
        raise _explain_failure(refusal, target) from None
    except aiohttp.ClientConnectorError:
        raise SendFailure("certain", "the homeserver cannot be reached") from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        text = f"the connection to the homeserver broke ({type(error).__name__})"
        raise SendFailure("ambiguous", text) from None
    except (ProtocolError, EncryptionError) as error:
        raise SendFailure("certain", str(error)) from None


def _explain_failure(refusal: MatrixRefusal, target: Target) -> SendFailure:
    text = str(refusal)
    match refusal.status:
        case 429:
            return SendFailure("wait", text, wait=refusal.wait or 1.0)
        case 413:
            return SendFailure("too_long", text)
        case 401:
            return SendFailure("fatal", text)
        case 403 | 404:
            return SendFailure("gone", text)
        case 400 if target.thread or target.reply_to:
            return SendFailure("target", text)
        case 504:
            return SendFailure("ambiguous", text)
        case status if status >= 500:
            return SendFailure("certain", text)
        case status if status < 400:  # no JSON, or not what was expected
            return SendFailure("ambiguous", text)
    return SendFailure("rejected", text)


async def upload_file(
    client: Any, data: bytes, kind: str, name: str, *, encrypt: bool
) -> tuple[Any, dict[str, Any] | None]:
    keys: dict[str, Any] | None = None

    async def upload() -> Any:
        nonlocal keys
        answer, keys = await client.upload(
            io.BytesIO(data),
            content_type=kind,
            filename=name,
            encrypt=encrypt,
            filesize=len(data),
        )
        return answer

    try:
        return await deliver_call(Target(""), upload()), keys
    except SendFailure as failure:
        # Nothing was shown to anybody yet.
        kind_now = "certain" if failure.kind in ("ambiguous", "gone") else failure.kind
        raise SendFailure(kind_now, str(failure), wait=failure.wait) from None


def open_client(
    account: MatrixAccount, settings: MatrixSettings, folder: Path, device: str = ""
) -> Any:
    """A client whose keys are in the folder. ConnectionFailure when the library is missing."""
    needed = "pip install 'hermes-runtime[matrix]'"
    try:
        import nio
        from nio.crypto import ENCRYPTION_ENABLED
    except ImportError:
        raise ConnectionFailure("missing_dependency", f"run: {needed}", fatal=True) from None
    if settings.encryption and not ENCRYPTION_ENABLED:
        text = f"encryption needs vodozemac; run: {needed}"
        raise ConnectionFailure("missing_dependency", text, fatal=True)
    logging.getLogger("nio").setLevel(logging.ERROR)  # it tells of every event it does not know
    keys = folder / "keys.db"
    if settings.encryption:
        os.close(os.open(keys, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        keys.chmod(0o600)
    config = nio.AsyncClientConfig(
        max_limit_exceeded=0,
        max_timeouts=0,
        request_timeout=CALL_SECONDS,
        encryption_enabled=settings.encryption,
        store_name=keys.name,
        store_sync_tokens=False,
    )
    return nio.AsyncClient(
        account.homeserver,
        account.user,
        account.device or device or None,
        store_path=str(folder) if settings.encryption else "",
        config=config,
        proxy=settings.proxy or find_proxy(account.homeserver) or None,
    )


def read_account(settings: MatrixSettings, secrets: Secrets) -> MatrixAccount:
    """The account; ConfigError when something is not set."""
    variable = settings.token_env or TOKEN
    token, password = secrets.get(variable) or "", secrets.get(PASSWORD) or ""
    homeserver = secrets.get("MATRIX_HOMESERVER") or settings.homeserver or settings.base_url
    user = secrets.get("MATRIX_USER_ID") or settings.user_id
    advice = "Run: hermes gateway setup matrix"
    if not homeserver:
        raise ConfigError(f"MATRIX_HOMESERVER is not set. {advice}")
    if not token and not password:
        raise ConfigError(f"{variable} is not set. {advice}")
    if not token and not user:
        raise ConfigError(f"A password needs MATRIX_USER_ID. {advice}")
    device = secrets.get("MATRIX_DEVICE_ID") or ""
    return MatrixAccount(homeserver.rstrip("/"), user, token, password, device)


async def check_token(settings: MatrixSettings, secrets: Secrets) -> str:
    """The id of the account; ConfigError when its token or password does not work."""
    account = read_account(settings, secrets)
    if not is_safe_address(account.homeserver):
        raise ConfigError("The homeserver is plain http on another machine. Nothing was saved.")
    aiohttp = load_aiohttp()
    try:
        client = open_client(account, structs.replace(settings, encryption=False), Path())
    except ConnectionFailure as failure:
        raise ConfigError(f"A part is missing; {failure}. Nothing was saved.") from None
    try:
        if account.token:
            client.access_token = account.token
            return str((await call_homeserver(client.whoami())).user_id)
        client.device_id = None
        user = str((await call_homeserver(client.login(account.password))).user_id)
        await client.logout()
        return user
    except MatrixRefusal as refusal:
        raise ConfigError(f"{refusal}. Nothing was saved. Check the account.") from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        text = f"The homeserver cannot be reached ({type(error).__name__})"
        raise ConfigError(f"{text}. Nothing was saved. Check its address and try again.") from None
    finally:
        await client.close()

"""The request signatures that Amazon requires, made by botocore."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from msgspec import Struct

from hermes.core.errors import ConfigError

MISSING = (
    "This needs the AWS parts of the package: pip install 'hermes-runtime[bedrock]' "
    "(a Bedrock API key in AWS_BEARER_TOKEN_BEDROCK works without them)."
)
_REGION = re.compile(r"//[^/]*?\b((?:[a-z]{2,4}-)+[a-z]+-\d)\b")
_SERVICE = "bedrock"
_SIGNED_HEADERS = ("host", "content-type", "x-amz-")


class AwsKeys(Struct, frozen=True):
    """Explicit AWS credentials; `token` belongs to temporary ones."""

    access: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        return "Keys(...)"


@cache
def is_installed() -> bool:
    return find_spec("botocore") is not None


def find_aws_region(url: str) -> str:
    """The region named in the host; empty when there is none (a proxy, a private address)."""
    found = _REGION.search(url)
    return found[1] if found else ""


def sign_request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    keys: AwsKeys | None = None,
    region: str = "",
) -> dict[str, str]:
    """The headers to send, signature included. Without `keys`, botocore searches its usual places
    (environment, profile, container, instance), which may block: call this in a thread. The URL
    must be sent exactly as given, percent signs included."""
    try:
        from botocore import auth, awsrequest
    except ImportError:
        raise ConfigError(MISSING) from None
    region = region or find_aws_region(url)
    region = region or str(_open_session().get_config_variable("region") or "")
    if not region:
        raise ConfigError(f"No AWS region for {url.split('/')[2]}: set AWS_DEFAULT_REGION.")
    # Only headers that no proxy or HTTP library rewrites on the way.
    signed = {k: v for k, v in headers.items() if k.lower().startswith(_SIGNED_HEADERS)}
    request = awsrequest.AWSRequest(method=method, url=url, data=body, headers=signed)
    auth.SigV4Auth(_load_credentials(keys), _SERVICE, region).add_auth(request)
    return {**headers, **dict(request.headers.items())}


def _load_credentials(keys: AwsKeys | None) -> Any:
    if keys is not None:
        from botocore.credentials import Credentials

        return Credentials(keys.access, keys.secret, keys.token or None)
    found = _open_session().get_credentials()
    if found is None:
        raise ConfigError(
            "No AWS credentials found: set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or a profile."
        )
    return found.get_frozen_credentials()


@cache
def _open_session() -> Any:
    """The session of this process, which caches and refreshes temporary credentials."""
    from botocore.session import Session

    return Session()

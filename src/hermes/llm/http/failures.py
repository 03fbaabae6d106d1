"""Turns what aiohttp, ssl and the system raise into Failures in plain words."""

import os
import socket

from hermes.core.errors import Failure, Kind


def connection_failure(error: Exception, host: str) -> Failure:
    """The failure of a request that got no response: no connection, or it broke too early."""
    import ssl

    import aiohttp

    if (reason := _tls_reason(error)) is not None:
        return Failure(Kind.TLS, f"cannot trust {host}: {reason}")
    match error:
        case aiohttp.ClientHttpProxyError():
            return Failure(Kind.NETWORK, f"cannot reach {host}: the proxy refused ({error.status})")
        case aiohttp.ClientProxyConnectionError():
            reason = f"no connection to the proxy {error.host}:{error.port}"
        case aiohttp.ClientConnectorDNSError():
            reason = "its name cannot be resolved"
        case aiohttp.ClientConnectorError():
            reason = _system_reason(error.os_error)
        case aiohttp.ServerDisconnectedError():
            reason = "it closed the connection without an answer"
        case aiohttp.ClientResponseError():
            reason = "its answer is not HTTP"
        case aiohttp.InvalidURL() | ValueError():
            return Failure(Kind.NOT_API, f"{host or 'the base URL'} is not a valid address")
        case ssl.SSLError() | OSError():
            reason = _system_reason(error)
        case _:
            reason = type(error).__name__
    return Failure(Kind.NETWORK, f"cannot reach {host}: {reason}")


def broken_response(error: Exception, host: str) -> Failure:
    """The failure of a connection that broke after the response had begun."""
    known = isinstance(error, OSError) and error.errno
    reason = f" ({_system_reason(error)})" if known else ""
    return Failure(Kind.NETWORK, f"the connection to {host} broke off mid-answer{reason}")


def _tls_reason(error: BaseException | None) -> str | None:
    """Why the certificate or the TLS handshake failed; None: neither did."""
    import ssl

    for _ in range(8):
        if error is None:
            return None
        # aiohttp's classes inherit from ssl errors but carry no reason; the inner error does.
        inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
        inner = inner or error.__cause__ or error.__context__
        if isinstance(error, ssl.SSLCertVerificationError) and inner is None:
            return error.verify_message or "its certificate is not valid"
        if isinstance(error, ssl.SSLError) and inner is None:
            reason = str(error.reason or "the TLS handshake failed")
            return None if "EOF" in reason else reason.replace("_", " ").lower()
        error = inner
    return None


def _system_reason(error: BaseException) -> str:
    """The reason in words, from the error number rather than the library's text around it."""
    code = getattr(error, "errno", None)
    if isinstance(code, int) and code > 0 and not isinstance(error, socket.gaierror):
        return os.strerror(code).lower()
    return (str(error) or type(error).__name__).lower()

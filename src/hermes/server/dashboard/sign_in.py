"""Signed-in browsers: codes and keys become sessions of a cookie and a page token."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time

import msgspec
from msgspec import Struct, structs

from hermes.app.live.sign_in_codes import parse_code, redeem_code, void_codes
from hermes.config.api_server import SCOPES
from hermes.core.store import Object, Objects
from hermes.server.http.errors import ApiError, bad_request
from hermes.server.http.principals import Principal, Principals

_KIND = "browser"
_DAY = 86_400.0
_MAX_DAYS = 90
_MAX_WRONG = 5
_FIRST_LOCK = 60.0
_LONGEST_LOCK = 3600.0
_USE_INTERVAL = 600.0
_LONGEST_AGENT = 200
_OPERATOR = Principal("", b"browser", frozenset((*SCOPES, "admin")))
_SIGNED_OUT = "You are not signed in. Run `hermes dashboard --code` for a sign-in code."


class BrowserSession(Struct):
    """A browser that signed in, with a code as the operator or with a key as its owner."""

    page_digest: str
    created: float
    used: float
    key_digest: bytes = b""
    """Of the key it signed in with; empty: a code."""
    address: str = ""
    agent: str = ""
    is_secure: bool = False
    """Whether its cookie is for https only."""


class BrowserVisit(Struct, frozen=True):
    """Who a signed-in browser is, and until when."""

    principal: Principal
    expires: float
    is_secure: bool


class SignIn:
    """Signs browsers in and out. Five wrong codes void all and close the door for a while."""

    def __init__(self, objects: Objects, principals: Principals, session_days: int) -> None:
        self._objects = objects
        self._principals = principals
        self._days = min(session_days, _MAX_DAYS)
        self._wrong = 0
        self._lock_seconds = _FIRST_LOCK
        self._locked_until = 0.0

    @property
    def max_age(self) -> int:
        return int(self._days * _DAY)

    async def sign_in(
        self, code: str, key: str, *, address: str, agent: str, is_secure: bool
    ) -> tuple[str, str, Principal, float]:
        """The cookie, the page token, who it is now, and until when."""
        principal = await self._check_code(code) if code else self._principals.find_owner(key)
        if principal is None:
            raise ApiError(401, "This key is not known. Nothing was changed.", code="invalid_key")
        cookie, page_token, now = secrets.token_urlsafe(32), secrets.token_urlsafe(32), time.time()
        session = BrowserSession(
            _hash_token(page_token),
            now,
            now,
            b"" if code else principal.digest,
            address,
            agent[:_LONGEST_AGENT],
            is_secure,
        )
        await self._objects.put(_KIND, _hash_token(cookie), msgspec.json.encode(session))
        return cookie, page_token, principal, now + self.max_age

    async def _check_code(self, text: str) -> Principal:
        now = time.monotonic()
        if now < self._locked_until:
            wait = str(int(self._locked_until - now) + 1)
            sentence = (
                f"Too many wrong codes. Sign-in is closed for {wait} s; make a new code then."
            )
            headers = {"Retry-After": wait}
            raise ApiError(429, sentence, code="sign_in_locked", headers=headers)
        code = parse_code(text)
        if code is None:
            raise bad_request("A sign-in code has 8 letters and digits, as in KX7M-2QPD.", "code")
        if await redeem_code(self._objects, code):
            self._wrong, self._lock_seconds = 0, _FIRST_LOCK
            return _OPERATOR
        self._wrong += 1
        if self._wrong >= _MAX_WRONG:
            self._wrong, self._locked_until = 0, now + self._lock_seconds
            self._lock_seconds = min(2 * self._lock_seconds, _LONGEST_LOCK)
            await void_codes(self._objects)
        sentence = (
            "This code is wrong, used or too old. Run `hermes dashboard --code` for a new one."
        )
        raise ApiError(401, sentence, code="invalid_code")

    async def identify(self, cookie: str, page_token: str) -> BrowserVisit:
        """The visit of a signed-in browser; 401 unless cookie and page token are of one session."""
        found = await self._objects.get(_KIND, _hash_token(cookie), owner="") if cookie else None
        if found is None:
            raise ApiError(401, _SIGNED_OUT, code="signed_out")
        session, now = msgspec.json.decode(found.body, type=BrowserSession), time.time()
        matches = hmac.compare_digest(_hash_token(page_token), session.page_digest)
        principal = _OPERATOR
        if session.key_digest:
            owner = self._principals.find_owner_by_digest(session.key_digest)
            matches, principal = matches and owner is not None, owner or principal
        if not matches or now > self._find_end(session):
            raise ApiError(401, _SIGNED_OUT, code="signed_out")
        if now - session.used > _USE_INTERVAL:
            session = structs.replace(session, used=now)
            await self._objects.put(_KIND, found.id, msgspec.json.encode(session))
        return BrowserVisit(principal, self._find_end(session), session.is_secure)

    async def list_browsers(self, cookie: str) -> list[dict[str, object]]:
        own = _hash_token(cookie)
        found = [
            (o, msgspec.json.decode(o.body, type=BrowserSession))
            for o in await self._objects.list_all(_KIND)
        ]
        return [
            {
                "id": _shorten_id(o),
                "address": session.address,
                "browser": session.agent,
                "created_at": session.created,
                "used_at": session.used,
                "current": o.id == own,
            }
            for o, session in found
            if time.time() <= self._find_end(session)
        ]

    async def sign_out(self, browser_id: str) -> int:
        """End the sessions of one browser, or of all when the id is empty; how many ended."""
        return await end_browser_sessions(self._objects, browser_id)

    async def end_session(self, cookie: str) -> None:
        await self._objects.remove(_KIND, _hash_token(cookie), owner="")

    def _find_end(self, session: BrowserSession) -> float:
        return min(session.used + self._days * _DAY, session.created + _MAX_DAYS * _DAY)


async def end_browser_sessions(objects: Objects, browser_id: str = "") -> int:
    """Sign out one browser, or all; how many."""
    found = await objects.list_all(_KIND)
    chosen = [o for o in found if not browser_id or _shorten_id(o) == browser_id]
    for o in chosen:
        await objects.remove(_KIND, o.id, owner=o.owner)
    return len(chosen)


def _shorten_id(found: Object) -> str:
    return found.id[:16]


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()

"""What the dashboard adds to a server: sign-in, live sessions, feeds, files, tickets."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct
from yarl import URL

from hermes.app.control.messengers import Messengers
from hermes.app.live.live_sessions import LiveSessions
from hermes.app.runtime import Runtime
from hermes.config.paths import cache_folder
from hermes.config.schema import DashboardSection
from hermes.core.store import SessionEnd, SessionMeta
from hermes.server.dashboard.sign_in import BrowserVisit, SignIn
from hermes.server.dashboard.uploads import Uploads
from hermes.server.http import web
from hermes.server.http.errors import ApiError
from hermes.server.http.principals import Principal, Principals
from hermes.server.turns.session_objects import SessionObject, describe_session

if TYPE_CHECKING:
    from hermes.app.control.model_download import ModelDownloads
    from hermes.server.dashboard.assets import Assets
    from hermes.server.dashboard.feed import Feed
    from hermes.server.dashboard.news import OperatorNews

PAGE_HEADER = "X-Hermes-Page"
TAB_HEADER = "X-Hermes-Tab"
TICKET_SECONDS = 30.0
_SAME_SITE = ("same-origin", "none")


class Ticket(Struct, frozen=True):
    path: str
    """With its query."""
    principal: Principal
    expires: float


class Dashboard:
    """The dashboard of one server. What only pages need is imported when the first is opened."""

    def __init__(
        self,
        runtime: Runtime,
        settings: DashboardSection,
        principals: Principals,
        open_messengers: Callable[[], Messengers] | None = None,
    ) -> None:
        self.settings = settings
        self.live = LiveSessions(runtime)
        self.sign_in = SignIn(runtime.store.objects, principals, settings.session_days)
        self.uploads = Uploads(cache_folder(runtime.setup.home) / "uploads")
        self.uploads.remove_old()
        self.feeds: set[Feed] = set()
        self.cookie_name = "hermes"
        self.taking: dict[str, asyncio.Future[Any]] = {}
        """The messages that are being taken, by session and the name that the sender gave them."""
        self._runtime = runtime
        self._open_messengers = open_messengers
        self._tickets: dict[str, Ticket] = {}
        self._public = urlsplit(settings.public_url)

    @cached_property
    def assets(self) -> Assets:
        from hermes.server.dashboard.assets import Assets

        return Assets()

    @cached_property
    def news(self) -> OperatorNews:
        from hermes.server.dashboard.news import OperatorNews

        return OperatorNews(self._runtime, self._open_messengers)

    @cached_property
    def downloads(self) -> ModelDownloads:
        from hermes.app.control.model_download import ModelDownloads

        return ModelDownloads(self._runtime)

    @property
    def public_host(self) -> str:
        """The host of `public_url`, with which requests may come too."""
        return (self._public.hostname or "").lower()

    def is_own_origin(self, request: web.BaseRequest) -> bool:
        """Whether a page of this server sent the request; its Host has been checked."""
        origin, host = request.headers.get("Origin", ""), request.headers.get("Host", "").lower()
        if not self._public.netloc:
            return origin.lower() == f"http://{host}"
        public = f"{self._public.scheme}://{self._public.netloc}".lower()
        own = public if host == self._public.netloc.lower() else f"http://{host}"
        return origin.lower() in (own, public)

    def is_secure(self, request: web.BaseRequest) -> bool:
        """Whether the browser speaks https with the proxy in front."""
        return request.headers.get("Origin", "").startswith("https://")

    def has_credentials(self, request: web.BaseRequest) -> bool:
        """Whether the request means to come from a signed-in browser."""
        headers = request.headers
        if "Authorization" in headers or "X-Api-Key" in headers:
            return False
        return PAGE_HEADER in headers or self.cookie_name in request.cookies

    def check_site(self, request: web.BaseRequest) -> None:
        """403 unless the request comes from a page of this server."""
        own = "Origin" not in request.headers or self.is_own_origin(request)
        site = request.headers.get("Sec-Fetch-Site", "none")
        if not own or site not in _SAME_SITE:
            raise ApiError(403, "This page is not allowed to ask.", code="origin_not_allowed")

    async def identify(self, request: web.BaseRequest) -> BrowserVisit:
        """Who the signed-in browser is, and until when; 401 when nobody is."""
        return await self.sign_in.identify(
            request.cookies.get(self.cookie_name, ""), request.headers.get(PAGE_HEADER, "")
        )

    async def is_signed_in(self, request: web.BaseRequest) -> bool:
        try:
            await self.identify(request)
        except ApiError:
            return False
        return True

    def issue_ticket(self, path: str, principal: Principal) -> str:
        """A token with which this path can be fetched once, soon."""
        now = time.monotonic()
        self._tickets = {t: found for t, found in self._tickets.items() if found.expires > now}
        token = secrets.token_urlsafe(24)
        self._tickets[token] = Ticket(path, principal, now + TICKET_SECONDS)
        return token

    def take_ticket(self, request: web.BaseRequest, token: str) -> Principal | None:
        """Who may make this request with its ticket, which is used up."""
        found = self._tickets.pop(token, None)
        if found is None or found.expires < time.monotonic():
            return None
        given, wanted = URL(found.path), request.rel_url.without_query_params("ticket")
        is_same = given.path == wanted.path and given.query == wanted.query
        return found.principal if is_same else None

    def describe_session(self, meta: SessionMeta, end: SessionEnd | None = None) -> SessionObject:
        live = self.live.find_session(meta.id)
        if live is None:
            return describe_session(meta, end, elsewhere=meta.state == "running")
        busy = live.session.is_busy or live.session.is_starting
        return describe_session(meta, end, busy=busy, waiting=live.is_waiting)

    async def describe_listed(self, meta: SessionMeta) -> Any:
        ends = await self._runtime.store.sessions.load_ends([meta.id])
        return self.describe_session(meta, ends.get(meta.id))

    def add_feed(self, feed: Feed, request: web.BaseRequest) -> None:
        """Let this feed take the place of the one that its reader had."""
        self.uploads.remove_old()
        feed.reader = self._name_reader(request)
        for other in self.feeds:
            if feed.reader and other.reader == feed.reader:
                other.replace()
        self.feeds.add(feed)

    def _name_reader(self, request: web.BaseRequest) -> str:
        """Which tab of which signed-in browser reads; empty: the request does not say."""
        tab, cookie = request.headers.get(TAB_HEADER, ""), request.cookies.get(self.cookie_name, "")
        return f"{tab} {cookie}" if tab and cookie else ""

    def check_feeds(self) -> None:
        """End the feeds of browsers that have been signed out."""
        for feed in self.feeds:
            feed.request_check()

    def end_feeds(self) -> None:
        for feed in self.feeds:
            feed.end("stopping")

    async def close(self) -> None:
        await self.live.close()

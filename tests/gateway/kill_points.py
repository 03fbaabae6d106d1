"""Kills of a gateway at named points of a turn with a tool."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from hermes.store.sqlite import SqliteStore
from tests.gateway.gateways import GatewayProcess, gateway
from tests.gateway.kill_runs import check_end, until_answered
from tests.kit import Gate, Received, Reply, call, say
from tests.kit.bodies import messages
from tests.kit.telegram import Fault


class PointKiller:
    """Kills the gateway once in each turn, when the point is reached."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.gateway: GatewayProcess
        self.reached = asyncio.Event()
        self.gate = Gate()
        self.number = 0

    def arm(self, number: int) -> None:
        self.number = number
        self.reached, self.gate = asyncio.Event(), Gate()

    def reach(self, point: str) -> None:
        if point == self.point and not self.reached.is_set():
            self.gateway.process.kill()
            self.reached.set()

    def answer(self, request: Received) -> Reply:
        """A tool call for a new prompt, text once its result is there."""
        seen = messages(request)
        words = [w for m in seen if m.role == "user" for w in m.text.split()]
        prompt = [w for w in words if w.startswith("p") and w.endswith("x")][-1]
        waits = not self.reached.is_set()
        if not seen[-1].results:
            self.reach("user row")
            waiting = {"call row": "sleep 300; ", "effect": ""}.get(self.point, "") * waits
            after = "; sleep 300" if self.point == "effect" and waits else ""
            command = f"{waiting}echo {prompt} >> effects.log{after}"
            return call((f"call_{prompt}_{len(seen)}", "terminal", {"command": command}))
        self.reach("result row")
        reply = say(f"answer to {prompt} ", "is that ", "it was done.")
        if self.point == "first byte" and waits:
            return reply.hold(self.gate, after="text", n=1)
        return reply

    def fail_call(self, method: str, params: dict[str, object]) -> Fault | None:
        if method == "getUpdates" and params.get("offset") and self.gateway.telegram.updates:
            self.reach("store")
        if method == "sendMessage" and self.point == "reply row" and not self.reached.is_set():
            self.reach("reply row")
            return Fault(hang_up=True)  # it has not arrived
        return None

    def watch(self, event: str) -> None:
        self.reach({"updates": "before store", "confirm": "confirm", "sent": "send"}[event])

    async def wait_for_point(self) -> None:
        """Until it was killed; points inside the gateway are looked for in its database."""
        watchers: dict[str, Callable[[], Awaitable[None]]] = {
            "first byte": self.gate.reached,
            "call row": self._until_called,
            "effect": self._until_effect,
            "ack row": self._until_acknowledged,
        }
        async with asyncio.timeout(90):
            if self.point in watchers:
                await watchers[self.point]()
                self.reach(self.point)
                self.gate.open()
            await self.reached.wait()

    async def _until_called(self) -> None:
        await self._poll_store(self._has_call)

    async def _has_call(self, store: SqliteStore) -> bool:
        for meta in await store.sessions.list_recent():
            for message in await store.sessions.load_messages(meta.id):
                if any(f"p{self.number}x" in c.args for c in message.calls):
                    return True
        return False

    async def _until_effect(self) -> None:
        log = self.gateway.home.work / "effects.log"
        while not log.exists() or f"p{self.number}x" not in log.read_text().split():
            await asyncio.sleep(0.02)

    async def _until_acknowledged(self) -> None:
        async def is_delivered(store: SqliteStore) -> bool:
            shown = any(f"answer to p{self.number}x " in t for t in self.gateway.telegram.texts())
            return shown and not await store.mailbox.list_open_replies()

        await self._poll_store(is_delivered)

    async def _poll_store(self, test: Callable[[SqliteStore], Awaitable[bool]]) -> None:
        store = SqliteStore(self.gateway.home.path / "hermes.db")
        try:
            while not await test(store):
                await asyncio.sleep(0.02)
        finally:
            await store.close()


POINTS = (
    "before store",
    "store",
    "confirm",
    "user row",
    "call row",
    "effect",
    "result row",
    "first byte",
    "reply row",
    "send",
    "ack row",
)


async def run_point_kills(root: Path, point: str, kills: int) -> None:
    """Each turn is killed at the point; afterwards all are answered and nothing was done twice."""
    killer = PointKiller(point)
    config = {"gateway": {"on_restart": "resume", "busy_ack": False}}
    async with gateway(root, then=killer.answer, start=False, **config) as g:
        killer.gateway = g
        killer.reached.set()
        await g.start()
        g.telegram.fault, g.telegram.watch = killer.fail_call, killer.watch
        for number in range(1, kills + 1):
            killer.arm(number)
            await g.telegram.say(f"p{number}x")
            await killer.wait_for_point()
            await g.wait()
            (g.home.path / "run" / "gateway_starts.json").unlink(missing_ok=True)
            await g.start()
            await until_answered(g, number)
        await g.stop()
        await check_end(g, kills)

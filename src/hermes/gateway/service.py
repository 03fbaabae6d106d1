"""The gateway's process: recovers, receives, and drains; one per home."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial

from msgspec import Struct

from hermes.app.background_prompts import BackgroundPrompt
from hermes.app.runtime import Runtime
from hermes.config.paths import database_file
from hermes.core.errors import StoreError
from hermes.core.events import TurnResult
from hermes.core.store import Objects
from hermes.gateway import texts
from hermes.gateway.adapter import ConnectionFailure, MenuCommand, SendFailure
from hermes.gateway.chat_commands import ChatCommands, GatewayActions, list_visible_commands
from hermes.gateway.chat_moves import ChatMoves
from hermes.gateway.content.media import MediaCache
from hermes.gateway.content.reply import Content
from hermes.gateway.conversations import Conversations
from hermes.gateway.hub import Hub, Item, OpenPlatform, decode_settings
from hermes.gateway.open_questions import OpenQuestions
from hermes.gateway.outbox import Outbox
from hermes.gateway.people.owner import Owner
from hermes.gateway.people.reachable_chats import ReachableChats
from hermes.gateway.process.repair import DamageWatch, salvage_store
from hermes.gateway.process.state_file import CrashLog, GatewayState, GatewayStatus, write_status
from hermes.gateway.process.supervisor import Supervisor
from hermes.gateway.recovery import Recovery
from hermes.gateway.router import Router
from hermes.gateway.schedule import GatewaySchedule
from hermes.gateway.turn_reply import ReplyAddress
from hermes.store.sqlite import SqliteStore
from hermes.store.tables.mailbox import MessengerStore

log = logging.getLogger(__name__)

START_SECONDS = 15.0
LAST_SECONDS = 5.0
"""How long replies have after the last turn."""
STATE_SECONDS = 5.0
OUTBOX_SECONDS = 1.5
"""How often replies of other processes are looked for."""
UPKEEP_SECONDS = 30.0
KEEP_SECONDS = 30 * 86400.0
"""How long finished messages are remembered."""
STALL_SECONDS = 30
_RESTARTS = "gateway_restart"


class HostedServer(Struct, frozen=True):
    """Another surface that runs in this process."""

    name: str
    run: Callable[[Supervisor], Awaitable[None]]


class Gateway:
    """Everything that runs while the gateway does. `run` returns when it is told to stop."""

    def __init__(
        self,
        runtime: Runtime,
        store: MessengerStore,
        platforms: tuple[OpenPlatform, ...],
        hosted: tuple[HostedServer, ...] = (),
    ) -> None:
        settings = runtime.setup.config.gateway
        self.home = runtime.setup.home
        self.restart_requested = False
        self._profiles: dict[str, Gateway] = {}
        self._main: Gateway | None = None
        """The gateway whose process this one shares."""
        self._runtime = runtime
        self._store = store
        by_name = {found.name: found for found in platforms}
        connections = {found.name: found.platform for found in platforms}
        outbox = Outbox(store.mailbox, connections, self, runtime.spawn_task)
        media = MediaCache(self.home, settings.max_media_bytes, settings.media_days)
        self.hub = Hub(
            runtime,
            store.mailbox,
            outbox,
            OpenQuestions(outbox, runtime.spawn_task),
            settings,
            by_name,
            media,
            asyncio.Semaphore(settings.max_active),
        )
        self.owner = Owner(self.hub, store.objects)
        self.conversations = Conversations(self.hub)
        self.status = GatewayStatus(os.getpid(), "starting", time.time())
        actions = GatewayActions(self._restart_from_chat, partial(describe_states, self.status))
        commands = ChatCommands(self.hub, self.owner, actions)
        self.router = Router(self.hub, self.conversations, store.pairings, self.owner, commands)
        self.hub.statuses = self.status.platforms
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._supervisors = [
            *(self._make_supervisor(found.name, found.platform.run) for found in platforms),
            *(self._make_supervisor(server.name, server.run) for server in hosted),
        ]
        self._schedule = GatewaySchedule(self.hub, store.jobs, self.owner)
        self._moves = ChatMoves(self.hub, store.objects, self.conversations, self._schedule)
        self._status_lock = threading.Lock()
        self._watch: DamageWatch | None = None
        if isinstance(store, SqliteStore):
            self._watch = DamageWatch(store, database_file(self.home))
        self._crashes = CrashLog(self.home)
        runtime.background_prompts.on_done = self._post_background_answer
        runtime.chats = ReachableChats(self.hub, self.owner)

    def _make_supervisor(
        self, name: str, run: Callable[[Supervisor], Awaitable[None]]
    ) -> Supervisor:
        made = Supervisor(name, run, self._handle_fatal, self._changed.set)
        made.router, made.on_move = self.router, self.follow_chat
        made.folder = self.home / "platforms" / name
        self.status.platforms[name] = made.status
        return made

    def add_profile(self, name: str, other: Gateway) -> None:
        """Serve another profile in the same process; both stop together."""
        self._profiles[name] = other
        other._main = self
        self.status.profiles.append(name)
        for platform, status in other.status.platforms.items():
            self.status.platforms[f"{name}/{platform}"] = status
        for supervisor in other._supervisors:
            supervisor.on_change = self._changed.set

    def request_stop(self) -> None:
        self._stop.set()
        for other in self._profiles.values():
            other.request_stop()

    def request_restart(self) -> None:
        if self._main is not None:
            self._main.request_restart()
            return
        self.restart_requested = True
        self.request_stop()

    def save_status(self) -> None:
        with self._status_lock:
            write_status(self.home, self.status)

    async def close_store(self) -> None:
        await self._store.close()

    async def run(self, report_running: Callable[[], None], notice: str = "") -> bool:
        """Serve until told to stop; whether every turn ended in time. `notice`: for the owner."""
        self.status.crash_loop = self._crashes.note_start()
        drafts = await self.hub.outbox.restore()
        await self.owner.restore_chats()
        await self._moves.restore_moves()
        recovery = Recovery(
            self.hub,
            self.conversations,
            self.router,
            drafts,
            is_crash_loop=self.status.crash_loop,
        )
        await recovery.recover_messages()
        await greet_after_restart(self.hub, self._store.objects)
        if notice:
            await self.owner.tell(notice, notice)
        spawn = self._runtime.spawn_task
        upkeep = [
            spawn(self._write_states(), "state file"),
            spawn(self._do_upkeep(), "upkeep"),
            spawn(self.conversations.keep_evicting(UPKEEP_SECONDS), "eviction"),
            spawn(self._adopt_replies(), "outbox"),
        ]
        if self._watch is not None:
            upkeep.append(spawn(self._repair_database(self._watch), "repair"))
        tasks = [spawn(s.supervise(), f"platform {s.name}") for s in self._supervisors]
        try:
            await self._wait_for_first_tries()
            for name, found in self.hub.statuses.items():
                if found.state == "connected":
                    await self.owner.forget_notices(f"{name} ")
            self._set_state("running")
            self.save_status()
            report_running()
            upkeep.append(spawn(self._schedule.run_jobs(), "schedule"))
            self._prepare_platforms()
            await self._stop.wait()
            return await self._drain(tasks)
        finally:
            for task in (*tasks, *upkeep):
                task.cancel()
            faulthandler.cancel_dump_traceback_later()

    async def _wait_for_first_tries(self) -> None:
        """Until every platform has connected or failed once, or a stop was requested."""
        spawn = self._runtime.spawn_task
        stop = spawn(wait_for_all([self._stop]), "stop")
        tries = spawn(wait_for_all([s.tried for s in self._supervisors]), "first tries")
        await asyncio.wait({stop, tries}, timeout=START_SECONDS, return_when="FIRST_COMPLETED")
        stop.cancel()
        tries.cancel()

    async def _drain(self, tasks: list[asyncio.Task[None]]) -> bool:
        """Take nothing new, let running turns end, deliver their replies."""
        self.hub.is_draining = True
        self._set_state("draining")
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self.hub.settings.drain_seconds + LAST_SECONDS)
        seconds = self.hub.settings.drain_seconds
        ended, _ = await asyncio.gather(
            self.conversations.wait_until_idle(seconds), self._schedule.drain_runs(seconds)
        )
        await self._schedule.deliver_results()
        await self.hub.outbox.wait_until_sent(LAST_SECONDS)
        for found in self.hub.platforms.values():
            await found.platform.close()
        self.status.exit_reason = "restart" if self.restart_requested else "signal"
        self._set_state("stopped")
        self.save_status()
        self._crashes.note_clean_end()
        return ended

    def _set_state(self, state: GatewayState) -> None:
        self.status.gateway_state = state
        self._changed.set()

    async def _write_states(self) -> None:
        while True:
            # Dumps every stack to stderr when the event loop has not come by for so long.
            faulthandler.dump_traceback_later(STALL_SECONDS, repeat=False)
            self._changed.clear()
            served = (self, *self._profiles.values())
            try:
                counts = [await gateway.hub.mailbox.count_open() for gateway in served]
                self.status.set_counts(counts)
                if self._watch is not None and await self._watch.find_damage():
                    self.hub.damage.set()
            except (StoreError, OSError) as error:
                self.hub.note_error(error)
            self.status.active_agents = sum(g.conversations.active_count for g in served)
            self.status.sessions = {"live": sum(g.conversations.live_count for g in served)}
            await asyncio.to_thread(self.save_status)
            with suppress(TimeoutError):
                async with asyncio.timeout(STATE_SECONDS):
                    await self._changed.wait()
            await asyncio.sleep(0.2)  # several changes at once are one

    async def _adopt_replies(self) -> None:
        while True:
            await asyncio.sleep(OUTBOX_SECONDS)
            try:
                await self.hub.outbox.adopt_foreign()
                await self._schedule.deliver_results()
            except StoreError as error:
                self.hub.note_error(error)
                log.warning("the outbox could not be read: %s", error)
            except Exception:
                log.exception("replies of other processes were not delivered")

    async def _repair_database(self, watch: DamageWatch) -> None:
        """Salvage the database when it is found to be damaged, and start anew with it."""
        await self.hub.damage.wait()
        text = await salvage_store(watch.store)
        log.warning(text)
        await self.owner.save_chats()
        await self.owner.tell(text, text)
        self.request_restart()

    async def _do_upkeep(self) -> None:
        while True:
            with suppress(StoreError):
                await self._store.mailbox.forget_before(time.time() - KEEP_SECONDS)
            with suppress(OSError):
                await asyncio.to_thread(self.hub.media.remove_old_files)
            await asyncio.sleep(UPKEEP_SECONDS)

    def _prepare_platforms(self) -> None:
        """What is not needed to receive: menus, and renderers, so that no answer waits for them."""
        for_users = list_visible_commands("user")
        commands = tuple(
            MenuCommand(c.name, c.help, c not in for_users) for c in list_visible_commands("admin")
        )
        for found in self.hub.platforms.values():
            self._runtime.spawn_task(_publish_menu(found, commands), "menu")
            if (render := found.platform.capabilities.render_markup) is not None:
                self._runtime.spawn_task(_run_in_thread(render), "renderer")

    async def _handle_fatal(self, name: str, failure: ConnectionFailure) -> None:
        text = f"⚠️ {name} was turned off: {failure}."
        await self.owner.tell(f"{name} {failure.code}", text, avoid=name)

    async def handle_gone_chat(self, platform: str, chat: str, why: str) -> None:
        text = f"⚠️ The chat {chat} on {platform} cannot be reached any more: {why}."
        address = self.owner.find_address()
        if address is None or (address.platform, address.chat) != (platform, chat):
            await self.owner.tell(f"{platform} {chat} gone", text)

    async def handle_lost_result(self, job: str, due: int, why: str) -> None:
        await self._schedule.tell_failure(job, due, why)

    def note_delivery(self, platform: str) -> None:
        if (status := self.status.platforms.get(platform)) is not None:
            status.last_outbound_at = time.time()

    async def follow_chat(self, platform: str, old: str, new: str) -> None:
        await self._moves.follow_chat(platform, old, new)

    async def _restart_from_chat(self, item: Item) -> None:
        # Done before it acts: a replayed /restart restarts nothing.
        await self._store.mailbox.set_state([item.n], "done")
        await announce_restart(self.hub, self._store.objects, item.address)
        self.request_restart()

    def restart_for_owner(self) -> None:
        """Restart as the owner asked for outside a chat; their chat is told, if it is known."""
        if not self._stop.is_set():
            self._runtime.spawn_task(tell_and_restart(self, self._store.objects), "restart")

    def _post_background_answer(self, prompt: BackgroundPrompt, result: TurnResult) -> None:
        self._runtime.spawn_task(self._send_background_answer(prompt, result), "background answer")

    async def _send_background_answer(self, prompt: BackgroundPrompt, result: TurnResult) -> None:
        _, key = prompt.owner
        row = await self._store.mailbox.get_conversation(key)
        address = decode_settings(row).address
        text = result.text if result.text.strip() else texts.FAILED_TURN.format(error=result.error)
        redact = prompt.session.agent.redactor.redact
        if address.platform in self.hub.platforms:
            whole = redact(f"> {prompt.text[:200]}\n\n{text}")
            content = Content(whole, address.thread, in_group=address.in_group)
            await self.hub.outbox.post(address.platform, address.chat, content)


async def wait_for_all(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        await event.wait()


def describe_states(status: GatewayStatus) -> str:
    """A line for each platform."""
    line = texts.PLATFORM_STATE.format
    return "\n".join(line(name=name, state=p.state) for name, p in status.platforms.items())


async def tell_and_restart(gateway: Gateway, objects: Objects) -> None:
    """Tell the owner's chat, if it is known, and restart."""
    try:
        if (address := gateway.owner.find_address()) is not None:
            await announce_restart(gateway.hub, objects, address)
    except StoreError as error:
        log.warning("the restart is not announced: %s", error)
    gateway.request_restart()


async def announce_restart(hub: Hub, objects: Objects, address: ReplyAddress) -> None:
    """Tell a chat about the restart; the next process greets it."""
    body = "\n".join((address.chat, address.thread)).encode()
    await objects.put(_RESTARTS, address.platform, body)
    await hub.say(address, texts.RESTARTING)


async def greet_after_restart(hub: Hub, objects: Objects) -> None:
    """Tell the chats that were told about the restart, once."""
    for stored in await objects.list_all(_RESTARTS):
        await objects.remove(_RESTARTS, stored.id, owner="")
        chat, _, thread = stored.body.decode().partition("\n")
        if stored.id in hub.platforms:
            await hub.say(ReplyAddress(stored.id, chat, thread), texts.BACK_AGAIN)


async def _run_in_thread(render: Callable[[str], str]) -> None:
    await asyncio.to_thread(render, "*a*")


async def _publish_menu(found: OpenPlatform, commands: tuple[MenuCommand, ...]) -> None:
    admins = found.settings.admins or found.settings.allowed_users
    with suppress(SendFailure):
        await found.platform.publish_commands(commands, tuple(map(str, admins)))

"""Runs the code of a plugin beside the event loop, so that nothing it does holds the loop up."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias

Inbox: TypeAlias = "SimpleQueue[Callable[[], None] | None]"
_EXITS = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
"""What code may raise besides an Exception; here it would end a thread, a loop or a turn."""


class PluginThread:
    """The threads of one plugin. They are daemons: one that never returns keeps nobody from
    exiting. Its coroutines share one event loop of their own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[Inbox] = []
        """Of the threads that wait for work."""
        self._is_closed = False

    async def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, or what the coroutine it returns does. Cancelling this stops
        a coroutine, but not a thread."""
        if inspect.iscoroutinefunction(function):
            return await self._run_coroutine(function(*args, **kwargs))
        value = await self.run_function(partial(function, *args, **kwargs))
        return await self._run_coroutine(value) if inspect.iscoroutine(value) else value

    def run_function(self, function: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Run a function in a thread that nobody waits for at the end of the process."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            value: Any = None
            error: Exception | None = RuntimeError("it ended its thread")
            try:
                value = context.run(function)
                error = None
            except StopIteration as stop:  # a future cannot hold one
                error = RuntimeError(f"StopIteration: {stop}")
            except Exception as raised:  # noqa: BLE001 - raised where it is awaited
                error = raised
            except _EXITS as raised:
                error = RuntimeError(repr(raised))
            finally:
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(_settle_future, future, value, error)

        try:
            inbox = self._idle.pop()
        except IndexError:  # all are busy, perhaps for ever
            inbox = SimpleQueue()
            _start_daemon(partial(self._serve_inbox, inbox), self._name)
        inbox.put(work)
        return future

    def _serve_inbox(self, inbox: Inbox) -> None:
        while work := inbox.get():
            work()
            del work  # it holds the arguments and the result
            self._idle.append(inbox)
            if self._is_closed:
                inbox.put(None)

    async def _run_coroutine(self, work: Coroutine[Any, Any, Any]) -> Any:
        guarded = _await_guarded(work)
        running = asyncio.run_coroutine_threadsafe(guarded, self._open_loop())
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            mine = asyncio.current_task()
            if mine is not None and mine.cancelling():
                raise
            raise RuntimeError("its event loop was stopped") from None

    def _open_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            _start_daemon(partial(self._run_loop, self._loop), f"{self._name} loop")
        return self._loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
        finally:
            if self._loop is loop:  # the plugin has stopped it: the next call opens another
                self._loop = None
            loop.run_until_complete(_cancel_others())
            loop.close()

    def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop().put(None)
        loop, self._loop = self._loop, None
        if loop is not None:
            with suppress(RuntimeError):  # the plugin has stopped it
                loop.call_soon_threadsafe(loop.stop)


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _await_guarded(work: Coroutine[Any, Any, Any]) -> Any:
    """What the work returns; whatever else than an Exception it raises becomes one."""
    task = asyncio.ensure_future(_contain_exit(work))
    try:
        await asyncio.wait({task})
    finally:
        task.cancel()
    if task.cancelled():
        raise RuntimeError("CancelledError()")
    error = task.exception()
    if error is not None and not isinstance(error, Exception):
        raise RuntimeError(repr(error))
    return task.result()


async def _contain_exit(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:  # it would end the loop
        raise RuntimeError(repr(error)) from None


def _start_daemon(work: Callable[[], None], name: str) -> None:
    # The executors of asyncio join their threads at the end: a plugin that hangs would stay.
    threading.Thread(target=work, name=name, daemon=True).start()  # noqa: TID251


def _settle_future(future: "asyncio.Future[Any]", value: Any, error: Exception | None) -> None:
    if future.done():  # nobody waited so long
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)

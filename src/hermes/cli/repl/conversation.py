"""The session behind the screen: what is sent to it, and how its events come back."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, structs

from hermes.app.background_prompts import BackgroundPrompt
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.app.session_records import find_turn_starts
from hermes.cli.repl.attention import Attention
from hermes.cli.repl.display.event_view import EventView
from hermes.cli.repl.questions import QuestionQueue, choice_question
from hermes.cli.session.start import READ_ONLY
from hermes.cli.terminal.folder import describe_folder
from hermes.cli.terminal.text import one_line
from hermes.core.channel import Channel
from hermes.core.errors import ConfigError
from hermes.core.events import Approval, Question, Recorded, TurnEnd, TurnEvent, TurnResult
from hermes.core.message import Message, ToolCall, ToolReturn, user_message

log = logging.getLogger(__name__)

_EXPANDED_LINES = 2000
_PLAN_QUESTION = "Carry out this plan?"
_PLAN_APPROVED = "The plan is approved and plan mode is over. Carry the plan out."


class ScreenSeams(Struct, frozen=True):
    """What a conversation needs of the screen around it."""

    refresh: Callable[[], None]
    edit_text: Callable[[str], None]
    """Has the user edit a text in the prompt."""
    enter_folder: Callable[[Path], None]
    """Completes and attaches files of this folder from now on."""
    attention: Attention


class Conversation:
    """One session at a time. Messages that wait to be sent stay here, where they can be edited."""

    def __init__(
        self, runtime: Runtime, session: Session, view: EventView, seams: ScreenSeams
    ) -> None:
        self.runtime = runtime
        self.session = session
        self._view = view
        self._scrollback = view.scrollback
        self._state = view.state
        self._seams = seams
        self._refresh = seams.refresh
        self._attention = seams.attention
        self.read_only = False
        """Another terminal has the session open: nothing is sent to it from here."""
        self._queue: deque[tuple[str, Message]] = deque()
        self._steers: list[str] = []
        """Guidance that the turn has not read yet."""
        self.questions = QuestionQueue(
            session,
            view,
            refresh=seams.refresh,
            steer=self._steer_turn,
            edit_text=seams.edit_text,
        )
        self._expanded: ToolReturn | None = None
        """The tool output that was expanded last."""
        self._channel: Channel | None = None
        self._background_results: list[tuple[BackgroundPrompt, TurnResult]] = []
        """Prompts that ended in the background while an answer was being written here."""
        runtime.background_prompts.on_done = self._on_background_end
        self._attach_session(session)

    def _attach_session(self, session: Session) -> None:
        """Shows this session from now on."""
        self.session = self.questions.session = session
        session.interactions.user_present = True
        self._channel = session.subscribe_events()
        self.runtime.spawn_task(self._read_events(self._channel), "the terminal")
        self._view.reset()
        self._state.facts.restart(session.transcript.history.messages)
        self._view.folder = session.transcript.meta.cwd
        self.read_only = False
        self._seams.enter_folder(self.folder)
        self._view.verbose = lambda: session.interactions.verbose
        self.refresh_status()
        self._state.running = session.is_busy

    @property
    def history(self) -> Sequence[Message]:
        return self.session.transcript.history.messages

    def expand_output(self) -> bool:
        """Shows the last tool output or, when that was shown last, all of the turn's; False when
        there is none."""
        messages = self.history
        start = (find_turn_starts(messages) or [0])[-1]
        parts = [part for message in messages[start:] for part in message.parts]
        calls = {part.id: part for part in parts if isinstance(part, ToolCall)}
        results = [part for part in parts if isinstance(part, ToolReturn)]
        if not results:
            return False
        again = results[-1] is self._expanded
        self._expanded = None if again else results[-1]
        for result in results if again else results[-1:]:
            self._scrollback.show_stored_call(calls.get(result.call_id), result)
            self._scrollback.show_output(result.text, _EXPANDED_LINES)
        return True

    @property
    def folder(self) -> Path:
        """The folder in which the session works."""
        return Path(self.session.transcript.meta.cwd)

    def refresh_status(self) -> None:
        """Takes over what a command may have changed: model, modes, background work."""
        session, config = self.session, self.runtime.setup.config
        yolo = session.options.yolo
        modes = ["plan"] if session.options.plan else []
        if yolo:
            modes.append("yolo")
        elif config.approvals.mode != "ask":
            modes.append(config.approvals.mode)
        if config.sandbox.mode != "workspace-write" and not yolo:
            modes.append(config.sandbox.mode)
        self.runtime.claims.claim_session(session.id)
        facts = self._state.facts
        facts.folder = describe_folder(self.folder)
        self._attention.set_title(session.transcript.meta.title or self.folder.name)
        facts.mode = ", ".join(modes)
        facts.model = session.agent.providers[0].target.model
        facts.window = session.agent.providers[0].endpoint.context_length
        self._state.busy = session.interactions.busy_mode
        self._count_background()

    def _count_background(self) -> None:
        commands, prompts = self.runtime.background_commands, self.runtime.background_prompts
        self._state.facts.background = commands.running_count + len(prompts)

    async def switch_session(self, session: Session) -> None:
        """Continues in another session; work in the background keeps running."""
        old, channel = self.session, self._channel
        if channel is not None:
            channel.close()
        self.questions.reset()
        self._attach_session(session)
        if old is not session:
            await old.close()
            self.runtime.claims.release_session(old.id)

    def send_message(self, shown: str, message: Message) -> None:
        """Sends the message now or, while a turn runs, as /busy says."""
        self._require_writable()
        busy = self.session.interactions.busy_mode if self._state.running else ""
        if busy == "steer" and len(message.parts) == 1:
            self._steer_turn(shown, message)
        elif busy == "interrupt":
            self._queue.appendleft((shown, message))
            self._show_queue()
            self.session.interrupt()
        else:
            self.enqueue_message(shown, message)

    def enqueue_message(self, shown: str, message: Message) -> None:
        """Sends the message when the running turn has ended, or now."""
        self._require_writable()
        if not self._state.running:
            self._start_turn(shown, message)
            return
        self._queue.append((shown, message))
        self._show_queue()

    def send_next_message(self) -> None:
        """Sends the first queued message, if there is one and no turn runs."""
        if self._state.running or not self._queue:
            return
        shown, message = self._queue.popleft()
        self._show_queue()
        self._start_turn(shown, message)

    def _require_writable(self) -> None:
        if self.read_only:
            raise ConfigError(READ_ONLY)

    def take_back_message(self) -> str | None:
        """The last queued message, which is not sent any more."""
        if not self._queue:
            return None
        shown, _ = self._queue.pop()
        self._show_queue()
        return shown

    def interrupt_turn(self) -> bool:
        """Whether there was a turn to interrupt."""
        if not self._state.running:
            return False
        self._state.set_activity("stopping")
        self.session.interrupt()
        self._refresh()
        return True

    def _steer_turn(self, shown: str, message: Message) -> None:
        self._scrollback.show_message(shown, "↳")
        self._steers.append(message.text)
        self.session.submit(message, "steer")

    def _start_turn(self, shown: str, message: Message) -> None:
        state = self._state
        self.questions.reset()  # a message answers the question about a plan
        state.running, state.since = True, time.monotonic()
        state.set_activity("waiting for the model")
        if shown:
            self._scrollback.show_message(shown)
        self.session.submit(message)
        self._refresh()

    def _show_queue(self) -> None:
        self._state.queue = [shown for shown, _ in self._queue]
        self._refresh()

    async def _read_events(self, channel: Channel) -> None:
        async for event in channel:
            try:
                self._handle_event(event)
            except Exception:  # an event that cannot be shown must not end the conversation
                log.exception("an event could not be shown")
                self._scrollback.show_problem("Something could not be shown. Details: hermes logs")
            self._refresh()

    def _handle_event(self, event: TurnEvent) -> None:
        match event:
            case Approval():
                self.questions.ask_approval(event)
                self._attention.notify("A command waits for your approval", self._state.since)
                return
            case Question():
                self.questions.ask_user(event)
                self._attention.notify("The agent asks a question", self._state.since)
                return
            case Recorded(message=message) if message.kind == "steer":
                self._steers = [steer for steer in self._steers if steer not in message.text]
        self._view.show_event(event)
        if isinstance(event, TurnEnd):
            self._finish_turn(event.result)

    def _finish_turn(self, result: TurnResult) -> None:
        state = self._state
        self.questions.reset()
        self._attention.notify(one_line(result.error or result.text) or "Done", state.since)
        state.running = bool(result.pending_steer)
        if result.status == "interrupted":
            # The turn has dropped the guidance it had not read; the user has not.
            for text in reversed(self._steers):
                self._queue.appendleft((text, user_message(text)))
            self._show_queue()
        self._steers.clear()
        self.refresh_status()  # compression continues in another session; commands change branches
        self._show_background_results()
        if state.running:
            state.since = time.monotonic()
        elif result.status != "interrupted" or self.session.interactions.busy_mode == "interrupt":
            self.send_next_message()
        if self.session.options.plan and result.status == "completed" and not state.running:
            self.questions.ask(choice_question(_PLAN_QUESTION, ("yes",), self._decide_plan))

    def _decide_plan(self, answer: str) -> None:
        """Carries out the plan that was shown, or stays in plan mode."""
        if not answer:
            self._scrollback.show_note("Still in plan mode. Say what the plan should be like.")
            return
        session = self.session
        self.runtime.adapt_session(session, structs.replace(session.options, plan=False))
        self.refresh_status()
        self._start_turn("Carry out the plan.", user_message(_PLAN_APPROVED))

    def _on_background_end(self, errand: BackgroundPrompt, result: TurnResult) -> None:
        self._background_results.append((errand, result))
        if not self._state.running:  # never in the middle of an answer
            self._show_background_results()
        self._refresh()

    def _show_background_results(self) -> None:
        for errand, result in self._background_results:
            self._view.show_background_result(errand.text, errand.session.id, result)
        self._background_results.clear()
        self._count_background()

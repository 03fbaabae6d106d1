"""One session in an editor: its prompts, its mode, and the permissions it asks for."""

import asyncio
import logging
from typing import Any, Literal, get_args

import acp
from acp import RequestError, schema
from msgspec import structs

from hermes.app.commands import CommandContext, load_commands, parse_command, run_command
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.app.session_host import SessionSettings
from hermes.core.errors import ConfigError
from hermes.core.events import Answer, Approval, Question, TurnEnd, TurnEvent, TurnResult
from hermes.core.message import Message
from hermes.core.provider import Effort
from hermes.core.taint import BOTH
from hermes.core.untrusted_text import wrapper_mark
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.server.editors.prompts import read_prompt
from hermes.server.editors.updates import EditorUpdates

log = logging.getLogger(__name__)

SOURCE = "acp"
PERMISSION_SECONDS = 300.0
ModeId = Literal["ask", "confirm_edits", "read_only"]
_MODES = (
    ("ask", "Ask", "Asks before risky commands; edits in the workspace are free"),
    ("confirm_edits", "Confirm edits", "Asks before every edit too, with its diff"),
    ("read_only", "Read only", "Changes nothing"),
)
_OPTIONS: dict[Answer, tuple[str, Any]] = {
    "once": ("Allow once", "allow_once"),
    "session": ("Allow for this session", "allow_always"),
    "always": ("Always allow", "allow_always"),
    "deny": ("Deny", "reject_once"),
}
_DEFAULT_EFFORT = "default"
_ANSWER = "answer"
"""The only field of a form that asks for a text."""


class EditorLink:
    """The connection to the editor, as its sessions share it."""

    def __init__(self, client: acp.Client, offers: schema.ClientCapabilities) -> None:
        self.client = client
        self.offers = offers
        self.can_ask = True
        """False once the editor has shown that it cannot answer requests for permission."""

    @property
    def has_forms(self) -> bool:
        """Whether the editor can ask for a text."""
        return self.offers.elicitation is not None and self.offers.elicitation.form is not None


class EditorSession:
    """Sends what happens in a session to the editor, in order."""

    def __init__(self, runtime: Runtime, session: Session, link: EditorLink, id: str) -> None:
        self.id = id
        """As the editor knows it; the session itself has another one once it is compressed."""
        self.session = session
        self._runtime = runtime
        self._link = link
        self._mode: ModeId = "ask"
        self._title = session.transcript.meta.title
        self._first_choice, self._first_model = session.options.choice, self._model
        self._ended = asyncio.Condition()
        self._seen: TurnResult | None = None
        self._updates = EditorUpdates(session.agent.tools, session.host.workspace.cwd)
        self._connect_session()

    @property
    def modes(self) -> schema.SessionModeState:
        rows = [schema.SessionMode(id=i, name=n, description=d) for i, n, d in _MODES]
        return schema.SessionModeState(current_mode_id=self._mode, available_modes=rows)

    @property
    def config_options(self) -> list[Any]:
        current, effort = self._model, self.session.options.effort or _DEFAULT_EFFORT
        configured = self._runtime.setup.config.fallback_providers
        models = list(dict.fromkeys(filter(None, (self._first_model, *configured, current))))
        return [
            _make_select("model", "Model", "model", current, models),
            _make_select(
                "effort",
                "Reasoning effort",
                "thought_level",
                effort,
                [_DEFAULT_EFFORT, *get_args(Effort)],
            ),
        ]

    @property
    def _model(self) -> str:
        providers = self.session.agent.providers
        return self.session.options.choice.model or (providers[0].target.model if providers else "")

    def _connect_session(self) -> None:
        session = self.session
        forward = session.host.emit

        def emit(event: TurnEvent) -> None:
            self._updates.note_event(event)
            forward(event)

        session.host.emit = emit
        session.interactions.user_present = True
        session.interactions.approval_seconds = PERMISSION_SECONDS
        session.interactions.on_approval = self._ask_permission
        session.interactions.on_question = self._ask_question
        events = session.subscribe_events()
        self._runtime.spawn_task(self._forward_events(events), f"editor {session.id}")

    async def _forward_events(self, events: Any) -> None:
        async for event in events:
            for update in self._updates.list_updates(event):
                await self.send_update(update)
            if isinstance(event, TurnEnd):
                async with self._ended:
                    self._seen = event.result
                    self._ended.notify_all()

    async def send_update(self, update: Any) -> None:
        try:
            await self._link.client.session_update(self.id, update)
        except (ConnectionError, RequestError):  # the editor has gone; the turn goes on
            log.info("an update of session %s could not be sent", self.id)

    async def send_commands(self) -> None:
        """Tell the editor which commands there are, of plugins and skills too."""
        rows = [(c.name, c.help) for c in load_commands() if c.surfaces == "all"]
        if self._runtime.plugins is not None:
            rows += [(c.name, c.help) for c in self._runtime.plugins.commands.values()]
        taken = {name for name, _ in rows}
        skills = await asyncio.to_thread(self._list_skills)
        rows += [(name, about) for name, about in skills if name not in taken]
        commands = [schema.AvailableCommand(name=n, description=d or n) for n, d in rows]
        await self.send_update(
            schema.AvailableCommandsUpdate(
                session_update="available_commands_update", available_commands=commands
            )
        )

    def _list_skills(self) -> list[tuple[str, str]]:
        found = self._runtime.knowledge.open_skills(self.session).list_skills()
        return [(skill.name, skill.description) for skill in found]

    async def replay_history(self) -> None:
        messages = self.session.transcript.history.messages
        for update in self._updates.replay_history(messages):
            await self.send_update(update)

    async def answer_prompt(self, blocks: list[Any]) -> schema.PromptResponse:
        """Answer a prompt, after those before it."""
        message, has_data = read_prompt(blocks, wrapper_mark(self.id))
        command = parse_command(message.text) if message.text.startswith("/") else None
        if command is not None:
            found = await self._run_command(*command)
            if found is None:
                return schema.PromptResponse(stop_reason="end_turn")
            message = found
        if has_data:
            self.session.transcript.absorb_taint(BOTH)
        answer = self.session.submit(message)
        await asyncio.wait({answer})
        if answer.cancelled():
            return schema.PromptResponse(stop_reason="cancelled")
        result = answer.result()
        async with self._ended:
            await self._ended.wait_for(lambda: self._seen is result)
        await self._send_facts(result)
        return schema.PromptResponse(stop_reason=_find_stop_reason(result))

    async def _run_command(self, name: str, args: str) -> Message | None:
        """Run a slash command; the message it wants answered, if any."""
        context = CommandContext(self._runtime, self.session, SOURCE)
        try:
            reply = await run_command(context, name, args)
        except ConfigError as error:
            raise RequestError(-32602, str(error)) from None
        if reply.session is not None:
            await reply.session.close()
            text = f"/{name} changes the session; start or load one in the editor instead."
            raise RequestError(-32602, text)
        text = "\n\n".join(filter(None, (reply.text, reply.confirm)))
        if text:
            await self.send_update(acp.update_agent_message_text(text))
        return reply.submit

    async def _send_facts(self, result: TurnResult) -> None:
        title = self.session.transcript.meta.title
        if title and title != self._title:
            self._title = title
            update = schema.SessionInfoUpdate(session_update="session_info_update", title=title)
            await self.send_update(update)
        providers = self.session.agent.providers
        window = providers[0].endpoint.context_length if providers else None
        last = next((m.usage for m in reversed(result.messages) if m.usage), None)
        if window and last is not None:
            used = last.input + last.output
            await self.send_update(
                schema.UsageUpdate(session_update="usage_update", used=used, size=window)
            )

    async def _ask_permission(self, question: Approval) -> Answer:
        """The person's answer; anything that is no clear yes is a no."""
        if not self._link.can_ask:
            return "deny"
        options = [
            schema.PermissionOption(
                option_id=choice, name=_OPTIONS[choice][0], kind=_OPTIONS[choice][1]
            )
            for choice in question.choices
        ]
        response = await self._request_permission(self._describe_question(question), options)
        chosen = getattr(response.outcome, "option_id", "") if response else ""
        return chosen if chosen in question.choices else "deny"

    async def _ask_question(self, question: Question) -> str | None:
        """The chosen answer, or what the person writes. Where an editor has no form for a text, the
        model asks in its answer instead."""
        if not question.choices:
            return await self._request_text(question.text) if self._link.has_forms else None
        if not self._link.can_ask:
            return None
        options = [
            schema.PermissionOption(option_id=str(n), name=choice, kind="allow_once")
            for n, choice in enumerate(question.choices)
        ]
        asked = schema.ToolCallUpdate(
            tool_call_id=question.id, title=question.text, kind="think", status="pending"
        )
        response = await self._request_permission(asked, options)
        chosen = getattr(response.outcome, "option_id", "") if response else ""
        names = {option.option_id: option.name for option in options}
        return names.get(chosen)

    async def _request_text(self, question: str) -> str | None:
        """What the person writes into a form; None: nothing in time, or they decline."""
        field = schema.ElicitationStringPropertySchema(type="string", title="Answer")
        form = schema.ElicitationSchema(
            type="object", properties={_ANSWER: field}, required=[_ANSWER]
        )
        mode = schema.ElicitationFormSessionMode(session_id=self.id, requested_schema=form)
        try:
            async with asyncio.timeout(PERMISSION_SECONDS):
                response = await self._link.client.create_elicitation(question, mode)
        except TimeoutError:
            return None
        except (RequestError, ConnectionError, ValueError) as error:
            log.warning("the editor did not ask for a text: %s", error)
            return None
        content = getattr(response, "content", None) or {}
        written = content.get(_ANSWER) if response.action == "accept" else None
        return written if isinstance(written, str) else None

    async def _request_permission(
        self, call: schema.ToolCallUpdate, options: list[schema.PermissionOption]
    ) -> schema.RequestPermissionResponse | None:
        """What the editor answers; None: nothing in time, or it cannot be asked."""
        try:
            async with asyncio.timeout(PERMISSION_SECONDS):
                return await self._link.client.request_permission(self.id, call, options)
        except TimeoutError:
            return None
        except ValueError as error:
            log.warning("the editor's answer to a request for permission is not valid: %s", error)
            return None
        except (RequestError, ConnectionError) as error:
            self._link.can_ask = False
            log.warning("the editor cannot be asked for permission: %s", error)
            return None

    def _describe_question(self, question: Approval) -> schema.ToolCallUpdate:
        start = self._updates.describe_call(question.call)
        reason = "\n".join(filter(None, (question.summary, question.command, question.diff)))
        return schema.ToolCallUpdate(
            tool_call_id=question.call.id,
            title=start.title,
            kind=start.kind,
            status="pending",
            content=[acp.tool_content(acp.text_block(reason))],
            locations=start.locations,
            raw_input=start.raw_input,
        )

    async def set_mode(self, mode: str) -> None:
        if mode not in get_args(ModeId):
            raise RequestError.invalid_params({"reason": f"there is no mode {mode}"})
        self._mode = mode  # type: ignore[assignment]
        self._apply_mode()
        await self.send_update(
            schema.CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode)
        )

    def _apply_mode(self) -> None:
        session = self.session
        safety = structs.replace(
            session.host.approvals.safety,
            confirms_edits=self._mode == "confirm_edits",
            planning=self._mode == "read_only",
        )
        session.apply_settings(SessionSettings(session.options, session.agent, safety))

    def set_option(self, name: str, value: str) -> None:
        """Continue with another model or effort."""
        options = self.session.options
        match name:
            case "model":
                is_first = value == self._first_model
                choice = self._first_choice if is_first else ModelChoice(model=value)
                options = structs.replace(options, choice=choice)
            case "effort" if value in (_DEFAULT_EFFORT, *get_args(Effort)):
                effort: Any = None if value == _DEFAULT_EFFORT else value
                options = structs.replace(options, effort=effort)
            case _:
                raise RequestError.invalid_params({"reason": f"{name} cannot be {value}"})
        try:
            self._runtime.adapt_session(self.session, options)
        except ConfigError as error:
            raise RequestError(-32602, str(error)) from None
        self._updates.tools = self.session.agent.tools
        self._apply_mode()

    async def close(self) -> None:
        await self.session.close()
        await self._runtime.mcp_servers.release_servers(self.session.options.servers)
        self._runtime.claims.release_session(self.id)


def _make_select(id: str, name: str, category: Any, value: str, values: list[str]) -> Any:
    rows = [schema.SessionConfigSelectOption(value=v, name=v) for v in values]
    return schema.SessionConfigOptionSelect(
        type="select", id=id, name=name, category=category, current_value=value, options=rows
    )


def _find_stop_reason(result: TurnResult) -> Any:
    """How the turn ended in the protocol's words; a failed turn is an error with its sentence."""
    match result.status, result.error_code:
        case "completed", _:
            return "end_turn"
        case "interrupted", _:
            return "cancelled"
        case _, "max_turns":
            return "max_turn_requests"
        case _, "output_truncated":
            return "max_tokens"
        case _, "content_policy":
            return "refusal"
    raise RequestError(-32603, result.error, {"code": result.error_code})

"""What is tried after each kind of failure: the POLICY table is the whole recovery policy."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct, structs

from hermes.agent.endpoint_lessons import learn_limit
from hermes.agent.turn import Agent, ModelClient, Turn
from hermes.core.errors import Failure, Kind
from hermes.core.events import Notice, Recovering
from hermes.core.history import History
from hermes.core.message import Media, Message, Target, ToolReturn, user_message
from hermes.core.provider import Request, Settings
from hermes.llm.reasoning_effort import parse_efforts

MAX_WAIT = 60.0
MAX_RETRY_AFTER = 120.0
NUDGE = "[Your last answer was empty. Answer now: say what you found or did, or call a tool.]"


class Attempt:
    """What the next request of a step changes from the plain one. Recovery actions modify it; the
    history stays as it is."""

    __slots__ = ("declined", "fresh", "overrides", "settings", "tail", "used")

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tail: tuple[Message, ...] = ()
        self.overrides: dict[str, Any] = {}
        """Quirks for this step only; lasting ones go to the turn's lessons."""
        self.fresh = False
        self.declined = False
        """Whether a model refused by its content policy and another was asked."""
        self.used: Counter[str] = Counter()

    def build_request(self, agent: Agent, turn: Turn) -> Request:
        learned = turn.lessons_for(agent.providers[turn.active].target)
        settings = self.settings
        cap = learned.max_output
        if cap is not None and (settings.max_output is None or settings.max_output > cap):
            settings = structs.replace(settings, max_output=cap)
        quirks = {**learned.quirks, **self.overrides} if self.overrides else learned.quirks
        if blind := turn.history.refused.get(agent.providers[turn.active].target):
            quirks = {**quirks, "media_from": blind}
        return Request(
            turn.system,
            turn.history,
            agent.specs,
            settings,
            self.tail,
            quirks,
            passing=bool(self.overrides),
            fresh=self.fresh,
        )


class Fault(Struct, frozen=True):
    """A failure with everything that a recovery action needs."""

    failure: Failure
    attempt: Attempt
    agent: Agent
    turn: Turn

    @property
    def provider(self) -> ModelClient:
        return self.agent.providers[self.turn.active]


Fix = Callable[[Fault], Awaitable[bool]]
"""True: try again. False: not applicable, take the next action."""


class Rung(Struct, frozen=True):
    name: str
    fix: Fix
    limit: int = 1
    """Uses per step and provider; 0: as many as `TurnLimits.tries` allows."""


async def _back_off(f: Fault) -> bool:
    base = min(2.0 ** f.attempt.used["backoff"], MAX_WAIT)
    wait = f.failure.retry_after
    if wait is None or wait < 0:
        wait = base * f.turn.host.jitter(0.5, 1.0)
    return await _wait_seconds(f, "backoff", min(wait, MAX_RETRY_AFTER))


async def _wait_as_told(f: Fault) -> bool:
    wait = f.failure.retry_after
    if wait is None or wait < 0:
        wait = 2.0 ** f.attempt.used["wait"] * f.turn.host.jitter(0.5, 1.0)
    if wait > MAX_RETRY_AFTER or (f.turn.calls == 0 and wait > f.agent.limits.first_wait):
        return False
    f.provider.credentials.pause_key(wait)
    return await _wait_seconds(f, "wait", wait)


async def _wait_seconds(f: Fault, action: str, seconds: float) -> bool:
    f.turn.host.emit(Recovering(f.failure.kind.value, action, seconds))
    await f.turn.host.sleep(seconds)
    return True


async def _try_again(f: Fault) -> bool:
    return True


async def _use_new_connection(f: Fault) -> bool:
    f.attempt.fresh = True
    return True


async def _refresh_login(f: Fault) -> bool:
    return await f.provider.credentials.refresh_login()


async def _rotate_key(f: Fault) -> bool:
    return f.provider.credentials.rotate_key(f.failure)


async def _use_fallback(f: Fault) -> bool:
    turn, providers = f.turn, f.agent.providers
    if turn.active + 1 >= len(providers):
        return False
    before, turn.active = providers[turn.active].target, turn.active + 1
    after = providers[turn.active].target
    f.attempt.used.clear()
    f.attempt.overrides.clear()
    f.attempt.fresh = False
    turn.host.emit(
        Notice(
            "fallback",
            f"{before.provider}:{before.model} failed ({f.failure.kind.value}); "
            f"using {after.provider}:{after.model} for the rest of this turn.",
        )
    )
    return True


async def _ask_another_model(f: Fault) -> bool:
    """Ask one other model after a refusal, never a third."""
    if f.attempt.declined:
        return False
    f.attempt.declined = True
    return await _use_fallback(f)


def learn_quirks(*, this_step_only: bool = False, **quirks: Any) -> Fix:
    """An action that stops using a feature at this endpoint: for good, or for this step only."""

    async def fix(f: Fault) -> bool:
        lasting = f.turn.lessons_for(f.provider.target).quirks
        known = f.attempt.overrides if this_step_only else lasting
        if all(known.get(k) == v for k, v in quirks.items()):
            return False
        known.update(quirks)
        return True

    return fix


PARAMETERS: Mapping[str, dict[str, Any]] = {
    "stream": {"stream": False},
    "stream_options": {"usage_in_stream": False},
    "include_usage": {"usage_in_stream": False},
    "tools": {"tools": False},
    "reasoning": {"effort": "omit"},
    "reasoning_effort": {"effort": "omit"},
    "effort": {"effort": "omit"},
    "thinkingConfig": {"effort": "omit"},
    "image": {"media": False},
    "images": {"media": False},
    "image_url": {"media": False},
    "tool_image": {"media_in_tool_result": False},
    "developer": {"system_role": "system"},
    "schema": {"schema": "no_formats"},
    "call_id": {"call_id": "alnum9"},
    "missing": {"thinking_field": "reasoning_content"},
    "cache_control": {"cache": "none"},
}
"""Rejected parameter -> the quirk that avoids it. Any other is simply not sent again."""
_EFFORT_FIELDS = frozenset({"reasoning", "reasoning_effort", "effort", "output_config"})


async def _drop_parameter(f: Fault) -> bool:
    name = f.failure.param
    if not name:
        return False
    known = f.turn.lessons_for(f.provider.target).quirks
    if name in ("max_tokens", "max_completion_tokens"):
        other = "max_completion_tokens" if name == "max_tokens" else "max_tokens"
        if known.get("max_tokens_field") != other:
            return await learn_quirks(max_tokens_field=other)(f)
    if name in PARAMETERS and not all(known.get(k) == v for k, v in PARAMETERS[name].items()):
        return await learn_quirks(**PARAMETERS[name])(f)
    dropped: tuple[str, ...] = known.get("drop", ())
    if name in dropped:
        return False
    known["drop"] = (*dropped, name)
    return True


async def _force_schema(f: Fault) -> bool:
    """Have the endpoint force the answer into a schema, unless it has shown that it does not."""
    known = f.turn.lessons_for(f.provider.target).quirks
    endpoint = f.provider.endpoint
    if not endpoint.finds_calling or "calling" in known or endpoint.quirks.calling == "schema":
        return False
    return await learn_quirks(calling="schema")(f)


async def _send_one_effort_field(f: Fault) -> bool:
    """Send only one of two fields that control reasoning to an endpoint that rejects both."""
    if f.failure.param not in ("", "thinking", "reasoning_effort", "reasoning"):
        return False
    if f.attempt.settings.effort in (None, "none"):
        return False
    if f.provider.endpoint.quirks.thinking_switch != "always":
        return False
    return await learn_quirks(thinking_switch="alone")(f)


async def _lower_effort(f: Fault) -> bool:
    """Use a reasoning effort that the endpoint named in its refusal."""
    if f.attempt.settings.effort is None or f.failure.param not in _EFFORT_FIELDS:
        return False
    left = parse_efforts(f.failure.message)
    return bool(left) and await learn_quirks(efforts=left)(f)


async def _lower_output(f: Fault) -> bool:
    learned = f.turn.lessons_for(f.provider.target)
    asked = f.attempt.settings.max_output or f.provider.endpoint.default_output
    current = learned.max_output or asked or 16384
    limit = f.failure.limit if f.failure.limit and f.failure.limit < current else current // 2
    if limit < 256:
        return False
    learned.max_output = limit
    return True


async def _raise_output(f: Fault) -> bool:
    current = f.attempt.settings.max_output or f.provider.endpoint.default_output
    more = 2 * current if current else max(16384, f.provider.endpoint.facts.output or 0)
    f.attempt.settings = structs.replace(f.attempt.settings, max_output=more)
    return True


async def _drop_rejected_media(f: Fault) -> bool:
    if f.failure.param == "tool_image" and await learn_quirks(media_in_tool_result=False)(f):
        return True
    if f.failure.param == "bad_image" and _forget_images(f.turn.history, f.provider.target):
        return True
    return await learn_quirks(media=False)(f)


def _forget_images(history: History, target: Target) -> bool:
    """Leave the images so far out of requests to this target; False if there are none left."""
    if not any(map(_has_media, history.messages[history.refused.get(target, 0) :])):
        return False
    history.refused[target] = len(history)
    return True


async def _leave_out_images(f: Fault) -> bool:
    if not any(_has_media(m) for m in f.turn.history.messages):
        return False
    return await learn_quirks(this_step_only=True, media=False)(f)


def _has_media(message: Message) -> bool:
    return any(
        isinstance(p, Media)
        or (isinstance(p, ToolReturn) and any(isinstance(c, Media) for c in p.content))
        for p in message.parts
    )


async def _compress_history(f: Fault) -> bool:
    compressor = f.turn.compressor
    if compressor is None:
        return False
    return await compressor.after_refusal(
        f.agent, f.turn, f.failure, f.attempt.used["compress"] + 1
    )


async def _nudge_model(f: Fault) -> bool:
    f.attempt.tail = (*f.attempt.tail, user_message(NUDGE))
    return True


BACKOFF = Rung("backoff", _back_off, 0)
WAIT = Rung("wait", _wait_as_told, 2)
AGAIN = Rung("retry", _try_again)
NEW_CONNECTION = Rung("new_connection", _use_new_connection)
REFRESH = Rung("refresh_token", _refresh_login)
ROTATE = Rung("next_credential", _rotate_key, 16)
FALLBACK = Rung("fallback", _use_fallback, 16)
SECOND_OPINION = Rung("fallback", _ask_another_model, 16)
DROP_PARAMETER = Rung("drop_parameter", _drop_parameter, 6)
NOT_BOTH = Rung("one_of_two", _send_one_effort_field)
LOWER_EFFORT = Rung("lower_effort", _lower_effort, 3)
SMALLER_OUTPUT = Rung("smaller_output", _lower_output, 3)
LARGER_OUTPUT = Rung("larger_output", _raise_output)
NO_STREAM = Rung("no_stream", learn_quirks(stream=False))
NO_IMAGES = Rung("no_images", _drop_rejected_media, 2)
SHED_IMAGES = Rung("without_images", _leave_out_images)
DROP_THINKING = Rung("drop_thinking", learn_quirks(thinking_replay="drop"))
COMPRESS = Rung("compress", _compress_history, 3)
FLATTEN = Rung("repair_history", learn_quirks(this_step_only=True, flatten=True))
FORCE_SCHEMA = Rung("force_schema", _force_schema)
NUDGE_RUNG = Rung("nudge", _nudge_model)

_FLAKY = (BACKOFF, NEW_CONNECTION, FALLBACK)

POLICY: Mapping[Kind, tuple[Rung, ...]] = {
    Kind.AUTH: (REFRESH, ROTATE, FALLBACK),
    Kind.FORBIDDEN: (REFRESH, ROTATE, FALLBACK),
    Kind.BILLING: (ROTATE, FALLBACK),
    Kind.RATE_LIMITED: (WAIT, ROTATE, FALLBACK),
    Kind.OVERLOADED: _FLAKY,
    Kind.SERVER: _FLAKY,
    Kind.NETWORK: _FLAKY,
    Kind.STALLED: _FLAKY,
    Kind.NO_TERMINAL: _FLAKY,
    Kind.CONFLICT: (AGAIN, FALLBACK),
    Kind.TLS: (),
    Kind.REDIRECT: (FALLBACK,),
    Kind.NOT_API: (FALLBACK,),
    Kind.CONTEXT_OVERFLOW: (COMPRESS, FALLBACK),
    Kind.PAYLOAD_TOO_LARGE: (SHED_IMAGES, COMPRESS, FALLBACK),
    Kind.OUTPUT_CAP: (SMALLER_OUTPUT, FALLBACK),
    Kind.PARAMETER: (NOT_BOTH, LOWER_EFFORT, DROP_PARAMETER, FALLBACK),
    Kind.STREAM_UNSUPPORTED: (NO_STREAM, FALLBACK),
    Kind.MEDIA_REJECTED: (NO_IMAGES, FALLBACK),
    Kind.REPLAY_REJECTED: (DROP_THINKING, FALLBACK),
    Kind.MESSAGE_ORDER: (FLATTEN, FALLBACK),
    Kind.MODEL_NOT_FOUND: (FALLBACK,),
    Kind.WRONG_PATH: (FALLBACK,),
    Kind.CONTENT_POLICY: (SECOND_OPINION,),
    Kind.BAD_REQUEST: (NOT_BOTH,),
    Kind.BAD_UNICODE: (),
    Kind.TRUNCATED_CALL: (LARGER_OUTPUT,),
    Kind.UNREADABLE_CALL: (FORCE_SCHEMA,),
    Kind.EMPTY: (NUDGE_RUNG, AGAIN, FALLBACK),
    Kind.ANSWER_TOO_LARGE: (),
    Kind.UNKNOWN: (AGAIN, FALLBACK),
}
"""Every kind has a row (a test checks it); with an empty one the failure is reported at once."""


async def try_recovery(fault: Fault) -> bool:
    """Take the next recovery action for this failure; False when all have been used."""
    used = fault.attempt.used
    await learn_limit(fault.turn, fault.provider, fault.failure)
    for rung in POLICY[fault.failure.kind]:
        limit = rung.limit or max(0, fault.agent.limits.tries - 1)
        if used[rung.name] >= limit:
            continue
        if await rung.fix(fault):
            used[rung.name] += 1
            if rung not in (BACKOFF, WAIT, COMPRESS):
                fault.turn.host.emit(Recovering(fault.failure.kind.value, rung.name))
            return True
    return False

"""/agents: what is running, in this conversation and in the background."""

import time

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError
from hermes.core.text import format_plural

_MAX_CHARS = 120
_MAX_SHOWN = 2_000


@command(
    "agents",
    "running and background work; show or stop subagents",
    "[show ID | stop ID|all]",
    never_waits=True,
    needs_model=False,
)
async def list_agents(ctx: CommandContext, args: str) -> Reply:
    match args.split():
        case ["stop", wanted]:
            return _stop_children(ctx, wanted)
        case ["show", wanted]:
            return _show_child(ctx, wanted)
        case [verb, *_]:
            raise ConfigError(f"/agents has no {verb}. See /help agents.")
    session, meta, now = ctx.session, ctx.session.transcript.meta, time.time()
    activity = "working" if session.is_busy else "waiting for your next message"
    lines = [f"{meta.title or session.id}: {activity}"]
    processes = ctx.runtime.background_commands.list_running(meta)
    prompts = ctx.runtime.background_prompts.list_prompts(session)
    children = ctx.runtime.delegations.list_children(session)
    for name, text, started in (
        *((process.id, process.command, process.started) for process in processes),
        *((prompt.session.id, prompt.text, prompt.started) for prompt in prompts),
    ):
        text = " ".join(text.split())[:_MAX_CHARS]
        lines.append(f"{name}: {text} ({int(max(0, now - started))} s)")
    for child in children:
        goal = " ".join(child.task.goal.split())[:_MAX_CHARS]
        tokens = child.usage.input + child.usage.output
        cost = "" if child.usage.cost is None else f", ${child.usage.cost:.4f}"
        calls = format_plural(child.calls, "call")
        age = int(max(0, now - child.started))
        lines.append(f"{child.id}: {goal} ({calls}, {tokens:,} tokens{cost}, {age} s)")
    if not processes and not prompts and not children:
        lines.append("Nothing runs in the background.")
    return Reply("\n".join(lines))


def _stop_children(ctx: CommandContext, wanted: str) -> Reply:
    children = ctx.runtime.delegations.list_children(ctx.session)
    chosen = [child for child in children if wanted in ("all", child.id)]
    if not chosen:
        raise ConfigError(f"There is no subagent {wanted}. See /agents.")
    for child in chosen:
        child.stop()
    return Reply(f"Stopped: {', '.join(child.id for child in chosen)}. What was done is kept.")


def _show_child(ctx: CommandContext, wanted: str) -> Reply:
    children = ctx.runtime.delegations.list_children(ctx.session)
    child = next((child for child in children if child.id == wanted), None)
    if child is None:
        raise ConfigError(f"There is no subagent {wanted}. See /agents.")
    messages = child.session.transcript.history.messages
    said = [m.text for m in messages if m.role == "assistant" and m.text.strip()]
    tools = [call.name for m in messages for call in m.calls]
    lines = [f"{child.id} ({child.session.id}): {child.task.goal}"]
    lines += [f"tools: {', '.join(tools[-20:])}"] if tools else []
    lines += [said[-1][-_MAX_SHOWN:]] if said else []
    return Reply("\n".join(lines))

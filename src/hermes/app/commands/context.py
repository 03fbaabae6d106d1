"""/context: what fills the context window."""

import msgspec

from hermes.agent.compression.token_estimate import (
    TokenGauge,
    part_weight,
    request_overhead,
    text_weight,
)
from hermes.app.commands import CommandContext, Reply, command
from hermes.core.message import Message, Thinking

_BAR_COLUMNS = 30


@command("context", "what fills the context window")
async def show_context(ctx: CommandContext, args: str) -> Reply:
    session, agent = ctx.session, ctx.session.agent
    history, system = session.transcript.history, session.transcript.meta.system
    gauge = TokenGauge(history, request_overhead(agent, system))
    gauge.weigh_new_messages()
    weights = {
        "system prompt": text_weight(system),
        "tool descriptions": len(msgspec.json.encode(agent.specs)) // 4,
        **_weigh_messages(history.messages),
    }
    total = sum(weights.values())
    used = gauge.next_prompt
    window = agent.providers[0].endpoint.context_length
    scale = used / total if total else 0.0
    rows = [(name, int(weight * scale)) for name, weight in weights.items() if weight]
    if window:
        rows.append(("free", max(0, window - used)))
    whole = window or used or 1
    share = f" of {window:,} ({100 * used // window} %)" if window else ""
    lines = [f"about {used:,} tokens{share}"]
    for name, tokens in rows:
        bar = "█" * round(_BAR_COLUMNS * tokens / whole)
        lines.append(f"{name:<18}{tokens:>9,}  {100 * tokens / whole:>4.1f} %  {bar}".rstrip())
    lines.append("/compress summarises the older part.")
    return Reply("\n".join(lines))


def _weigh_messages(messages: "tuple[Message, ...] | list[Message]") -> dict[str, int]:
    found = {"your messages": 0, "answers": 0, "reasoning": 0, "tool results": 0, "summaries": 0}
    names = {"user": "your messages", "assistant": "answers", "tool": "tool results"}
    for message in messages:
        for part in message.parts:
            name = "reasoning" if isinstance(part, Thinking) else names[message.role]
            name = "summaries" if message.kind == "summary" else name
            found[name] += part_weight(part)
    return found

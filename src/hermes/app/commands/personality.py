"""/personality: how the agent speaks."""

from msgspec import structs

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError

USUAL = "none"
_BUILT_IN = {
    "concise": "Answer briefly and to the point, without preamble.",
    "creative": "Look for unusual ideas, and offer several.",
    "formal": "Write formally and politely, in whole sentences.",
    "friendly": "Be warm and encouraging, in everyday words.",
    "teacher": "Explain step by step, with examples, and check that it was understood.",
    "technical": "Be exact and detailed, and use the terms of the field.",
}


@command("personality", "show or set how the agent speaks", "[NAME|none]", surfaces="live")
async def set_personality(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    known = _BUILT_IN | ctx.runtime.setup.config.agent.personalities
    if not args:
        found = [name for name, text in known.items() if text == session.options.personality]
        rows = [f"{name}: {text}" for name, text in known.items()]
        return Reply("\n".join([f"Personality: {found[0] if found else USUAL}.", *rows]))
    name = args.lower()
    if name not in known and name != USUAL:
        raise ConfigError(f"There is no personality {args}. There are: {', '.join(known)}.")
    text = "" if name == USUAL else known[name]
    session.options = structs.replace(session.options, personality=text)
    return Reply(f"Personality: {name}. It holds from your next message on.")

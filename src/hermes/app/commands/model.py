"""/model: which model answers, or another one for this session."""

from __future__ import annotations

from msgspec import structs

from hermes.app.commands import ONE_SHOT, Command, CommandContext, Reply
from hermes.app.commands._price import price
from hermes.core.errors import ConfigError
from hermes.llm.endpoints.endpoint import ModelChoice


async def run(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    if not args:
        first, *others = [p.target for p in session.agent.providers]
        lines = [f"{first.model} ({first.provider})"]
        lines += [f"then {t.model} ({t.provider})" for t in others]
        return Reply("\n".join(lines))
    if ctx.surface == ONE_SHOT:
        raise ConfigError(
            "For a single prompt there is --model; hermes config set model.default changes it "
            "for good."
        )
    options = session.options
    before = session.agent
    ctx.runtime.adapt(session, structs.replace(options, choice=ModelChoice(model=args)))
    target = session.agent.providers[0].target
    session.transcript.meta = structs.replace(session.transcript.meta, model=target.model)
    if await ctx.runtime.store.sessions.get_meta(session.id) is not None:
        await ctx.runtime.store.sessions.update_meta(session.id, model=target.model)
    told = f"From now on {target.model} ({target.provider}) answers in this session."
    return Reply(told + price(session, before))


COMMAND = Command(
    "model", "the model that answers; another one for this session", run, "[NAME]", admin=True
)

"""/model: show the model, or switch it for this session."""

from msgspec import structs

from hermes.app.commands import ONE_SHOT, CommandContext, Reply, command
from hermes.app.commands._price import describe_reread_cost
from hermes.core.errors import ConfigError
from hermes.llm.endpoints.endpoint import ModelChoice


@command("model", "show the model, or switch it for this session", "[NAME]", admin_only=True)
async def switch_model(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    if not args:
        first, *others = [p.target for p in session.agent.providers]
        lines = [f"{first.model} ({first.provider})"]
        lines += [f"then {t.model} ({t.provider})" for t in others]
        return Reply("\n".join(lines))
    if ctx.surface == ONE_SHOT:
        raise ConfigError(
            "For a single prompt use --model. To change the default: hermes config set "
            "model.default NAME"
        )
    before = session.agent
    options = structs.replace(session.options, choice=ModelChoice(model=args))
    ctx.runtime.adapt_session(session, options)
    target = session.agent.providers[0].target
    await session.transcript.update_meta(model=target.model)
    text = f"Switched to {target.model} ({target.provider}) for this session."
    return Reply(text + describe_reread_cost(session, before))

"""/model: show the model, or switch it for this session."""

from difflib import get_close_matches

from msgspec import structs

from hermes.agent.turn import Agent
from hermes.app.commands import ONE_SHOT, CommandContext, Reply, command
from hermes.app.commands._price import describe_reread_cost
from hermes.core.errors import ConfigError
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.endpoints.model_facts import ModelFacts


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
    await _require_model(ctx.runtime.agents.get_agent(options, session.transcript.meta.source))
    ctx.runtime.adapt_session(session, options)
    target = session.agent.providers[0].target
    await session.transcript.update_meta(model=target.model)
    text = f"Switched to {target.model} ({target.provider}) for this session."
    return Reply(text + describe_reread_cost(session, before))


async def _require_model(agent: Agent) -> None:
    """ConfigError when the endpoint lists its models, and the wanted one is neither among them nor
    known to exist."""
    client = agent.providers[0]
    wanted, facts = client.target.model, client.endpoint.facts
    names = await client.listing.list_models() if facts == ModelFacts() else ()
    if not names or any(wanted in (name, name.rpartition("/")[2]) for name in names):
        return
    close = get_close_matches(wanted, names, 3, 0.6)
    advice = f"Did you mean {' or '.join(close)}?" if close else "/model lists them."
    raise ConfigError(f"{client.target.provider} does not offer {wanted}. {advice}")

"""What an endpoint says about its limits when asked, in its refusals and by its answers."""

from hermes.agent.turn import Agent, ModelClient, Turn
from hermes.core.errors import Failure, Kind
from hermes.llm.endpoints.model_facts import read_size

_SMALL = 4.0
"""Billions of parameters. Larger models write calls into text well enough, and can use more tools
than a schema has room for."""


async def probe_own_server(agent: Agent, turn: Turn) -> None:
    """Ask the user's own server for its limits before the first call: nobody else knows them."""
    provider = agent.providers[turn.active]
    if provider.endpoint.is_own_server and not turn.lessons_for(provider.target).asked:
        await _ask_limits(turn, provider)


async def learn_limit(turn: Turn, provider: ModelClient, failure: Failure) -> None:
    """Remember the limit that an error states; where it states none, ask the endpoint once."""
    match failure.kind:
        case Kind.OUTPUT_CAP if failure.limit:
            turn.host.remember_limits(provider, None, failure.limit)
        case Kind.CONTEXT_OVERFLOW if failure.limit:
            turn.host.remember_limits(provider, failure.limit, None)
        case Kind.CONTEXT_OVERFLOW if not turn.lessons_for(provider.target).asked:
            await _ask_limits(turn, provider)


async def learn_calling(turn: Turn, provider: ModelClient, calling: str) -> None:
    """Remember how the model called tools. A small model that writes its calls into text is forced
    into a schema from then on, as it seldom writes them right. A schema that it did not obey is not
    sent again."""
    if not provider.endpoint.finds_calling:
        return
    known = turn.lessons_for(provider.target).quirks
    current = known.get("calling", provider.endpoint.quirks.calling)
    if not calling and current == "schema":
        calling = known["calling"] = "text"
    elif calling == "text" and "calling" not in known and not provider.endpoint.learned_calling:
        calling = known["calling"] = "schema" if await _is_small(turn, provider) else "text"
    if calling:
        turn.host.remember_calling(provider, calling)


async def _is_small(turn: Turn, provider: ModelClient) -> bool:
    """Whether the model's name or its endpoint says so. What nobody says is taken for large."""
    size = read_size(provider.target.model) or turn.lessons_for(provider.target).parameters
    if size is None:
        size = await provider.listing.query_size()
    return size is not None and size <= _SMALL


async def _ask_limits(turn: Turn, provider: ModelClient) -> None:
    lessons = turn.lessons_for(provider.target)
    lessons.asked = True
    said = await provider.listing.query_facts()
    lessons.parameters = said.parameters
    if said.context is not None:
        lessons.context = min(said.context, lessons.context or said.context)
        turn.host.remember_limits(provider, said.context, None)

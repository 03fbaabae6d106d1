"""What an endpoint is asked about itself, and what its refusals teach."""

from __future__ import annotations

from hermes.agent.turn import Agent, Endpoint, Turn
from hermes.core.errors import Failure, Kind


async def acquaint(agent: Agent, turn: Turn) -> None:
    """Before the first call to a server of one's own: only it knows how it was set up."""
    provider = agent.providers[turn.active]
    if provider.endpoint.is_own_server and not turn.lessons(provider.target).asked:
        await _ask(turn, provider)


async def take_in(turn: Turn, provider: Endpoint, failure: Failure) -> None:
    """A limit an error states is remembered; where it states none, the endpoint is asked once."""
    match failure.kind:
        case Kind.OUTPUT_CAP if failure.limit:
            turn.remember(provider, None, failure.limit)
        case Kind.CONTEXT_OVERFLOW if failure.limit:
            turn.remember(provider, failure.limit, None)
        case Kind.CONTEXT_OVERFLOW if not turn.lessons(provider.target).asked:
            await _ask(turn, provider)


async def _ask(turn: Turn, provider: Endpoint) -> None:
    lessons = turn.lessons(provider.target)
    lessons.asked = True
    said = await provider.listing.query_facts()
    if said.context is not None:
        lessons.context = min(said.context, lessons.context or said.context)
        turn.remember(provider, said.context, None)

"""What a change in the middle of a conversation costs: how much of it is read anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.agent.compression.token_estimate import TokenGauge, request_overhead

if TYPE_CHECKING:
    from hermes.agent.turn import Agent
    from hermes.app.session import Session

_MENTIONED = 1024
"""Tokens; less than this nobody caches."""


def price(session: Session, before: Agent) -> str:
    """A sentence with a space before it; empty where the next request begins like the last."""
    after = session.agent
    one, other = before.providers[0], after.providers[0]
    moved = one.target != other.target
    cached = other.endpoint.quirks.cache == "native" and other.endpoint.quirks.effort != "omit"
    thinks = before.settings.effort != after.settings.effort and cached
    if not session.transcript.history.messages or not (
        moved or thinks or before.specs != after.specs
    ):
        return ""
    gauge = TokenGauge(
        session.transcript.history, request_overhead(after, session.transcript.meta.system)
    )
    gauge.weigh_new_messages()
    tokens = gauge.next_prompt
    if tokens < _MENTIONED:
        return ""
    prices = other.endpoint.facts.prices
    cost = f" (about ${prices.input * tokens / 1e6:.2f})" if prices and prices.input else ""
    who = "It reads the conversation so far" if moved else "The conversation so far is read"
    return f" {who} anew, once: about {tokens:,} tokens{cost}."

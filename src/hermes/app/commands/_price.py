"""The cost of changing the model or its settings mid-conversation: the history is read again."""

from typing import TYPE_CHECKING

from hermes.agent.compression.token_estimate import TokenGauge, request_overhead

if TYPE_CHECKING:
    from hermes.agent.turn import Agent
    from hermes.app.session import Session

_MIN_TOKENS = 1024
"""No provider caches a shorter prompt."""


def describe_reread_cost(session: "Session", before: "Agent") -> str:
    """A sentence with a space before it; empty when the next request begins like the last."""
    after, history = session.agent, session.transcript.history
    endpoint = after.providers[0].endpoint
    model_changed = before.providers[0].target != after.providers[0].target
    effort_matters = endpoint.quirks.cache == "native" and endpoint.quirks.effort != "omit"
    effort_changed = effort_matters and before.settings.effort != after.settings.effort
    if not history.messages or not (model_changed or effort_changed or before.specs != after.specs):
        return ""
    gauge = TokenGauge(history, request_overhead(after, session.transcript.meta.system))
    gauge.weigh_new_messages()
    tokens = gauge.next_prompt
    if tokens < _MIN_TOKENS:
        return ""
    prices = endpoint.facts.prices
    cost = f", ${prices.input * tokens / 1e6:.2f}" if prices and prices.input else ""
    reader = "It" if model_changed else "The model"
    return f" {reader} will re-read the conversation once (about {tokens:,} tokens{cost})."

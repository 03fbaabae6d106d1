"""The two values that everything passes around stay small."""

from msgspec import structs

from hermes.agent.turn import Turn
from hermes.core.tool import ToolContext


def test_a_turn_and_a_tools_context_have_few_fields() -> None:
    assert len(structs.fields(Turn)) <= 12
    assert len(structs.fields(ToolContext)) <= 8

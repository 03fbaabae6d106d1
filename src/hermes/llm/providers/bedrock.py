"""Amazon Bedrock."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="bedrock",
    wire="bedrock",
    base_url="https://bedrock-runtime.{AWS_REGION|AWS_DEFAULT_REGION|=us-east-1}.amazonaws.com",
    keys=("AWS_BEARER_TOKEN_BEDROCK",),
    auth="aws",
    quirks=Quirks(call_id="word64"),
    models={
        "*claude-3-7*": {"effort": "budget"},
        "*claude-*-4*": {"effort": "budget"},
        "*claude-*-4-[6-9]*": {"effort": "adaptive"},
    },
)

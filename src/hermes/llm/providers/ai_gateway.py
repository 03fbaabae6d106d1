"""Vercel AI Gateway, an aggregator."""

from hermes.llm.provider_spec import ATTRIBUTION, ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="ai-gateway",
    wire="chat",
    base_url="https://ai-gateway.vercel.sh/v1",
    rank=205,
    hosts=("ai-gateway.vercel.sh",),
    vendor_names=True,
    keys=("AI_GATEWAY_API_KEY",),
    headers=ATTRIBUTION,
    aggregator=True,
    quirks=Quirks(effort="object"),
    docs="https://vercel.com/docs/ai-gateway",
)

"""Nous Portal, an aggregator."""

from hermes.llm.provider_spec import ATTRIBUTION, ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="nous",
    wire="chat",
    base_url="https://inference-api.nousresearch.com/v1",
    rank=210,
    hosts=("inference-api.nousresearch.com",),
    vendor_names=True,
    keys=("NOUS_API_KEY",),
    headers=ATTRIBUTION,
    aggregator=True,
    quirks=Quirks(effort="object"),
    docs="https://portal.nousresearch.com",
)

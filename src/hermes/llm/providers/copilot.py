"""GitHub Copilot, an aggregator."""

from hermes.llm.provider_spec import OAuthSpec, ProviderSpec
from hermes.version import VERSION

PROVIDER = ProviderSpec(
    name="copilot",
    wire="chat",
    base_url="https://api.githubcopilot.com",
    rank=220,
    hosts=("api.githubcopilot.com",),
    keys=("COPILOT_GITHUB_TOKEN",),
    oauth=OAuthSpec(
        flow="device",
        client_id="Iv1.b507a08c87ecfe98",
        device_url="https://github.com/login/device/code",
        token_url="https://github.com/login/oauth/access_token",
        scopes="read:user",
        exchange_url="https://api.github.com/copilot_internal/v2/token",
        headers={
            "Editor-Version": f"hermes/{VERSION}",
            "Editor-Plugin-Version": f"hermes/{VERSION}",
            "Copilot-Integration-Id": "vscode-chat",
        },
    ),
    aggregator=True,
    docs="https://docs.github.com/copilot",
)

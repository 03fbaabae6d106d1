"""ChatGPT's Codex backend, for users with a ChatGPT account."""

from hermes.llm.provider_spec import OAuthSpec, ProviderSpec, Quirks
from hermes.llm.providers.openai import GPT

PROVIDER = ProviderSpec(
    name="openai-codex",
    wire="responses",
    base_url="https://chatgpt.com/backend-api/codex",
    rank=15,
    hosts=("chatgpt.com",),
    quirks=Quirks(effort="effort", drop=("temperature", "max_output_tokens")),
    models=GPT,
    oauth=OAuthSpec(
        flow="loopback",
        client_id="app_EMoamEEZ73f0CkXaXp7hrann",
        authorize_url="https://auth.openai.com/oauth/authorize",
        token_url="https://auth.openai.com/oauth/token",
        scopes="openid profile email offline_access",
        parameters={"id_token_add_organizations": "true", "codex_cli_simplified_flow": "true"},
        redirect_host="localhost",
        redirect_ports=(1455, 1457),
        redirect_path="/auth/callback",
        headers={"OpenAI-Beta": "responses=experimental", "originator": "hermes"},
        account_claim=("https://api.openai.com/auth", "chatgpt_account_id"),
        account_header="chatgpt-account-id",
        models=("gpt-", "codex", "o1", "o3", "o4"),
    ),
    default_model="gpt-5-codex",
    docs="https://developers.openai.com/codex",
)

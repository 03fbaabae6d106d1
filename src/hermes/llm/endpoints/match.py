"""Whose row an endpoint goes by: its provider's, else that of the host, else of the protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from hermes.llm.endpoints.catalog import find
from hermes.llm.provider_spec import ProviderSpec, Quirks, WireName, overlay

HOSTS: Mapping[str, str] = {
    "ai-gateway.vercel.sh": "ai-gateway",
    "aiplatform.googleapis.com": "vertex",
    "api.anthropic.com": "anthropic",
    "api.arcee.ai": "arcee",
    "api.cerebras.ai": "cerebras",
    "api.deepseek.com": "deepseek",
    "api.fireworks.ai": "fireworks",
    "api.githubcopilot.com": "copilot",
    "api.groq.com": "groq",
    "api.kilo.ai": "kilocode",
    "api.kimi.com": "kimi-coding",
    "api.minimax.io": "minimax",
    "api.mistral.ai": "mistral",
    "api.moonshot.ai": "kimi",
    "api.moonshot.cn": "kimi-cn",
    "api.openai.com": "openai",
    "api.together.xyz": "together",
    "api.x.ai": "xai",
    "api.xiaomimimo.com": "xiaomi",
    "api.z.ai": "zai",
    "chatgpt.com": "openai-codex",
    "coding-intl.dashscope.aliyuncs.com": "alibaba",
    "coding.dashscope.aliyuncs.com": "alibaba",
    "dashscope-intl.aliyuncs.com": "alibaba",
    "dashscope-us.aliyuncs.com": "alibaba",
    "dashscope.aliyuncs.com": "alibaba",
    "generativelanguage.googleapis.com": "gemini",
    "inference-api.nousresearch.com": "nous",
    "integrate.api.nvidia.com": "nvidia",
    "opencode.ai": "opencode-zen",
    "openrouter.ai": "openrouter",
    "router.huggingface.co": "huggingface",
}
"""Host -> the provider that runs it. A list for the same reason as the one of keys; a test
compares it with the rows."""
_PROTOCOLS = {"anthropic": "anthropic", "gemini": "gemini", "bedrock": "bedrock"}
"""Whose headers and quirks an unknown endpoint of that protocol gets."""
_KEPT = {"kimi": "kimi-*"}
"""Makers whose models want to be asked alike also where nobody knows the host, and their names."""


_OWN = re.compile(
    r"https?://(?:localhost|127\.[\d.]+|10\.[\d.]+|192\.168\.[\d.]+|172\.(?:1[6-9]|2\d|3[01])\.[\d.]+"
    r"|\[::1\]|[\w-]+|[\w.-]+\.(?:local|localhost|lan|internal))(?::\d+)?(?:/|$)",
    re.IGNORECASE,
)


def own(url: str) -> bool:
    """Whether the address is on this machine or beside it."""
    return _OWN.match(url) is not None


def like(spec: ProviderSpec | None, base_url: str, wire: WireName) -> ProviderSpec | None:
    """None: nobody we know."""
    row = spec or _host(base_url)
    if row is not None and _family(row.wire) == _family(wire):
        return row
    return find(_PROTOCOLS.get(wire, ""))


def quirks_of(
    row: ProviderSpec | None, spec: ProviderSpec | None, base_url: str, model: str
) -> Quirks:
    """`row`: whose the endpoint goes by. What its provider, or the maker of the model, demands of
    every request holds beside it, also where it speaks another protocol than in its row."""
    if row is None:
        quirks = Quirks(effort="think" if own(base_url) else "effort")
        maker = next((n for n, glob in _KEPT.items() if fnmatchcase(model.lower(), glob)), "")
        found = find(maker)
        return overlay(quirks, found.models[_KEPT[maker]]) if found is not None else quirks
    quirks = row.for_model(model)
    owner = spec or _host(base_url)
    if owner is None or owner is row:
        return quirks
    theirs = owner.for_model(model)
    limit = theirs.max_tokens_default or quirks.max_tokens_default
    return overlay(quirks, {"drop": theirs.drop, "max_tokens_default": limit})


def without_version(base_url: str, wire: WireName) -> str:
    """The hint that belongs to the address of a server of one's own that ends too early: nearly
    always it should end in /v1. Empty: it is good."""
    if wire != "chat" or urlsplit(base_url).path.strip("/") or not own(base_url):
        return ""
    return (
        f"The address {base_url} has no path; servers of this kind want /v1 at its end. If calls "
        f"fail, set it to {base_url}/v1."
    )


def _host(base_url: str) -> ProviderSpec | None:
    return find(HOSTS.get((urlsplit(base_url).hostname or "").lower(), ""))


def _family(wire: str) -> str:
    """Two protocols of one vendor, mostly spoken by the same endpoints to the same models."""
    return "chat" if wire == "responses" else wire

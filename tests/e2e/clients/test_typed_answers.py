"""Typed answers in the clients of others, with an endpoint that enforces schemas and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.clients import test_node_clients, test_python_clients
from tests.e2e.clients.client_run import client_rig, install_node, install_python

FORMS = ("whole", "stream")
TYPED: dict[str, tuple[str, ...]] = {
    "python:openai": ("chat",),
    "python:openai_responses": ("responses",),
    "python:anthropic": ("messages",),
    "python:langchain": ("chat", "responses", "messages", "chat_tool", "messages_tool"),
    "python:langgraph": ("chat",),
    "python:pydantic_ai": ("chat", "responses", "messages", "chat_tool", "messages_tool"),
    "python:instructor": ("chat", "chat_tool", "responses_tool", "messages_tool"),
    "python:litellm": ("chat",),
    "python:openai_agents": ("responses",),
    "python:smolagents": ("chat",),
    "python:llama_index": ("chat",),
    "python:huggingface_hub": ("chat",),
    "node:openai": ("chat",),
    "node:openai_responses": ("responses",),
    "node:anthropic": ("messages",),
    "node:ai_sdk": ("chat",),
    "node:ai_sdk_responses": ("responses",),
    "node:ai_sdk_messages": ("messages",),
}
"""The protocols in which each client asks; `_tool`: as the arguments of a tool."""
CALLS = {"python:langgraph": 2}
"""How often a client asks for an answer, if not once: LangGraph first without the schema."""


@pytest.mark.parametrize("enforcing", [False, True], ids=["checked", "enforced"])
@pytest.mark.parametrize("client", TYPED)
async def test_typed_answers(tmp_path: Path, client: str, enforcing: bool) -> None:
    kind, _, name = client.partition(":")
    cases = [f"typed/{form}+{protocol}" for protocol in TYPED[client] for form in FORMS]
    async with client_rig(tmp_path, enforcing=enforcing) as rig:
        if kind == "node":
            folder = install_node(test_node_clients.PACKAGES)
            found = await test_node_clients.use_client(rig, folder, name, *cases)
        else:
            python = install_python(test_python_clients.find_packages(name))
            found = await test_python_clients.use_client(rig, python, name, *cases)
        for case, said in found.items():
            assert said.split() == ["ok", "25"], (case, said)
        if enforcing:  # what is enforced needs no correction
            assert len(rig.api.provider.requests) == len(cases) * CALLS.get(client, 1)

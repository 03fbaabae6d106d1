"""Python clients of the server: `python_clients.py CLIENT CASE…` prints what it makes of each case.

Cases: `own-tool/whole`, `own-tool/stream`, `whole/ORDER`, `typed/FORM`, `leave`, `restart`; any
other is an order for the model, whose answer is streamed.
"""

import sys

import frameworks
import sdks
from client_cases import Stream

CLIENTS = {
    "openai": sdks.OpenAIChat,
    "openai_responses": sdks.OpenAIResponses,
    "anthropic": sdks.Anthropic,
    "litellm": sdks.LiteLLM,
    "langchain": frameworks.LangChain,
    "langchain_messages": frameworks.LangChainMessages,
    "langgraph": frameworks.LangGraph,
    "pydantic_ai": frameworks.PydanticAI,
    "openai_agents": frameworks.OpenAIAgents,
    "instructor": frameworks.Instructor,
    "smolagents": frameworks.Smolagents,
    "llama_index": frameworks.LlamaIndex,
    "huggingface_hub": sdks.HuggingFaceHub,
}


def read_stream(stream: Stream) -> str:
    text = ""
    while True:
        try:
            text += next(stream)
        except StopIteration as end:
            return f"{text} usage={end.value}"


def live_through_restart(client) -> str:
    """Read until the server stops, then ask again when told that it is back."""
    stream = client.stream("slow")
    first = next(stream)
    print("\n== begun", flush=True)
    try:
        rest = read_stream(stream)
    except Exception as failure:
        rest = f"{type(failure).__name__}: {failure}"
    print(f"\n== stopped {first}{rest}", flush=True)
    sys.stdin.readline()
    return read_stream(client.stream(getattr(client, "after_restart", "greet")))


def use_client(client, case: str) -> str:
    kind, _, form = case.partition("/")
    match kind:
        case "whole":
            text, usage = client.whole(form)
            return f"{text} usage={usage}"
        case "own-tool":
            return client.own_tool(streamed=form == "stream")
        case "typed":
            return str(client.typed(form).degrees)
        case "leave":
            stream = client.stream("slow")
            first = next(stream)
            stream.close()
            return f"left after {first}"
        case "restart":
            return live_through_restart(client)
        case _:
            return read_stream(client.stream(kind))


if __name__ == "__main__":
    chosen = CLIENTS[sys.argv[1]]()
    for name in sys.argv[2:]:
        try:
            result = f"ok\n{use_client(chosen, name)}"
        except Exception as failure:  # what a person would see
            result = f"failed\n{type(failure).__name__}: {failure}"
        print(f"\n== {name} {result}", flush=True)

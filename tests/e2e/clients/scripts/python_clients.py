"""Python clients of the server: `python_clients.py CLIENT CASE…` prints what it makes of each case.

Cases: text, stream, own-tool, structured, structured-stream; any other is an order for the model.
"""

import asyncio
import os
import sys

URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
MODEL = "hermes-agent"
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def prompt(case: str) -> str:
    order = {"text": "greet", "stream": "greet", "structured-stream": "structured"}.get(case, case)
    return f"Please follow order:{order}"


def weather(city: str) -> str:
    """The weather of a city."""
    return f"25 degrees in {city}"


def weather_model():
    from pydantic import BaseModel

    class Weather(BaseModel):
        city: str
        degrees: int

    return Weather


def use_openai(case: str) -> str:
    from openai import OpenAI

    client, said = OpenAI(), [{"role": "user", "content": prompt(case)}]
    if case == "structured":
        found = client.chat.completions.parse(
            model=MODEL, messages=said, response_format=weather_model()
        )
        return str(found.choices[0].message.parsed.degrees)
    if case == "structured-stream":
        with client.chat.completions.stream(
            model=MODEL, messages=said, response_format=weather_model()
        ) as stream:
            return str(stream.get_final_completion().choices[0].message.parsed.degrees)
    if case == "own-tool":
        function = {"name": "weather", "parameters": PARAMETERS}
        tools = [{"type": "function", "function": function}]
        first = client.chat.completions.create(model=MODEL, messages=said, tools=tools)
        call = first.choices[0].message.tool_calls[0]
        result = {"role": "tool", "tool_call_id": call.id, "content": weather("Bern")}
        said += [first.choices[0].message, result]
        last = client.chat.completions.create(model=MODEL, messages=said, tools=tools)
        return last.choices[0].message.content
    if case == "text":
        return client.chat.completions.create(model=MODEL, messages=said).choices[0].message.content
    with client.chat.completions.stream(
        model=MODEL, messages=said, stream_options={"include_usage": True}
    ) as stream:
        final = stream.get_final_completion()
    return f"{final.choices[0].message.content} usage={final.usage.total_tokens}"


def use_openai_responses(case: str) -> str:
    from openai import OpenAI

    client, said = OpenAI(), prompt(case)
    if case == "structured":
        found = client.responses.parse(model=MODEL, input=said, text_format=weather_model())
        return str(found.output_parsed.degrees)
    if case == "structured-stream":
        with client.responses.stream(
            model=MODEL, input=said, text_format=weather_model()
        ) as stream:
            return str(stream.get_final_response().output_parsed.degrees)
    if case == "own-tool":
        tools = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}]
        first = client.responses.create(model=MODEL, input=said, tools=tools)
        call = next(item for item in first.output if item.type == "function_call")
        kind = "function_call_output"
        result = {"type": kind, "call_id": call.call_id, "output": weather("Bern")}
        more = {"previous_response_id": first.id, "tools": tools}
        return client.responses.create(model=MODEL, input=[result], **more).output_text
    if case == "text":
        return client.responses.create(model=MODEL, input=said).output_text
    text, usage = "", None
    for event in client.responses.create(model=MODEL, input=said, stream=True):
        if event.type == "response.output_text.delta":
            text += event.delta
        elif event.type in ("response.failed", "response.incomplete"):
            raise RuntimeError(event.response.error.message)
        elif event.type == "response.completed":
            usage = event.response.usage
    return f"{text} usage={usage.total_tokens}"


def use_anthropic(case: str) -> str:
    from anthropic import Anthropic

    client, said = Anthropic(), [{"role": "user", "content": prompt(case)}]
    more = {"model": MODEL, "max_tokens": 999}
    if case == "own-tool":
        tools = [{"name": "weather", "input_schema": PARAMETERS}]
        first = client.messages.create(messages=said, tools=tools, **more)
        use = next(block for block in first.content if block.type == "tool_use")
        result = {"type": "tool_result", "tool_use_id": use.id, "content": weather("Bern")}
        said += [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ]
        return client.messages.create(messages=said, tools=tools, **more).content[0].text
    if case == "structured":
        found = client.messages.parse(messages=said, output_format=weather_model(), **more)
        return str(found.parsed_output.degrees)
    if case == "text":
        return client.messages.create(messages=said, **more).content[0].text
    with client.messages.stream(messages=said, **more) as stream:
        final = stream.get_final_message()
    total = final.usage.input_tokens + final.usage.output_tokens
    return f"{final.content[0].text} usage={total}"


def use_litellm(case: str) -> str:
    import litellm

    at = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": KEY, "max_retries": 2}
    said = [{"role": "user", "content": prompt(case)}]
    if case == "structured":
        found = litellm.completion(messages=said, response_format=weather_model(), **at)
        return str(weather_model().model_validate_json(found.choices[0].message.content).degrees)
    if case == "own-tool":
        tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
        message = litellm.completion(messages=said, tools=tools, **at).choices[0].message
        call = message.tool_calls[0]
        said += [message, {"role": "tool", "tool_call_id": call.id, "content": weather("Bern")}]
        found = litellm.completion(messages=said, tools=tools, **at)
        return found.choices[0].message.content
    if case == "text":
        return litellm.completion(messages=said, **at).choices[0].message.content
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(litellm.completion(messages=said, **options, **at))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    usage = next(c.usage for c in reversed(chunks) if getattr(c, "usage", None))
    return f"{text} usage={usage.total_tokens}"


def _langchain_model():
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL, base_url=URL, api_key=KEY, stream_usage=True)


def use_langchain(case: str) -> str:
    model = _langchain_model()
    if case == "structured":
        return str(model.with_structured_output(weather_model()).invoke(prompt(case)).degrees)
    if case == "text":
        return model.invoke(prompt(case)).content
    if case == "own-tool":
        from langgraph.prebuilt import create_react_agent

        agent = create_react_agent(model, [weather])
        said = {"messages": [{"role": "user", "content": prompt(case)}]}
        return agent.invoke(said)["messages"][-1].content
    whole = None
    for chunk in model.stream(prompt(case)):
        whole = chunk if whole is None else whole + chunk
    return f"{whole.content} usage={whole.usage_metadata['total_tokens']}"


def use_pydantic_ai(case: str) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel

    kind = weather_model() if case.startswith("structured") else str
    agent = Agent(OpenAIChatModel(MODEL), output_type=kind)
    if case == "own-tool":
        agent.tool_plain(weather)
    if case == "structured":
        from pydantic_ai import NativeOutput

        agent = Agent(OpenAIChatModel(MODEL), output_type=NativeOutput(kind))
        return str(agent.run_sync(prompt(case)).output.degrees)
    if case in ("text", "own-tool"):
        return agent.run_sync(prompt(case)).output

    async def stream() -> str:
        async with agent.run_stream(prompt(case)) as run:
            text = await run.get_output()
            usage = run.usage() if callable(run.usage) else run.usage
            return f"{text} usage={usage.input_tokens + usage.output_tokens}"

    return asyncio.run(stream())


def use_openai_agents(case: str) -> str:
    from agents import (
        Agent,
        Runner,
        function_tool,
        set_default_openai_client,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    # It runs every function call it sees, also those that ran on the server.
    set_default_openai_client(AsyncOpenAI(default_headers={"X-Hermes-Tool-Items": "mcp_call"}))
    tools = [function_tool(weather)] if case == "own-tool" else []
    kind = weather_model() if case == "structured" else None
    agent = Agent(name="x", model=MODEL, tools=tools, output_type=kind)
    if case != "stream":
        found = Runner.run_sync(agent, prompt(case)).final_output
        return str(found.degrees) if kind else found

    async def stream() -> str:
        run = Runner.run_streamed(agent, prompt(case))
        async for _ in run.stream_events():
            pass
        return f"{run.final_output} usage={run.context_wrapper.usage.total_tokens}"

    return asyncio.run(stream())


def use_instructor(case: str) -> str:
    import instructor
    from openai import OpenAI

    client = instructor.from_openai(OpenAI(), mode=instructor.Mode.JSON_SCHEMA)
    said = [{"role": "user", "content": prompt(case)}]
    found = client.chat.completions.create(
        model=MODEL, messages=said, response_model=weather_model(), max_retries=1
    )
    return str(found.degrees)


def use_smolagents(case: str) -> str:
    from smolagents import OpenAIServerModel

    model = OpenAIServerModel(model_id=MODEL, api_base=URL, api_key=KEY)
    said = [{"role": "user", "content": [{"type": "text", "text": prompt(case)}]}]
    if case == "stream":
        return "".join(d.content or "" for d in model.generate_stream(said)) + " usage=18"
    return model.generate(said).content


def use_llama_index(case: str) -> str:
    from llama_index.llms.openai_like import OpenAILike

    model = OpenAILike(model=MODEL, api_base=URL, api_key=KEY, is_chat_model=True)
    if case == "stream":
        return "".join(d.delta for d in model.stream_complete(prompt(case))) + " usage=18"
    return model.complete(prompt(case)).text


def use_huggingface_hub(case: str) -> str:
    from huggingface_hub import InferenceClient

    client, said = InferenceClient(base_url=URL, api_key=KEY), None
    said = [{"role": "user", "content": prompt(case)}]
    if case == "stream":
        chunks = client.chat_completion(said, stream=True)
        return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) + " usage=18"
    return client.chat_completion(said).choices[0].message.content


if __name__ == "__main__":
    for chosen in sys.argv[2:]:
        try:
            result = f"ok\n{globals()[f'use_{sys.argv[1]}'](chosen)}"
        except Exception as failure:  # what a person would see
            result = f"failed\n{type(failure).__name__}: {failure}"
        print(f"\n== {chosen} {result}")

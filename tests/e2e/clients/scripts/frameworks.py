"""The frameworks: clients that run a loop or parse answers on top of an SDK."""

import json

from client_cases import (
    IMAGE,
    KEY,
    MODEL,
    URL,
    Stream,
    ask,
    drain,
    run,
    say,
    say_item,
    weather,
    weather_model,
    weather_schema,
)


class LangChain:
    def __init__(self) -> None:
        self.model = self._connect()

    def _connect(self, **options):
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model=MODEL, base_url=URL, api_key=KEY, stream_usage=True, **options)

    def stream(self, order: str) -> Stream:
        usage = 0
        for chunk in self.model.stream(say(order)):
            usage += chunk.usage_metadata["total_tokens"] if chunk.usage_metadata else 0
            if chunk.content:
                yield chunk.content
        return usage

    def whole(self, order: str) -> tuple[str, int]:
        found = self.model.invoke(say(order))
        return found.content, found.usage_metadata["total_tokens"]

    def own_tool(self, *, streamed: bool) -> str:
        from langgraph.prebuilt import create_react_agent

        agent, state = create_react_agent(self.model, [weather]), {"messages": say("own-tool")}
        if streamed:
            return "".join(_read_text(m) for m, _ in agent.stream(state, stream_mode="messages"))
        return _read_text(agent.invoke(state)["messages"][-1])

    def typed(self, form: str):
        form, _, method = form.partition("+")
        protocol, _, way = method.partition("_")
        if protocol == "messages":
            from langchain_anthropic import ChatAnthropic

            model = ChatAnthropic(model=MODEL, max_tokens=999)
        else:
            model = self._connect(use_responses_api=protocol == "responses")
        chosen = "function_calling" if way == "tool" else "json_schema"
        typed = model.with_structured_output(weather_model(), method=chosen)
        if form.startswith("whole"):
            return typed.invoke(say("structured"))
        return list(typed.stream(say("structured")))[-1]


class LangChainMessages(LangChain):
    def _connect(self, **options):
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=MODEL, max_tokens=999, stream_usage=True, **options)

    def stream(self, order: str) -> Stream:
        usage = 0
        for chunk in self.model.stream(say(order)):
            usage += chunk.usage_metadata["total_tokens"] if chunk.usage_metadata else 0
            if text := _read_text(chunk):
                yield text
        return usage

    def whole(self, order: str) -> tuple[str, int]:
        found = self.model.invoke(say(order))
        return _read_text(found), found.usage_metadata["total_tokens"]


class LangGraph(LangChain):
    def _build(self):
        from langgraph.prebuilt import create_react_agent

        return create_react_agent(self.model, [])

    def stream(self, order: str) -> Stream:
        """Without a loop, a graph that is left waits for its model to end by itself."""

        async def pieces():
            usage = 0
            state = {"messages": say(order)}
            async for chunk, _ in self._build().astream(state, stream_mode="messages"):
                usage += chunk.usage_metadata["total_tokens"] if chunk.usage_metadata else 0
                if chunk.content:
                    yield chunk.content
            yield usage

        return (yield from drain(pieces()))

    def whole(self, order: str) -> tuple[str, int]:
        last = self._build().invoke({"messages": say(order)})["messages"][-1]
        return last.content, last.usage_metadata["total_tokens"]

    def typed(self, form: str):
        from langgraph.prebuilt import create_react_agent

        agent = create_react_agent(self.model, [], response_format=weather_model())
        state = {"messages": say("structured")}
        if form.startswith("whole"):
            return agent.invoke(state)["structured_response"]
        return list(agent.stream(state, stream_mode="values"))[-1]["structured_response"]


def _read_text(message) -> str:
    """The text of a message, whose content may be blocks."""
    return message.text() if callable(message.text) else message.text


class PydanticAI:
    def _build(self, kind=str, protocol: str = "chat"):
        from pydantic_ai import Agent
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.profiles import ModelProfile

        match protocol:
            case "messages":  # it knows by their names which models take a schema
                profile = ModelProfile(supports_json_schema_output=True)
                model = AnthropicModel(MODEL, profile=profile)
            case "responses":
                model = OpenAIResponsesModel(MODEL)
            case _:
                model = OpenAIChatModel(MODEL)
        return Agent(model, output_type=kind)

    def _prompt(self, order: str):
        from pydantic_ai import BinaryContent

        picture = BinaryContent(IMAGE.read_bytes(), media_type="image/png")
        return [ask(order), picture] if order == "image" else ask(order)

    def stream(self, order: str) -> Stream:
        async def pieces():
            async with self._build().run_stream(self._prompt(order)) as run:
                async for text in run.stream_text(delta=True, debounce_by=None):
                    yield text
                usage = run.usage() if callable(run.usage) else run.usage
                yield usage.input_tokens + usage.output_tokens

        return (yield from drain(pieces()))

    def whole(self, order: str) -> tuple[str, int]:
        found = run(self._build().run(self._prompt(order)))
        usage = found.usage() if callable(found.usage) else found.usage
        return found.output, usage.input_tokens + usage.output_tokens

    def own_tool(self, *, streamed: bool) -> str:
        agent = self._build()
        agent.tool_plain(weather)
        if not streamed:
            return run(agent.run(ask("own-tool"))).output
        return run(self._read_output(agent, ask("own-tool")))

    def typed(self, form: str):
        from pydantic_ai import NativeOutput

        form, _, method = form.partition("+")
        protocol, _, way = method.partition("_")
        kind = weather_model() if way == "tool" else NativeOutput(weather_model())
        agent = self._build(kind, protocol)
        if form.startswith("whole"):
            return run(agent.run(ask("structured"))).output
        return run(self._read_output(agent, ask("structured")))

    async def _read_output(self, agent, prompt: str):
        async with agent.run_stream(prompt) as streamed:
            return await streamed.get_output()


class OpenAIAgents:
    def __init__(self) -> None:
        from agents import set_default_openai_client, set_tracing_disabled
        from openai import AsyncOpenAI

        set_tracing_disabled(True)
        # It runs every function call it sees, also those that ran on the server.
        set_default_openai_client(AsyncOpenAI(default_headers={"X-Hermes-Tool-Items": "mcp_call"}))

    def stream(self, order: str) -> Stream:
        from agents import Agent, Runner

        async def pieces():
            run = Runner.run_streamed(Agent(name="x", model=MODEL), say_item(order))
            try:
                async for event in run.stream_events():
                    data = getattr(event, "data", None)
                    if getattr(data, "type", "") == "response.output_text.delta":
                        yield data.delta
            finally:
                run.cancel()
            yield run.context_wrapper.usage.total_tokens

        return (yield from drain(pieces()))

    def whole(self, order: str) -> tuple[str, int]:
        from agents import Agent, Runner

        found = run(Runner.run(Agent(name="x", model=MODEL), say_item(order)))
        return found.final_output, found.context_wrapper.usage.total_tokens

    def own_tool(self, *, streamed: bool) -> str:
        from agents import Agent, Runner, function_tool

        agent = Agent(name="x", model=MODEL, tools=[function_tool(weather)])
        if not streamed:
            return run(Runner.run(agent, ask("own-tool"))).final_output
        return run(self._read_output(agent, ask("own-tool")))

    def typed(self, form: str):
        from agents import Agent, Runner

        agent = Agent(name="x", model=MODEL, output_type=weather_model())
        if form.startswith("whole"):
            return run(Runner.run(agent, ask("structured"))).final_output
        return run(self._read_output(agent, ask("structured")))

    async def _read_output(self, agent, prompt: str):
        from agents import Runner

        streamed = Runner.run_streamed(agent, prompt)
        async for _ in streamed.stream_events():
            pass
        return streamed.final_output


class Instructor:
    after_restart = "structured"

    def stream(self, order: str) -> Stream:
        """A typed answer, which arrives when it is complete."""
        yield ""
        yield f"{self.typed('stream', order).degrees} degrees"
        return 0

    def typed(self, form: str, order: str = "structured"):
        form, _, method = form.partition("+")
        chat = self._connect(method)
        wanted = {"model": MODEL, "messages": say(order), "max_retries": 1}
        if method.startswith("messages"):
            wanted["max_tokens"] = 999
        if form.startswith("whole"):
            return chat.create(response_model=weather_model(), **wanted)
        return list(chat.create_partial(response_model=weather_model(), **wanted))[-1]

    def _connect(self, method: str):
        import instructor
        from anthropic import Anthropic
        from openai import OpenAI

        match method:
            case "messages_tool":
                return instructor.from_anthropic(Anthropic()).chat.completions
            case "responses_tool":
                mode = instructor.Mode.RESPONSES_TOOLS
            case "chat_tool":
                mode = instructor.Mode.TOOLS
            case _:
                mode = instructor.Mode.JSON_SCHEMA
        return instructor.from_openai(OpenAI(), mode=mode).chat.completions


class Smolagents:
    def __init__(self) -> None:
        from smolagents import OpenAIServerModel

        # Otherwise it waits for minutes after a 429.
        at = {"api_base": URL, "api_key": KEY, "retry": False}
        self.model = OpenAIServerModel(model_id=MODEL, **at)

    def _said(self, order: str) -> list:
        content = [{"type": "text", "text": ask(order)}]
        if order == "image":
            from PIL import Image

            content.append({"type": "image", "image": Image.open(IMAGE)})
        return [{"role": "user", "content": content}]

    def stream(self, order: str) -> Stream:
        usage = 0
        for delta in self.model.generate_stream(self._said(order)):
            used = delta.token_usage
            usage += used.input_tokens + used.output_tokens if used else 0
            if delta.content:
                yield delta.content
        return usage

    def whole(self, order: str) -> tuple[str, int]:
        found = self.model.generate(self._said(order))
        return found.content, found.token_usage.total_tokens

    def own_tool(self, *, streamed: bool) -> str:
        from smolagents import tool
        from smolagents.models import agglomerate_stream_deltas

        def weather_of(city: str) -> str:
            """The weather of a city.

            Args:
                city: The name of the city.
            """
            return weather(city)

        wanted = {"messages": self._said("own-tool"), "tools_to_call_from": [tool(weather_of)]}
        if streamed:
            found = agglomerate_stream_deltas(list(self.model.generate_stream(**wanted)))
        else:
            found = self.model.generate(**wanted)
        arguments = found.tool_calls[0].function.arguments
        return weather(**(json.loads(arguments) if isinstance(arguments, str) else arguments))

    def typed(self, form: str):
        wanted = {"type": "json_schema", "json_schema": weather_schema()}
        ask_model = self.model.generate if form.startswith("whole") else self.model.generate_stream
        found = ask_model(self._said("structured"), response_format=wanted)
        parts = [found] if form.startswith("whole") else list(found)
        text = "".join(part.content or "" for part in parts)
        return weather_model().model_validate_json(text)


class LlamaIndex:
    def __init__(self) -> None:
        from llama_index.llms.openai_like import OpenAILike

        options = {"is_chat_model": True, "is_function_calling_model": True}
        usage = {"stream_options": {"include_usage": True}}
        # Its own retries take minutes.
        at = {"model": MODEL, "api_base": URL, "api_key": KEY, "max_retries": 1}
        self.model = OpenAILike(**at, **options)
        self.streaming = OpenAILike(**at, **options, additional_kwargs=usage)

    def _said(self, order: str) -> list:
        from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock

        blocks = [TextBlock(text=ask(order))]
        if order == "image":
            blocks.append(ImageBlock(image=IMAGE.read_bytes(), image_mimetype="image/png"))
        return [ChatMessage(role="user", blocks=blocks)]

    def stream(self, order: str) -> Stream:
        usage = 0
        for part in self.streaming.stream_chat(self._said(order)):
            used = getattr(part.raw, "usage", None)
            usage += used.total_tokens if used else 0
            if part.delta:
                yield part.delta
        return usage

    def whole(self, order: str) -> tuple[str, int]:
        found = self.model.chat(self._said(order))
        return found.message.content, found.raw.usage.total_tokens

    def own_tool(self, *, streamed: bool) -> str:
        from llama_index.core.tools import FunctionTool

        tools, prompt = [FunctionTool.from_defaults(weather)], ask("own-tool")
        if not streamed:
            return str(self.model.predict_and_call(tools, user_msg=prompt))
        last = list(self.model.stream_chat_with_tools(tools, user_msg=prompt))[-1]
        call = self.model.get_tool_calls_from_response(last)[0]
        return weather(**call.tool_kwargs)

    def typed(self, form: str):
        model, said = self.model.as_structured_llm(weather_model()), self._said("structured")
        if form.startswith("whole"):
            return model.chat(said).raw
        return list(model.stream_chat(said))[-1].raw

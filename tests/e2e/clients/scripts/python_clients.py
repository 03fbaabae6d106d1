"""Python clients of the server: `python_clients.py CLIENT CASE…` prints what it makes of each case.

Cases: `own-tool`, `whole/ORDER`, `typed/FORM`, `leave`, `restart`; any other is an order for the
model, whose answer is streamed.
"""

import json
import sys

from client_cases import (
    DATA_URL,
    IMAGE,
    KEY,
    MODEL,
    PARAMETERS,
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


class OpenAIChat:
    def __init__(self) -> None:
        from openai import OpenAI

        self.api = OpenAI()

    def stream(self, order: str) -> Stream:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        usage = 0
        with self.api.chat.completions.create(
            model=MODEL, messages=say(order), **options
        ) as chunks:
            for chunk in chunks:
                usage += chunk.usage.total_tokens if chunk.usage else 0
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content
        return usage

    def whole(self, order: str) -> tuple[str, int]:
        found = self.api.chat.completions.create(model=MODEL, messages=say(order))
        if found.choices[0].finish_reason == "error":
            raise RuntimeError(found.hermes["error"])
        return found.choices[0].message.content, found.usage.total_tokens

    def own_tool(self) -> str:
        tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
        said = say("own-tool")
        first = self.api.chat.completions.create(model=MODEL, messages=said, tools=tools)
        call = first.choices[0].message.tool_calls[0]
        result = weather(**json.loads(call.function.arguments))
        said += [first.choices[0].message]
        said += [{"role": "tool", "tool_call_id": call.id, "content": result}]
        last = self.api.chat.completions.create(model=MODEL, messages=said, tools=tools)
        return last.choices[0].message.content

    def typed(self, form: str):
        wanted = {"messages": say("structured"), "response_format": weather_model()}
        if form.startswith("whole"):
            found = self.api.chat.completions.parse(model=MODEL, **wanted)
        else:
            with self.api.chat.completions.stream(model=MODEL, **wanted) as stream:
                found = stream.get_final_completion()
        return found.choices[0].message.parsed


class OpenAIResponses:
    def __init__(self) -> None:
        from openai import OpenAI

        self.api = OpenAI()

    def stream(self, order: str) -> Stream:
        with self.api.responses.create(model=MODEL, input=say_item(order), stream=True) as events:
            for event in events:
                if event.type == "response.output_text.delta":
                    yield event.delta
                elif event.type in ("response.failed", "response.incomplete"):
                    raise RuntimeError(event.response.error.message)
                elif event.type == "response.completed":
                    return event.response.usage.total_tokens
        raise RuntimeError("the stream has no end")

    def whole(self, order: str) -> tuple[str, int]:
        found = self.api.responses.create(model=MODEL, input=say_item(order))
        if found.error:
            raise RuntimeError(found.error.message)
        return found.output_text, found.usage.total_tokens

    def own_tool(self) -> str:
        tools = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}]
        first = self.api.responses.create(model=MODEL, input=ask("own-tool"), tools=tools)
        call = next(item for item in first.output if item.type == "function_call")
        output = weather(**json.loads(call.arguments))
        result = {"type": "function_call_output", "call_id": call.call_id, "output": output}
        more = {"previous_response_id": first.id, "tools": tools}
        return self.api.responses.create(model=MODEL, input=[result], **more).output_text

    def typed(self, form: str):
        wanted = {"input": ask("structured"), "text_format": weather_model()}
        if form.startswith("whole"):
            return self.api.responses.parse(model=MODEL, **wanted).output_parsed
        with self.api.responses.stream(model=MODEL, **wanted) as stream:
            return stream.get_final_response().output_parsed


class Anthropic:
    def __init__(self) -> None:
        from anthropic import Anthropic

        self.messages = Anthropic().messages
        self.more = {"model": MODEL, "max_tokens": 999}

    def _said(self, order: str) -> list:
        content = [{"type": "text", "text": ask(order)}]
        if order == "image":
            data = DATA_URL.partition(",")[2]
            source = {"type": "base64", "media_type": "image/png", "data": data}
            content.append({"type": "image", "source": source})
        return [{"role": "user", "content": content}]

    def stream(self, order: str) -> Stream:
        with self.messages.stream(messages=self._said(order), **self.more) as stream:
            yield from stream.text_stream
            usage = stream.get_final_message().usage
        return usage.input_tokens + usage.output_tokens

    def whole(self, order: str) -> tuple[str, int]:
        found = self.messages.create(messages=self._said(order), **self.more)
        return found.content[0].text, found.usage.input_tokens + found.usage.output_tokens

    def own_tool(self) -> str:
        tools = [{"name": "weather", "input_schema": PARAMETERS}]
        said = self._said("own-tool")
        first = self.messages.create(messages=said, tools=tools, **self.more)
        use = next(block for block in first.content if block.type == "tool_use")
        result = {"type": "tool_result", "tool_use_id": use.id, "content": weather(**use.input)}
        said += [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ]
        return self.messages.create(messages=said, tools=tools, **self.more).content[0].text

    def typed(self, form: str):
        wanted = {"messages": self._said("structured"), "output_format": weather_model()}
        if form.startswith("whole"):
            return self.messages.parse(**wanted, **self.more).parsed_output
        with self.messages.stream(**wanted, **self.more) as stream:
            return stream.get_final_message().parsed_output


class LiteLLM:
    def __init__(self) -> None:
        from litellm import completion

        at = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": KEY}
        self.at = {**at, "max_retries": 2}
        self.complete = completion

    def stream(self, order: str) -> Stream:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        usage = 0
        for chunk in self.complete(messages=say(order), **options, **self.at):
            usage = chunk.usage.total_tokens if getattr(chunk, "usage", None) else usage
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content
        return usage

    def whole(self, order: str) -> tuple[str, int]:
        found = self.complete(messages=say(order), **self.at)
        return found.choices[0].message.content, found.usage.total_tokens

    def own_tool(self) -> str:
        said = say("own-tool")
        tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
        message = self.complete(messages=said, tools=tools, **self.at).choices[0].message
        call = message.tool_calls[0]
        result = weather(**json.loads(call.function.arguments))
        said += [message, {"role": "tool", "tool_call_id": call.id, "content": result}]
        return self.complete(messages=said, tools=tools, **self.at).choices[0].message.content

    def typed(self, form: str):
        kind = weather_model()
        wanted = {"messages": say("structured"), "response_format": kind, **self.at}
        if form.startswith("whole"):
            text = self.complete(**wanted).choices[0].message.content
        else:
            chunks = self.complete(stream=True, **wanted)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        return kind.model_validate_json(text)


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

    def own_tool(self) -> str:
        from langgraph.prebuilt import create_react_agent

        agent = create_react_agent(self.model, [weather])
        return agent.invoke({"messages": say("own-tool")})["messages"][-1].content

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

    def own_tool(self) -> str:
        agent = self._build()
        agent.tool_plain(weather)
        return run(agent.run(ask("own-tool"))).output

    def typed(self, form: str):
        from pydantic_ai import NativeOutput

        form, _, method = form.partition("+")
        protocol, _, way = method.partition("_")
        kind = weather_model() if way == "tool" else NativeOutput(weather_model())
        agent = self._build(kind, protocol)
        if form.startswith("whole"):
            return run(agent.run(ask("structured"))).output

        async def stream():
            async with agent.run_stream(ask("structured")) as run:
                return await run.get_output()

        return run(stream())


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

    def own_tool(self) -> str:
        from agents import Agent, Runner, function_tool

        agent = Agent(name="x", model=MODEL, tools=[function_tool(weather)])
        return run(Runner.run(agent, ask("own-tool"))).final_output

    def typed(self, form: str):
        from agents import Agent, Runner

        agent = Agent(name="x", model=MODEL, output_type=weather_model())
        if form.startswith("whole"):
            return run(Runner.run(agent, ask("structured"))).final_output

        async def stream():
            streamed = Runner.run_streamed(agent, ask("structured"))
            async for _ in streamed.stream_events():
                pass
            return streamed.final_output

        return run(stream())


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

    def own_tool(self) -> str:
        from smolagents import tool

        def weather_of(city: str) -> str:
            """The weather of a city.

            Args:
                city: The name of the city.
            """
            return weather(city)

        said = self._said("own-tool")
        found = self.model.generate(said, tools_to_call_from=[tool(weather_of)])
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

    def own_tool(self) -> str:
        from llama_index.core.tools import FunctionTool

        tools = [FunctionTool.from_defaults(weather)]
        return str(self.model.predict_and_call(tools, user_msg=ask("own-tool")))

    def typed(self, form: str):
        model, said = self.model.as_structured_llm(weather_model()), self._said("structured")
        if form.startswith("whole"):
            return model.chat(said).raw
        return list(model.stream_chat(said))[-1].raw


class HuggingFaceHub:
    def __init__(self) -> None:
        from huggingface_hub import InferenceClient

        self.api = InferenceClient(base_url=URL, api_key=KEY)

    def stream(self, order: str) -> Stream:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        usage = 0
        for chunk in self.api.chat_completion(say(order), **options):
            usage += chunk.usage.total_tokens if chunk.usage else 0
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content
        return usage

    def whole(self, order: str) -> tuple[str, int]:
        found = self.api.chat_completion(say(order))
        return found.choices[0].message.content, found.usage.total_tokens

    def own_tool(self) -> str:
        tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
        said = say("own-tool")
        call = self.api.chat_completion(said, tools=tools).choices[0].message.tool_calls[0]
        arguments = call.function.arguments
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
        function = {"name": "weather", "arguments": json.dumps(parsed)}
        made = {"id": call.id, "type": "function", "function": function}
        said += [
            {"role": "assistant", "content": "", "tool_calls": [made]},
            {"role": "tool", "tool_call_id": call.id, "content": weather(**parsed)},
        ]
        return self.api.chat_completion(said, tools=tools).choices[0].message.content

    def typed(self, form: str):
        wanted = {"response_format": {"type": "json_schema", "json_schema": weather_schema()}}
        if form.startswith("whole"):
            found = self.api.chat_completion(say("structured"), **wanted)
            text = found.choices[0].message.content
        else:
            chunks = self.api.chat_completion(say("structured"), stream=True, **wanted)
            text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        return weather_model().model_validate_json(text)


CLIENTS = {
    "openai": OpenAIChat,
    "openai_responses": OpenAIResponses,
    "anthropic": Anthropic,
    "litellm": LiteLLM,
    "langchain": LangChain,
    "langchain_messages": LangChainMessages,
    "langgraph": LangGraph,
    "pydantic_ai": PydanticAI,
    "openai_agents": OpenAIAgents,
    "instructor": Instructor,
    "smolagents": Smolagents,
    "llama_index": LlamaIndex,
    "huggingface_hub": HuggingFaceHub,
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
            return client.own_tool()
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

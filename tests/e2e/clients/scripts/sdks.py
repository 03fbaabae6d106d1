"""The SDKs: clients that speak a protocol and nothing more."""

import json

from client_cases import (
    DATA_URL,
    KEY,
    MODEL,
    PARAMETERS,
    URL,
    Stream,
    ask,
    say,
    say_item,
    weather,
    weather_model,
    weather_schema,
)

CHAT_TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "parameters": PARAMETERS, "strict": True},
    }
]


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

    def own_tool(self, *, streamed: bool) -> str:
        said = say("own-tool")
        first = self._answer(said, streamed=streamed)
        call = first.tool_calls[0]
        result = weather(**json.loads(call.function.arguments))
        said += [first, {"role": "tool", "tool_call_id": call.id, "content": result}]
        return self._answer(said, streamed=streamed).content

    def _answer(self, said: list, *, streamed: bool):
        wanted = {"model": MODEL, "messages": said, "tools": CHAT_TOOLS}
        if not streamed:
            return self.api.chat.completions.create(**wanted).choices[0].message
        with self.api.chat.completions.stream(**wanted) as stream:
            return stream.get_final_completion().choices[0].message

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

    def own_tool(self, *, streamed: bool) -> str:
        first = self._answer(streamed=streamed, input=ask("own-tool"))
        call = next(item for item in first.output if item.type == "function_call")
        output = weather(**json.loads(call.arguments))
        result = {"type": "function_call_output", "call_id": call.call_id, "output": output}
        more = {"input": [result], "previous_response_id": first.id}
        return self._answer(streamed=streamed, **more).output_text

    def _answer(self, *, streamed: bool, **wanted):
        tools = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}]
        if not streamed:
            return self.api.responses.create(model=MODEL, tools=tools, **wanted)
        with self.api.responses.stream(model=MODEL, tools=tools, **wanted) as stream:
            return stream.get_final_response()

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

    def own_tool(self, *, streamed: bool) -> str:
        said = self._said("own-tool")
        first = self._answer(said, streamed=streamed)
        use = next(block for block in first.content if block.type == "tool_use")
        result = {"type": "tool_result", "tool_use_id": use.id, "content": weather(**use.input)}
        said += [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ]
        return self._answer(said, streamed=streamed).content[0].text

    def _answer(self, said: list, *, streamed: bool):
        wanted = {"messages": said, "tools": [{"name": "weather", "input_schema": PARAMETERS}]}
        if not streamed:
            return self.messages.create(**wanted, **self.more)
        with self.messages.stream(**wanted, **self.more) as stream:
            return stream.get_final_message()

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

    def own_tool(self, *, streamed: bool) -> str:
        said = say("own-tool")
        first = self._answer(said, streamed=streamed)
        call = first.tool_calls[0]
        result = weather(**json.loads(call.function.arguments))
        said += [first, {"role": "tool", "tool_call_id": call.id, "content": result}]
        return self._answer(said, streamed=streamed).content

    def _answer(self, said: list, *, streamed: bool):
        from litellm import stream_chunk_builder

        found = self.complete(messages=said, tools=CHAT_TOOLS, stream=streamed, **self.at)
        return (stream_chunk_builder(list(found)) if streamed else found).choices[0].message

    def typed(self, form: str):
        kind = weather_model()
        wanted = {"messages": say("structured"), "response_format": kind, **self.at}
        if form.startswith("whole"):
            text = self.complete(**wanted).choices[0].message.content
        else:
            chunks = self.complete(stream=True, **wanted)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        return kind.model_validate_json(text)


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

    def own_tool(self, *, streamed: bool) -> str:
        said = say("own-tool")
        if streamed:
            chunks = self.api.chat_completion(said, tools=CHAT_TOOLS, stream=True)
            calls = (c.choices[0].delta.tool_calls for c in chunks if c.choices)
            call = next(found[0] for found in calls if found)
        else:
            found = self.api.chat_completion(said, tools=CHAT_TOOLS)
            call = found.choices[0].message.tool_calls[0]
        arguments = call.function.arguments
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
        function = {"name": "weather", "arguments": json.dumps(parsed)}
        made = {"id": call.id, "type": "function", "function": function}
        said += [
            {"role": "assistant", "content": "", "tool_calls": [made]},
            {"role": "tool", "tool_call_id": call.id, "content": weather(**parsed)},
        ]
        return self.api.chat_completion(said, tools=CHAT_TOOLS).choices[0].message.content

    def typed(self, form: str):
        wanted = {"response_format": {"type": "json_schema", "json_schema": weather_schema()}}
        if form.startswith("whole"):
            found = self.api.chat_completion(say("structured"), **wanted)
            text = found.choices[0].message.content
        else:
            chunks = self.api.chat_completion(say("structured"), stream=True, **wanted)
            text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        return weather_model().model_validate_json(text)

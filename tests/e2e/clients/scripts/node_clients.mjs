// Node clients of the server: `node node_clients.mjs CLIENT CASE…` prints what it makes of each case.
// Cases: own-tool/FORM, whole/ORDER, typed/FORM, leave, restart; any other is an order for the model,
// whose answer is streamed.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [, , chosen, ...cases] = process.argv;
const model = "hermes-agent";
const image = readFileSync(process.env.CLIENT_IMAGE).toString("base64");
const at = { baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY };
const ask = (order) => `Please follow order:${order}`;
const weather = ({ city }) => `25 degrees in ${city}`;
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

async function schema() {
  const { z } = await import("zod");
  return z.object({ city: z.string(), degrees: z.number() });
}

async function openai() {
  const { default: OpenAI } = await import("openai");
  const { zodResponseFormat } = await import("openai/helpers/zod");
  const chat = new OpenAI().chat.completions;
  const say = (order) => {
    const picture = { type: "image_url", image_url: { url: `data:image/png;base64,${image}` } };
    const content = order === "image" ? [{ type: "text", text: ask(order) }, picture] : ask(order);
    return [{ role: "user", content }];
  };
  return {
    async *stream(order, signal) {
      const options = { stream: true, stream_options: { include_usage: true } };
      let usage = 0;
      for await (const chunk of await chat.create({ model, messages: say(order), ...options }, { signal })) {
        usage += chunk.usage?.total_tokens ?? 0;
        const text = chunk.choices[0]?.delta.content;
        if (text) yield text;
      }
      return usage;
    },
    async whole(order) {
      const found = await chat.create({ model, messages: say(order) });
      if (found.hermes) throw new Error(found.hermes.error);
      return [found.choices[0].message.content, found.usage.total_tokens];
    },
    async ownTool(stream) {
      const run = { name: "weather", parameters, function: weather, parse: JSON.parse };
      const tools = [{ type: "function", function: run }];
      return await chat.runTools({ model, messages: say("own-tool"), tools, stream }).finalContent();
    },
    async typed(form) {
      const response_format = zodResponseFormat(await schema(), "weather");
      const wanted = { model, messages: say("structured"), response_format };
      const found = form.startsWith("whole") ? await chat.parse(wanted) : await chat.stream(wanted).finalChatCompletion();
      return found.choices[0].message.parsed;
    },
  };
}

async function openai_responses() {
  const { default: OpenAI } = await import("openai");
  const { zodTextFormat } = await import("openai/helpers/zod");
  const { responses } = new OpenAI();
  const say = (order) => {
    if (order !== "image") return ask(order);
    const picture = { type: "input_image", detail: "auto", image_url: `data:image/png;base64,${image}` };
    return [{ role: "user", content: [{ type: "input_text", text: ask(order) }, picture] }];
  };
  return {
    async *stream(order, signal) {
      for await (const event of await responses.create({ model, input: say(order), stream: true }, { signal })) {
        if (event.type === "response.output_text.delta") yield event.delta;
        if (event.response?.error) throw new Error(event.response.error.message);
        if (event.type === "response.completed") return event.response.usage.total_tokens;
      }
      throw new Error("the stream has no end");
    },
    async whole(order) {
      const found = await responses.create({ model, input: say(order) });
      if (found.error) throw new Error(found.error.message);
      return [found.output_text, found.usage.total_tokens];
    },
    async ownTool(stream) {
      const tools = [{ type: "function", name: "weather", parameters, strict: true }];
      const answer = (wanted) =>
        stream ? responses.stream({ model, tools, ...wanted }).finalResponse() : responses.create({ model, tools, ...wanted });
      const first = await answer({ input: ask("own-tool") });
      const call = first.output.find((item) => item.type === "function_call");
      const output = weather(JSON.parse(call.arguments));
      const input = [{ type: "function_call_output", call_id: call.call_id, output }];
      return (await answer({ input, previous_response_id: first.id })).output_text;
    },
    async typed(form) {
      const text = { format: zodTextFormat(await schema(), "weather") };
      const wanted = { model, input: ask("structured"), text };
      const found = form.startsWith("whole") ? responses.parse(wanted) : responses.stream(wanted).finalResponse();
      return (await found).output_parsed;
    },
  };
}

async function anthropic() {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const { zodOutputFormat } = await import("@anthropic-ai/sdk/helpers/zod");
  const { messages } = new Anthropic();
  const more = { model, max_tokens: 999 };
  const say = (order) => {
    const source = { type: "base64", media_type: "image/png", data: image };
    const pictures = order === "image" ? [{ type: "image", source }] : [];
    return [{ role: "user", content: [{ type: "text", text: ask(order) }, ...pictures] }];
  };
  const count = (usage) => usage.input_tokens + usage.output_tokens;
  return {
    async *stream(order, signal) {
      const stream = messages.stream({ messages: say(order), ...more }, { signal });
      for await (const event of stream) {
        if (event.delta?.type === "text_delta") yield event.delta.text;
      }
      return count((await stream.finalMessage()).usage);
    },
    async whole(order) {
      const found = await messages.create({ messages: say(order), ...more });
      return [found.content[0].text, count(found.usage)];
    },
    async ownTool(stream) {
      const tools = [{ name: "weather", input_schema: parameters }];
      const said = say("own-tool");
      const wanted = { messages: said, tools, ...more };
      const answer = () => (stream ? messages.stream(wanted).finalMessage() : messages.create(wanted));
      const first = await answer();
      const use = first.content.find((block) => block.type === "tool_use");
      const result = { type: "tool_result", tool_use_id: use.id, content: weather(use.input) };
      said.push({ role: "assistant", content: first.content }, { role: "user", content: [result] });
      return (await answer()).content[0].text;
    },
    async typed(form) {
      const output_config = { format: zodOutputFormat(await schema()) };
      const wanted = { messages: say("structured"), output_config, ...more };
      const found = form.startsWith("whole") ? messages.parse(wanted) : messages.stream(wanted).finalMessage();
      return (await found).parsed_output;
    },
  };
}

async function useAiSdk(chat) {
  const { generateText, streamText, tool, isStepCount, Output } = await import("ai");
  const { z } = await import("zod");
  const say = (order) => {
    const picture = { type: "file", data: image, mediaType: "image/png" };
    const content = order === "image" ? [{ type: "text", text: ask(order) }, picture] : ask(order);
    return { model: chat, maxRetries: 1, messages: [{ role: "user", content }] };
  };
  return {
    async *stream(order, abortSignal) {
      const result = streamText({ ...say(order), abortSignal, onError: () => {} });
      for await (const part of result.fullStream) {
        if (part.type === "error") throw part.error;
        if (part.type === "text-delta") yield part.text;
      }
      return (await result.totalUsage).totalTokens;
    },
    async whole(order) {
      const found = await generateText(say(order));
      return [found.text, found.totalUsage.totalTokens];
    },
    async ownTool(stream) {
      const inputSchema = z.object({ city: z.string() });
      const tools = { weather: tool({ inputSchema, execute: weather }) };
      const wanted = { ...say("own-tool"), tools, stopWhen: isStepCount(3) };
      return await (stream ? streamText(wanted) : await generateText(wanted)).text;
    },
    async typed(form) {
      const wanted = { ...say("structured"), output: Output.object({ schema: await schema() }) };
      if (form.startsWith("whole")) return (await generateText(wanted)).output;
      let last;
      for await (const part of streamText(wanted).partialOutputStream) last = part;
      return last;
    },
  };
}

async function ai_sdk() {
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const options = { name: "hermes", includeUsage: true, supportsStructuredOutputs: true };
  return await useAiSdk(createOpenAICompatible({ ...options, ...at })(model));
}

async function ai_sdk_responses() {
  const { createOpenAI } = await import("@ai-sdk/openai");
  const headers = { "X-Hermes-Tool-Items": "mcp_call" };
  return await useAiSdk(createOpenAI({ ...at, headers }).responses(model));
}

async function ai_sdk_messages() {
  const { createAnthropic } = await import("@ai-sdk/anthropic");
  return await useAiSdk(createAnthropic(at)(model));
}

async function readStream(stream) {
  for (let text = ""; ; ) {
    const { value, done } = await stream.next();
    if (done) return `${text} usage=${value}`;
    text += value;
  }
}

const describe = (error) => `${error.name}: ${error.message} ${error.lastError?.message ?? ""}`;

/** Reads until the server stops, then asks again when told that it is back. */
async function liveThroughRestart(client) {
  const stream = client.stream("slow");
  const first = (await stream.next()).value;
  console.log("\n== begun");
  const rest = await readStream(stream).catch(describe);
  console.log(`\n== stopped ${first}${rest}`);
  const lines = createInterface({ input: process.stdin });
  await new Promise((resolve) => lines.once("line", resolve));
  lines.close();
  return await readStream(client.stream("greet"));
}

async function useClient(client, name) {
  const [kind, form] = name.split("/");
  switch (kind) {
    case "whole": {
      const [text, usage] = await client.whole(form);
      return `${text} usage=${usage}`;
    }
    case "own-tool":
      return await client.ownTool(form === "stream");
    case "typed":
      return (await client.typed(form)).degrees;
    case "leave": {
      const leaving = new AbortController();
      const { value } = await client.stream("slow", leaving.signal).next();
      leaving.abort();
      return `left after ${value}`;
    }
    case "restart":
      return await liveThroughRestart(client);
    default:
      return await readStream(client.stream(kind));
  }
}

process.on("unhandledRejection", () => {}); // of streams that were left
const clients = { openai, openai_responses, anthropic, ai_sdk, ai_sdk_responses, ai_sdk_messages };
const client = await clients[chosen]();
for (const name of cases) {
  const said = await useClient(client, name).then(
    (text) => `ok\n${text}`,
    (error) => `failed\n${describe(error)}`,
  );
  console.log(`\n== ${name} ${said}`);
}
process.exit(0);

// Node clients of the server: `node node_clients.mjs CLIENT CASE` prints what the client makes of it.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.CLIENT_FOLDER + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const [, , client, chosen] = process.argv;
const model = "hermes-agent";
const order = { text: "greet", stream: "greet", "structured-stream": "structured" }[chosen] ?? chosen;
const prompt = `Please follow order:${order}`;
const said = [{ role: "user", content: prompt }];
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const weather = (city) => `25 degrees in ${city}`;

async function schema() {
  const { z } = await load("zod");
  return z.object({ city: z.string(), degrees: z.number() });
}

async function openai() {
  const { default: OpenAI } = await load("openai");
  const api = new OpenAI();
  if (chosen === "structured") {
    const { zodResponseFormat } = await load("openai/helpers/zod");
    const response_format = zodResponseFormat(await schema(), "weather");
    const found = await api.chat.completions.parse({ model, messages: said, response_format });
    return found.choices[0].message.parsed.degrees;
  }
  if (chosen === "own-tool") {
    const tools = [{ type: "function", function: { name: "weather", parameters, function: (a) => weather(a.city), parse: JSON.parse } }];
    return await api.chat.completions.runTools({ model, messages: said, tools }).finalContent();
  }
  if (chosen === "text") {
    return (await api.chat.completions.create({ model, messages: said })).choices[0].message.content;
  }
  const stream = api.chat.completions.stream({ model, messages: said, stream_options: { include_usage: true } });
  const text = await stream.finalContent();
  return `${text} usage=${(await stream.totalUsage()).total_tokens}`;
}

async function openai_responses() {
  const { default: OpenAI } = await load("openai");
  const api = new OpenAI();
  if (chosen === "structured") {
    const { zodTextFormat } = await load("openai/helpers/zod");
    const text = { format: zodTextFormat(await schema(), "weather") };
    return (await api.responses.parse({ model, input: prompt, text })).output_parsed.degrees;
  }
  if (chosen === "own-tool") {
    const tools = [{ type: "function", name: "weather", parameters, strict: true }];
    const first = await api.responses.create({ model, input: prompt, tools });
    const call = first.output.find((item) => item.type === "function_call");
    const input = [{ type: "function_call_output", call_id: call.call_id, output: weather("Bern") }];
    return (await api.responses.create({ model, input, tools, previous_response_id: first.id })).output_text;
  }
  if (chosen === "text") return (await api.responses.create({ model, input: prompt })).output_text;
  const final = await api.responses.stream({ model, input: prompt }).finalResponse();
  if (final.error) throw new Error(final.error.message);
  return `${final.output_text} usage=${final.usage.total_tokens}`;
}

async function anthropic() {
  const { default: Anthropic } = await load("@anthropic-ai/sdk");
  const api = new Anthropic();
  const more = { model, max_tokens: 999 };
  if (chosen === "own-tool") {
    const tools = [{ name: "weather", input_schema: parameters }];
    const first = await api.messages.create({ messages: said, tools, ...more });
    const use = first.content.find((block) => block.type === "tool_use");
    const result = { type: "tool_result", tool_use_id: use.id, content: weather("Bern") };
    const messages = [...said, { role: "assistant", content: first.content }, { role: "user", content: [result] }];
    return (await api.messages.create({ messages, tools, ...more })).content[0].text;
  }
  if (chosen === "text") return (await api.messages.create({ messages: said, ...more })).content[0].text;
  const final = await api.messages.stream({ messages: said, ...more }).finalMessage();
  return `${final.content[0].text} usage=${final.usage.input_tokens + final.usage.output_tokens}`;
}

async function useAiSdk(chat) {
  const { generateText, streamText, tool, stepCountIs, Output } = await load("ai");
  if (chosen === "structured") {
    const output = Output.object({ schema: await schema() });
    return (await generateText({ model: chat, prompt, output })).output.degrees;
  }
  if (chosen === "own-tool") {
    const { z } = await load("zod");
    const inputSchema = z.object({ city: z.string() });
    const tools = { weather: tool({ inputSchema, execute: ({ city }) => weather(city) }) };
    return (await generateText({ model: chat, prompt, tools, stopWhen: stepCountIs(3) })).text;
  }
  if (chosen === "text") return (await generateText({ model: chat, prompt })).text;
  let failure;
  const result = streamText({ model: chat, prompt, onError: ({ error }) => (failure = error) });
  let text = "";
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") text += part.text;
    if (part.type === "error") failure = part.error;
  }
  if (failure) throw failure;
  return `${text} usage=${(await result.totalUsage).totalTokens}`;
}

async function ai_sdk() {
  const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
  const at = { baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY };
  const options = { name: "hermes", includeUsage: true, supportsStructuredOutputs: true };
  return await useAiSdk(createOpenAICompatible({ ...options, ...at })(model));
}

async function ai_sdk_responses() {
  const { createOpenAI } = await load("@ai-sdk/openai");
  const headers = { "X-Hermes-Tool-Items": "mcp_call" };
  const at = { baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY };
  return await useAiSdk(createOpenAI({ ...at, headers }).responses(model));
}

const clients = { openai, openai_responses, anthropic, ai_sdk, ai_sdk_responses };
try {
  console.log(String(await clients[client]()));
} catch (error) {
  console.error(`${error.name}: ${error.message}`, error.lastError?.message ?? "");
  process.exit(1);
}

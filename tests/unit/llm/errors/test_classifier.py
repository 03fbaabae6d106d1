# ruff: noqa: E501
"""One row per wording a provider was seen to use; the table must give it the right kind."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.core.errors import CODES, Failure, Kind
from hermes.llm.errors.classifier import MAX_MESSAGE, classify_error

LOOP_CODES = """auth, billing, rate_limited, overloaded, server_error, network, stalled, tls,
context_overflow, payload_too_large, bad_request, model_not_found, content_policy,
output_truncated, thinking_exhausted, empty_response, max_turns, tool_loop, unknown_tools, budget,
interrupted, config, internal"""


def test_every_kind_has_a_public_code() -> None:
    assert set(CODES) == set(Kind)
    assert set(CODES.values()) <= {c.strip() for c in LOOP_CODES.split(",")}


def say(status: int | None, message: str = "", code: str = "", param: str = "") -> Failure:
    return classify_error(status=status, code=code, message=message, param=param)


OVERFLOWS: list[tuple[int | None, str, str, int | None]] = [
    # OpenAI, Azure, and everyone who copies them
    (400, "context_length_exceeded", "This model's maximum context length is 131072 tokens. However, your messages resulted in 140214 tokens. Please reduce the length of the messages.", 131072),
    (400, "", "This model's maximum context length is 8192 tokens. However, you requested 9001 tokens (8801 in the messages, 200 in the completion). Please reduce the length of the messages or completion.", 8192),
    (400, "context_length_exceeded", "Your input exceeds the context window of this model. Please adjust your input and try again.", None),
    (400, "", "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300001 tokens. Please reduce the length of the messages.", 272000),
    (400, "string_above_max_length", "Invalid 'messages[0].content': string too long. Expected a string with maximum length 1048576, but got a string with length 2000000 instead.", None),
    (429, "rate_limit_exceeded", "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 40210. The input or output tokens must be reduced in order to run successfully.", 30000),
    (None, "context_length_exceeded", "Your input exceeds the context window of this model.", None),
    # Anthropic
    (400, "invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum", 200000),
    (400, "", "input length and `max_tokens` exceed context limit: 199900 + 20000 > 200000, decrease input length or `max_tokens` and try again", 200000),
    (400, "", "Input is too long.", None),
    (400, "", "tokens in request more than max tokens allowed", None),
    # Gemini, Vertex
    (400, "INVALID_ARGUMENT", "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", 1048575),
    (400, "", "The input token count exceeds the maximum number of tokens allowed 1048576.", 1048576),
    (400, "", "Unable to submit request because the input token count is 1200000 but model only supports up to 1048576. Reduce the input token count and try again.", 1048576),
    # Bedrock
    (400, "ValidationException", "Input is too long for requested model.", None),
    (400, "", "The model returned the following errors: prompt is too long: 210000 tokens > 200000 maximum", 200000),
    (400, "", "Too many input tokens. Max input tokens: 128000, request input token count: 140000", 128000),
    (400, "", "Malformed input request: expected maxLength: 131072, actual: 150000, please reformat your input and try again.", None),
    (400, "", "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.", None),
    # vLLM, SGLang, TGI, NIM
    (400, "BadRequestError", "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.", 4096),
    (400, "", "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens in the messages, Please reduce the length of the messages.", 4096),
    (400, "", "Input prompt (5000 tokens) is too long and exceeds limit of 4096", 4096),
    (400, "", "max_model_len is 32768 but the prompt has 40000 tokens", 32768),
    (400, "", "The input (5000 tokens) is longer than the model's context length (4096 tokens).", 4096),
    (422, "validation", "Input validation error: `inputs` must have less than 1024 tokens. Given: 1500", 1024),
    (422, "", "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 2000 `max_new_tokens`", 4096),
    (400, "", "prompt length (5000) exceeds the maximum input length (4096)", 4096),
    # llama.cpp
    (400, "exceed_context_size_error", "the request exceeds the available context size, try increasing it", None),
    (400, "", "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it", 4096),
    (500, "", "input (5000 tokens) is larger than the max context size (4096 tokens). skipping", 4096),
    (500, "", "slot unavailable: n_past >= n_ctx_slot = 4096", 4096),
    (500, "", "context shift is disabled", None),
    (400, "", "Requested tokens (5000) exceed context window of 4096", 4096),
    # Ollama, LM Studio
    (500, "", "prompt too long; exceeded max context length by 500 tokens", None),
    (400, "", "the input length exceeds the context length", None),
    (400, "", "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input", None),
    (400, "", "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.", 4096),
    # Mistral, Groq, Together, Cerebras, Fireworks, DeepSeek
    (400, "", "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", 32768),
    (400, "context_length_exceeded", "Please reduce the length of the messages or completion.", None),
    (413, "rate_limit_exceeded", "Request too large for model `llama-3.3-70b` in organization `org_1` on tokens per minute (TPM): Limit 6000, Requested 10230, please reduce your message size and try again.", 6000),
    (422, "", "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and 512 `max_new_tokens`", 8193),
    (400, "context_length_exceeded", "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192", 8192),
    (400, "", "The prompt is too long: 5000, model maximum context length: 4096", 4096),
    (400, "invalid_request_error", "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens (139500 in the messages, 500 in the completion).", 131072),
    # Kimi, Zhipu, MiniMax, Qwen, Volcengine
    (400, "", "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)", 262144),
    (400, "1210", "API 调用参数有误，请检查文档。", None),
    (400, "1261", "Prompt 超长", None),
    (400, "", "tokens 数量超过最大长度 131072", 131072),
    (400, "", "输入长度超过最大长度限制", None),
    (400, "", "invalid params, context window exceeds limit (2013)", None),
    (400, "", "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]", 98304),
    (400, "", "Total tokens of image and text exceed max message tokens", None),
    # xAI, Cohere, Copilot, OpenRouter, watsonx, SambaNova
    (400, "", "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131072),
    (400, "", "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt", 4081),
    (400, "model_max_prompt_tokens_exceeded", "prompt token count of 140000 exceeds the limit of 128000", 128000),
    (400, "", "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (139000 of text input, 1000 in the output). Please reduce the length of either one.", 131072),
    (400, "", "the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model", 4096),
    (400, "", "Requested generation length 500 is not possible! The provided prompt is 8000 tokens long, but the maximum supported sequence length is just 8192", 8192),
    # wrapped in another status
    (413, "", "Your prompt is too long for this model", None),
    (500, "", "litellm.APIConnectionError: This model's maximum context length is 32768 tokens.", 32768),
    (503, "", "upstream error: prompt is too long: 250000 tokens > 200000 maximum", 200000),
    (422, "", "context window exceeded", None),
]  # fmt: skip


@pytest.mark.parametrize(("status", "code", "message", "limit"), OVERFLOWS)
def test_f23_context_overflow(
    status: int | None, code: str, message: str, limit: int | None
) -> None:
    failure = say(status, message, code)
    assert (failure.kind, failure.limit) == (Kind.CONTEXT_OVERFLOW, limit)


CAPS: list[tuple[str, int]] = [
    ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5", 64000),
    ("max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.", 16384),
    ("Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) to 65537 (exclusive).", 65536),
    ("`max_tokens` must be less than or equal to `32768`, the maximum value for `max_tokens` is less than the `context_window` for this model", 32768),
    ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
    ("<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]", 8192),
    ("The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is lower than 4096.", 4096),
    ("Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 8192, but got 100000 instead.", 8192),
    ("'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 tokens and your request has 5000 input tokens (32000 > 32768 - 5000).", 27768),
    ("input length and `max_tokens` exceed context limit: 150000 + 64000 > 200000, decrease input length or `max_tokens` and try again", 50000),
    ("This model's maximum context length is 131072 tokens. However, you requested 140000 tokens (100000 in the messages, 8000 in the functions, 32000 in the completion).", 23072),
    ("This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (100000 of text input, 8000 of tool input, 32000 in the output). Please reduce the length of either one", 23072),
    ("Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens: 1000 tokens from the input messages and 4000 tokens for the completion.", 3096),
]  # fmt: skip


@pytest.mark.parametrize(("message", "limit"), CAPS)
def test_f24_output_cap(message: str, limit: int) -> None:
    failure = say(400, message)
    assert (failure.kind, failure.limit) == (Kind.OUTPUT_CAP, limit)


PARAMETERS: list[tuple[str, str, str]] = [
    # (param of the body, message, expected)
    ("temperature", "Unsupported parameter: 'temperature' is not supported with this model.", "temperature"),
    ("", "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.", "temperature"),
    ("max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "max_tokens"),
    ("", "Unrecognized request argument supplied: reasoning_effort", "reasoning_effort"),
    ("stream_options", "Unknown parameter: 'stream_options'.", "stream_options"),
    ("reasoning.effort", "Unsupported parameter: 'reasoning.effort' is not supported with this model.", "reasoning"),
    ("reasoning.effort", "Unsupported value: 'xhigh' is not supported with the 'gpt-5' model. Supported values are: 'minimal', 'low', 'medium', and 'high'.", "reasoning"),
    ("parallel_tool_calls", "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.", "parallel_tool_calls"),
    ("", "invalid temperature: only 1 is allowed for this model", "temperature"),
    ("", "`temperature` is deprecated for this model.", "temperature"),
    ("", "`temperature` and `top_p` cannot both be specified for this model. Please use only one.", "top_p"),
    ("", "`temperature` may only be set to 1 when thinking is enabled.", "temperature"),
    ("", "thinking: Extra inputs are not permitted", "thinking"),
    ("", "adaptive thinking is not supported on this model", "thinking"),
    ("", "tool_choice: Thinking may not be enabled when tool_choice forces tool use.", "tool_choice"),
    ("", "Invalid JSON payload received. Unknown name \"seed\" at 'generation_config': Cannot find field.", "seed"),
    ("", "Function calling is not enabled for models/gemma-3-1b-it", "tools"),
    ("", "Developer instruction is not enabled for models/gemma-3-1b-it", "systemInstruction"),
    ("", "This model doesn't support tool use.", "tools"),
    ("", "This model doesn't support the stopSequences field. Remove stopSequences and try again.", "stopSequences"),
    ("", "Malformed input request: extraneous key [top_k] is not permitted, please reformat your input and try again.", "top_k"),
    ("", "registry.ollama.ai/library/gemma:latest does not support tools", "tools"),
    ("", "\"gemma3\" does not support thinking", "thinking"),
    ("", "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set", "tools"),
    ("", "[{'type': 'extra_forbidden', 'loc': ('body', 'parallel_tool_calls'), 'msg': 'Extra inputs are not permitted', 'input': True}]", "parallel_tool_calls"),
    ("", "{\"detail\":[{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"stream_options\"],\"msg\":\"Extra inputs are not permitted\"}]}", "stream_options"),
    ("", "property 'reasoning_format' is unsupported", "reasoning_format"),
    ("", "`reasoning_effort` must be one of `none` or `default`", "reasoning_effort"),
    ("", "Model grok-4 does not support parameter presencePenalty.", "presencePenalty"),
    ("", "Argument not supported on this model: stop", "stop"),
    ("", "litellm.UnsupportedParamsError: groq does not support parameters: ['response_format'], for model=x", "response_format"),
    ("", "parameter.enable_thinking must be set to false for non-streaming calls", "enable_thinking"),
    ("", "tools param requires --jinja flag", "tools"),
    ("", "deepseek-reasoner does not support Function Calling", "tools"),
    ("", "tool_choice 'specified' is incompatible with thinking enabled", "tool_choice"),
    ("", "Tool call id was call_abcdef but must be a-z, A-Z, 0-9, with a length of 9.", "call_id"),
    ("", "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", "call_id"),
    ("", "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 64 instead.", "call_id"),
    ("messages[0].role", "Unsupported value: 'messages[0].role' does not support 'developer' with this model.", "developer"),
    ("", "Invalid schema for function 'x': array schema missing items", "schema"),
    ("", "Invalid JSON payload received. Unknown name \"additionalProperties\" at 'tools[0].function_declarations[0].parameters': Cannot find field.", "schema"),
    ("", "failed to parse grammar", "schema"),
    ("", "messages.0.content.0.cache_control: Extra inputs are not permitted", "cache_control"),
    ("", "The `reasoning_content` in the thinking mode must be passed back to the API.", "missing"),
    ("", "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2", "missing"),
    ("", "`max_tokens` must be greater than `thinking.budget_tokens`.", "thinking"),
    ("", "For this model the parameter temperature is not supported.", "temperature"),
    ("reasoning.summary", "Your organization must be verified to generate reasoning summaries. Please go to: https://platform.openai.com/settings/organization/general", "reasoning.summary"),
    ("reasoning.summary", "Unsupported parameter: 'reasoning.summary' is not supported with this model.", "reasoning.summary"),
    ("", "thinking.adaptive.display: Extra inputs are not permitted", "thinking.display"),
    ("", "thinking.display: unknown field", "thinking.display"),
    ("", "Unable to submit request because thinking_level is not supported by this model", "thinking_level"),
    ("", "Invalid value at 'generation_config.thinking_config.thinking_level'", "thinking_config"),
    ("", "Invalid value for 'temperature'", "temperature"),
    ("", "Unknown parameter: 'tools[0].strict'.", "strict"),
    ("", "tools.0.strict: Extra inputs are not permitted", "strict"),
    ("", "Unable to submit request because thinking is not supported by this model.", "thinking"),
]  # fmt: skip


@pytest.mark.parametrize(("param", "message", "expected"), PARAMETERS)
@pytest.mark.parametrize("status", [400, 422, None])
def test_f25_parameter(status: int | None, param: str, message: str, expected: str) -> None:
    failure = say(status, message, "invalid_request_error", param)
    assert (failure.kind, failure.param) == (Kind.PARAMETER, expected)


ROWS: list[tuple[Kind, int | None, str, str]] = [
    # 8: streaming
    (Kind.STREAM_UNSUPPORTED, 400, "", "Streaming is not supported for this model"),
    (Kind.STREAM_UNSUPPORTED, 400, "", "This model does not support streaming."),
    (Kind.STREAM_UNSUPPORTED, 400, "unsupported_value", "Unsupported value: 'stream' does not support true with this model. Only the default (false) value is supported."),
    (Kind.STREAM_UNSUPPORTED, 400, "unsupported_value", "Your organization must be verified to stream this model. Please go to the settings page."),
    (Kind.STREAM_UNSUPPORTED, 400, "ValidationException", "This model doesn't support tool use in streaming mode."),
    (Kind.STREAM_UNSUPPORTED, 501, "", "streaming not implemented"),
    # F27: reasoning that must match what the provider signed
    (Kind.REPLAY_REJECTED, 400, "", "messages.1.content.0: Invalid `signature` in `thinking` block"),
    (Kind.REPLAY_REJECTED, 400, "", "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is enabled, a final `assistant` message must start with a thinking block"),
    (Kind.REPLAY_REJECTED, 400, "", "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response."),
    (Kind.REPLAY_REJECTED, 400, "invalid_encrypted_content", "The encrypted content gAAA could not be verified."),
    (Kind.REPLAY_REJECTED, 400, "", "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
    (Kind.REPLAY_REJECTED, 400, "", "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'."),
    (Kind.REPLAY_REJECTED, 404, "", "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
    (Kind.REPLAY_REJECTED, 400, "", "Function call is missing a thought_signature in functionCall parts."),
    (Kind.REPLAY_REJECTED, 400, "", "Thought signature is not valid"),
    (Kind.REPLAY_REJECTED, 400, "", "messages.1.content.0.thinking.signature: Field required"),
    (Kind.REPLAY_REJECTED, 400, "", "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property 'reasoning_content' is unsupported)]"),
    # F26: order and pairing
    (Kind.MESSAGE_ORDER, 400, "", "messages.22: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each `tool_use` block must have a corresponding `tool_result` block in the next message."),
    (Kind.MESSAGE_ORDER, 400, "", "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1"),
    (Kind.MESSAGE_ORDER, 400, "", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: call_1"),
    (Kind.MESSAGE_ORDER, 400, "", "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."),
    (Kind.MESSAGE_ORDER, 400, "", "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"),
    (Kind.MESSAGE_ORDER, 400, "", "No tool output found for function call call_1."),
    (Kind.MESSAGE_ORDER, 400, "", "Invalid 'messages[2].tool_calls[0].function.name': string does not match pattern."),
    (Kind.MESSAGE_ORDER, 400, "", "GenerateContentRequest.contents[1].parts[0].function_call.name: [FIELD_INVALID] Invalid function name"),
    (Kind.MESSAGE_ORDER, 400, "", "messages.1.content.0.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"),
    (Kind.MESSAGE_ORDER, 400, "", "The value at messages.1.content.0.toolUse.name is invalid"),
    (Kind.MESSAGE_ORDER, 400, "", "No tool call found for function call output with call_id call_1."),
    (Kind.MESSAGE_ORDER, 400, "", "messages: roles must alternate between \"user\" and \"assistant\", but found multiple \"user\" roles in a row"),
    (Kind.MESSAGE_ORDER, 400, "", "messages: first message must use the \"user\" role"),
    (Kind.MESSAGE_ORDER, 400, "", "A conversation must start with a user message. Try again with a conversation that starts with a user message."),
    (Kind.MESSAGE_ORDER, 400, "", "Expected toolResult blocks at messages.2.content for the following Ids: tooluse_1"),
    (Kind.MESSAGE_ORDER, 400, "", "The number of toolResult blocks at messages.2.content exceeds the number of toolUse blocks of previous turn."),
    (Kind.MESSAGE_ORDER, 400, "", "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn."),
    (Kind.MESSAGE_ORDER, 400, "", "Please ensure that function call turn comes immediately after a user turn or after a function response turn."),
    (Kind.MESSAGE_ORDER, 400, "", "* GenerateContentRequest.contents: contents is not specified"),
    (Kind.MESSAGE_ORDER, 400, "", "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"),
    (Kind.MESSAGE_ORDER, 400, "", "Not the same number of function calls and responses"),
    (Kind.MESSAGE_ORDER, 400, "", "Unexpected role 'user' after role 'tool'"),
    (Kind.MESSAGE_ORDER, 400, "", "messages: text content blocks must be non-empty"),
    (Kind.MESSAGE_ORDER, 400, "", "messages.3: all messages must have non-empty content except for the optional final assistant message"),
    (Kind.MESSAGE_ORDER, 400, "", "This model does not support assistant message prefill. The conversation must end with a user message."),
    (Kind.MESSAGE_ORDER, 400, "", "the message at position 3 with role 'assistant' must not be empty"),
    (Kind.MESSAGE_ORDER, 400, "1214", "messages 参数非法。请检查文档。"),
    (Kind.MESSAGE_ORDER, 400, "", "invalid params, tool call result does not follow tool call (2013)"),
    (Kind.MESSAGE_ORDER, 400, "", "insufficient tool messages following tool_calls message"),
    # F30-F32
    (Kind.MODEL_NOT_FOUND, 404, "model_not_found", "The model `gpt-9` does not exist or you do not have access to it."),
    (Kind.MODEL_NOT_FOUND, 400, "model_not_found", "The requested model 'gpt-5.2-proo' does not exist."),
    (Kind.MODEL_NOT_FOUND, 404, "not_found_error", "model: claude-9"),
    (Kind.MODEL_NOT_FOUND, 404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta, or is not supported for generateContent. Call ListModels to see the list."),
    (Kind.MODEL_NOT_FOUND, 400, "ValidationException", "The provided model identifier is invalid."),
    (Kind.MODEL_NOT_FOUND, 400, "", "Invocation of model ID anthropic.claude-x with on-demand throughput isn't supported. Retry your request with the ID or ARN of an inference profile that contains this model."),
    (Kind.MODEL_NOT_FOUND, 404, "", "model 'llama9' not found, try pulling it first"),
    (Kind.MODEL_NOT_FOUND, 400, "", "foo/bar is not a valid model ID"),
    (Kind.MODEL_NOT_FOUND, 400, "invalid_request_error", "Model Not Exist"),
    (Kind.MODEL_NOT_FOUND, 404, "resource_not_found_error", "Not found the model kimi-9 or Permission denied"),
    (Kind.MODEL_NOT_FOUND, 400, "1211", "模型不存在，请检查模型代码。"),
    (Kind.MODEL_NOT_FOUND, 404, "", "No endpoints found for foo/bar."),
    (Kind.MODEL_NOT_FOUND, 404, "DeploymentNotFound", "The API deployment for this resource does not exist."),
    (Kind.MODEL_NOT_FOUND, 400, "model_decommissioned", "The model `x` has been decommissioned and is no longer supported."),
    (Kind.MODEL_NOT_FOUND, 400, "", "Invalid model: nothing"),
    (Kind.MODEL_NOT_FOUND, 404, "", "Publisher Model `projects/p/locations/l/publishers/google/models/x` was not found"),
    (Kind.WRONG_PATH, 404, "", "404 page not found"),
    (Kind.WRONG_PATH, 404, "", ""),
    (Kind.WRONG_PATH, 405, "", "Method Not Allowed"),
    (Kind.FORBIDDEN, 403, "", "Country, region, or territory not supported"),
    (Kind.FORBIDDEN, 403, "permission_error", "Your account does not have permission"),
    (Kind.FORBIDDEN, 403, "AccessDeniedException", "You don't have access to the model with the specified model ID."),
    (Kind.FORBIDDEN, 400, "FAILED_PRECONDITION", "User location is not supported for the API use."),
    (Kind.FORBIDDEN, 404, "", "No endpoints found matching your data policy (Free model publication)."),
    (Kind.FORBIDDEN, None, "AccessDeniedException", "no"),
    (Kind.CONTENT_POLICY, 400, "content_filter", "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."),
    (Kind.CONTENT_POLICY, 400, "", "Output blocked by content filtering policy"),
    (Kind.CONTENT_POLICY, 400, "invalid_prompt", "Invalid prompt: your prompt was flagged as potentially violating our usage policy."),
    (Kind.CONTENT_POLICY, 400, "data_inspection_failed", "Input data may contain inappropriate content."),
    (Kind.CONTENT_POLICY, 400, "", "Content Exists Risk"),
    (Kind.CONTENT_POLICY, 400, "1301", "系统检测到输入或生成内容可能包含不安全或敏感内容"),
    (Kind.CONTENT_POLICY, 403, "", "Your chosen model requires moderation and your input was flagged for violence"),
    (Kind.CONTENT_POLICY, 403, "", "Content violates usage guidelines."),
    (Kind.CONTENT_POLICY, 400, "", "The request was rejected because it was considered high risk"),
    # F28, F29, F38
    (Kind.AUTH, 401, "invalid_api_key", "Incorrect API key provided: sk-x."),
    (Kind.AUTH, 401, "", ""),
    (Kind.AUTH, 401, "authentication_error", "invalid x-api-key"),
    (Kind.AUTH, 400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    (Kind.AUTH, 403, "UnrecognizedClientException", "The security token included in the request is invalid."),
    (Kind.AUTH, 403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers (callers without established identity)."),
    (Kind.AUTH, 403, "", "Invalid API key"),
    (Kind.AUTH, None, "authentication_error", "no"),
    (Kind.BILLING, 402, "", ""),
    (Kind.BILLING, 402, "", "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford 1234."),
    (Kind.BILLING, 429, "insufficient_quota", "You exceeded your current quota, please check your plan and billing details."),
    (Kind.BILLING, 429, "", "You exceeded your current quota, please check your plan and billing details."),
    (Kind.BILLING, 429, "exceeded_current_quota_error", "Your account is suspended, please check your plan and billing details"),
    (Kind.BILLING, 400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."),
    (Kind.BILLING, 402, "", "Insufficient Balance"),
    (Kind.BILLING, 429, "1113", "余额不足或无可用资源包,请充值。"),
    (Kind.BILLING, 429, "billing_hard_limit_reached", "Billing hard limit has been reached"),
    (Kind.BILLING, 403, "", "Your team has either used all available credits or reached its monthly spending limit."),
    (Kind.BILLING, 400, "Arrearage", "Access denied, please make sure your account is in good standing."),
    (Kind.BILLING, 429, "usage_limit_reached", "The usage limit has been reached"),
    # F33-F39
    (Kind.RATE_LIMITED, 429, "rate_limit_exceeded", "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 5000. Please try again in 8s."),
    (Kind.RATE_LIMITED, 429, "", ""),
    (Kind.RATE_LIMITED, 429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric: generate_content_free_tier_requests, limit: 15. Please retry in 20.5s."),
    (Kind.RATE_LIMITED, 429, "ThrottlingException", "Too many tokens, please wait before trying again."),
    (Kind.RATE_LIMITED, 400, "ThrottlingException", "Too many requests, please wait before trying again."),
    (Kind.RATE_LIMITED, None, "rate_limit_error", "This request would exceed your organization's rate limit"),
    (Kind.RATE_LIMITED, None, "throttlingException", "slow"),
    (Kind.OVERLOADED, 529, "overloaded_error", "Overloaded"),
    (Kind.OVERLOADED, 503, "", "Service Unavailable"),
    (Kind.OVERLOADED, 503, "", "The model is overloaded. Please try again later."),
    (Kind.OVERLOADED, None, "overloaded_error", "Overloaded"),
    (Kind.OVERLOADED, None, "serviceUnavailableException", "x"),
    (Kind.OVERLOADED, 429, "engine_overloaded_error", "The engine is currently overloaded, please try again later"),
    (Kind.OVERLOADED, 503, "", "Loading model"),
    (Kind.OVERLOADED, 500, "", "Model mistralai/x is currently loading"),
    *[(Kind.SERVER, s, "", "upstream trouble") for s in (408, 500, 502, 504, 520, 521, 522, 523, 524)],
    (Kind.SERVER, None, "server_error", "The server had an error while processing your request."),
    (Kind.SERVER, None, "api_error", "Internal server error"),
    (Kind.SERVER, None, "modelStreamErrorException", "The model encountered an error"),
    (Kind.SERVER, None, "internalServerException", "x"),
    (Kind.SERVER, None, "502", "Provider returned error"),
    (Kind.SERVER, 400, "tool_use_failed", "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details."),
    (Kind.CONFLICT, 409, "", "Conflict"),
    (Kind.PAYLOAD_TOO_LARGE, 413, "request_too_large", "Request exceeds the maximum size"),
    (Kind.PAYLOAD_TOO_LARGE, 413, "", "<html>413 Request Entity Too Large</html>"),
    (Kind.PAYLOAD_TOO_LARGE, 400, "", "Request payload size exceeds the limit: 20971520 bytes."),
    (Kind.REDIRECT, 302, "", ""),
    (Kind.REDIRECT, 307, "", "Temporary Redirect"),
    # in band, without a status
    (Kind.NETWORK, None, "", "Network connection lost."),
    (Kind.NETWORK, None, "", "network connection lost"),
    (Kind.BAD_REQUEST, None, "invalid_request_error", "something is wrong"),
    (Kind.BAD_REQUEST, None, "validationException", "something is wrong"),
    (Kind.RATE_LIMITED, None, "429", "Provider returned error"),
    (Kind.UNKNOWN, None, "", "?"),
    # F22 and the rest
    (Kind.BAD_REQUEST, 400, "", "messages.2.content.2.document.source.type: Field required"),
    (Kind.BAD_REQUEST, 400, "", ""),
    (Kind.BAD_REQUEST, 422, "", "Unprocessable"),
    (Kind.BAD_UNICODE, 400, "", "The request body is not valid JSON: no low surrogate in string: line 1 column 5 (char 4)"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "status", "code", "message"), ROWS)
def test_kinds(kind: Kind, status: int | None, code: str, message: str) -> None:
    assert say(status, message, code).kind is kind


IMAGES: list[tuple[str, str]] = [
    ("Invalid content type. image_url is only supported by certain models.", "image"),
    ("This model does not support image input", "image"),
    ("Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, expected `text`", "image"),
    ("messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes", "bad_image"),
    ("messages.0.content.1.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels", "bad_image"),
    ("Could not process image", "bad_image"),
    ("At most 0 image(s) may be provided in one prompt.", "image"),
    ("Unable to process input image. Please retry or report.", "bad_image"),
    ("image input is not supported - hint: if this is unexpected, you may need to provide the mmproj", "image"),
    ("This model doesn't support the image content block that you provided.", "image"),
    ("No endpoints found that support image input", "image"),
    ("The image data you provided does not represent a valid image.", "bad_image"),
    ("Image URLs are only allowed for messages with role 'user', but this message with role 'tool' contains an image URL.", "tool_image"),
    ("tool messages only support text content", "tool_image"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "param"), IMAGES)
def test_images(message: str, param: str) -> None:
    failure = say(400, message, "invalid_request_error")
    assert (failure.kind, failure.param) == (Kind.MEDIA_REJECTED, param)


# -- waiting -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "message", "wait"),
    [
        ({"Retry-After": "7"}, "", 7.0),
        ({"retry-after": "1.5"}, "", 1.5),
        ({"Retry-After": "3600"}, "", 3600.0),
        ({"Retry-After": "-5"}, "", None),
        ({"Retry-After": "soon"}, "", None),
        ({"Retry-After": "nan"}, "", None),
        ({"Retry-After": "0"}, "", 0.0),
        ({"retry-after-ms": "250", "Retry-After": "9"}, "", 0.25),
        ({}, "", None),
        ({}, "Please try again in 1.5s.", 1.5),
        ({}, "Please try again in 7m12s. Visit", 432.0),
        ({}, "Please try again in 20ms.", 0.02),
        ({}, "Please retry in 20.5s.", 20.5),
        ({}, "retry after 30 seconds", 30.0),
        ({}, "try again in 2 minutes", 120.0),
        ({}, '"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37s"', 37.0),
        ({}, "nothing about time 5s", None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, "", 360.0),
        ({"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "6m0s"}, "", None),
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "20ms",
            },
            "",
            1.0,
        ),
    ],
)
def test_f37_retry_after(headers: dict[str, str], message: str, wait: float | None) -> None:
    got = classify_error(status=429, message=message, headers=headers).retry_after
    assert got == (pytest.approx(wait) if wait is not None else None)


def test_f37_retry_after_as_a_date_is_measured_by_the_servers_clock() -> None:
    base = 1_900_000_000.0
    headers = {
        "Date": formatdate(base, usegmt=True),
        "Retry-After": formatdate(base + 90, usegmt=True),
    }
    assert classify_error(status=429, headers=headers).retry_after == 90
    past = {"Retry-After": formatdate(time.time() - 90, usegmt=True)}
    assert classify_error(status=429, headers=past).retry_after is None
    soon = {"Retry-After": formatdate(time.time() + 90, usegmt=True)}
    assert classify_error(status=503, headers=soon).retry_after == pytest.approx(90, abs=3)


def test_reset_as_epoch_and_as_timestamp() -> None:
    now = {"Date": formatdate(1_900_000_000, usegmt=True), "X-RateLimit-Remaining": "0"}
    for reset in ("1900000012", "1900000012000"):
        got = classify_error(status=429, headers={**now, "X-RateLimit-Reset": reset}).retry_after
        assert got == 12
    headers = {
        **now,
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2030-03-17T17:46:52Z",
    }
    assert classify_error(status=429, headers=headers).retry_after == 12


# -- what came -----------------------------------------------------------------------------------


def test_the_provider_s_words_are_kept_and_bounded() -> None:
    failure = say(400, "  something\n is   wrong ", "odd_code")
    assert (failure.message, failure.code, failure.status) == (
        "something is wrong",
        "odd_code",
        400,
    )
    assert say(500).message == "HTTP 500"
    assert len(say(400, "x" * 100_000).message) == MAX_MESSAGE


@given(
    st.one_of(st.none(), st.integers(100, 599)),
    st.text(max_size=30),
    st.text(),
    st.text(max_size=9),
)
def test_anything_is_classified(status: int | None, code: str, message: str, param: str) -> None:
    failure = classify_error(
        status=status, code=code, message=message, param=param, headers={"Retry-After": code}
    )
    assert len(failure.message) <= MAX_MESSAGE
    assert failure.retry_after is None or failure.retry_after >= 0
    assert failure.kind is not Kind.PARAMETER or failure.param


@pytest.mark.parametrize(
    "piece", ["max_tokens ", "thinking signature ", "image ", "tool ", "a " * 9]
)
def test_long_messages_do_not_blow_up_the_patterns(piece: str) -> None:
    """Backtracking over this would take hours: the time limit of a test ends it."""
    failure = classify_error(status=400, message=piece * 20_000)
    assert len(failure.message) <= MAX_MESSAGE

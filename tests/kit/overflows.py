"""How forty endpoints say that a prompt does not fit: (status, code, message)."""

from __future__ import annotations

OVERFLOWS: list[tuple[int, str, str]] = [
    (
        400,
        "context_length_exceeded",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in "
        "9402 tokens. Please reduce the length of the messages.",
    ),
    (400, "context_length_exceeded", "Your input exceeds the context window of this model."),
    (400, "", "prompt is too long: 208310 tokens > 200000 maximum"),
    (400, "", "Prompt is too long"),
    (
        400,
        "",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    ),
    (400, "", "Input is too long for requested model."),
    (
        400,
        "",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    ),
    (
        400,
        "",
        "This endpoint's maximum context length is 131072 tokens. However, you requested about "
        "206812 tokens (198620 of text input, 8192 in the output).",
    ),
    (
        400,
        "",
        "the request exceeds the available context size. try increasing the context size or "
        "enable context shift",
    ),
    (
        400,
        "",
        "request (8310 tokens) exceeds the available context size (4096 tokens), n_ctx_slot = 4096",
    ),
    (500, "", "input is larger than the max context size. skipped, n_ctx_slot: 4096"),
    (
        400,
        "",
        "The prompt (total length 9000) is too long to fit into the model (context length 8192). "
        "Make sure that `max_model_len` is no smaller than the number of text tokens.",
    ),
    (
        400,
        "",
        "This model's maximum context length is 4096 tokens. However, you requested 5012 tokens "
        "(4500 in the messages, 512 in the completion). Please reduce the length of the messages "
        "or completion.",
    ),
    (400, "context_length_exceeded", "Please reduce the length of the messages or completion."),
    (
        400,
        "",
        "Prompt contains 40960 tokens and 0 draft tokens, too large for model with 32768 maximum "
        "context length",
    ),
    (400, "", "too many tokens: size limit exceeded by 4410 tokens. Try using shorter messages."),
    (
        422,
        "",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 "
        "`inputs` tokens and 512 `max_new_tokens`",
    ),
    (400, "", "Input validation error: `inputs` must have less than 4096 tokens. Given: 5120"),
    (400, "", "Invalid request: Your request exceeded model token limit: 131072"),
    (400, "1210", "输入内容超过最大长度"),
    (400, "1261", "Prompt 超长"),
    (400, "1210", "Prompt exceeds max length"),
    (400, "", "请求失败: 输入超过最大长度限制"),
    (400, "", "Range of input length should be [1, 129024]"),
    (
        400,
        "",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
    ),
    (400, "2013", "invalid params, context window exceeds limit (2013)"),
    (400, "", "prompt too long; exceeded max context length by 2214 tokens"),
    (500, "", "input length exceeds maximum context length"),
    (
        400,
        "",
        "Trying to keep the first 5090 tokens when context the overflows. However, the model is "
        "loaded with context length of only 4096 tokens, which is not enough.",
    ),
    (400, "", "The prompt is too long: 150231, model maximum context length: 131072"),
    (
        400,
        "context_length_exceeded",
        "Please reduce the length of the messages or completion. Current length is 9001 while "
        "limit is 8192",
    ),
    (
        400,
        "model_max_prompt_tokens_exceeded",
        "prompt token count of 70211 exceeds the limit of 64000",
    ),
    (
        400,
        "",
        "Input is too long for this model, shorten your input or use different parameters",
    ),
    (400, "", "Input length 9210 exceeds the maximum length 8192"),
    (400, "", "Requested token count exceeds the model's maximum context length of 32768 tokens."),
    (400, "", "tokens in request more than max tokens allowed"),
    (500, "", "Context size has been exceeded."),
    (503, "", "upstream error 400: maximum context length exceeded"),
    (
        400,
        "",
        "input length and `max_tokens` exceed context limit: 199500 + 8192 > 200000, decrease "
        "input length or `max_tokens` and try again",
    ),
    (400, "string_above_max_length", "Input tokens exceed the configured limit of 272000 tokens."),
    (400, "", "model_context_window_exceeded"),
]

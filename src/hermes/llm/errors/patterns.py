"""How providers word their refusals: regular expressions over text without quotes, from the lists
in `patterns.txt`."""

from pathlib import Path

from hermes.core.text import WordLists

N = r"(?P<limit>\d[\d,]*)"
MAX_TOKENS = r"(?:max_?(?:new_|completion_|output_)?_?tokens|maxOutputTokens|max_tokens_to_sample)"
FIELDS = (
    "temperature|top_p|top_k|topP|topK|min_p|tool_choice|toolConfig|parallel_tool_calls"
    "|reasoning_effort|reasoning_format|reasoning_split|reasoning|thinking_budget|thinkingConfig"
    "|thinkingLevel|thinkingBudget|thinking_level|thinking_config|enable_thinking|thinking|think"
    "|effort|output_config|verbosity"
    "|stream_options|include_usage|max_completion_tokens|max_output_tokens|max_tokens"
    "|maxOutputTokens|response_format|stopSequences|stop_sequences|stop|seed|logprobs|store"
    "|metadata|service_tier|prompt_cache_key|prompt_cache_retention|cache_control|cachePoint"
    "|presence_penalty|frequency_penalty|presencePenalty|frequencyPenalty|logit_bias"
    "|truncation|strict|context_management|anthropic-beta|systemInstruction|instructions"
)
_STAND_INS = {
    "<N>": N,
    "<MAX_TOKENS>": MAX_TOKENS,
    "<FIELD>": rf"(?P<param>{FIELDS})",
    "<PATH>": r"(?P<param>[A-Za-z_][\w.\[\]-]*)",
}
PARTS = r"(\d[\d,]*) (?:tokens )?(?:in|of|for|from) (?:the |your )?([a-z]+)"
"""`(5000 in the messages, 800 in the completion)`: tells whether a smaller answer would fit."""
_LISTS = WordLists(Path(__file__).with_suffix(".txt"))


def _read_list(name: str) -> tuple[str, ...]:
    text = "\n".join(_LISTS.get_lines(name))
    for stand_in, pattern in _STAND_INS.items():
        text = text.replace(stand_in, pattern)
    return tuple(text.split("\n"))


def _read_any(name: str) -> str:
    """One pattern that matches whatever one of the list matches."""
    return "|".join(_read_list(name))


OUTPUT = _read_list("output")
CONTEXT = _read_list("context")
CONTEXT_LIMITS = _read_list("context limits")
"""Where a message about a long prompt states the context length."""
ROOM = _read_list("room")
PAYLOAD = _read_any("payload")
BAD_UNICODE = _read_any("bad unicode")
BAD_ID = _read_any("bad id")
IMAGE_IN_TOOL = _read_any("image in tool")
BAD_IMAGE = _read_any("bad image")
"""About the images of this conversation, not about what the model supports."""
IMAGE = _read_any("image")
REPLAY = _read_any("replay")
REPLAY_MISSING = _read_any("replay missing")
ORDER = _read_any("order")
STREAM = _read_any("stream")
FORBIDDEN = _read_any("forbidden")
POLICY = _read_any("policy")
NO_CREDIT = _read_any("no credit")
BAD_KEY = _read_any("bad key")
NO_MODEL = _read_any("no model")
PARAMETER = _read_list("parameter")
SCHEMA = _read_any("schema")
NO_TOOLS = _read_any("no tools")
NO_INSTRUCTION = _read_any("no instruction")
NO_DEVELOPER = _read_any("no developer")
NO_SUMMARY = _read_any("no summary")
NO_THINKING = _read_any("no thinking")
OVERLOADED = _read_any("overloaded")
RATE_LIMITED = _read_any("rate limited")
NETWORK = _read_any("network")
SERVER = _read_any("server")

"""Side requests: titles, tags, suggestions and summaries that programs ask for by themselves."""

from hermes.core.message import Message
from hermes.server.requests.client_tools import NO_TOOLS, ClientTools

_PROMPTS = (
    "generate a title for this conversation",
    "generate a concise, 3-5 word title",
    "create a concise, 3-5 word",
    "provide a concise, 5-word-or-less title",
    "please write a 5-10 word title",
    "write a 5-10 word title",
    "summarize this coding conversation in under 50 characters",
    "given the following... please reply with a title for the chat",
    "analyze if this message indicates a new conversation topic",
)
"""How the prompts of side requests begin, in lower case."""
_INSTRUCTIONS = (
    "you are a title generator",
    "you generate titles",
    "generate a concise, sentence-case title",
    "analyze if this message indicates a new conversation topic",
    "summarize this coding conversation in under 50 characters",
    "you are an assistant that generates short, concise titles",
    "you are a context summarization agent",
    "*briefly* summarize this partial conversation",
)
_SUMMARIES = (
    "your task is to create a detailed summary of the conversation",
    "your task is to create a detailed summary of the recent portion",
    "your task is to create a detailed summary of this conversation",
    "you are performing a context checkpoint compaction",
)
"""One of these is in the prompt of a program that shortens its own history."""
_TASK_MARKS = ("chat history", "<chat_history>", "autocompletion", "emoji", "search quer")
"""One of these is in every task of Open WebUI, whose prompts begin with "### Task:"."""


def drop_side_tools(
    tools: ClientTools | None, instructions: str, prompt: Message
) -> ClientTools | None:
    """The tools of a request; none at all if the server would run some of them for a side
    request."""
    runs_tools = tools is None or tools.with_own
    return NO_TOOLS if runs_tools and is_side_request(instructions, prompt) else tools


def is_side_request(instructions: str, prompt: Message) -> bool:
    """Whether this is a known side request, which needs no tools."""
    text = prompt.text[:4000].strip().lower()
    if text.startswith("### task:"):
        return any(mark in prompt.text.lower() for mark in _TASK_MARKS)
    system = instructions[:20_000].lower()
    return (
        text.startswith(_PROMPTS)
        or any(mark in text for mark in _SUMMARIES)
        or any(mark in system for mark in _INSTRUCTIONS)
    )

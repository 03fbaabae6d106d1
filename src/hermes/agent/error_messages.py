"""Failures in words for the user: what failed, whether anything was lost, what to do."""

from difflib import get_close_matches
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.agent.turn import ModelClient
from hermes.core.errors import Failure, Kind

LIMIT = 300
KEPT = "Nothing was lost."
TRUNCATED = "Response truncated due to output length limit"
THINKING_EXHAUSTED = (
    "Thinking Budget Exhausted: the model used its whole output limit for reasoning and wrote no "
    "answer. Your message is kept. Lower the effort (/reasoning low; /thinkon turns thinking back "
    "on) or set a higher model.max_tokens, then ask again."
)


class FailureText(Struct, frozen=True):
    """A failure in words. `cause` is its beginning, without what was kept and what to do; empty
    where `error` is right for everybody."""

    error: str
    cause: str = ""


def limit_length(text: str) -> str:
    """One line of at most 300 characters."""
    text = " ".join(text.split())
    return text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"


def describe_failure(
    failure: Failure, provider: ModelClient, near: tuple[str, ...] = ()
) -> FailureText:
    target = provider.target
    host = urlsplit(provider.endpoint.base_url).netloc.rpartition("@")[2] or target.provider
    template = _SENTENCES.get(failure.kind, _DEFAULT)
    if failure.kind is Kind.AUTH and provider.credentials.is_login:
        template = _LOGIN
    elif failure.kind is Kind.AUTH and not provider.credentials.key_source:
        template = _NO_KEY
    fixed = template.format(
        provider=target.provider,
        model=target.model,
        host=host,
        key=provider.credentials.key_source or "the key of " + target.provider,
        wait=_format_duration(failure.retry_after),
        near=f" Did you mean {' or '.join(near)}?" if near else "",
        kept=KEPT,
        said="{said}",
    )
    room = LIMIT - len(fixed) + len("{said}") - len(": ")
    said = " ".join(failure.message.split()).removeprefix(f"cannot reach {host}: ").rstrip(".")
    if not any(map(str.isalnum, said)):  # an empty object, for example
        said = ""
    if len(said) > room:
        said = said[: max(0, room - 1)] + "…"
    error = limit_length(fixed.replace("{said}", f": {said}" if said else ""))
    cause, kept, _ = error.partition(f" {KEPT}")
    return FailureText(error, cause if kept else "")


async def find_similar_models(provider: ModelClient) -> tuple[str, ...]:
    """Models of the endpoint whose names resemble the unknown one, which some endpoints list too,
    for those who may use it."""
    unknown = provider.target.model
    names = [name for name in await provider.listing.list_models() if name != unknown]
    return tuple(get_close_matches(unknown, names, n=3, cutoff=0.6))


def _format_duration(seconds: float | None) -> str:
    if seconds is None:
        return "a while"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


_DEFAULT = "The call to {provider} failed{said}. {kept} Send the message again."
_LOGIN = (
    "{provider} does not accept the login any more{said}. {kept} Run hermes auth login {provider} "
    "and send the message again."
)
_NO_KEY = (
    "{provider} wants a key, and none is set for it{said}. {kept} Put one into a variable "
    "(environment or .env), name that in model.api_key_env and send the message again."
)
_SENTENCES: dict[Kind, str] = {
    Kind.AUTH: "{provider} rejected the key from {key}{said}. {kept} Put a valid key in {key} "
    "(environment or .env) and send the message again.",
    Kind.FORBIDDEN: "{provider} refused access to {model} for the key from {key}{said}. {kept} "
    "Check the plan, region and permissions of that key, or choose another model.",
    Kind.BILLING: "Your account at {provider} ({key}) is out of credit or quota{said}. "
    "{kept} Check the balance there, or use another key or model.",
    Kind.RATE_LIMITED: "{provider} limits the rate of requests (retry after {wait}){said}. {kept} "
    "Send the message again after that.",
    Kind.OVERLOADED: "{provider} is still overloaded after several tries{said}. {kept} Send the "
    "message again later, or set fallback_providers.",
    Kind.SERVER: "{provider} failed on its side in several tries{said}. {kept} Send the "
    "message again later, or set fallback_providers.",
    Kind.NETWORK: "cannot reach {host} after several tries{said}. {kept} Check the network "
    "and model.base_url, then send the message again.",
    Kind.STALLED: "{host} stopped answering in several tries{said}. {kept} Send the "
    "message again; slow models may need a larger stale_timeout_seconds.",
    Kind.TLS: "The TLS certificate of {host} cannot be trusted{said}. {kept} Nothing was sent. "
    "Check the address, the clock and the proxy, or set SSL_CERT_FILE.",
    Kind.REDIRECT: "{host} redirects to another address, to which no key was sent{said}. {kept} "
    "Set model.base_url to the final address.",
    Kind.NOT_API: "{host} answered like a web page or a proxy, not like an API{said}. {kept} Check "
    "model.base_url (most end in /v1) and the network.",
    Kind.CONTEXT_OVERFLOW: "The conversation is too long for {model}{said}. {kept} Start a new "
    "session, or choose a model with a larger context.",
    Kind.PAYLOAD_TOO_LARGE: "The request is too large for {host}{said}. {kept} Send smaller "
    "images or start a new session.",
    Kind.MODEL_NOT_FOUND: "{provider} does not know the model {model}{said}.{near} {kept} Choose "
    "another with --model or model.default.",
    Kind.WRONG_PATH: "{host} has no such API path (404){said}. {kept} Check model.base_url: most "
    "end in /v1.",
    Kind.CONTENT_POLICY: "{provider} refused this for its content policy{said}. {kept} Word the "
    "request differently or use another model.",
    Kind.EMPTY: "{model} returned an empty answer several times. {kept} Send the message again or "
    "choose another model.",
    Kind.NO_TERMINAL: "{provider} did not emit a terminal response in several tries. "
    "{kept} Send the message again.",
    Kind.ANSWER_TOO_LARGE: "The answer of {model} exceeded the size cap and was cut; what arrived "
    "is kept. Ask for a shorter answer.",
    Kind.TRUNCATED_CALL: TRUNCATED
    + "; the cut tool call was not run, everything before it is kept. Raise model.max_tokens or "
    "ask for smaller steps.",
    Kind.UNREADABLE_CALL: "{model} wrote a tool call that cannot be read. {kept} Send the message "
    "again or choose another model.",
    Kind.BAD_REQUEST: "{provider} rejected the request{said}. {kept} If it names a setting, "
    "change it; otherwise try another model.",
}

"""What people can do with a memory by a word: the same for the program and for /memory."""

from collections.abc import Sequence

from hermes.core.errors import ConfigError
from hermes.core.store import Fact, FactTarget
from hermes.memory.notebook import Change, Notebook, Outcome
from hermes.memory.page import Author, MemoryRefused

VERBS = ("list", "search", "add", "remove", "restore", "pending", "approve", "reject", "status")
_SEARCH_LIMIT = 50


async def run_verb(
    book: Notebook, verb: str, words: Sequence[str], target: FactTarget | None
) -> list[str]:
    """The lines to show. ConfigError when it cannot be done; nothing was changed then."""
    try:
        return await _run_verb(book, verb, words, target)
    except MemoryRefused as refusal:
        raise ConfigError("\n".join((str(refusal), *refusal.entries))) from None


async def _run_verb(
    book: Notebook, verb: str, words: Sequence[str], target: FactTarget | None
) -> list[str]:
    match verb:
        case "list":
            return [format_line(fact) for fact in await book.list_facts(target)]
        case "search":
            found = await book.search_facts(" ".join(words), _SEARCH_LIMIT, target)
            return [format_line(fact) for fact in found]
        case "add":
            change = Change("add", target or "memory", " ".join(words))
            outcomes = await book.apply_changes((change,), Author())
            return [_describe_kept(outcome) for outcome in outcomes]
        case "remove":
            facts = [await book.remove_fact(parse_id(word)) for word in words]
            return [f"forgot {fact.name}" for fact in facts]
        case "restore":
            return [_describe_kept(await book.restore_fact(parse_id(word))) for word in words]
        case "pending":
            return [format_pending(fact) for fact in await book.list_pending(target)]
        case "approve":
            numbers = [fact.id for fact in await book.list_pending(target)]
            if list(words) != ["all"]:
                numbers = [parse_id(word) for word in words]
            return [_describe_kept(await book.approve_fact(number)) for number in numbers]
        case "reject":
            rejected = [await book.reject_fact(parse_id(word)) for word in words]
            return [f"rejected {fact.name}" for fact in rejected]
        case "status":
            return [f"{name}: {value}" for name, value in (await measure_memory(book)).items()]
    raise ConfigError(f"There is no {verb}; use one of {', '.join(VERBS)}.")


async def measure_memory(book: Notebook) -> dict[str, str | int]:
    """How full the notes of a scope are, and how many facts only search finds or wait."""
    stored = [fact for fact in await book.list_facts() if fact.state == "stored"]
    pending = len(await book.list_pending())
    usage = {str(target): used for target, used in (await book.measure_usage()).items()}
    return {**usage, "stored": len(stored), "pending": pending}


def parse_id(word: str) -> int:
    number = word.removeprefix("f")
    if not number.isascii() or not number.isdigit() or len(number) > 15:
        raise ConfigError(f"{word!r} is not the id of a fact, such as f12.")
    return int(number)


def format_line(fact: Fact) -> str:
    return f"{fact.name}  {fact.target}  {fact.state}  {' '.join(fact.text.split())}"


def format_pending(fact: Fact) -> str:
    """A pending change: its id, where it goes, the session it comes from, its text."""
    text = " ".join(fact.text.split())
    what = {"add": "", "replace": "replace: ", "remove": "remove: "}[fact.action]
    return f"{fact.name}  {fact.target}  {fact.session or '-'}  {what}{text}"


def _describe_kept(outcome: Outcome) -> str:
    assert outcome.fact is not None
    if outcome.status == "removed":
        return f"forgot {outcome.fact.name}"
    return f"kept {outcome.fact.name} ({outcome.change.target}, {outcome.usage})"

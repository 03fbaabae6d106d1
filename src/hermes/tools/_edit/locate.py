"""Finds a block of lines in a file: exactly, else ignoring white space, else approximately."""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from unicodedata import normalize

from msgspec import Struct

MIN_BLOCK_SCORE = 0.85
"""How similar a block must be to be taken for the one that was meant."""
MIN_LINE_SCORE = 0.9
MIN_LEAD = 0.05
"""How much better its score must be than that of the next best."""
MIN_REPLACED_SIMILARITY = 0.7
"""How similar each line must be that is going to be replaced."""
_TIME_LIMIT = 1.0
_MAX_COMPARED_CHARS = 1000
"""Longer lines are similar only when they are equal."""
_MAX_CANDIDATES = 24
MIN_SIMILARITY = 0.5
"""How similar two lines must be to be paired."""
PLAIN_CHARACTERS: dict[int, str] = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′`´", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", ""),
        "…": "...",
    }
)


class BlockMatch(Struct, frozen=True):
    """Lines `start` to `stop` (exclusive) are the block; `pairs[i]` is the file's line for line i
    of the block, None when there is none."""

    start: int
    stop: int
    pairs: tuple[int | None, ...]
    score: float = 1.0


def collapse_spaces(row: str) -> str:
    return " ".join(row.split())


def _normalize_row(row: str) -> str:
    plain = row if row.isascii() else normalize("NFC", row)
    return collapse_spaces(plain.translate(PLAIN_CHARACTERS))


MATCH_LEVELS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("", str),
    ("ignoring trailing white space", str.rstrip),
    ("ignoring indentation", str.strip),
    ("ignoring white space", collapse_spaces),
    ("ignoring the style of quotes and dashes", _normalize_row),
)


def find_block(rows: Sequence[str], old: Sequence[str]) -> tuple[str, list[BlockMatch]]:
    """How the block was recognised, and all its matches, which do not overlap."""
    for how, form in MATCH_LEVELS:
        wanted = [form(row) for row in old]
        if how and not any(wanted):
            break
        if places := _find_equal([form(row) for row in rows], wanted):
            size = len(wanted)
            return how, [BlockMatch(at, at + size, tuple(range(at, at + size))) for at in places]
    return "", []


def _find_equal(rows: list[str], wanted: list[str]) -> list[int]:
    pivot = max(range(len(wanted)), key=lambda i: len(wanted[i]), default=0)
    size = len(wanted)
    places: list[int] = []
    at = pivot - 1
    while wanted:
        try:
            at = rows.index(wanted[pivot], at + 1)
        except ValueError:
            break
        start = at - pivot
        free = not places or start >= places[-1] + size
        if free and rows[start : start + size] == wanted:
            places.append(start)
    return places


class _RowSimilarity:
    """How similar two lines are, from 0 to 1, or 0 below `least`. Each pair is compared once."""

    def __init__(self, least: float = MIN_SIMILARITY) -> None:
        self._least = least
        self._matchers: dict[str, SequenceMatcher[str]] = {}
        self._scores: dict[tuple[str, str], float] = {}

    def measure(self, one: str, other: str) -> float:
        if one == other:
            return 1.0
        if max(len(one), len(other)) > _MAX_COMPARED_CHARS:
            return 0.0
        score = self._scores.get((one, other))
        if score is None:
            score = self._scores[one, other] = self._compare(one, other)
        return score

    def _compare(self, one: str, other: str) -> float:
        matcher = self._matchers.get(one)
        if matcher is None:
            matcher = self._matchers[one] = SequenceMatcher(None, "", one, autojunk=False)
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() < self._least or matcher.quick_ratio() < self._least:
            return 0.0
        ratio = matcher.ratio()
        return ratio if ratio >= self._least else 0.0


def find_nearest(rows: Sequence[str], old: Sequence[str]) -> list[BlockMatch]:
    """The windows most similar to the block, best first, none overlapping a better one."""
    deadline = time.monotonic() + _TIME_LIMIT
    forms = [_normalize_row(row) for row in rows]
    wanted = [_normalize_row(row) for row in old]
    if not any(wanted):
        return []
    scored: list[BlockMatch] = []
    similarity = _RowSimilarity()
    for start in _choose_starts(forms, wanted, similarity, deadline):
        scored.append(_find_best_window(forms, wanted, start, similarity))
        if time.monotonic() > deadline:
            break
    scored.sort(key=lambda f: (-f.score, f.start, f.stop))
    kept: list[BlockMatch] = []
    for found in scored:
        if found.score > 0 and all(f.stop <= found.start or found.stop <= f.start for f in kept):
            kept.append(found)
    return kept


def pick_clear_match(found: Sequence[BlockMatch], size: int) -> BlockMatch | None:
    """The best match, if it is good enough and clearly better than the second."""
    if not found or found[0].score < (MIN_BLOCK_SCORE if size > 1 else MIN_LINE_SCORE):
        return None
    clear = len(found) == 1 or found[0].score - found[1].score >= MIN_LEAD
    return found[0] if clear else None


def _choose_starts(
    rows: list[str], wanted: list[str], similarity: _RowSimilarity, deadline: float
) -> list[int]:
    """Where the block may begin: where many of its lines are, or one similar to its longest."""
    where: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        where.setdefault(row, []).append(at)
    votes: Counter[int] = Counter()
    for i, row in enumerate(wanted):
        places = where.get(row, ()) if row else ()
        for at in places if len(places) <= 200 else ():
            votes[at - i] += len(row)
    if sum(weight for _, weight in votes.most_common(1)) * 3 < sum(map(len, wanted)):
        pivot = max(range(len(wanted)), key=lambda i: len(wanted[i]))
        for score, at in heapq.nlargest(6, _score_rows(rows, wanted[pivot], similarity, deadline)):
            votes[at - pivot] += int(score * len(wanted[pivot]))
    return [max(at, 0) for at, _ in votes.most_common(_MAX_CANDIDATES)]


def _score_rows(
    rows: list[str], wanted: str, similarity: _RowSimilarity, deadline: float
) -> Iterator[tuple[float, int]]:
    for at, row in enumerate(rows):
        if row and (score := similarity.measure(wanted, row)):
            yield score, at
        if at % 256 == 0 and time.monotonic() > deadline:
            return


def _find_best_window(
    rows: list[str], wanted: list[str], start: int, similarity: _RowSimilarity
) -> BlockMatch:
    size = len(wanted)
    slack = min(2, size // 3)
    stops = {min(start + size + more, len(rows)) for more in range(-slack, slack + 1)}
    windows = [
        _score_window(rows, wanted, (start, stop), similarity)
        for stop in sorted(stops)
        if stop > start
    ]
    return max(
        windows, key=lambda f: f.score, default=BlockMatch(start, start, (None,) * size, 0.0)
    )


def _score_window(
    rows: list[str], wanted: list[str], place: tuple[int, int], similarity: _RowSimilarity
) -> BlockMatch:
    start, stop = place
    window = rows[start:stop]
    pairs: list[int | None] = [None] * len(wanted)
    reached = 0.0
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, wanted, window, autojunk=False).get_opcodes():
        if tag == "equal":
            for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                pairs[i] = start + j
                reached += len(wanted[i]) + 1
        elif tag == "replace":
            for i, j, score in _pair_rows(wanted[i1:i2], window[j1:j2], similarity):
                pairs[i1 + i] = start + j1 + j
                reached += score * (len(wanted[i1 + i]) + 1)
    used = {j for j in pairs if j is not None}
    extra = [rows[j] for j in range(start, stop) if j not in used]
    total = sum(len(row) + 1 for row in (*wanted, *extra))
    return BlockMatch(start, stop, tuple(pairs), reached / total)


def _pair_rows(
    mine: list[str], theirs: list[str], similarity: _RowSimilarity
) -> Iterator[tuple[int, int, float]]:
    """Pairs each line with the next one that is similar to it."""
    at = 0
    for i, row in enumerate(mine):
        for j in range(at, len(theirs)):
            if score := similarity.measure(row, theirs[j]):
                yield i, j, score
                at = j + 1
                break


def measure_similarity(one: str, other: str) -> float:
    return _RowSimilarity(0.0).measure(_normalize_row(one), _normalize_row(other))

"""Finds a block of lines in a file: exactly, else whatever its white space, else nearly."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from unicodedata import normalize

from msgspec import Struct

MIN_BLOCK_SCORE = 0.85
"""How alike a block must be to be taken for the one that was meant; for one line, a bit more."""
MIN_LINE_SCORE = 0.9
MIN_LEAD = 0.05
"""How much better it must be than the next best."""
MIN_REPLACED_SIMILARITY = 0.7
"""How alike each line must be that is going to be replaced."""
_TIME_LIMIT = 1.0
_MAX_COMPARED_CHARS = 1000
"""Characters of a line beyond which only equal lines are alike."""
_MAX_CANDIDATES = 24
MIN_SIMILARITY = 0.5
"""How alike lines are that stand for one another."""
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
    """Lines `start` to `stop` (exclusive) are the block; `pairs[i]` is the line that line i of
    the block stands for, None when there is none."""

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
    """How the block was recognised, and every place (places do not overlap)."""
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


def find_nearest(rows: Sequence[str], old: Sequence[str]) -> list[BlockMatch]:
    """The places most like the block, best first, none overlapping a better one."""
    deadline = time.monotonic() + _TIME_LIMIT
    forms = [_normalize_row(row) for row in rows]
    wanted = [_normalize_row(row) for row in old]
    if not any(wanted):
        return []
    scored: list[BlockMatch] = []
    alike = _SimilarityCache()
    for start in _choose_starts(forms, wanted, deadline):
        scored.append(_find_best_window(forms, wanted, start, alike))
        if time.monotonic() > deadline:
            break
    scored.sort(key=lambda f: (-f.score, f.start, f.stop))
    kept: list[BlockMatch] = []
    for found in scored:
        if found.score > 0 and all(f.stop <= found.start or found.stop <= f.start for f in kept):
            kept.append(found)
    return kept


def pick_clear_match(found: Sequence[BlockMatch], size: int) -> BlockMatch | None:
    """The first, if it is near enough and clearly nearer than the second."""
    if not found or found[0].score < (MIN_BLOCK_SCORE if size > 1 else MIN_LINE_SCORE):
        return None
    clear = len(found) == 1 or found[0].score - found[1].score >= MIN_LEAD
    return found[0] if clear else None


def _choose_starts(rows: list[str], wanted: list[str], deadline: float) -> list[int]:
    """Where the block may begin: where many of its lines are, or its longest line nearly is."""
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
        for score, at in _find_similar_rows(rows, wanted[pivot], deadline):
            votes[at - pivot] += int(score * len(wanted[pivot]))
    return [max(at, 0) for at, _ in votes.most_common(_MAX_CANDIDATES)]


def _find_similar_rows(rows: list[str], wanted: str, deadline: float) -> list[tuple[float, int]]:
    return heapq.nlargest(6, _score_rows(rows, wanted, deadline))


def _score_rows(rows: list[str], wanted: str, deadline: float) -> Iterator[tuple[float, int]]:
    alike = _RowSimilarity(wanted)
    for at, row in enumerate(rows):
        if row and (score := alike(row, least=MIN_SIMILARITY)):
            yield score, at
        if at % 256 == 0 and time.monotonic() > deadline:
            return


class _RowSimilarity:
    """How alike other lines are to one line, from 0 to 1."""

    def __init__(self, row: str) -> None:
        from difflib import SequenceMatcher

        self._row = row
        self._matcher = SequenceMatcher(
            None, "", row if len(row) <= _MAX_COMPARED_CHARS else "", autojunk=False
        )

    def __call__(self, other: str, *, least: float) -> float:
        if self._row == other:
            return 1.0
        if max(len(self._row), len(other)) > _MAX_COMPARED_CHARS:
            return 0.0
        matcher = self._matcher
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
            return 0.0
        ratio = matcher.ratio()
        return ratio if ratio >= least else 0.0


class _SimilarityCache:
    """Of any two lines, each pair compared once: windows overlap."""

    def __init__(self) -> None:
        self._one: dict[str, _RowSimilarity] = {}
        self._known: dict[tuple[str, str], float] = {}

    def __call__(self, one: str, other: str) -> float:
        known = self._known.get((one, other))
        if known is None:
            likeness = self._one.get(one)
            if likeness is None:
                likeness = self._one[one] = _RowSimilarity(one)
            known = self._known[one, other] = likeness(other, least=MIN_SIMILARITY)
        return known


def _find_best_window(
    rows: list[str], wanted: list[str], start: int, alike: _SimilarityCache
) -> BlockMatch:
    size = len(wanted)
    slack = min(2, size // 3)
    stops = {min(start + size + more, len(rows)) for more in range(-slack, slack + 1)}
    windows = [
        _score_window(rows, wanted, (start, stop), alike) for stop in sorted(stops) if stop > start
    ]
    return max(
        windows, key=lambda f: f.score, default=BlockMatch(start, start, (None,) * size, 0.0)
    )


def _score_window(
    rows: list[str], wanted: list[str], place: tuple[int, int], alike: _SimilarityCache
) -> BlockMatch:
    from difflib import SequenceMatcher

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
            for i, j, score in _pair_rows(wanted[i1:i2], window[j1:j2], alike):
                pairs[i1 + i] = start + j1 + j
                reached += score * (len(wanted[i1 + i]) + 1)
    used = {j for j in pairs if j is not None}
    extra = [rows[j] for j in range(start, stop) if j not in used]
    whole = sum(len(row) + 1 for row in (*wanted, *extra))
    return BlockMatch(start, stop, tuple(pairs), reached / whole)


def _pair_rows(
    mine: list[str], theirs: list[str], alike: _SimilarityCache
) -> Iterator[tuple[int, int, float]]:
    """Lines that differ, each with the next line that is more alike than not."""
    at = 0
    for i, row in enumerate(mine):
        for j in range(at, len(theirs)):
            if score := alike(row, theirs[j]):
                yield i, j, score
                at = j + 1
                break


def measure_similarity(one: str, other: str) -> float:
    return _RowSimilarity(_normalize_row(one))(_normalize_row(other), least=0.0)

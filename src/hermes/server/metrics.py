"""What the server has done so far, counted; told in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from hermes.core.events import TurnResult

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: dict[str, list[int]] = {}
        self.total: Counter[str] = Counter()
        self.tokens: Counter[tuple[str, str]] = Counter()
        self.cost: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()

    def request(self, route: str, status: int, seconds: float) -> None:
        self.requests[route, status] += 1
        counts = self.seconds.get(route)
        if counts is None:
            counts = self.seconds[route] = [0] * (len(BUCKETS) + 1)
        counts[bisect_left(BUCKETS, seconds)] += 1
        self.total[route] += seconds  # type: ignore[assignment]

    def turn(self, result: TurnResult) -> None:
        model = result.target.model if result.target else ""
        usage = result.usage
        for kind, count in (
            ("input", usage.input),
            ("output", usage.output),
            ("cache_read", usage.cache_read),
            ("cache_write", usage.cache_write),
            ("reasoning", usage.reasoning),
        ):
            self.tokens[model, kind] += count
        if usage.cost is not None:
            self.cost[model] += usage.cost  # type: ignore[assignment]
        ending = (
            "completed"
            if result.completed
            else "interrupted"
            if result.interrupted
            else "partial"
            if result.partial
            else "failed"
        )
        self.turns[ending] += 1
        if result.error_code and not result.interrupted:
            self.errors[result.error_code] += 1

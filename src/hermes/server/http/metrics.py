"""Counters of the server, rendered in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator

from hermes.core.events import TurnResult

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Durations:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class Metrics:
    """Counting takes constant time; sums are made when they are rendered."""

    def __init__(self) -> None:
        self._requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._durations: defaultdict[str, _Durations] = defaultdict(_Durations)
        self._tokens: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._cost: defaultdict[str, float] = defaultdict(float)
        self._errors: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._turns: defaultdict[str, int] = defaultdict(int)
        self._calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._gauges: dict[str, Callable[[], float]] = {}

    def add_gauge(self, name: str, read: Callable[[], float]) -> None:
        self._gauges[name] = read

    def count_request(self, route: str, status: int, seconds: float) -> None:
        self._requests[route, status] += 1
        self._durations[route].add(seconds)

    def count_turn(self, result: TurnResult) -> None:
        target = result.target
        model = target.model if target else ""
        usage = result.usage
        self._tokens[model, "input"] += usage.input
        self._tokens[model, "output"] += usage.output
        self._tokens[model, "cache_read"] += usage.cache_read
        self._tokens[model, "cache_write"] += usage.cache_write
        self._tokens[model, "reasoning"] += usage.reasoning
        if usage.cost is not None:
            self._cost[model] += usage.cost
        self._turns[result.status] += 1
        for message in result.messages:
            if message.role == "assistant":
                hit = message.usage is not None and message.usage.cache_read > 0
                self._calls[model, "hit" if hit else "miss"] += 1
        if result.error_code and result.status != "interrupted":
            self._errors[target.provider if target else "", result.error_code] += 1

    def render(self) -> str:
        return "\n".join([*self._render_lines(), ""])

    def _render_lines(self) -> Iterator[str]:
        yield from _render_head("requests_total", "counter", "Requests by route and status.")
        for (route, status), count in sorted(self._requests.items()):
            yield _render_line("requests_total", count, route=route, status=str(status))
        yield from _render_head("request_seconds", "histogram", "How long requests took.")
        for route, durations in sorted(self._durations.items()):
            yield from _render_histogram(route, durations)
        yield from _render_head("turns_total", "counter", "Turns by how they ended.")
        for ending, count in sorted(self._turns.items()):
            yield _render_line("turns_total", count, ending=ending)
        yield from _render_head("tokens_total", "counter", "Tokens by model and kind.")
        for (model, kind), count in sorted(self._tokens.items()):
            yield _render_line("tokens_total", count, model=model, kind=kind)
        yield from _render_head(
            "cost_usd_total", "counter", "What the providers charged, where known."
        )
        for model, cost in sorted(self._cost.items()):
            yield _render_line("cost_usd_total", cost, model=model)
        yield from _render_head("model_calls_total", "counter", "Calls by model and prompt cache.")
        for (model, cache), count in sorted(self._calls.items()):
            yield _render_line("model_calls_total", count, model=model, cache=cache)
        yield from _render_head(
            "provider_errors_total", "counter", "Turns a provider's error ended."
        )
        for (provider, code), count in sorted(self._errors.items()):
            yield _render_line("provider_errors_total", count, provider=provider, code=code)
        for name, read in sorted(self._gauges.items()):
            yield from _render_head(name, "gauge", "Right now.")
            yield _render_line(name, read())


def _render_histogram(route: str, durations: _Durations) -> Iterator[str]:
    below = 0
    for bound, count in zip(BUCKETS, durations.counts, strict=False):
        below += count
        yield _render_line("request_seconds_bucket", below, route=route, le=f"{bound:g}")
    total = sum(durations.counts)
    yield _render_line("request_seconds_bucket", total, route=route, le="+Inf")
    yield _render_line("request_seconds_sum", durations.total, route=route)
    yield _render_line("request_seconds_count", total, route=route)


def _render_head(name: str, kind: str, description: str) -> Iterator[str]:
    yield f"# HELP hermes_{name} {description}"
    yield f"# TYPE hermes_{name} {kind}"


def _render_line(name: str, value: float, **labels: str) -> str:
    inner = ",".join(f'{key}="{_escape_label(text)}"' for key, text in labels.items())
    number = f"{value:.15g}"
    return f"hermes_{name}{{{inner}}} {number}" if inner else f"hermes_{name} {number}"


def _escape_label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

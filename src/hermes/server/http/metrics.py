"""Metrics of the server, in the text format of Prometheus."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator

from hermes.core.events import TurnResult

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Counter:
    """A counter with one value per combination of label values."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self._name = name
        self._description = description
        self._labels = labels
        self.values: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def render(self) -> Iterator[str]:
        yield from _render_metric_head(self._name, "counter", self._description)
        for values, count in sorted(self.values.items()):
            yield _render_sample(self._name, count, **dict(zip(self._labels, values, strict=True)))


class _Durations:
    """A histogram of the durations of one route."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def render(self, route: str) -> Iterator[str]:
        below = 0
        for bound, count in zip((*BUCKETS, None), self.counts, strict=True):
            below += count
            limit = "+Inf" if bound is None else f"{bound:g}"
            yield _render_sample("request_seconds_bucket", below, route=route, le=limit)
        yield _render_sample("request_seconds_sum", self.total, route=route)
        yield _render_sample("request_seconds_count", below, route=route)


class Metrics:
    """Counts requests, turns and tokens in constant time; sums are computed on rendering."""

    def __init__(self) -> None:
        self._requests = _Counter(
            "requests_total", "Requests by route and status.", "route", "status"
        )
        self._durations: defaultdict[str, _Durations] = defaultdict(_Durations)
        self._turns = _Counter("turns_total", "Turns by how they ended.", "ending")
        self._tokens = _Counter("tokens_total", "Tokens by model and kind.", "model", "kind")
        self._cost = _Counter("cost_usd_total", "What the providers charged, where known.", "model")
        self._calls = _Counter(
            "model_calls_total", "Calls by model and prompt cache.", "model", "cache"
        )
        self._errors = _Counter(
            "provider_errors_total", "Turns a provider's error ended.", "provider", "code"
        )
        self._gauges: dict[str, Callable[[], float]] = {}
        self.measure: Callable[[], Awaitable[None]] | None = None
        """Brings gauges up to date that have to be asked for; None: there are none."""

    def add_gauge(self, name: str, read: Callable[[], float]) -> None:
        self._gauges[name] = read

    def count_request(self, route: str, status: int, seconds: float) -> None:
        self._requests.values[route, str(status)] += 1
        self._durations[route].add(seconds)

    def count_turn(self, result: TurnResult) -> None:
        target, usage = result.target, result.usage
        model = target.model if target else ""
        for kind in ("input", "output", "cache_read", "cache_write", "reasoning"):
            self._tokens.values[model, kind] += getattr(usage, kind)
        if usage.cost is not None:
            self._cost.values[(model,)] += usage.cost
        self._turns.values[(result.status,)] += 1
        for message in result.messages:
            if message.role == "assistant":
                hit = message.usage is not None and message.usage.cache_read > 0
                self._calls.values[model, "hit" if hit else "miss"] += 1
        if result.error_code and result.status != "interrupted":
            self._errors.values[target.provider if target else "", result.error_code] += 1

    def render(self) -> str:
        return "\n".join([*self._render_metric_lines(), ""])

    def _render_metric_lines(self) -> Iterator[str]:
        yield from self._requests.render()
        yield from _render_metric_head("request_seconds", "histogram", "How long requests took.")
        for route, durations in sorted(self._durations.items()):
            yield from durations.render(route)
        for counter in (self._turns, self._tokens, self._cost, self._calls, self._errors):
            yield from counter.render()
        for name, read in sorted(self._gauges.items()):
            yield from _render_metric_head(name, "gauge", "Right now.")
            yield _render_sample(name, read())


def _render_metric_head(name: str, kind: str, description: str) -> Iterator[str]:
    yield f"# HELP hermes_{name} {description}"
    yield f"# TYPE hermes_{name} {kind}"


def _render_sample(name: str, value: float, **labels: str) -> str:
    inner = ",".join(f'{key}="{_escape_label_value(text)}"' for key, text in labels.items())
    number = f"{value:.15g}"
    return f"hermes_{name}{{{inner}}} {number}" if inner else f"hermes_{name} {number}"


def _escape_label_value(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

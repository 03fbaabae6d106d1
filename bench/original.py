"""The original, measured inside one of its own processes: python -m bench.original URL GROUP..."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.measure import cpu_ms, emit, grow, spread, text


class Original:
    def __init__(self, url: str) -> None:
        from hermes_state import SessionDB  # type: ignore[import-not-found]
        from run_agent import AIAgent  # type: ignore[import-not-found]

        self.url = url
        self.store = SessionDB()
        self.agent_class = AIAgent

    def agent(self, model: str = "text") -> Any:
        return self.agent_class(
            base_url=self.url,
            api_key="sk-bench-0123456789abcdef",
            provider="custom",
            model=model,
            quiet_mode=True,
            max_iterations=2000,
            tool_delay=0,
            session_db=self.store,
            platform="cli",
        )

    def turn(self, model: str, history: list[Any] | None = None) -> list[Any]:
        return self.on(self.agent(model), history)

    def on(self, agent: Any, history: list[Any] | None = None) -> list[Any]:
        result = agent.run_conversation(
            "hi", conversation_history=history, stream_callback=lambda delta: None
        )
        if not result["final_response"]:
            raise RuntimeError(f"no answer: {result}")
        messages: list[Any] = result["messages"]
        return messages

    # groups

    def session(self) -> None:
        spent, size = grow(self.agent, 50)
        emit("session_cpu", spent)
        emit("session_kb", size)

    def warm_turn(self) -> None:
        agent = self.agent()
        history = self.on(agent, [])
        values = []
        for _ in range(15):
            start = time.process_time()
            history = self.on(agent, history)
            values.append((time.process_time() - start) * 1e3)
        emit("turn_cpu", *values)

    def stream(self) -> None:
        for metric, model in (("stream", "stream-2000"), ("stream_each", "stream-2000-each")):
            base = sorted(spread(self._fresh("text"), 5))[2]
            emit(metric, *((ms - base) / 2 for ms in spread(self._fresh(model), 3)))

    def _fresh(self, model: str) -> Callable[[], Any]:
        agents = iter([self.agent(model) for _ in range(5)])
        return lambda: self.on(next(agents))

    def tools(self) -> None:
        for count, rounds in ((20, 3), (400, 1)):
            agents = [self.agent(f"tools-{count}") for _ in range(rounds)]
            emit(f"tools_{count}", *(cpu_ms(lambda a=a: self.on(a)) / count for a in agents))

    def store_group(self) -> None:
        self.store.create_session("big", "cli", model="text")
        block = 1000
        for first in range(0, 10_000, block):
            texts = [text(first + i) for i in range(block)]
            clock, start = time.perf_counter(), time.process_time()
            for number, words in enumerate(texts):
                self.store.append_message("big", "assistant" if number % 2 else "user", words)
            emit("append_cpu", (time.process_time() - start) * 1e3 / block)
            emit("append_wall", (time.perf_counter() - clock) * 1e3 / block)
        emit("resume_cpu", *spread(lambda: self.store.get_messages_as_conversation("big"), 7))


def main() -> None:
    url, *groups = sys.argv[1:]
    original = Original(url)
    original.turn("text")
    for group in groups:
        {
            "session": original.session,
            "turn": original.warm_turn,
            "stream": original.stream,
            "tools": original.tools,
            "store": original.store_group,
        }[group]()
    sys.stdout.flush()
    os._exit(0)  # its background threads may not end by themselves


if __name__ == "__main__":
    main()

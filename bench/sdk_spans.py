"""The spans of turns through OpenTelemetry's own SDK: python sdk_spans.py URL TURNS; prints the CPU
of a turn, in milliseconds."""

import sys
import time

from opentelemetry import trace  # type: ignore[import-not-found]
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # type: ignore[import-not-found]
    OTLPSpanExporter,
)
from opentelemetry.sdk.trace import TracerProvider  # type: ignore[import-not-found]
from opentelemetry.sdk.trace.export import (  # type: ignore[import-not-found]
    BatchSpanProcessor,
)


def make_turn(tracer: trace.Tracer, number: int) -> None:
    session = f"s{number}"
    request = {"gen_ai.provider.name": "bench", "gen_ai.request.model": "model"}
    with tracer.start_as_current_span("invoke_agent hermes") as turn:
        turn.set_attributes(
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": session, **request}
        )
        for step in range(5):
            with tracer.start_as_current_span("chat model") as span:
                span.set_attributes(
                    {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": session, **request}
                )
                span.set_attributes(
                    {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 5}
                )
            if step < 4:
                with tracer.start_as_current_span("execute_tool read_file") as span:
                    span.set_attributes(
                        {
                            "gen_ai.operation.name": "execute_tool",
                            "gen_ai.conversation.id": session,
                            "gen_ai.tool.name": "read_file",
                            "gen_ai.tool.call.id": f"c{step}",
                        }
                    )


def main() -> None:
    url, turns = sys.argv[1], int(sys.argv[2])
    provider = TracerProvider()
    exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=100_000))
    tracer = provider.get_tracer("bench")
    make_turn(tracer, 0)
    provider.force_flush()
    start = time.process_time()
    for number in range(turns):
        make_turn(tracer, number)
    provider.force_flush()
    print((time.process_time() - start) * 1e3 / turns)


if __name__ == "__main__":
    main()

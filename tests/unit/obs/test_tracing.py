from __future__ import annotations

import builtins
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from whiflash.core.errors import ConfigError
from whiflash.obs.tracing import NoTracer, span_tracer


def test_a_call_is_a_span_below_its_callers() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    span = span_tracer(provider).start("whiflash.generate", parent)
    span.event("first token")
    span.end({"whiflash.completion_tokens": 3}, "deadline_exceeded")
    (found,) = exporter.get_finished_spans()
    assert found.parent is not None
    assert f"{found.parent.trace_id:032x}" in parent
    assert found.attributes == {"whiflash.completion_tokens": 3}
    assert [event.name for event in found.events] == ["first token"]
    assert found.status.status_code is StatusCode.ERROR


def test_without_a_valid_parent_a_trace_begins() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for parent in ("", "nonsense"):
        span_tracer(provider).start("whiflash.generate", parent).end({})
    assert [span.parent for span in exporter.get_finished_spans()] == [None, None]


def test_asked_for_and_not_installed_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("opentelemetry.exporter"):
            raise ModuleNotFoundError(name, name=name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'whiflash\[otel\]'"):
        span_tracer()


def test_nobody_asked_nothing_happens() -> None:
    span = NoTracer().start("x", "")
    span.event("y")
    span.end({"a": 1}, "z")

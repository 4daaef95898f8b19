"""Spans of calls, where somebody asked for them. OpenTelemetry is an extra: without it, and
without being asked, a span is nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from whiflash.core.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer as OtelTracer
    from opentelemetry.trace import TracerProvider

Value = str | int | float | bool
INSTALL = "install it with: pip install 'whiflash[otel]'"


class CallSpan(Protocol):
    """One call. Attributes are numbers and short words, never text of a prompt or an answer."""

    def event(self, name: str) -> None: ...

    def end(self, attributes: Mapping[str, Value], error: str = "") -> None:
        """`error` is the name of a status, "" for a call that went well."""


class Tracer(Protocol):
    """Makes the spans of calls."""

    def start(self, name: str, trace_parent: str) -> CallSpan:
        """`trace_parent`: W3C traceparent of the caller, "" for none."""


class NoSpan:
    """Nothing."""

    def event(self, name: str) -> None:
        """Nothing."""

    def end(self, attributes: Mapping[str, Value], error: str = "") -> None:
        """Nothing."""


class NoTracer:
    """Makes no spans."""

    def start(self, name: str, trace_parent: str) -> CallSpan:  # noqa: ARG002
        return _NO_SPAN


_NO_SPAN = NoSpan()


class OtelCallSpan:
    """An OpenTelemetry span."""

    def __init__(self, span: OtelSpan) -> None:
        self._span = span

    def event(self, name: str) -> None:
        self._span.add_event(name)

    def end(self, attributes: Mapping[str, Value], error: str = "") -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attributes(dict(attributes))
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


class SpanTracer:
    """Spans by an OpenTelemetry tracer."""

    def __init__(self, tracer: OtelTracer) -> None:
        self._tracer = tracer

    def start(self, name: str, trace_parent: str) -> CallSpan:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {"traceparent": trace_parent} if trace_parent else {}
        parent = TraceContextTextMapPropagator().extract(carrier)
        return OtelCallSpan(self._tracer.start_span(name, parent, kind=SpanKind.SERVER))


def span_tracer(provider: TracerProvider | None = None) -> SpanTracer:
    """Spans by `provider`; without one, sent by OTLP as the OTEL_EXPORTER_OTLP_* variables say.
    Raises ConfigError where the packages are missing."""
    if provider is None:
        provider = _otlp_provider()
    return SpanTracer(provider.get_tracer("whiflash"))


def _otlp_provider() -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider as SdkProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"tracing needs {error.name}, which is not installed; {INSTALL}"
        ) from None
    provider = SdkProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider

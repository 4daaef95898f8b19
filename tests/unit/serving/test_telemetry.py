"""What a call leaves behind, and that none of its text is in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from whiflash.core.errors import WhiFlashError
from whiflash.core.params import SamplingParams
from whiflash.obs.json_logs import configure_logs
from whiflash.obs.tracing import span_tracer
from whiflash.serving.call import ChatPrompt, GenerationCall
from whiflash.serving.caller import CallContext
from whiflash.serving.generation import GenerationService
from whiflash.serving.telemetry import Telemetry
from whiflash.testing.backends import ScriptedBackend

MakeContext = Callable[..., CallContext]
SECRET = "zq-secret-text"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logs("DEBUG", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def chat(**fields: Any) -> GenerationCall:
    prompt = ChatPrompt(({"role": "user", "content": SECRET},))
    values: dict[str, Any] = {"params": SamplingParams(stop=(SECRET,)), "prediction": SECRET}
    return GenerationCall(prompt, **{**values, **fields})


def calls_in(log: io.StringIO) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    return [line for line in lines if line["event"] == "call"]


def test_no_text_reaches_logs_spans_or_metrics(log: io.StringIO, context: MakeContext) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(tracer=span_tracer(provider))
    service = GenerationService(ScriptedBackend(f"{SECRET} out"), telemetry=telemetry)
    broken = GenerationService(
        ScriptedBackend(f"{SECRET} out", fault=KeyError(SECRET)), telemetry=Telemetry()
    )
    wrong = [
        chat(model=SECRET), chat(drafter=SECRET), chat(max_tokens=0), chat(subject=SECRET * 99),
        GenerationCall(ChatPrompt(({"role": SECRET, "content": "x"},))),
    ]  # fmt: skip

    async def run() -> None:
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        await service.complete(chat(), context(request_id="good", trace_parent=parent))
        for call in wrong:
            with pytest.raises(WhiFlashError):
                await service.complete(call, context())
        with pytest.raises(KeyError):
            await broken.complete(chat(), context())

    asyncio.run(run())
    spans = exporter.get_finished_spans()
    everything = log.getvalue() + telemetry.metrics.text().decode()
    everything += "".join(span.to_json() for span in spans)
    assert SECRET not in everything
    lines = calls_in(log)
    assert [line["outcome"] for line in lines] == [
        "ok", "not_found", *["invalid_argument"] * 4, "internal"
    ]  # fmt: skip
    assert lines[0]["request_id"] == "good"
    assert lines[0]["completion_tokens"] == len(f"{SECRET} out")
    assert spans[0].parent is not None
    assert [event.name for event in spans[0].events] == ["handed over", "first token"]
    assert "KeyError" in log.getvalue()


def test_the_seed_of_a_call_is_told_to_its_caller_alone(
    log: io.StringIO, context: MakeContext
) -> None:
    service = GenerationService(ScriptedBackend())
    result = asyncio.run(service.complete(chat(), context()))
    assert str(result.seed) not in log.getvalue() + service.telemetry.metrics.text().decode()


def test_refused_calls_are_counted_and_none_stays_in_flight(context: MakeContext) -> None:
    service = GenerationService(ScriptedBackend())

    async def run() -> None:
        for _ in range(3):
            with pytest.raises(WhiFlashError):
                await service.complete(chat(model="other"), context())

    asyncio.run(run())
    text = service.telemetry.metrics.text().decode()
    assert 'whiflash_requests_total{outcome="not_found"} 3.0' in text
    assert "whiflash_requests_in_flight 0.0" in text

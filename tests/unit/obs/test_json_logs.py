from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from whiflash.obs.json_logs import JsonFormatter, configure_logs, log_event, log_fault

SECRET = "what the client wrote"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logs("INFO", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def read(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_object_with_its_fields(lines: io.StringIO) -> None:
    log_event(logging.getLogger("whiflash.calls"), "call", {"request_id": "r", "total_ms": 1.5})
    (line,) = read(lines)
    assert line["event"] == "call"
    assert line["level"] == "info"
    assert line["logger"] == "whiflash.calls"
    assert (line["request_id"], line["total_ms"]) == ("r", 1.5)
    assert str(line["time"]).endswith("+00:00")


def test_text_is_refused(lines: io.StringIO) -> None:
    with pytest.raises(ValueError, match="prompt"):
        log_event(logging.getLogger("x"), "call", {"prompt": "long " * 50})
    assert not lines.getvalue()


def test_of_a_fault_the_class_and_the_places_are_told_not_its_message(lines: io.StringIO) -> None:
    def deep() -> None:
        raise KeyError(SECRET)

    logger = logging.getLogger("x")
    try:
        deep()
    except KeyError as error:
        log_fault(logger, "call failed", error, request_id="r")
        logger.exception("the engine loop failed")
    for line in read(lines):
        assert line["error"] == "KeyError"
        assert "deep" in str(line["at"])
    assert SECRET not in lines.getvalue()


def test_lines_stay_lines_whatever_is_in_them() -> None:
    """Formatted by hand: captured by pytest, half a surrogate pair would break its own report."""
    text = "two\nlines and \ud800"
    record = logging.LogRecord("x", logging.WARNING, __file__, 1, text, None, None)
    (line,) = JsonFormatter().format(record).splitlines()
    assert line.encode("utf-8")
    assert json.loads(line)["event"] == text

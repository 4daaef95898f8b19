"""What all tests share: GPU skips, the rule that nothing else is skipped, invariants."""

from __future__ import annotations

import os
from typing import Any

import pytest

TEST_ALL = os.environ.get("WHIFLASH_TEST_ALL") == "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak-minutes", type=float, default=60.0, help="how long soak tests run")


def _has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _require_serial_files(items)
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and not _has_cuda():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def _require_serial_files(items: list[pytest.Item]) -> None:
    """tests/parts.py finds the files of its serial pass by this word."""
    files = {item.path for item in items if item.get_closest_marker("serial")}
    silent = [str(file) for file in files if "mark.serial" not in file.read_text(encoding="utf-8")]
    if silent:
        raise pytest.UsageError(f"write mark.serial in the files themselves: {', '.join(silent)}")


def _fail_on_skip(report: pytest.TestReport | pytest.CollectReport, what: str) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{what} was skipped under WHIFLASH_TEST_ALL=1: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    report = yield
    was_xfail = hasattr(report, "wasxfail")
    if TEST_ALL and report.skipped and not was_xfail and not item.get_closest_marker("gpu"):
        _fail_on_skip(report, item.nodeid)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    report = yield
    if TEST_ALL and report.outcome == "skipped":
        _fail_on_skip(report, collector.nodeid)
    return report


@pytest.fixture(scope="session")
def needs_redis() -> None:
    """For tests and fixtures that start a redis-server."""
    # Tests marked gpu run where the package redis is not installed.
    from whiflash.testing.redis_server import MISSING, has_redis_server

    if not has_redis_server():
        pytest.skip(MISSING)


@pytest.fixture
def integrity() -> Any:
    """`integrity(thing)` returns it and calls its check_integrity() after the test."""
    things: list[Any] = []

    def watch(thing: Any) -> Any:
        things.append(thing)
        return thing

    yield watch
    for thing in things:
        thing.check_integrity()

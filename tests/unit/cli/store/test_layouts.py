"""Recorded runs of other projects become conversations; what is none is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.cli.store.files import FoundRecord, read_files, total_bytes
from whiflash.cli.store.layouts import read_record
from whiflash.core.errors import ConfigError, InvalidRequestError
from whiflash.serving.trajectories.conversation import Conversation

SAMPLES = Path(__file__).parents[3] / "data" / "trajectories"


def records(name: str) -> list[FoundRecord]:
    return list(read_files([SAMPLES / name], print))


def conversations(name: str) -> list[Conversation]:
    found = [read_record(record.value) for record in records(name)]
    assert all(isinstance(one, Conversation) for one in found)
    return [one for one in found if isinstance(one, Conversation)]


def called(conversation: Conversation) -> list[tuple[str, dict[str, Any]]]:
    calls = [call for m in conversation.messages for call in m.get("tool_calls") or ()]
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]


def test_json_lines_are_read_under_either_name(tmp_path: Path) -> None:
    """BFCL's result files are JSON lines and end in .json."""
    file = tmp_path / "BFCL_v4_multi_turn_base_result.json"
    file.write_bytes((SAMPLES / "bfcl_truth.jsonl").read_bytes())
    found = list(read_files([file], print))
    assert [record.value for record in found] == [r.value for r in records("bfcl_truth.jsonl")]
    assert [record.place for record in found] == [f"{file}:1", f"{file}:2"]
    file.write_text("{\n]")
    (broken,) = read_files([file], print)
    assert "it is no JSON" in broken.problem


def test_chats_as_json_lines() -> None:
    first, second = conversations("chat.jsonl")
    assert (first.run_id, second.run_id) == ("tau_bench_airline/0/0", "tau_bench_airline/1/0")
    assert [m["role"] for m in first.messages[:2]] == ["user", "assistant"]


def test_tau_benchs_result_file() -> None:
    found = records("tau_bench.json")
    assert [record.place.rsplit("/", 1)[1] for record in found] == [
        "tau_bench.json record 1", "tau_bench.json record 2"
    ]  # fmt: skip
    first, second = conversations("tau_bench.json")
    assert first.run_name != second.run_name
    assert first.run_name.startswith("tau-bench/0/")
    assert first.agent == "tau-bench"


def test_swe_agents_trajectory() -> None:
    (run,) = conversations("swe_agent.traj")
    roles = [message["role"] for message in run.messages]
    assert roles[:3] == ["system", "user", "assistant"]
    assert called(run)
    assert all("agent" not in message for message in run.messages)


def test_demonstrations_in_a_prompt_were_not_said_by_the_model() -> None:
    demo = {"role": "assistant", "content": "shown", "is_demo": True}
    said = {"role": "assistant", "content": "said"}
    run = read_record({"history": [demo, {"role": "user", "content": "u"}, said]})
    assert isinstance(run, Conversation)
    assert [m["content"] for m in run.messages] == ["u", "said"]


def test_bfcls_possible_answers_and_results() -> None:
    first, _ = conversations("bfcl_truth.jsonl")
    assert first.run_id == "multi_turn_base_0"
    assert called(first)[0] == ("cd", {"folder": "document"})
    texts = [m["content"] for m in first.messages if m["role"] == "assistant"]
    assert "sort('final_report.pdf')" in texts, "positional arguments cannot be named"
    result = {"id": "x", "result": [[[{"mv": '{"a": 1}'}, {"ls": {}}], "done"], ["other turn"]]}
    run = read_record(result)
    assert isinstance(run, Conversation)
    assert called(run) == [("mv", {"a": 1}), ("ls", {})]
    said = [m for m in run.messages if m["role"] == "assistant"]
    assert [m["content"] for m in said] == [None, "done", "other turn"]


def test_labels_are_kept_and_numbers_become_text() -> None:
    messages = [{"role": "user", "content": "u"}]
    run = read_record({"messages": messages, "id": 7, "user": "ann", "agent": "g", "model": "m"})
    assert isinstance(run, Conversation)
    assert (run.run_id, run.subject, run.agent, run.model) == ("7", "ann", "g", "m")


@pytest.mark.parametrize(
    "value",
    [
        [], "text", 3, None, {}, {"other": 1}, {"messages": "text"}, {"messages": []},
        {"messages": [3]}, {"messages": [{"content": "x"}]}, {"traj": None}, {"history": {}},
        {"result": 3}, {"result": [[3]]}, {"ground_truth": [[[1]]]},
        {"messages": [{"role": "user"}], "tools": "t"},
    ],
)  # fmt: skip
def test_what_is_no_run_is_refused(value: object) -> None:
    with pytest.raises(InvalidRequestError):
        read_record(value)


WORDS = st.sampled_from(["", "role", "content", "user", "assistant", "f(x=1)", "f("])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["messages", "traj", "history", "result", "ground_truth", "tools", "id"])


@given(st.dictionaries(FIELDS, JSON, max_size=3))
def test_random_records_are_read_or_refused(record: dict[str, Any]) -> None:
    try:
        run = read_record(record)
    except InvalidRequestError:
        return
    assert isinstance(run, Conversation)
    assert run.messages
    assert run.run_name


def test_bad_lines_are_told_by_their_number(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text('{"messages": []}\n\nnot json\n{"a": 1}\n')
    seen: list[int] = []
    found = list(read_files([file], seen.append))
    assert [one.place for one in found] == [f"{file}:1", f"{file}:3", f"{file}:4"]
    assert [bool(one.problem) for one in found] == [False, True, False]
    assert sum(seen) == file.stat().st_size == total_bytes([file])


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no file"):
        total_bytes([tmp_path / "nothing.jsonl"])
    other = tmp_path / "a.csv"
    other.write_text("x")
    with pytest.raises(ConfigError, match=r"\.csv is not read"):
        total_bytes([other])
    torn = tmp_path / "a.jsonl.gz"
    torn.write_bytes(b"\x1f\x8b\x08\x00\x00\x00")
    with pytest.raises(ConfigError, match="damaged"):
        list(read_files([torn], print))

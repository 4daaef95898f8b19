"""Recorded runs of other projects become turns of tokens."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from whiflash.bench.recordings import SETS, RecordedData, RecordedRun, RunWriter
from whiflash.chat.format import ChatFormat
from whiflash.core.errors import ConfigError
from whiflash.models.tokenizer import HFTokenizer
from whiflash.testing.http_server import write_chat_toy

SAMPLES = Path(__file__).parents[2] / "data" / "replay"


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> RunWriter:
    folder = write_chat_toy(tmp_path_factory.mktemp("toy"))
    return RunWriter(ChatFormat.for_model(folder, "toy"), HFTokenizer.load(folder))


@pytest.fixture(scope="module")
def data(writer: RunWriter) -> RecordedData:
    return RecordedData(SAMPLES, writer)


def runs(data: RecordedData, name: str) -> list[RecordedRun]:
    return data.runs(next(one for one in data.sets if one.name == name))


def test_sets_without_a_file_are_left_out(data: RecordedData, writer: RunWriter) -> None:
    assert {one.file for one in data.sets} == {
        "tau_bench_airline", "bfcl_multi_turn", "swe_agent", "intercode_bash"
    }  # fmt: skip
    assert len(data.sets) < len(SETS)
    with pytest.raises(ConfigError, match=r"holds none of .*tau_bench_airline\.jsonl\.gz"):
        RecordedData(SAMPLES.parent, writer)


def test_every_set_has_turns_of_assistants(data: RecordedData) -> None:
    for which in data.sets:
        found = data.runs(which)
        assert len({run.run_id for run in found}) == len(found) >= 4, which.name
        assert all(len(turn.target) for run in found for turn in run.turns), which.name
        assert all(len(run.turns[0].new_context) for run in found), which.name


def test_trials_of_a_task_are_one_set_and_its_first_trials_another(data: RecordedData) -> None:
    all_trials = runs(data, "tau-bench airline, 4 trials a task")
    first = runs(data, "tau-bench airline, every task once")
    assert len(all_trials) == 2 * len(first)
    assert [run.run_id for run in first] == [run.run_id for run in all_trials[: len(first)]]


def test_turns_put_together_are_the_conversation_as_the_template_writes_it(
    writer: RunWriter,
) -> None:
    messages = [
        {"role": "system", "content": "s"}, {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"},
        {"role": "assistant", "content": "four"},
    ]  # fmt: skip
    run = writer.write("r", messages)
    whole = np.concatenate([part for t in run.turns for part in (t.new_context, t.target)])
    text = writer._chat.render(messages, add_generation_prompt=False).rstrip("\n")
    assert whole.tolist() == writer._tokenizer.encode(text)
    assert not any(turn.is_fork for turn in run.turns)
    assert run.num_tokens == len(whole)


def test_demonstrations_are_context_and_no_turns(writer: RunWriter) -> None:
    shown = {"role": "assistant", "content": "shown", "is_demo": True}
    said = {"role": "assistant", "content": "said"}
    run = writer.write("r", [shown, {"role": "user", "content": "u"}, said])
    assert len(run.turns) == 1


@pytest.mark.parametrize("damage", ["cut", "json", "field"])
def test_damaged_files_are_named(writer: RunWriter, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "intercode_bash.jsonl.gz"
    shutil.copy(SAMPLES / file.name, file)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:100])
    else:
        line = "no json" if damage == "json" else json.dumps({"id": "x", "steps": [{}]})
        file.write_bytes(gzip.compress(line.encode()))
    data = RecordedData(tmp_path, writer)
    with pytest.raises(ConfigError, match=r"intercode_bash\.jsonl\.gz cannot be read"):
        data.runs(data.sets[0])

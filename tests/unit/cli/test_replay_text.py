"""`whiflash replay text` as it is typed, on a few recorded runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whiflash.cli.main import run
from whiflash.testing.http_server import write_chat_toy

DATA = Path(__file__).parents[2] / "data"
SAMPLES = str(DATA / "replay")
OWN = DATA / "trajectories"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_chat_toy(tmp_path_factory.mktemp("toy")))


def test_the_whole_of_it_as_json(capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert run(["replay", "text", "--data", SAMPLES, "--model", model, "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["sources"]) == 5
    for row in found["sources"]:
        for name in ("local", "shared", "both"):
            assert row[f"{name}_tokens_per_round"] >= 1.0
            assert row[f"{name}_wasted"] >= 0.0
    (silos,) = found["silos"]
    assert silos["1"] >= silos["2"]
    (delays,) = found["delays"]
    assert delays["0"] >= delays["1"]
    learned = {row["rule"]: row for row in found["rules"]}
    assert learned["learned cut at 0.5"]["wasted"] < learned["learned cut at 0.05"]["wasted"]
    assert learned["chain of 4"]["drafted"] <= 4
    for row in found["foreign"]:
        assert row["foreign_runs"] > 0
        assert 0.3 < row["kept"] < 2.0


def test_tables_for_a_person(capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert run(["replay", "text", "--data", SAMPLES, "--model", model, "--quick"]) == 0
    out, err = capsys.readouterr()
    assert "set" in out
    assert "learned cut at 0.2" in out
    assert "BFCL multi-turn: both" in err, "it says what it is at"
    widths = {len(line) for line in out.splitlines() if line.startswith("learned cut at")}
    assert len(widths) == 1, "numbers stand under each other"


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ((), "give --data FOLDER with recorded runs; docs/trajectories.md says"),
        (("--data", "/nope"), "--data /nope is not there; name a folder of recorded runs (docs/"),
        (("--data", __file__), "is a file; name a folder of recorded runs (docs/"),
        (("--data", str(DATA)), "holds no recorded runs; docs/trajectories.md says what"),
        (("--data", SAMPLES, "--model", "no-such-model"), "no-such-model"),
        (("--data",), "requires an argument"),
    ],
)
def test_mistakes_are_told_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], rule: str
) -> None:
    assert run(["replay", "text", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert rule in line


def test_files_as_their_makers_write_them_are_sets(
    capsys: pytest.CaptureFixture[str], model: str
) -> None:
    assert run(["replay", "text", "--data", str(OWN), "--model", model, "--quick", "--json"]) == 0
    rows = {row["set"]: row for row in json.loads(capsys.readouterr().out)["sources"]}
    assert rows.keys() == {"bfcl_truth.jsonl", "chat.jsonl", "tau_bench.json", "SWE-agent .traj"}
    assert rows["tau_bench.json"]["runs"] == 2
    assert all(row["local_tokens_per_round"] >= 1.0 for row in rows.values())


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        ('{"messages": [{"content": "x"}]}', "runs.jsonl:1: messages: message 0 has no role"),
        ('{"prompt": "x"}', "runs.jsonl:1: it has none of the fields"),
        ("{", "runs.jsonl:1: it is no JSON"),
        ('{"tokens": [1], "tokenizer": "t"}', "runs.jsonl:1: an export holds no prompts"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "holds no turn of an assistant"),
        ("", "holds no turn of an assistant"),
    ],
)
def test_a_record_that_is_no_run_is_named(
    record: str, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    (tmp_path / "runs.jsonl").write_text(record)
    assert run(["replay", "text", "--data", str(tmp_path), "--model", model, "--quick"]) == 2
    assert rule in capsys.readouterr().err.splitlines()[-1]

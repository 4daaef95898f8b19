"""`calibrate entropy` on the toy target with both paradigms, and the file it writes at work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whiflash.cli.calibration_data import read_categories
from whiflash.cli.main import run
from whiflash.core.errors import ConfigError
from whiflash.routing.tau_file import TauFile
from whiflash.testing.toy import write_toy
from whiflash.testing.toy_drafters import write_toy_dflash, write_toy_eagle3


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHIFLASH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options of a toy engine with an autoregressive and a block drafter."""
    folder = tmp_path_factory.mktemp("world")
    toy, eagle3 = write_toy(folder / "toy"), write_toy_eagle3(folder / "eagle3")
    dflash = write_toy_dflash(folder / "dflash")
    drafters = f"eagle3:{eagle3},boundaries=1+2", f"dflash:{dflash}"
    return ["--model", str(toy), "--dtype", "float64", "--memory", "64MiB",
            "--drafter", drafters[0], "--drafter", drafters[1]]  # fmt: skip


def data_file(folder: Path, records: list[dict]) -> Path:
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def test_it_writes_a_tau_that_the_policy_reads(
    world: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [{"category": "ab"[n % 2], "prompt": f"cats {n}, dogs {n}, and"} for n in range(6)]
    data, out = data_file(tmp_path, records), tmp_path / "tau.json"
    flags = ["--data", str(data), "--out", str(out), "--no-chat", "--max-tokens", "24",
             "--temperature", "0.9", "--seed", "2", "--max-prompts", "2"]  # fmt: skip
    assert run(["calibrate", "entropy", *world, *flags]) == 0
    told = capsys.readouterr().out
    assert "note: fewer than 32 prompts in a, b" in told
    assert "tau " in told
    found = TauFile.read(out)
    assert (found.above, found.below) == ("eagle3", "dflash")
    assert found.provenance["prompts"] == {"a": 2, "b": 2}
    assert found.provenance["censored_roots"] == 0
    assert found.provenance["roots"] > 10
    rates = found.provenance["tokens_per_s"]
    assert rates["tau"] >= max(rates["eagle3"], rates["dflash"])
    assert set(found.provenance["costs"]["draft_ms"]) == {"eagle3", "dflash"}
    line = ["generate", *world, "--policy", f"entropy:file={out}", "--prompt", "cats 9, dogs",
            "--max-tokens", "12", "--temperature", "0.9", "--seed", "2", "--json"]  # fmt: skip
    assert run(line) == 0
    routed = json.loads(capsys.readouterr().out)
    assert set(routed["arms"]) <= {"eagle3", "dflash", "none"}


def test_arms_that_are_not_there_are_named(
    world: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = data_file(tmp_path, [{"prompt": "a"}])
    line = ["calibrate", "entropy", *world[:6], "--drafter", world[7], "--data", str(data),
            "--out", str(tmp_path / "t.json")]  # fmt: skip
    assert run(line) == 2
    assert "compares eagle3 with dflash, but --drafter gives eagle3" in capsys.readouterr().err
    assert run([*line, "--below", "eagle3"]) == 2
    assert "both eagle3" in capsys.readouterr().err


def test_only_fit_parts_are_taken_and_so_many_of_each_category(tmp_path: Path) -> None:
    records = [
        *({"category": "maths", "part": "fit", "prompt": f"m{n}"} for n in range(4)),
        {"category": "maths", "part": "eval", "prompt": "never"},
        {"prompt": "loose"},
    ]
    found = read_categories([data_file(tmp_path, records)], 3)
    assert [(c.name, c.prompts) for c in found] == [
        ("maths", ("m0", "m1", "m2")),
        ("prompts", ("loose",)),
    ]


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"text": "a"}', '{"prompt": 3}'])
def test_records_without_a_prompt_are_told_by_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(f'{{"prompt": "a"}}\n{line}\n')
    with pytest.raises(ConfigError, match="line 2: expected an object with a text `prompt`"):
        read_categories([file], 3)
    with pytest.raises(ConfigError, match="cannot read the prompts"):
        read_categories([tmp_path / "none.jsonl"], 3)
    with pytest.raises(ConfigError, match="holds no prompt"):
        read_categories([data_file(tmp_path, [{"part": "eval", "prompt": "a"}])], 3)

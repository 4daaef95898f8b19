"""`replay rounds` on logs that a toy engine wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard

from whiflash.cli.main import run

TEXT = "the cat sat on the mat, the cat sat on the mat, the cat"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHIFLASH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def record(toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """record(policy) runs one prompt with retrieval and returns its round log."""

    def recorded(policy: str) -> Path:
        log, config = tmp_path / "rounds.zst", tmp_path / "config.json"
        config.write_text(json.dumps({"round_log": str(log), "plain_share": 0.0}))
        told = run(
            ["generate", "--model", str(toy_folder), "--config", str(config), "--policy", policy,
             "--prompt", TEXT, "--max-tokens", "60"]
        )  # fmt: skip
        assert told == 0
        capsys.readouterr()
        return log

    return recorded


def rows(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, dict]:
    assert run(["replay", "rounds", *arguments, "--json"]) == 0
    return {row["policy"]: row for row in json.loads(capsys.readouterr().out)}


def test_a_survey_follows_every_policy(record, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(record("survey"))
    given = ["goodput", "rules:rule=respec,trim=yes", "bandit:reward=efficiency", "oracle"]
    found = rows([log, *(part for p in given for part in ("--policy", p))], capsys)
    assert list(found) == ["static:arm=none", *given]
    plain = found["static:arm=none"]
    assert plain["rounds"] == plain["tokens"] == found["oracle"]["tokens"] > 20
    assert found["oracle"]["regret"] == 0.0
    for row in found.values():
        assert row["censored_arm"] == row["censored_root"] == row["skipped_tokens"] == 0
        assert row["tokens"] == plain["tokens"]
        assert row["accepted_length"] >= 1.0
        assert 0.0 <= row["regret"] < 1.0
        assert sum(row["shares"].values()) == pytest.approx(1.0, abs=1e-3)


def test_an_ordinary_log_censors_and_says_so(record, capsys: pytest.CaptureFixture[str]) -> None:
    """What a run with drafts skipped over are no roots; a plain walk must leave them out."""
    log = str(record("static:arm=retrieval"))
    plain = rows([log], capsys)["static:arm=none"]
    assert plain["censored_root"] > 0
    assert plain["skipped_tokens"] > 0


def test_the_table_is_for_people(record, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", "rounds", str(record("survey"))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["policy", "tokens/s", "AL", "regret", "switches", "rounds",
                                "tokens", "censored", "shares"]  # fmt: skip
    assert [line.split()[0] for line in lines[1:]] == ["static:arm=none", "goodput", "oracle"]


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("bandit", "reward=efficiency"),
        ("best", "unknown policy 'best'"),
        ("entropy:tau=1", "add eagle3"),
        ("static:speed=3", "no option 'speed'"),
    ],
)
def test_what_cannot_be_replayed_is_told(
    record, policy: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replay", "rounds", str(record("survey")), "--policy", policy]) == 2
    assert told in capsys.readouterr().err


def test_costs_may_be_those_of_another_log(
    record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, slow = record("survey"), tmp_path / "slow.zst"
    lines = [json.loads(line) for line in _lines(log)]
    for line in lines:
        for key in ("verify_ms", "total_ms", "draft_ms"):
            if key in line:
                line[key] = _times(line[key], 4.0)
    _write(slow, lines)
    own, other = (rows([str(log), *more], capsys) for more in ([], ["--costs", str(slow)]))
    plain = [found["static:arm=none"]["tokens_per_s"] for found in (own, other)]
    assert plain[1] == pytest.approx(plain[0] / 4.0, rel=0.05)
    lines[0]["target"] = "another"
    _write(slow, lines)
    assert run(["replay", "rounds", str(log), "--costs", str(slow)]) == 2
    assert "is of another target" in capsys.readouterr().err


def _lines(log: Path) -> list[str]:
    with log.open("rb") as file:
        data = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    return data.decode().splitlines()


def _write(log: Path, lines: list[dict]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    log.write_bytes(zstandard.ZstdCompressor().compress(text.encode()))


def _times(value: float | dict[str, float], factor: float) -> float | dict[str, float]:
    if isinstance(value, dict):
        return {key: factor * ms for key, ms in value.items()}
    return factor * value


def test_held_out_texts_alone_need_the_survey_that_knows_them(
    record, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replay", "rounds", str(record("survey")), "--held-out"]) == 2
    assert "--held-out needs --work-dir" in capsys.readouterr().err


def test_a_missing_log_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", "rounds", str(tmp_path / "none.zst")]) == 2
    assert "there is no round log" in capsys.readouterr().err

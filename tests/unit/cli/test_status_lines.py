"""What `whiflash status` prints for a person, and what `up` and `status` refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from whiflash.cli.main import run
from whiflash.cli.status import status_lines


def test_problems_stand_beside_what_has_them() -> None:
    verifier = {"address": "127.0.0.1:1", "running": 2, "waiting": 1, "problem": ""}
    found = {
        "status": "RUNNING",
        "message": "",
        "deployments": {
            "verifier": {"status": "UPDATING", "message": "no room\nmore", "replicas": {"R": 1}}
        },
        "cluster": {
            "moves": 3,
            "verifiers": [verifier, {**verifier, "problem": "it is draining"}],
        },
        "outside": {
            "drafters": {"eagle3": {"is_up": False, "address": "a:1"}},
            "router": {"is_up": True, "address": "b:2", "decisions": {"remote": 5}},
        },
    }
    assert list(status_lines(found)) == [
        "cluster  RUNNING",
        "verifier UPDATING: 1 r (no room)",
        "  127.0.0.1:1  2 running, 1 waiting",
        "  127.0.0.1:1  it is draining",
        "  drafter eagle3 at a:1  down: its arm proposes nothing",
        "  router at b:2  up, decisions: 5 remote",
        "moves    3 requests went on at another verifier",
    ]


def test_up_finds_what_is_wrong_before_ray_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[cluster.verifier]\ngpus = 1\n", encoding="utf-8")
    assert run(["up", "--config", str(config)]) == 2
    assert "exclude each other" in capsys.readouterr().err
    config.write_text("", encoding="utf-8")
    assert run(["up", "--config", str(config)]) == 2
    assert "trusts_network" in capsys.readouterr().err
    assert run(["up", "--config", str(config), "--detach"]) == 2
    assert "--address" in capsys.readouterr().err


def test_without_ray_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert run(["status"]) == 2
    assert "whiflash[cluster]" in capsys.readouterr().err

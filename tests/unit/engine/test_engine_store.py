"""What an engine's store keeps out, by its configuration."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from whiflash.config import EngineConfig
from whiflash.core.errors import ConfigError
from whiflash.engine.store import EngineStore, open_store
from whiflash.testing.backends import CharacterTokenizer
from whiflash.trajectories.log import START
from whiflash.trajectories.record import TrajectoryRecord


def test_the_configured_redactor_works_on_every_turn_beside_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "falcon_rules.py").write_text(
        "import re\n\n"
        "def find(text):\n    return [match.span() for match in re.finditer('Falcon', text)]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    tokenizer = CharacterTokenizer()
    opened = open_store(EngineConfig.of(redact="falcon_rules:find"))
    with closing(EngineStore(opened, tokenizer, 2**20)) as store:
        text = "ask for Falcon with password=hunter2 tomorrow"
        tokens = np.array(tokenizer.encode(text), np.int32)
        store.log.append(TrajectoryRecord("n", "run", tokens))
        assert store.log.flush(10)
        kept = [tokenizer.decode(r.tokens.tolist()) for r in store.log.read("n", START).records]
    assert kept == ["ask for ", " with password=", " tomorrow"]


@pytest.mark.parametrize("name", ["falcon", "a:b:c", ":f", "m:", "no_such_module:f"])
def test_a_redactor_that_cannot_be_used_ends_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match="redact"):
        open_store(EngineConfig.of(redact=name))

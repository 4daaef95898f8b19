"""Logged rounds over the target's own text: every arm proposes at every root.

The text does not depend on the arm, so running a prompt of the training data again gives the text
whose hidden states are kept already; the log says what each arm's draft at each root was worth.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from whiflash.config import EngineConfig
from whiflash.core.errors import ConfigError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.engine.engine import Engine
from whiflash.engine.ticket import Ticket
from whiflash.obs.round_log import read_rounds
from whiflash.routing.heads import HeadArm
from whiflash.routing.replay.log import logged_runs
from whiflash.routing.replay.turns import Turn
from whiflash.training.clock import TimeLimit
from whiflash.training.data.generations import Generation
from whiflash.training.files import keep_settings, write_whole

_LOG, _TEXTS = "rounds.zst", "texts.json"


class Survey:
    """Sittings in `folder`: each a round log and the numbers of the texts it holds."""

    def __init__(self, folder: Path, facts: dict[str, Any]) -> None:
        """facts: target and drafters, which all sittings share. Raises ConfigError."""
        self._folder = folder
        keep_settings(folder, facts)

    def done(self) -> set[int]:
        """Numbers of the texts that are logged."""
        return {number for sitting in self._sittings() for number, _ in _logged(sitting)}

    @property
    def num_differing(self) -> int:
        """Texts that the target did not write again; they teach nothing."""
        return sum(not same for sitting in self._sittings() for _, same in _logged(sitting))

    def _sittings(self) -> list[Path]:
        return sorted(p for p in self._folder.glob("[0-9]*") if (p / _TEXTS).is_file())

    def run(
        self,
        settings: EngineConfig,
        texts: Sequence[Generation],
        seed_of: Callable[[int], int],
        limit: TimeLimit,
        on_text: Callable[[], None],
    ) -> bool:
        """Logs the texts that are missing; False if time was over before."""
        done = self.done()
        missing = [text for text in texts if text.number not in done]
        if not missing:
            return True
        sitting = self._folder / f"{len(list(self._folder.glob('[0-9]*'))):04d}"
        with Engine(settings, policy="survey", round_log=sitting / _LOG, store="memory") as engine:
            logged = _log_texts(engine, missing, seed_of, limit, on_text)
        write_whole(sitting / _TEXTS, json.dumps(logged).encode())
        return len(logged) == len(missing)

    def head_arms(self, named: Sequence[str]) -> tuple[HeadArm, ...]:
        """The arms of `named` that proposed anything, with the longest of their drafts. Raises
        ConfigError if there is none."""
        runs = [run for sitting in self._sittings()
                for run in logged_runs(read_rounds(sitting / _LOG))]  # fmt: skip
        proposed = [(arm, proposal.nodes) for run in runs for turn in run.turns
                    for root in turn.roots.values()
                    for arm, proposal in root.proposals.items()]  # fmt: skip
        longest: Counter[str] = Counter()
        for arm, nodes in proposed:
            longest[arm] = max(longest[arm], nodes)
        if not any(longest[arm] for arm in named):
            raise ConfigError("the log holds no draft; give --drafter what shall be routed between")
        first = runs[0]
        trees = {arm: shape.tree for arm, shape in first.shapes.items()}
        return tuple(HeadArm(arm, first.free.get(arm, False), longest[arm], trees.get(arm, ""))
                     for arm in named if longest[arm])  # fmt: skip

    def turns(self) -> Iterator[tuple[int, Turn]]:
        """Every logged text's number and rounds."""
        for sitting in self._sittings():
            turns = {turn.sequence: turn for run in logged_runs(read_rounds(sitting / _LOG))
                     for turn in run.turns}  # fmt: skip
            for sequence, (number, is_same) in enumerate(_logged(sitting), 1):
                if is_same and sequence in turns:  # answers of one token have no round
                    yield number, turns[sequence]


def sitting_texts(sitting: Path) -> list[tuple[int, bool]] | None:
    """Number of the text of each sequence 1, 2, ..., and whether it came out as it is kept; None
    where the folder is no sitting."""
    return _logged(sitting) if (sitting / _TEXTS).is_file() else None


def _logged(sitting: Path) -> list[tuple[int, bool]]:
    """Numbers of the texts, and whether each came out as it is kept."""
    found = json.loads((sitting / _TEXTS).read_text(encoding="utf-8"))
    return [(int(number), bool(is_same)) for number, is_same in found]


def _log_texts(
    engine: Engine,
    texts: Sequence[Generation],
    seed_of: Callable[[int], int],
    limit: TimeLimit,
    on_text: Callable[[], None],
) -> list[tuple[int, bool]]:
    """The texts that were logged, in the order in which the engine got them: its n-th request is
    sequence n of the log. When time is over, what was begun is still finished: the log holds whole
    texts."""
    waiting: deque[tuple[Generation, Ticket]] = deque()
    left = iter(texts)
    logged: list[tuple[int, bool]] = []
    is_open = True
    while is_open or waiting:
        while is_open and len(waiting) < 2 * engine.limits.max_batch:
            text = next(left, None)
            if text is None or limit.is_over:
                is_open = False
            else:
                waiting.append((text, engine.submit(_request(text, seed_of))))
        if waiting:
            text, ticket = waiting.popleft()
            answer = ticket.result().choices[0]
            logged.append((text.number, answer.token_ids == text.answer))
            on_text()
    return logged


def _request(text: Generation, seed_of: Callable[[int], int]) -> GenerationRequest:
    params = SamplingParams(
        max_tokens=len(text.answer), temperature=text.temperature, seed=seed_of(text.number)
    )
    return GenerationRequest(text.prompt, params, store=False, shared_drafts=False)

"""Hidden states for the replay of a survey: no log holds them, the features of its texts do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from whiflash.core.errors import ConfigError
from whiflash.routing.replay.log import LoggedRun
from whiflash.routing.replay.turns import Turn
from whiflash.training.data.prompts import HELD_OUT
from whiflash.training.features.store import FeatureStore, TextPlace
from whiflash.training.router.hidden import hidden_store
from whiflash.training.router.survey import sitting_texts


def put_hidden(
    runs: Sequence[LoggedRun], log: Path, work_dir: Path, is_held_out: bool = False
) -> None:
    """Every root of the survey `log` gets the hidden state that `work_dir` keeps. Texts that came
    out differently lose their roots; with `is_held_out` so do those that a router learns from.
    Raises ConfigError for a log of no survey."""
    numbers = sitting_texts(log.parent)
    if numbers is None:
        raise ConfigError(f"{log} is no survey of {work_dir}: texts.json is missing beside it; "
                          "take a log of `whiflash train router`")  # fmt: skip
    store = hidden_store(work_dir)
    places = {place.number: place for place in store.texts}
    known = {sequence: places[number] for sequence, (number, is_same) in enumerate(numbers, 1)
             if is_same and number in places
             and (not is_held_out or places[number].split == HELD_OUT)}  # fmt: skip
    for run in runs:
        run.turns = [turn for turn in run.turns if turn.sequence in known]
        for turn in run.turns:
            _put(turn, store, known[turn.sequence])


def _put(turn: Turn, store: FeatureStore, place: TextPlace) -> None:
    # The signals at a root come from the row that the root was taken from.
    hidden = store.hidden(place).float().numpy()
    for position, root in turn.roots.items():
        if position - 1 < len(hidden):
            root.signals = replace(root.signals, hidden=hidden[position - 1])

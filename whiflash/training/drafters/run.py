"""One drafter's training from text to checkpoint: features, steps, acceptance, files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from whiflash.core.errors import ConfigError
from whiflash.training.clock import TimeLimit
from whiflash.training.data.prompts import HELD_OUT, TRAIN
from whiflash.training.drafters.acceptance import measure
from whiflash.training.drafters.card import model_card
from whiflash.training.drafters.dflash import DFlashObjective
from whiflash.training.drafters.eagle3 import Eagle3Objective
from whiflash.training.drafters.init import StartPoint, dflash_start, eagle3_start
from whiflash.training.drafters.layout import write_checkpoint
from whiflash.training.drafters.mask import choose_mask_id
from whiflash.training.drafters.objective import Objective
from whiflash.training.drafters.trainer import StepReport, StepSettings, Trainer
from whiflash.training.drafters.vocabulary import count_ids, coverage, draft_ids
from whiflash.training.features.extract import FOLDER
from whiflash.training.features.facts import TargetEnds, TargetFacts
from whiflash.training.features.store import FeatureStore, TextPlace
from whiflash.training.files import read_settings
from whiflash.training.provenance import provenance

CHECKPOINT: Final = "checkpoint"


@dataclass(frozen=True, slots=True)
class Eagle3Settings:
    """vocab_size: ids that can be drafted; unroll: steps of the training-time test; depth: drafts
    that acceptance is measured over."""

    vocab_size: int = 8192
    unroll: int = 4
    depth: int = 6


@dataclass(frozen=True, slots=True)
class DFlashSettings:
    """vocab_size: ids in every loss; mask_id None: the last special id that no text holds."""

    vocab_size: int = 8192
    num_layers: int = 2
    block: int = 8
    mask_id: int | None = None


MethodSettings = Eagle3Settings | DFlashSettings


class DrafterTraining:
    """`folder`: where this drafter's state and checkpoint lie, in `work_dir` or anywhere."""

    def __init__(
        self,
        work_dir: Path,
        folder: Path,
        method: MethodSettings,
        steps: StepSettings,
        device: str,
        num_texts: int | None = None,
        init: Path | None = None,
    ) -> None:
        """Features must be there. num_texts: only the first so many texts. init: folder of a
        checkpoint to begin with. Raises ConfigError, or ModelError for a bad checkpoint."""
        place = torch.device(device)
        self.facts = TargetFacts.read(work_dir / FOLDER)
        self._ends = TargetEnds.read(work_dir / FOLDER, place)
        self._store = FeatureStore(work_dir, place)
        self._folder, self._method = folder, method
        self._texts = self._kept_texts(folder, num_texts)
        self.objective, self._known = self._make(steps.seed, init)
        told = {"arm": self.objective.name, "target": self.facts.fingerprint, **self._known}
        self.trainer = Trainer(self.objective, self._store, self._texts, steps, folder, told)

    def _kept_texts(self, folder: Path, asked: int | None) -> list[TextPlace]:
        """Those that were there when this training began."""
        texts = self._store.select(TRAIN)[:asked]
        if (folder / "settings.json").is_file():
            count = int(read_settings(folder)["num_texts"])
            if asked is not None and asked != count:
                raise ConfigError(f"{folder} was begun with {count} texts, not {asked}")
            texts = self._store.select(TRAIN)[:count]
        return texts

    def _make(self, seed: int, init: Path | None) -> tuple[Objective, dict[str, Any]]:
        """The objective, and what was resolved for it."""
        if isinstance(self._method, Eagle3Settings):
            return self._make_eagle3(self._method, seed, init)
        return self._make_dflash(self._method, seed, init)

    def _make_eagle3(
        self, method: Eagle3Settings, seed: int, init: Path | None
    ) -> tuple[Objective, dict[str, Any]]:
        facts, ends = self.facts, self._ends
        start = None if init is None else eagle3_start(init, facts, ends)
        if start is None:
            ids, share = draft_ids(self._answers(), facts, method.vocab_size)
        else:  # the head's rows stand for these ids
            ids, share = (
                start.ids,
                coverage(start.ids, count_ids(self._answers(), facts.vocab_size)),
            )
        made = Eagle3Objective(facts, ends, ids, method.unroll, method.depth, seed)
        known = {**asdict(method), "vocab_size": len(ids), **self._known_of(share)}
        return made, {**known, **_begin(made, start)}

    def _make_dflash(
        self, method: DFlashSettings, seed: int, init: Path | None
    ) -> tuple[Objective, dict[str, Any]]:
        facts, ends = self.facts, self._ends
        start = None if init is None else dflash_start(init, facts, ends)
        ids, share = draft_ids(self._answers(), facts, method.vocab_size)
        asked = method.mask_id if start is None or start.mask_id is None else start.mask_id
        mask_id = choose_mask_id(map(self._store.ids, self._texts), facts, asked)
        made = DFlashObjective(facts, ends, ids, mask_id, method.num_layers, method.block, seed)
        known = {**asdict(method), **self._known_of(share), "mask_id": mask_id}
        return made, {**known, **_begin(made, start)}

    def _answers(self) -> Iterator[torch.Tensor]:
        return (self._store.ids(text)[text.num_prompt :] for text in self._texts)

    def _known_of(self, share: float) -> dict[str, Any]:
        return {"num_texts": len(self._texts), "coverage": round(share, 5)}

    def run(self, limit: TimeLimit, on_step: Callable[[StepReport], None]) -> bool:
        """Steps until done (True) or time is over."""
        return self.trainer.run(limit, on_step)

    def acceptance(self, max_texts: int | None = None) -> dict[str, Any]:
        """On greedy held-out texts, by kind. Raises ConfigError if there are none."""
        texts = self._held_out(max_texts)
        if not texts:
            raise ConfigError("no held-out text has features; run `whiflash train data` for longer")
        found = measure(self.objective, self._store, texts, self.trainer.autocast())
        return {kind: one.record() for kind, one in sorted(found.items())}

    def _held_out(self, max_texts: int | None) -> list[TextPlace]:
        return self._store.select(HELD_OUT, temperature=0.0)[:max_texts]

    def export(self, max_texts: int | None = None) -> tuple[Path, Mapping[str, Any]]:
        """Writes the checkpoint as it is now; its folder, and what training.json says."""
        trainer, facts = self.trainer, self.facts
        config, tensors = self.objective.checkpoint()
        training = {
            "arm": self.objective.name,
            "target": {"name": facts.name, "fingerprint": facts.fingerprint,
                       "tokenizer": facts.tokenizer},
            "steps": trainer.step,
            "tokens_seen": trainer.num_tokens,
            "texts": len(self._texts),
            "answer_tokens": sum(text.num_answer for text in self._texts),
            "held_out_texts": len(self._held_out(max_texts)),
            "acceptance": self.acceptance(max_texts),
            "settings": {**self._known, **asdict(trainer.settings)},
            "provenance": provenance(),
        }  # fmt: skip
        folder = self._folder / CHECKPOINT
        write_checkpoint(folder, config, tensors, model_card(self.objective.name, training),
                         training)  # fmt: skip
        return folder, training


def _begin(objective: Objective, start: StartPoint | None) -> dict[str, Any]:
    """What settings.json says of it: nothing of a training that begins with nothing."""
    if start is None:
        return {}
    objective.begin_from(start)
    return {"init": start.record()}

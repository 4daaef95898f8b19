"""Steps of training: the same whether they were interrupted or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import torch

from whiflash.core.errors import ConfigError
from whiflash.training.clock import TimeLimit
from whiflash.training.drafters.objective import Objective
from whiflash.training.features.store import FeatureStore, TextPlace
from whiflash.training.files import keep_settings, write_whole

_STATE: Final = "state.pt"
_SAVE_EVERY_S: Final = 120.0
_BETAS: Final = (0.9, 0.95)


@dataclass(frozen=True, slots=True)
class StepSettings:
    """num_steps: all in all, which the schedule needs to know from the start; batch_tokens: answer
    tokens of one step; peak of the rate after `warmup` of the steps, then a half cosine down to a
    tenth; clip: norm of the gradient; dtype: of the products (bfloat16 where the device has it)."""

    num_steps: int
    batch_tokens: int = 2048
    rate: float = 1e-3
    warmup: float = 0.05
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    dtype: str = "bfloat16"

    def rate_at(self, step: int) -> float:
        """Of step 0, 1, ..., num_steps - 1."""
        warm = max(round(self.warmup * self.num_steps), 1)
        if step < warm:
            return self.rate * (step + 1) / warm
        share = (step - warm) / max(self.num_steps - warm, 1)
        return self.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * share)))


@dataclass(frozen=True, slots=True)
class StepReport:
    """What `on_step` hears. step: from 1; tokens: answer tokens of the batch."""

    step: int
    loss: float
    tokens: int


class Trainer:
    """Trains an objective on `texts` of a store, its state in `folder`.

    A sitting ends cleanly; the next one, given the same texts, goes on with the same order,
    schedule and optimiser state.
    """

    def __init__(
        self,
        objective: Objective,
        store: FeatureStore,
        texts: Sequence[TextPlace],
        settings: StepSettings,
        folder: Path,
        facts: Mapping[str, Any],
    ) -> None:
        """facts: what else the training depends on, noted beside the settings. Raises ConfigError
        on other settings than the folder was begun with, or without texts."""
        self._objective, self._store, self.settings = objective, store, settings
        self._folder, self._texts = folder, texts
        if not texts:
            raise ConfigError("there is no text to train on; run `whiflash train data` for longer")
        keep_settings(folder, {**facts, **asdict(settings)})
        self._optimizer = torch.optim.AdamW(
            objective.module.parameters(), settings.rate, _BETAS,
            weight_decay=settings.weight_decay,
        )  # fmt: skip
        self.step = 0
        self.num_tokens = 0
        self._load()

    def run(self, limit: TimeLimit, on_step: Callable[[StepReport], None]) -> bool:
        """Steps until all are done (True) or time is over (False)."""
        self._objective.module.train()
        saved = TimeLimit(_SAVE_EVERY_S / 60)
        for batch in self._batches(self.step):
            if limit.is_over:
                break
            report = self._one(batch)
            on_step(report)
            if saved.is_over:
                self.save()
                saved = TimeLimit(_SAVE_EVERY_S / 60)
        self.save()
        self._objective.module.eval()
        return self.step >= self.settings.num_steps

    def _one(self, batch: list[TextPlace]) -> StepReport:
        settings = self.settings
        for group in self._optimizer.param_groups:
            group["lr"] = settings.rate_at(self.step)
        generator = torch.Generator().manual_seed((settings.seed << 24) + self.step)
        texts = [self._store.load(text) for text in batch]
        with self.autocast():
            loss = self._objective.loss(texts, generator)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ConfigError(f"the loss of step {self.step + 1} is {value}; lower --rate")
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._objective.module.parameters(), settings.clip)
        self._optimizer.step()
        self.step += 1
        tokens = sum(text.num_answer for text in batch)
        self.num_tokens += tokens
        return StepReport(self.step, value, tokens)

    def autocast(self) -> AbstractContextManager[None]:
        """Products in the settings' dtype."""
        if self.settings.dtype == "float32":
            return nullcontext()
        device = next(self._objective.module.parameters()).device.type
        return torch.autocast(device, dtype=getattr(torch, self.settings.dtype))

    def _batches(self, first: int) -> Iterator[list[TextPlace]]:
        """Batches first, first + 1, ..., num_steps - 1, as if all had been drawn."""
        for number, batch in enumerate(self._all_batches()):
            if number >= self.settings.num_steps:
                return
            if number >= first:
                yield batch

    def _all_batches(self) -> Iterator[list[TextPlace]]:
        """Every text once an epoch, in a new order each time."""
        generator = torch.Generator().manual_seed(self.settings.seed)
        batch: list[TextPlace] = []
        while True:
            for place in torch.randperm(len(self._texts), generator=generator).tolist():
                batch.append(self._texts[place])
                if sum(text.num_answer for text in batch) >= self.settings.batch_tokens:
                    yield batch
                    batch = []

    def save(self) -> None:
        """State of the sitting, complete or absent."""
        buffer = BytesIO()
        torch.save(
            {
                "module": self._objective.module.state_dict(),
                "optimizer": self._optimizer.state_dict(),
                "step": self.step,
                "num_tokens": self.num_tokens,
            },
            buffer,
        )
        write_whole(self._folder / _STATE, buffer.getvalue())

    def _load(self) -> None:
        path = self._folder / _STATE
        if not path.is_file():
            return
        device = next(self._objective.module.parameters()).device
        state = torch.load(path, map_location=device, weights_only=True)
        self._objective.module.load_state_dict(state["module"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.step, self.num_tokens = state["step"], state["num_tokens"]

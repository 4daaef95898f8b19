"""The second half of `whiflash train router`: from logged rounds to a router file and its card."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from whiflash.routing.heads import SurvivalHeads
    from whiflash.routing.neural_router import NeuralRouter
    from whiflash.training.clock import TimeLimit
    from whiflash.training.router.survey import Survey


@dataclass(frozen=True, slots=True)
class Fit:
    """named: all arms, for heads; pair: positive and negative arm of the network, if any."""

    work_dir: Path
    survey: Survey
    named: Sequence[str]
    pair: tuple[str, str] | None
    out: Path
    limit: TimeLimit

    def run(self, width: int, head_width: int, seed: int) -> None:
        """Fits, writes the file and beside it .json and .md, and tells what it is worth."""
        from whiflash.routing.router_file import RouterFile
        from whiflash.training.data.generations import generations_target
        from whiflash.training.provenance import provenance
        from whiflash.training.router.card import router_card

        target = generations_target(self.work_dir)
        told: dict[str, Any] = {"target": target, "arms": list(self.named)}
        heads, told["heads"] = self._heads(head_width, seed)
        neural = None
        if self.pair is not None:
            neural, told["neural"] = self._neural(self.pair, width, seed)
        told["provenance"] = provenance()
        self.out.parent.mkdir(parents=True, exist_ok=True)
        RouterFile(target, neural, heads).write(self.out)
        text = json.dumps(told, indent=1) + "\n"
        self.out.with_suffix(".json").write_text(text, encoding="utf-8")
        self.out.with_suffix(".md").write_text(router_card(told), encoding="utf-8")
        _tell(told, self.out)

    def _heads(self, width: int, seed: int) -> tuple[SurvivalHeads, dict[str, Any]]:
        from whiflash.training.progress import StageBar
        from whiflash.training.router.heads import HeadSettings, train_heads
        from whiflash.training.router.hidden import hidden_store
        from whiflash.training.router.reliability import head_report
        from whiflash.training.router.samples import head_samples

        arms = self.survey.head_arms(self.named)
        store = hidden_store(self.work_dir)
        samples = head_samples(self.survey.turns(), store, arms)
        settings = HeadSettings(width=width, seed=seed)
        with StageBar("epochs, heads", settings.max_epochs) as bar:
            heads = train_heads(
                samples, arms, settings, self.limit, lambda error: bar.step(f"error {error:.4f}")
            )
        return heads, head_report(heads, samples)

    def _neural(
        self, pair: tuple[str, str], width: int, seed: int
    ) -> tuple[NeuralRouter, dict[str, Any]]:
        from whiflash.training.progress import StageBar
        from whiflash.training.router.hidden import hidden_store
        from whiflash.training.router.labels import router_labels
        from whiflash.training.router.network import NetworkSettings, train_router

        store = hidden_store(self.work_dir)
        labels = router_labels(self.survey, store, *pair)
        settings = NetworkSettings(width=width, seed=seed)
        with StageBar("epochs, neural", settings.max_epochs) as bar:
            router, report = train_router(
                labels, pair, settings, self.limit,
                lambda error: bar.step(f"error {error:.4f}"),
            )  # fmt: skip
        return router, {"arms": list(pair), **report.record()}


def _tell(told: dict[str, Any], out: Path) -> None:
    for arm, figures in told["heads"]["arms"].items():
        length, expected = figures["accepted_length"], figures["expected"]
        typer.echo(f"{arm}: accepted length {length:.2f}, expected {expected:.2f}, explains "
                   f"{figures['explained']:.0%} of it")  # fmt: skip
    if "neural" in told:
        neural = told["neural"]
        lengths = ", ".join(f"{k} {v:.2f}" for k, v in neural["accepted_length"].items())
        typer.echo(f"neural explains {neural['explained']:.0%} of dAL; at every root: {lengths}")
        typer.echo(f"use it with --policy neural:file={out}")
    typer.echo(f"wrote {out}; use it with --policy goodput:file={out}")

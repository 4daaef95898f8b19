"""neural: WhiFlash-Neural (arXiv 2606.07710; its model cards), a learned choice of paradigm.

What it does. A two-layer GELU MLP on the target's final hidden state predicts dAL, the accepted
length that the positive arm gains over the negative one; above the threshold the row drafts with
the positive arm, otherwise with the negative one. Latency enters through the threshold alone. The
file names arms and target; another target, or a hidden state of another size, is refused. It has
no `none`. A row that has lost one of the two arms drafts with the other one; without a hidden
state, or where dAL is no number, it takes the negative arm.

When it is neutral. Never by itself: it drafts at every root. With `trim` it drafts nothing where
nothing pays.

Parameters.
    file: str = "shipped"        safetensors file: the MLP, its arms, its target; the one that comes
                                 with WhiFlash for this target.
    threshold: float = 1.0       tokens; the cards use 1.0 (EAGLE-3, DFlash), 0.5 (DDTree).
    trim: bool = False           `rule + trim`: the budget, 0 included, is left to the joint choice.

Example. `make_policy("neural", costs, file="router.safetensors", threshold=0.5)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, Outcome, Prediction, RouteRow
from whiflash.core.signals import SignalNeeds
from whiflash.models.shipped import SHIPPED, shipped_router
from whiflash.routing.costs import Costs
from whiflash.routing.neural_router import NeuralRouter
from whiflash.routing.paradigms import first_of
from whiflash.routing.router_file import RouterFile
from whiflash.routing.rule import RuleChoice, RuleMode
from whiflash.routing.setting import PolicySetting, require_arms


class NeuralPolicy:
    """A threshold on predicted dAL; see the module's docstring."""

    needs = SignalNeeds(hidden=True)

    def __init__(
        self,
        costs: Costs,
        *,
        file: str = SHIPPED,
        threshold: float = 1.0,
        trim: bool = False,
    ) -> None:
        if not np.isfinite(threshold):
            raise ConfigError(f"policy 'neural' needs a finite threshold, got {threshold}")
        self._file = file
        self._known: tuple[str, NeuralRouter] | None = None
        if file != SHIPPED:
            self._known = _network(Path(file))
        self._threshold = threshold
        self._mode = RuleMode(costs, trim)

    @property
    def name(self) -> str:
        return self._mode.name("neural")

    def take_shipped(self, fingerprint: str) -> None:
        """The network that comes with WhiFlash for that target, where no file was named. Raises
        ConfigError if there is none."""
        if self._file != SHIPPED:
            return
        found = shipped_router(fingerprint)
        if found is None:
            raise ConfigError("policy 'neural' needs file=ROUTER.safetensors: none is shipped for "
                              "this target; `whiflash train router` makes one")  # fmt: skip
        self._known = _network(found)

    @property
    def _router(self) -> NeuralRouter:
        if self._known is None:
            raise ConfigError("policy 'neural' needs file=ROUTER.safetensors where no target is "
                              "known")  # fmt: skip
        return self._known[1]

    def check_setting(self, setting: PolicySetting) -> None:
        """Takes the network that comes with WhiFlash for this target, if no file was named. Arms,
        hidden size and target must be those of the file."""
        self.take_shipped(setting.fingerprint)
        router = self._router
        if setting.is_replay and not setting.has_hidden:
            return
        require_arms("neural", (router.positive, router.negative), setting)
        if router.hidden_size != setting.hidden_size:
            raise ConfigError(f"policy 'neural': the router reads a hidden state of "
                              f"{router.hidden_size}, but the target's is {setting.hidden_size}; "
                              "use the router of this target")  # fmt: skip
        target, _ = self._known or ("", None)
        if target != setting.fingerprint:
            raise ConfigError(
                f"policy 'neural': the router belongs to the target {target[:12]}, but "
                f"this one is {setting.fingerprint[:12]}; use the router of this target"
            )

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        gains = self._gains(rows)
        choices = [self._choice(row, gain) for row, gain in zip(rows, gains, strict=True)]
        return self._mode.predictions(rows, choices)

    def _gains(self, rows: Sequence[RouteRow]) -> list[float]:
        """dAL per row, all in one forward; NaN where there is no hidden state."""
        router = self._router
        nothing = np.full(router.hidden_size, np.nan, np.float32)
        hidden = [nothing if r.signals.hidden is None else r.signals.hidden for r in rows]
        if not hidden:
            return []
        gains: list[float] = router.predict(np.stack(hidden)).tolist()
        return gains

    def _choice(self, row: RouteRow, gain: float) -> RuleChoice:
        positive, negative = self._router.positive, self._router.negative
        is_above = gain > self._threshold
        arm = first_of((positive, negative) if is_above else (negative, positive), row.arms)
        return (NONE, 0) if arm is None or arm == NONE else (arm, row.max_nodes)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """The rule learns nothing; its trim does."""
        self._mode.observe(outcomes)

    def forget_arm(self, arm: str, weight_hash: str) -> None:  # noqa: ARG002
        self._mode.forget_arm(arm)

    def check_integrity(self) -> None:
        self._mode.check_integrity()


def _network(path: Path) -> tuple[str, NeuralRouter]:
    """(the target's fingerprint, the network)."""
    file = RouterFile.read(path)
    if file.neural is None:
        raise ConfigError(f"policy 'neural': the router file {path} holds no network; train it "
                          "with --positive and --negative")  # fmt: skip
    return file.target, file.neural

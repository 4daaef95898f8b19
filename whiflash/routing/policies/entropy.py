"""entropy: WhiFlash's entropy controller (arXiv 2606.07710; known from secondary descriptions).

What it does. If the entropy of the target's distribution that the root was taken from is above
tau, the row drafts with the autoregressive arm, otherwise with the block arm. Stateless, without
hysteresis or smoothing; `whiflash calibrate entropy` measures tau. It has no `none`. A row that has
lost one of the two arms drafts with the other one. Entropy that is not a number is not above.

When it is neutral. Never by itself: it drafts at every root. On near-deterministic text (chat
templates, tool calls) entropy is about 0 at most roots, and it is one arm with a test in front.
With `trim` it drafts nothing where nothing pays.

Parameters.
    tau: float | None = None     nats; this or `file` must be given.
    file: str | None = None      what `whiflash calibrate entropy` wrote: tau, arms, target.
    above: str = "eagle3"        the arm above tau.
    below: str | None = None     the arm at or below it; None takes dflash or ddtree.
    trim: bool = False           `rule + trim`: the budget, 0 included, is left to the joint choice.

Example. `make_policy("entropy", costs, tau=1.2, below="ddtree")`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, Outcome, Prediction, RouteRow
from whiflash.routing.costs import Costs
from whiflash.routing.paradigms import BLOCK, first_of
from whiflash.routing.rule import RuleChoice, RuleMode
from whiflash.routing.setting import PolicySetting, require_arms
from whiflash.routing.tau_file import TauFile

_ABOVE = "eagle3"


class EntropyPolicy:
    """One threshold on the target's entropy; see the module's docstring."""

    def __init__(
        self,
        costs: Costs,
        *,
        tau: float | None = None,
        file: str | None = None,
        above: str | None = None,
        below: str | None = None,
        trim: bool = False,
    ) -> None:
        if (tau is None) == (file is None):
            raise ConfigError("policy 'entropy' needs tau=NATS or file=PATH, and not both; "
                              "`whiflash calibrate entropy` writes the file")  # fmt: skip
        if file is not None and (above, below) != (None, None):
            raise ConfigError("policy 'entropy': file= names the arms that it was measured with; "
                              "it excludes above= and below=")  # fmt: skip
        measured = TauFile.read(Path(file)) if file is not None else None
        self._measured = measured
        self._tau = measured.tau if measured else float(tau or 0.0)
        self._above = measured.above if measured else above or _ABOVE
        self._below = measured.below if measured else below
        if self._above == self._below:
            raise ConfigError(f"policy 'entropy' chooses between two arms, but above and below are "
                              f"both {self._above!r}")  # fmt: skip
        self._mode = RuleMode(costs, trim)

    @property
    def name(self) -> str:
        return self._mode.name("entropy")

    def check_setting(self, setting: PolicySetting) -> None:
        """Both arms must be there, and the target must be the one that tau was measured on."""
        below = self._below or first_of(BLOCK, setting.arms) or BLOCK[0]
        require_arms("entropy", (self._above, below), setting)
        if self._measured and self._measured.target != setting.fingerprint:
            raise ConfigError("policy 'entropy': file= was measured on another target; run "
                              "`whiflash calibrate entropy` with this one")  # fmt: skip

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        return self._mode.predictions(rows, [self._choice(row) for row in rows])

    def _choice(self, row: RouteRow) -> RuleChoice:
        below = self._below or first_of(BLOCK, row.arms) or ""
        is_above = row.signals.entropy > self._tau
        arm = first_of((self._above, below) if is_above else (below, self._above), row.arms)
        return (NONE, 0) if arm is None or arm == NONE else (arm, row.max_nodes)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """The rule learns nothing; its trim does."""
        self._mode.observe(outcomes)

    def forget_arm(self, arm: str, weight_hash: str) -> None:  # noqa: ARG002
        self._mode.forget_arm(arm)

    def check_integrity(self) -> None:
        self._mode.check_integrity()

"""The target: one model, ragged forwards, caches. Implements `core.protocols.Target`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from whiflash.core.costs import CostCurve
from whiflash.core.errors import ModelError
from whiflash.core.protocols import ForwardOutput, ForwardSegment, TargetInfo
from whiflash.models.backend import AttentionBackend
from whiflash.models.cache import SlabCache
from whiflash.models.ragged import RaggedRows
from whiflash.models.runner import ModelRunner


class LocalTarget:
    """A transformers model in this process. One thread uses it.

    `min_rows`: forwards are padded to this many rows at least, so that rows stay bit-equal; the
    runner may ask for more because that is faster.
    """

    def __init__(
        self,
        runner: ModelRunner,
        backend: AttentionBackend,
        min_rows: int = 1,
    ) -> None:
        self.runner = runner
        self.backend = backend
        self.min_rows = max(min_rows, runner.cheapest_rows)
        self._info: TargetInfo | None = None
        self._verify_curve: CostCurve | None = None

    def attach(self, info: TargetInfo, verify_curve: CostCurve) -> None:
        """What the loader found out about this target, once it has measured it."""
        self._info, self._verify_curve = info, verify_curve

    @property
    def info(self) -> TargetInfo:
        if self._info is None:
            raise ModelError("the target was not measured yet; load it with target.load")
        return self._info

    @property
    def verify_curve(self) -> CostCurve:
        if self._verify_curve is None:
            raise ModelError("the target was not measured yet; load it with target.load")
        return self._verify_curve

    def new_cache(self, num_tokens: int) -> SlabCache:
        return SlabCache(self.backend.new_slab(num_tokens))

    def cache_bytes(self, num_tokens: int) -> int:
        return self.backend.layout.num_bytes(num_tokens)

    def forward(self, segments: Sequence[ForwardSegment]) -> ForwardOutput:
        """One ragged forward. Raises ValueError on segments that break the contract; then, as
        after any error, the caches hold no scratch."""
        rows = RaggedRows.pack(segments, self.min_rows)
        for span in rows.spans:
            span.cache.reserve(span.count)
        with torch.inference_mode():
            output = self._run(rows)
        for span in rows.spans:
            span.cache.wrote(span.parents)
        return output

    def _run(self, rows: RaggedRows) -> ForwardOutput:
        device = self.runner.device
        ids = torch.from_numpy(rows.token_ids).to(device)
        positions = torch.from_numpy(rows.positions).to(device)
        hidden = self.runner.hidden(ids, positions, self.backend.start(rows))
        asked = hidden[torch.from_numpy(rows.logit_rows).to(device)]
        return ForwardOutput(self.runner.logits(asked), asked)

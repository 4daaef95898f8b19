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
from whiflash.models.slab import BLOCK_TOKENS
from whiflash.models.taps import Fuse, TapCapture, TapSource


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
        self._tap_sources: dict[str, TapSource] = {}

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

    def keep_taps(self, weight_hash: str, boundaries: Sequence[int], fuse: Fuse) -> None:
        """From now on every cache also keeps what `fuse` makes of the taps ([n, boundaries * h] ->
        [n, width]), under that drafter's weight hash."""
        layout = self.backend.layout
        hidden_size = self.runner.model.config.get_text_config().hidden_size
        probe = torch.zeros(
            1, len(boundaries) * hidden_size, dtype=layout.dtype, device=layout.device
        )
        with torch.inference_mode():
            fused = fuse(probe)
        self._tap_sources[weight_hash] = TapSource(
            weight_hash, tuple(boundaries), fused.shape[1], fuse, fused.dtype
        )

    def drop_taps(self, weight_hash: str) -> None:
        self._tap_sources.pop(weight_hash, None)

    def new_cache(self, num_tokens: int) -> SlabCache:
        device = self.backend.layout.device
        planes = {name: s.plane(num_tokens, device) for name, s in self._tap_sources.items()}
        return SlabCache(self.backend.new_slab(num_tokens), planes)

    def cache_bytes(self, num_tokens: int) -> int:
        layout = self.backend.layout
        num_slots = layout.num_blocks(num_tokens) * BLOCK_TOKENS
        taps = sum(source.num_bytes(num_slots) for source in self._tap_sources.values())
        return layout.num_bytes(num_tokens) + taps

    def forward(self, segments: Sequence[ForwardSegment]) -> ForwardOutput:
        """One ragged forward. Raises ValueError on segments that break the contract; then, as
        after any error, the caches hold no scratch."""
        rows = RaggedRows.pack(segments, self.min_rows)
        device = self.backend.layout.device
        for span in rows.spans:
            span.cache.follow(self._tap_sources, device)
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
        capture = TapCapture([b for s in self._tap_sources.values() for b in s.boundaries])
        hidden = self.runner.hidden(ids, positions, self.backend.start(rows), capture)
        self._store_taps(rows, capture)
        asked = hidden[torch.from_numpy(rows.logit_rows).to(device)]
        return ForwardOutput(self.runner.logits(asked), asked)

    def _store_taps(self, rows: RaggedRows, capture: TapCapture) -> None:
        for name, source in self._tap_sources.items():
            fused = source.fuse(capture.at(source.boundaries))
            for span in rows.spans:
                span.cache.write_taps(name, fused[span.start : span.start + span.count])

"""What the index of earlier runs costs: build rate, bytes a token, whole lookups of a batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from whiflash.core.rows import DraftRow
from whiflash.drafters.retrieval import RetrievalDrafter
from whiflash.trajectories.index import Sealing, TrajectoryIndexes
from whiflash.trajectories.index.tiers import NamespaceIndex
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.sealed.folder import SealedFolder

Ids = npt.NDArray[np.int32]
NAMESPACE: Final = "measured"
NUM_ROWS: Final = 32
RUN_TOKENS: Final = 256
VOCAB: Final = 49_152
PHRASE_TOKENS: Final = (4, 40)
REPEATED_SHARE: Final = 0.6
LIVE_BYTES: Final = 160 * 2**20
CONTEXT_TOKENS: Final = 512
STEP_TOKENS: Final = 3
MAX_NODES: Final = 16
WAIT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class IndexFigures:
    """num_tokens: of the store; live, sealed: of them, in each tier. Times in microseconds per row
    of a batch of `num_rows`, Python and own context included. gil_free_share: see
    `_gil_free_share`."""

    num_tokens: int
    live_tokens: int
    sealed_tokens: int
    build_tokens_per_s: float
    live_bytes_per_token: float
    sealed_bytes_per_token: float
    num_rows: int
    num_segments: int
    lookup_p50_us: float
    lookup_p99_us: float
    matched_tokens: float
    source_share_sealed: float
    gil_free_share: float

    def record(self) -> dict[str, Any]:
        """JSON-able, four digits."""
        return {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def agent_like_runs(num_tokens: int, seed: int = 0) -> Iterator[Ids]:
    """Runs that repeat phrases of each other, as agents do: a share of REPEATED_SHARE of their
    stretches are taken from a pool of Zipf popularity, the rest is new text of Zipf ids."""
    rng = np.random.default_rng(seed)
    low, high = PHRASE_TOKENS
    num_phrases = max(num_tokens // 200, 64)
    pool = _zipf_ids(rng, num_phrases * high).reshape(num_phrases, high)
    for _ in range(num_tokens // RUN_TOKENS):
        pieces: list[Ids] = []
        length = 0
        while length < RUN_TOKENS:
            size = int(rng.integers(low, high))
            if rng.random() < REPEATED_SHARE:
                phrase = pool[int(num_phrases * rng.random() ** 3)]
                pieces.append(phrase[:size])
            else:
                pieces.append(_zipf_ids(rng, size))
            length += size
        yield np.concatenate(pieces)[:RUN_TOKENS]


def _zipf_ids(rng: np.random.Generator, count: int) -> Ids:
    return np.minimum(rng.zipf(1.3, count), VOCAB - 1).astype(np.int32)


def measure_index(
    num_tokens: int, num_batches: int = 500, *, live_bytes: int = LIVE_BYTES, seed: int = 0
) -> IndexFigures:
    """Fills a store with `num_tokens`, waits until all is indexed and sealed, then times
    `num_batches` whole proposals of NUM_ROWS sequences that go on between them. Files lie in a
    temporary folder."""
    with TemporaryDirectory(prefix="whiflash-measure-") as place:
        log = MemoryLog(8 * num_tokens + 2**20)
        folder = SealedFolder.beside_log(Path(place))
        sealing = Sealing(folder, 64 * num_tokens + 2**20, 64 * num_tokens + 2**20)
        indexes = TrajectoryIndexes(log, live_bytes, sealing=sealing)
        with closing(indexes):
            return _measured(log, indexes, num_tokens, num_batches, seed)


def _measured(
    log: MemoryLog, indexes: TrajectoryIndexes, num_tokens: int, num_batches: int, seed: int
) -> IndexFigures:
    runs = list(agent_like_runs(num_tokens, seed))
    for number, tokens in enumerate(runs):
        log.append(TrajectoryRecord(NAMESPACE, f"run-{number // 8}", tokens))
    start = time.perf_counter()
    index = indexes.live(NAMESPACE)
    if not (indexes.flush(WAIT_S) and indexes.flush_sealed(WAIT_S)):
        raise TimeoutError("the index was not built in time")
    build_s = time.perf_counter() - start
    times, matched, sources = _lookups(RetrievalDrafter(indexes), runs, num_batches, seed)
    sealed_tokens, num_segments, sealed_bytes = _sealed(index)
    live_tokens = index.live.num_tokens
    return IndexFigures(
        num_tokens=len(runs) * RUN_TOKENS,
        live_tokens=live_tokens,
        sealed_tokens=sealed_tokens,
        build_tokens_per_s=len(runs) * RUN_TOKENS / build_s,
        live_bytes_per_token=index.num_bytes / max(live_tokens, 1),
        sealed_bytes_per_token=sealed_bytes / max(sealed_tokens, 1),
        num_rows=NUM_ROWS,
        num_segments=num_segments,
        lookup_p50_us=1e6 * float(np.percentile(times, 50)) / NUM_ROWS,
        lookup_p99_us=1e6 * float(np.percentile(times, 99)) / NUM_ROWS,
        matched_tokens=float(np.mean(matched)),
        source_share_sealed=sources.count("sealed") / max(len(sources), 1),
        gil_free_share=_gil_free_share(index),
    )


def _sealed(index: NamespaceIndex) -> tuple[int, int, int]:
    """Tokens, segments, bytes."""
    tier = index.sealed
    return (tier.num_tokens, len(tier.segments), tier.num_bytes) if tier is not None else (0, 0, 0)


def _lookups(
    drafter: RetrievalDrafter, runs: list[Ids], num_batches: int, seed: int
) -> tuple[list[float], list[int], list[str]]:
    """Seconds of each batch; tokens matched and source of each row's draft. The sequences go along
    runs of the store, from a place of their own on, over a context that is new."""
    rng = np.random.default_rng(seed + 1)
    texts = [_context(rng, runs) for _ in range(NUM_ROWS)]
    lengths = [CONTEXT_TOKENS] * NUM_ROWS
    for number, text in enumerate(texts):
        drafter.open(number, NAMESPACE, text[:CONTEXT_TOKENS], text[:0])
    times: list[float] = []
    matched: list[int] = []
    sources: list[str] = []
    for _ in range(num_batches):
        rows = [
            DraftRow(number, NAMESPACE, text[:length], MAX_NODES, MAX_NODES)
            for number, (text, length) in enumerate(zip(texts, lengths, strict=True))
        ]
        start = time.perf_counter()
        trees = drafter.propose(rows)
        times.append(time.perf_counter() - start)
        matched += [drafter.matched(number) for number in range(NUM_ROWS)]
        sources += [tree.source for tree in trees if len(tree)]
        for number in range(NUM_ROWS):
            lengths[number] += STEP_TOKENS
            if lengths[number] > len(texts[number]):
                texts[number], lengths[number] = _context(rng, runs), CONTEXT_TOKENS
                text = texts[number]
                drafter.open(number, NAMESPACE, text[:CONTEXT_TOKENS], text[:0])
    return times, matched, sources


def _context(rng: np.random.Generator, runs: list[Ids]) -> Ids:
    run = runs[int(rng.integers(len(runs)))]
    return np.concatenate([_zipf_ids(rng, CONTEXT_TOKENS), run])


def _gil_free_share(index: NamespaceIndex) -> float:
    """Of the time that one long lookup takes, how much another thread can run Python in: the rate
    at which it counts beside the lookup, over the rate beside a sleeping thread. Near 1 on a free
    core; half where two threads share one."""
    return _counted_beside(lambda: _long_lookup(index)) / _counted_beside(lambda: time.sleep(0.2))


def _long_lookup(index: NamespaceIndex) -> None:
    from whiflash.drafters.retrieval.odds import LearnedOdds
    from whiflash.trajectories.index import LookupBatch, layout

    num_rows = 20_000
    rng = np.random.default_rng(5)
    batch = LookupBatch()
    batch.begin([(0, layout.MAX_MATCH_TOKENS, 1, MAX_NODES, MAX_NODES)] * num_rows)
    batch.tails[:] = _zipf_ids(rng, batch.tails.size).reshape(batch.tails.shape)
    index.lookup(batch, 0, num_rows, LearnedOdds().odds, 0.05)


def _counted_beside(work: Any) -> float:
    """Loops a second of this thread while `work` runs on another."""
    thread = threading.Thread(target=work)
    start = time.perf_counter()
    thread.start()
    count = 0
    while thread.is_alive():
        count += 1
    seconds = time.perf_counter() - start
    thread.join()
    return count / seconds

"""The sealed runs of one namespace: segments, what waits to be sealed, what has to be forgotten."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

import numpy as np

from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.errors import StoreError
from whiflash.trajectories.sealed.file import SegmentData, segment_path, write_segment
from whiflash.trajectories.sealed.folder import SealedFolder
from whiflash.trajectories.sealed.job import Job, Waiting, segments_to_rewrite
from whiflash.trajectories.sealed.ledger import Ledger, Mask, Run
from whiflash.trajectories.sealed.segment import Segment
from whiflash.trajectories.sealed.shelf import found_segments, last_number
from whiflash.trajectories.sealed.text import DEAD, LIVE, UNCONFIRMED, are_storable

logger = logging.getLogger(__name__)
MIN_BYTES = 2**16
SEGMENTS_PER_QUOTA = 4
MAX_SEGMENT_TOKENS = 16 * 2**20  # 0.3 GB while it is sorted
BYTES_PER_TOKEN = 7.5
MAX_WAITING_TOKENS = 4 * 2**20
MAX_WRITES = 4


class SealedTier:
    """Three threads meet here: the tailer's tells what the log says, the builder's does `work`, the
    engine's reads `segments` while it holds `lock`, which nobody holds for longer than it takes to
    mark runs.

    A run read from a file is used once the log has been met holding it, so whatever the log lost
    meanwhile, by deletion, age or quota, is not used and is cut out of the files.
    """

    def __init__(self, namespace: str, folder: SealedFolder, max_bytes: int) -> None:
        self.namespace = namespace
        self.lock = threading.Lock()
        self.segments: tuple[Segment, ...] = ()  # oldest first, replaced as a whole
        self._folder = folder.of_namespace(namespace)
        self._is_durable = folder.is_durable
        self.max_bytes = max_bytes
        self._max_tokens = min(
            MAX_SEGMENT_TOKENS, int(max_bytes / SEGMENTS_PER_QUOTA / BYTES_PER_TOKEN)
        )
        self._waiting = Waiting(MAX_WAITING_TOKENS)
        self._job: Job | None = None
        self._next_number = 1
        self._is_loaded = False
        self.num_corrupt = 0  # files that were not sound
        self.num_evicted = 0  # runs given up for newer ones
        self.num_failures = 0  # files that could not be written

    # What is held.

    @property
    def num_tokens(self) -> int:
        """That can be drafted from."""
        return sum(segment.ledger.num_live_tokens for segment in self.segments)

    @property
    def num_bytes(self) -> int:
        """Mapped files, and the memory of what goes with them."""
        return sum(segment.num_bytes for segment in self.segments) + self._waiting.num_bytes

    @property
    def num_dropped(self) -> int:
        """Runs that could not be sealed: too many at once, or ids too large."""
        return self._waiting.num_dropped

    @property
    def has_work(self) -> bool:
        with self.lock:
            return self._job is not None or bool(len(self._waiting) or self._to_rewrite())

    # The tailer's thread.

    def load(self) -> None:
        """Takes in the files of the last process, all runs unconfirmed. The first call counts.
        Raises OSError."""
        if self._is_loaded:
            return
        self._is_loaded = True
        if not self._is_durable:
            return
        found, self.num_corrupt = found_segments(self._folder, self.namespace)
        self._next_number = last_number(self._folder) + 1
        with self.lock:
            self.segments = _in_order(found)

    def confirm(self, record_id: int) -> bool:
        """The log holds this record: whether it is sealed, and so need not be indexed otherwise."""
        for segment in self.segments:
            run = segment.ledger.find(record_id)
            if run >= 0:
                with self.lock:
                    return segment.ledger.confirm(run)
        return False

    def take(self, runs: Iterable[Run]) -> None:
        """To be sealed soon. Those older than a full tier holds are left out."""
        oldest_ms = min((int(s.data.directory.times_ms.min()) for s in self.segments), default=0)
        is_full = self.num_bytes > self.max_bytes * (1 - 1 / SEGMENTS_PER_QUOTA)
        wanted = [run for run in runs if are_storable(run.tokens) and len(run.tokens)]
        with self.lock:
            self._waiting.extend(run for run in wanted if not (is_full and run.time_ms < oldest_ms))

    def delete(self, deletion: Deletion) -> None:
        """What is covered is not found from here on; files that hold it are gone at once."""
        masks = [(segment, segment.covered(deletion)) for segment in self.segments]
        with self.lock:
            self._waiting.remove(lambda run: deletion.covers_source(run.run_id, run.subject))
            if self._job is not None:
                self._job.mask_runs(lambda ledger: ledger.directory.covered(deletion))
            for segment, mask in masks:
                segment.ledger.set_states(mask, DEAD)
        self._remove_files(segment for segment, mask in masks if mask.any())
        self._drop_useless()

    def expire(self, time_ms: int) -> int:
        """Runs that ended before that time are not found from here on; how many."""
        with self.lock:
            num_gone = self._waiting.remove(lambda run: run.time_ms < time_ms)
            if self._job is not None:
                self._job.mask_runs(lambda ledger: ledger.older_than(time_ms))
            for segment in self.segments:
                num_gone += segment.ledger.set_states(segment.ledger.older_than(time_ms), DEAD)
        self._drop_useless()
        return num_gone

    def clear(self) -> None:
        """The log is read anew: nothing is used that it does not bring again."""
        with self.lock:
            self._waiting.remove(lambda _: True)
            if self._job is not None:
                self._job.mask_runs(_all)
            for segment in self.segments:
                segment.ledger.set_states(_all(segment.ledger), UNCONFIRMED)

    def complete(self) -> None:
        """The log was read from start to end: what it did not bring is not in it any more."""
        gone = [(segment, segment.ledger.unconfirmed()) for segment in self.segments]
        with self.lock:
            for segment, mask in gone:
                segment.ledger.set_states(mask, DEAD)
        self._remove_files(segment for segment, mask in gone if mask.any())
        self._drop_useless()

    def evict_oldest(self) -> bool:
        """Gives up the oldest segment; False if there is none."""
        with self.lock:
            if not self.segments:
                return False
            oldest, self.segments = self.segments[0], self.segments[1:]
            oldest.ledger.set_states(_all(oldest.ledger), DEAD)  # it may just be written anew
        self.num_evicted += len(oldest.data.directory)
        self._remove_files([oldest])
        return True

    def _drop_useless(self) -> None:
        with self.lock:
            useless = [segment for segment in self.segments if segment.ledger.is_useless]
            self.segments = tuple(s for s in self.segments if s not in useless)
        self._remove_files(useless)

    def _remove_files(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            try:
                segment.remove_file()
            except OSError as error:
                self.num_failures += 1
                logger.error("%s could not be removed (%s)", segment.path, error.strerror)

    # The builder's thread.

    def work(self) -> bool:
        """Builds one segment, of what is the most pressing; False if there is nothing to do. What
        was to be sealed is dropped where that fails; the log still holds it.
        Raises OSError where the disk is full, StoreError."""
        with self.lock:
            runs = self._waiting.take(self._max_tokens)
            sources = () if runs else self._to_rewrite()
            job = self._job = Job(sources, runs) if runs or sources else None
        if job is None:
            return False
        try:
            data = job.built()
            segment = None if data is None else self._kept(data)
        except BaseException:
            self.num_failures += 1
            with self.lock:
                self._job = None
            raise
        self._install(job, segment)
        return True

    def _to_rewrite(self) -> tuple[Segment, ...]:
        return segments_to_rewrite(self.segments, self._max_tokens)

    def _kept(self, data: SegmentData) -> Segment:
        try:
            return self._written(data)
        except FileNotFoundError:
            # A deletion takes away what lies in the folder; this was not mapped yet. The job
            # knows by now which runs it covers.
            return self._written(data)

    def _written(self, data: SegmentData) -> Segment:
        """The log's own deletion may erase a file before it was opened: then another one is
        written, and masked as soon as the tailer has met the tombstone."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for _ in range(MAX_WRITES):
            path = segment_path(self._folder, self._next_number)
            self._next_number += 1
            try:
                write_segment(path, self.namespace, data, is_synced=self._is_durable)
                segment = Segment.opened(path, self.namespace, LIVE)
            except FileNotFoundError:
                continue
            if not self._is_durable:
                path.unlink()
            return segment
        raise StoreError(f"segments in {self._folder} go away as soon as they are written")

    def _install(self, job: Job, segment: Segment | None) -> None:
        """Runs that were masked meanwhile are so in the new segment too."""
        with self.lock:
            self._job = None
            held = [s for s in self.segments if s not in job.sources]
            if segment is not None:
                segment.ledger.take_states(job.states())
                held.append(segment)
            self.segments = _in_order(held)
        self._remove_files(job.sources)
        if segment is not None and segment.ledger.dead_share():
            self._remove_files([segment])
        self._drop_useless()
        while self.num_bytes > self.max_bytes and len(self.segments) > 1:
            self.evict_oldest()

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        with self.lock:
            segments = self.segments
            self._waiting.check_integrity()
            for segment in segments:
                segment.check_integrity()
        times = [segment.newest_ms for segment in segments]
        assert times == sorted(times), "segments out of order"
        assert len(segments) <= 1 or self.num_bytes <= self.max_bytes + self._waiting.num_bytes
        if self._is_durable:
            on_disk = {segment.path for segment in segments if segment.has_file}
            assert on_disk <= set(self._folder.glob("*")), "a file is missing"


def _in_order(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    return tuple(sorted(segments, key=lambda segment: (segment.newest_ms, segment.number)))


def _all(ledger: Ledger) -> Mask:
    return np.ones(len(ledger.states), bool)

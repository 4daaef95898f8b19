"""The thread that runs a hosted drafter: frames of all verifiers in, trees out."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from whiflash.core.draft import DraftTree
from whiflash.core.errors import ConfigError
from whiflash.core.fuse import Fusing
from whiflash.core.protocols import Drafter
from whiflash.core.rows import DraftRow
from whiflash.rpc.convert import read_feedback, read_query, tree_message
from whiflash.rpc.drafter_states import DrafterStates
from whiflash.rpc.fuse_file import fuse_bytes
from whiflash.rpc.v1 import drafter_service_pb2 as pb

logger = logging.getLogger(__name__)
Reply = Callable[[pb.Drafted], None]
SUPERSEDED, FAILED = "superseded", "failed"


@dataclass(slots=True)
class Round:
    """One PROPOSE and what is known of its rows so far, by place."""

    client: str
    epoch: int
    message: pb.Propose
    reply: Reply
    answers: dict[int, pb.DraftedRow] = field(default_factory=dict)

    @property
    def is_answered(self) -> bool:
        return len(self.answers) == len(self.message.rows)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A row that can be drafted now."""

    round: Round
    place: int
    row: DraftRow


class DraftDesk:
    """Runs one drafter. Frames of one client are worked off in order; what several clients sent
    meanwhile is absorbed in one call, and drafted in one call."""

    def __init__(self, make: Callable[[], Drafter], max_bytes: int) -> None:
        """`make` loads the drafter, on the desk's thread; what it raises is raised here."""
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._catch_ups: list[tuple[str, pb.CatchUpFrame]] = []
        self._rounds: list[Round] = []
        self._seen: dict[tuple[str, int], int] = {}
        self._made: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, args=(make, max_bytes), name="whiflash-draft", daemon=True
        )
        self.num_drafted = 0
        self.busy_s = 0.0  # seconds at work, for those who scale drafters
        self._thread.start()
        error = self._made.get()
        if error is not None:
            raise error

    def submit(self, work: Callable[[], None]) -> None:
        """Runs `work` on the desk's thread, behind what was submitted before."""
        self._inbox.put(work)

    def fuse_file(self) -> Future[bytes]:
        """What makes the drafter's fused taps; read on the desk's thread. Its result raises
        ConfigError for a drafter that does not tell."""
        future: Future[bytes] = Future()

        def read() -> None:
            try:
                if not isinstance(self.drafter, Fusing):
                    raise ConfigError(f"drafter {self.drafter.name} tells nobody how it fuses taps")
                future.set_result(fuse_bytes(self.drafter.fuse_weights()))
            except Exception as error:  # noqa: BLE001 - raised where the result is taken
                future.set_exception(error)

        self.submit(read)
        return future

    def close(self) -> None:
        """Joins the thread. Idempotent."""
        self._inbox.put(None)
        self._thread.join()

    def _run(self, make: Callable[[], Drafter], max_bytes: int) -> None:
        try:
            self.drafter = make()
            self.states = DrafterStates(self.drafter, max_bytes)
        except BaseException as error:  # noqa: BLE001 - the constructor raises it
            self._made.put(error)
            return
        self._made.put(None)
        while True:
            work = self._inbox.get()
            started_s = time.perf_counter()
            if not self._take_all(work):
                return
            self._flush()
            self._draft()
            self.busy_s += time.perf_counter() - started_s

    def _take_all(self, work: Callable[[], None] | None) -> bool:
        """`work` and everything else that is at hand; False at the end."""
        while True:
            if work is None:
                return False
            self._try(work)
            try:
                work = self._inbox.get_nowait()
            except queue.Empty:
                return True

    @staticmethod
    def _try(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # a frame that breaks the drafter costs its rows only
            logger.exception("the drafter failed")

    def catch_up(self, client: str, frame: pb.CatchUpFrame) -> None:
        """On the desk's thread, like all below."""
        if any(c == client and f.sequence_id == frame.sequence_id for c, f in self._catch_ups):
            self._flush()
        self._catch_ups.append((client, frame))

    def open(self, client: str, message: pb.SequenceOpening) -> None:
        self._flush()
        self.states.open(client, message)

    def shut(self, client: str, sequence_ids: Sequence[int]) -> None:
        self._flush()
        self.states.close([(client, number) for number in sequence_ids])

    def keep_only(self, client: str, sequence_ids: Sequence[int]) -> None:
        """At an opening: what an earlier epoch asked for is no longer wanted."""
        self._flush()
        self._rounds = [r for r in self._rounds if r.client != client]
        self._seen = {k: n for k, n in self._seen.items() if k[0] != client}
        self.states.keep_only(client, sequence_ids)

    def learn(self, client: str, message: pb.OutcomeFrame) -> None:
        entries = []
        for entry in message.feedback:
            held = self.states.get((client, entry.row.sequence_id))
            ids, origin = (None, 0) if held is None else (held.ids.ids, held.ids.origin)
            entries.append(read_feedback(entry, ids, origin))
        self.drafter.learn(entries)

    def count(self, client: str, epoch: int, num_frames: int) -> None:
        """Bulk frames of an epoch that have been worked off."""
        self._seen[client, epoch] = num_frames

    def propose(self, asked: Round) -> None:
        """Rows of earlier rounds that are asked for anew are given up."""
        newer = {row.query.sequence_id for row in asked.message.rows}
        for older in (r for r in self._rounds if r.client == asked.client):
            for place, row in enumerate(older.message.rows):
                if row.query.sequence_id in newer and place not in older.answers:
                    older.answers[place] = pb.DraftedRow(row=place, nothing=SUPERSEDED)
        self._rounds.append(asked)

    def _flush(self) -> None:
        frames, self._catch_ups = self._catch_ups, []
        if frames:
            try:
                self.states.absorb(frames)
            except Exception:  # what is half absorbed is not trusted
                logger.exception("the drafter failed to absorb")
                self.states.close([(client, frame.sequence_id) for client, frame in frames])

    def _draft(self) -> None:
        started = time.perf_counter()
        ready = [asked for round_ in self._rounds for asked in self._ready_rows(round_)]
        if ready:
            self._propose(ready)
        ms = 1e3 * (time.perf_counter() - started)
        for round_ in [r for r in self._rounds if r.is_answered]:
            self._rounds.remove(round_)
            round_.reply(self._answer(round_, ms))

    def _ready_rows(self, asked: Round) -> list[_Asked]:
        """Rows whose state is where it must be; others wait for bulk frames, or have a hole."""
        ready = []
        for place, wanted in enumerate(asked.message.rows):
            if place in asked.answers:
                continue
            held = self.states.get((asked.client, wanted.query.sequence_id))
            if (
                held is not None
                and held.ids.origin == wanted.origin
                and held.ids.end == wanted.query.tail_start
                and held.ids.hash == wanted.hash
            ):
                row = read_query(wanted.query, held.ids.ids, held.ids.origin)
                ready.append(_Asked(asked, place, replace(row, sequence_id=held.local_id)))
            elif self._seen.get((asked.client, asked.epoch), 0) >= asked.message.bulk_frames:
                ids = None if held is None else held.ids
                resync = pb.Resync() if ids is None else pb.Resync(
                    origin=ids.origin, absorbed=ids.end, hash=ids.hash
                )  # fmt: skip
                asked.answers[place] = pb.DraftedRow(row=place, resync=resync)
        return ready

    def _propose(self, asked: Sequence[_Asked]) -> None:
        try:
            trees: Sequence[DraftTree | None] = self.drafter.propose([one.row for one in asked])
        except Exception:
            logger.exception("the drafter failed to propose")
            trees = [None] * len(asked)
        for one, tree in zip(asked, trees, strict=True):
            answer = pb.DraftedRow(row=one.place)
            if tree is None:
                answer.nothing = FAILED
            else:
                answer.tree.CopyFrom(tree_message(tree))
                self.num_drafted += len(tree) > 0
            one.round.answers[one.place] = answer

    @staticmethod
    def _answer(asked: Round, draft_ms: float) -> pb.Drafted:
        rows = [asked.answers[place] for place in sorted(asked.answers)]
        return pb.Drafted(
            round_id=asked.message.round_id, rows=rows, is_last=True, draft_ms=draft_ms
        )

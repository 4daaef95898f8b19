"""One streamed call over as many connections as it takes."""

from __future__ import annotations

import random
import secrets
from collections import defaultdict

from whiflash.api.v1 import call_pb2, stream_pb2
from whiflash.api.v1 import generation_service_pb2 as pb
from whiflash.client.errors import CallError, Failure, ResumeError, ServerError
from whiflash.client.options import seed_message
from whiflash.client.progress import Progress

StreamEvent = stream_pb2.Queued | stream_pb2.Started | stream_pb2.Piece | stream_pb2.Ended

FIRST_WAIT_S = 0.1
MAX_WAIT_S = 2.0


class Backoff:
    """Waits between attempts that bring nothing. `max_retries` counts attempts in a row."""

    def __init__(self, max_retries: int) -> None:
        self._max_retries = max_retries
        self._num_failed = 0

    def progressed(self) -> None:
        self._num_failed = 0

    def wait_s(self, failure: Failure) -> float:
        """How long to wait before the next attempt. Raises the failure's error if there is none."""
        if not failure.may_retry or self._num_failed >= self._max_retries:
            raise failure.error
        wait_s = min(MAX_WAIT_S, FIRST_WAIT_S * 2.0**self._num_failed)
        self._num_failed += 1
        asked_s = failure.error.retry_after_s or 0.0
        return max(asked_s, wait_s * random.uniform(0.5, 1.0))


class Resumption:
    """Makes the requests, and turns their responses into one uninterrupted stream.

    The seed is fixed here before the first request, so an answer that broke can be written again:
    from the ids already delivered for one choice, from the start for several.
    """

    def __init__(self, call: call_pb2.Call) -> None:
        self._call = call_pb2.Call()
        self._call.CopyFrom(call)
        fix_seed(self._call)
        self._num_choices = call.sampling.n if call.sampling.HasField("n") else 1
        self._choices: defaultdict[int, Progress] = defaultdict(Progress)
        self._started: stream_pb2.Started | None = None

    @property
    def is_done(self) -> bool:
        return self._started is not None and self._num_choices == sum(
            choice.is_ended for choice in self._choices.values()
        )

    def request(self) -> pb.GenerateRequest:
        """For a new connection."""
        call = call_pb2.Call()
        call.CopyFrom(self._call)
        for choice in self._choices.values():
            call.forced_ids.extend(choice.resume(with_forced_ids=self._num_choices == 1))
        if len(call.forced_ids) > len(self._call.forced_ids):
            call.ClearField("idempotency_key")  # another request than the first, by its content
        return pb.GenerateRequest(call=call)

    def take(self, response: pb.GenerateResponse) -> StreamEvent | None:
        """The caller's event; None where the caller has it already. Raises ResumeError."""
        kind = response.WhichOneof("event")
        if kind == "queued":
            return None if any(choice.ids for choice in self._choices.values()) else response.queued
        if kind == "started":
            return self._start(response.started)
        if kind == "piece":
            choice = self._choices[response.piece.index]
            return None if choice.is_ended else choice.take(response.piece)
        if kind == "ended":
            return self._end(response.ended)
        raise ServerError("the server sent an event that this client does not know; update it")

    def broken(self) -> Failure:
        """A stream that ended before its choices did."""
        return Failure(CallError("the stream ended early"), is_answer=False)

    def _start(self, started: stream_pb2.Started) -> StreamEvent | None:
        if self._started is None:
            self._started = started
            return started
        if started.prompt_fingerprint != self._started.prompt_fingerprint:
            raise ResumeError(
                "the stream broke, and the prompt has other tokens now (another model or "
                "template): send the call again"
            )
        return None

    def _end(self, ended: stream_pb2.Ended) -> StreamEvent | None:
        choice = self._choices[ended.index]
        if choice.is_ended:
            return None
        choice.is_ended = True
        return ended


def fix_seed(call: call_pb2.Call) -> None:
    """Gives the call a seed of its own if it has none."""
    if not call.sampling.HasField("seed"):
        call.sampling.seed.CopyFrom(seed_message(secrets.randbits(128)))

"""TrajectoryService of the public API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from itertools import islice

from whiflash.api.v1 import trajectory_service_pb2 as pb
from whiflash.core.errors import InvalidRequestError
from whiflash.serving.auth import require
from whiflash.serving.caller import CallContext, Caller, Scope
from whiflash.serving.grpc.json_text import read_object
from whiflash.serving.scope import owner_of
from whiflash.serving.trajectories.conversation import Conversation
from whiflash.serving.trajectories.desk import Run, StoreDesk
from whiflash.trajectories.keeper import NamespaceStats
from whiflash.trajectories.scope import Selection

TURNS_PER_RESPONSE = 64


class TrajectoryServicer:
    """The methods of the service, by their names in the proto. They raise WhiFlashError."""

    def __init__(self, desk: StoreDesk) -> None:
        self._desk = desk

    async def Import(self, request: pb.ImportRequest, call: CallContext) -> pb.ImportResponse:
        """Bad runs are left out and named; the others are added."""
        owner = partial(owner_of, _allowed(call, Scope.STORE))
        runs: list[Run] = []
        places: list[int] = []
        bad: list[pb.BadRun] = []
        for index, run in enumerate(request.runs):
            try:
                runs.append(_read_run(run))
                places.append(index)
            except InvalidRequestError as error:
                bad.append(pb.BadRun(index=index, reason=str(error)))
        added, refused = await asyncio.to_thread(self._desk.add, owner, runs)
        bad += [pb.BadRun(index=places[one.index], reason=one.reason) for one in refused]
        return pb.ImportResponse(
            num_added=added.turns,
            num_known=added.known,
            num_masked=added.masked,
            num_tokens=added.tokens,
            num_deleted=added.deleted,
            num_expired=added.expired,
            bad=sorted(bad, key=lambda one: one.index),
        )

    async def Export(
        self, request: pb.ExportRequest, call: CallContext
    ) -> AsyncGenerator[pb.ExportResponse, None]:
        """Read whole before the first response, so that no reader holds the store up."""
        owner = _project(call)
        turns = iter(await asyncio.to_thread(lambda: list(self._desk.export(owner))))
        while batch := [json.dumps(turn) for turn in islice(turns, TURNS_PER_RESPONSE)]:
            yield pb.ExportResponse(stored_turn_json=batch)

    async def GetStats(self, request: pb.GetStatsRequest, call: CallContext) -> pb.GetStatsResponse:
        """Numbers tell what others have stored, so even those need the scope."""
        owner = _tenant(call) if request.whole_tenant else _project(call)
        found = await asyncio.to_thread(self._desk.stats, owner)
        return pb.GetStatsResponse(namespaces=list(_stats(found)))

    async def Delete(self, request: pb.DeleteRequest, call: CallContext) -> pb.DeleteResponse:
        """Returns once the store was told; raises StoreUnavailableError if it could not be."""
        what = request.WhichOneof("what")
        if what is None or not getattr(request, what):
            raise InvalidRequestError("say what is to be deleted", "what")
        owner = _tenant(call) if what == "whole_tenant" else _project(call)
        match what:
            case "run_id":
                work = asyncio.to_thread(self._desk.delete_run, owner, request.run_id)
            case "subject":
                work = asyncio.to_thread(self._desk.delete_subject, owner, request.subject)
            case _:
                work = asyncio.to_thread(self._desk.delete_all, owner)
        deleted = await work
        return pb.DeleteResponse(num_namespaces=deleted.namespaces, num_turns=deleted.turns)


def _project(call: CallContext) -> Selection:
    caller = _allowed(call, Scope.STORE)
    return Selection(caller.tenant, caller.project)


def _tenant(call: CallContext) -> Selection:
    _allowed(call, Scope.STORE)
    return Selection(_allowed(call, Scope.ADMIN).tenant)


def _allowed(call: CallContext, scope: Scope) -> Caller:
    require(call.caller, scope)
    return call.caller


def _read_run(run: pb.Run) -> Run:
    if run.WhichOneof("kind") == "stored_turn_json":
        return read_object(run.stored_turn_json, "stored_turn_json")
    recording = run.recording
    return Conversation(
        _read_list(recording.messages_json, "messages_json"),
        _read_list(recording.tools_json, "tools_json"),
        recording.run_id,
        recording.agent,
        recording.subject,
        recording.model,
    )


def _read_list(text: str, param: str) -> tuple[dict[str, object], ...]:
    if not text:
        return ()
    items = read_object(f'{{"items": {text}}}', param)["items"]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InvalidRequestError(f"{param} must be a JSON list of objects", param)
    return tuple(items)


def _stats(found: list[NamespaceStats]) -> Iterator[pb.NamespaceStats]:
    for one in found:
        yield pb.NamespaceStats(
            namespace=one.namespace,
            num_records=one.num_records,
            num_runs=one.num_runs,
            num_tokens=one.num_tokens,
            num_bytes=one.num_bytes,
            oldest_ms=one.oldest_ms,
            newest_ms=one.newest_ms,
        )

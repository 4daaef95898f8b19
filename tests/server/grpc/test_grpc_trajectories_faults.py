"""TrajectoryService given what no client of ours sends: bad runs are named, nothing breaks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import grpc
import pytest

from whiflash.api.v1 import trajectory_service_pb2 as pb
from whiflash.api.v1.trajectory_service_pb2_grpc import TrajectoryServiceStub
from whiflash.engine.engine import Engine
from whiflash.serving.embedded import EmbeddedBackend
from whiflash.testing.grpc_server import GrpcTestServer
from whiflash.trajectories.scope import DEFAULT_TENANT, Selection

ANSWER = {"role": "assistant", "content": "fine words"}
GOOD = [{"role": "user", "content": "q"}, ANSWER]
TIMEOUT_S = 60.0


@pytest.fixture
def stub(toy_engine: Engine, toy_backend: EmbeddedBackend) -> Iterator[TrajectoryServiceStub]:
    desk = toy_backend.desk()
    with (
        GrpcTestServer(toy_backend, desk=desk) as server,
        grpc.insecure_channel(server.target) as channel,
    ):
        yield TrajectoryServiceStub(channel)
    desk.delete_all(Selection(DEFAULT_TENANT))


def recorded(messages: str, tools: str = "", **fields: str) -> pb.Run:
    return pb.Run(recording=pb.Recording(messages_json=messages, tools_json=tools, **fields))


def stored(text: str) -> pb.Run:
    return pb.Run(stored_turn_json=text)


BAD = {
    "nothing": pb.Run(),
    "no messages": recorded(""),
    "empty list": recorded("[]"),
    "no json": recorded("["),
    "no list": recorded("{}"),
    "not objects": recorded("[1]"),
    "closing brackets": recorded('[]}, {"items": ['),
    "deep": recorded("[" * 100_000),
    "deep object": recorded('[{"a": ' + "[" * 500 + "]" * 500 + "}]"),
    "no role": recorded('[{"content": "x"}]'),
    "role": recorded('[{"role": "robot", "content": "x"}]'),
    "content": recorded('[{"role": "assistant", "content": 3}]'),
    "surrogate": recorded('[{"role": "assistant", "content": "\\ud800"}]'),
    "infinite": recorded('[{"role": "assistant", "content": "x", "n": 1e999}]'),
    "calls": recorded('[{"role": "assistant", "content": null, "tool_calls": [{}]}]'),
    "tools": recorded(json.dumps(GOOD), '{"a": 1}'),
    "tool": recorded(json.dumps(GOOD), '[{"type": "function"}]'),
    "turn": stored("{}"),
    "turn no json": stored("tokens"),
    "turn list": stored("[1, 2]"),
    "tokenizer": stored('{"tokens": [1], "tokenizer": "other"}'),
}


def test_bad_runs_are_named_and_the_good_one_between_them_is_taken(
    stub: TrajectoryServiceStub,
) -> None:
    runs = [*BAD.values(), recorded(json.dumps(GOOD), run_id="good")]
    said = stub.Import(pb.ImportRequest(runs=runs), timeout=TIMEOUT_S)
    assert said.num_added == 1
    named = {bad.index: bad.reason for bad in said.bad}
    unnamed = [name for number, name in enumerate(BAD) if not named.get(number)]
    assert unnamed == []
    assert all("\n" not in reason and len(reason) < 500 for reason in named.values())


@pytest.mark.parametrize("token", [-1, 2**31, 1.5, True, "1", None, [1]])
def test_ids_that_are_none_are_refused(
    stub: TrajectoryServiceStub, toy_engine: Engine, token: object
) -> None:
    turn = {"tokens": [token, 5], "tokenizer": toy_engine.tokenizer.fingerprint}
    said = stub.Import(pb.ImportRequest(runs=[stored(json.dumps(turn))]), timeout=TIMEOUT_S)
    assert (said.num_added, len(said.bad)) == (0, 1)


def test_ids_beyond_the_vocabulary_change_no_text(
    stub: TrajectoryServiceStub, toy_engine: Engine
) -> None:
    """Whoever may import can put any number into the store; it must not reach the target."""
    ids = toy_engine.tokenizer.encode("so it is")
    turn = {"tokens": [*ids, *[2**31 - 1] * 20], "tokenizer": toy_engine.tokenizer.fingerprint}
    assert stub.Import(pb.ImportRequest(runs=[stored(json.dumps(turn))])).num_added == 1
    assert toy_engine.store.indexes.flush()
    texts = [
        toy_engine.generate("so it is", drafter=drafter, store=False).text
        for drafter in ("none", "retrieval")
    ]
    assert texts[0] == texts[1]


def test_labels_of_any_text_come_back(stub: TrajectoryServiceStub) -> None:
    label = 'a "b" \n ü \x00 ' + "x" * 2000
    run = recorded(json.dumps(GOOD), run_id=label, agent=label, subject=label, model=label)
    assert stub.Import(pb.ImportRequest(runs=[run]), timeout=TIMEOUT_S).num_added == 1
    (response,) = stub.Export(pb.ExportRequest(), timeout=TIMEOUT_S)
    (turn,) = map(json.loads, response.stored_turn_json)
    assert [turn[name] for name in ("run_id", "agent", "subject", "model")] == [label] * 4
    assert stub.Delete(pb.DeleteRequest(run_id=label), timeout=TIMEOUT_S).num_namespaces >= 1
    assert list(stub.Export(pb.ExportRequest(), timeout=TIMEOUT_S)) == []


def test_an_export_in_many_parts_has_every_turn_once(stub: TrajectoryServiceStub) -> None:
    runs = [recorded(json.dumps([*GOOD[:1], {**ANSWER, "content": f"n{n}"}])) for n in range(150)]
    assert stub.Import(pb.ImportRequest(runs=runs), timeout=TIMEOUT_S).num_added == 150
    parts = list(stub.Export(pb.ExportRequest(), timeout=TIMEOUT_S))
    assert len(parts) == 3
    turns = [json.loads(text)["run_id"] for part in parts for text in part.stored_turn_json]
    assert len(set(turns)) == len(turns) == 150

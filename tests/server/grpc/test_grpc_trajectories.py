"""TrajectoryService over the wire: scopes, owners, and a running engine that learns and forgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from whiflash.client import (
    AsyncClient,
    CallError,
    Client,
    InvalidArgumentError,
    PermissionDeniedError,
    Recording,
)
from whiflash.engine.engine import Engine
from whiflash.serving.auth import Authenticator
from whiflash.serving.caller import Caller, Scope
from whiflash.serving.embedded import EmbeddedBackend
from whiflash.serving.keys import ApiKey, digest_of
from whiflash.testing.grpc_server import GrpcTestServer
from whiflash.trajectories.scope import Selection

SECRETS = {name: f"wf-{name}" + "x" * 32 for name in ("ann", "bob", "web", "poor", "boss", "team")}
OWNERS = {"ann": ("a", "default"), "web": ("a", "web"), "bob": ("b", "default"),
          "poor": ("a", "default"), "boss": ("a", "default"), "team": ("a", "team")}  # fmt: skip
SCOPES = {"poor": {Scope.GENERATE}, "boss": {Scope.STORE, Scope.ADMIN}}


def api_key(name: str) -> ApiKey:
    scopes = SCOPES.get(name, {Scope.GENERATE, Scope.STORE, Scope.DEBUG})
    tenant, project = OWNERS[name]
    caller = Caller(tenant, project, frozenset(scopes), name, shares_users=name == "team")
    return ApiKey(digest_of(SECRETS[name]), caller)


@pytest.fixture
def keyed(toy_backend: EmbeddedBackend) -> Iterator[GrpcTestServer]:
    auth = Authenticator([api_key(name) for name in SECRETS])
    with GrpcTestServer(toy_backend, auth, desk=toy_backend.desk()) as running:
        yield running


@pytest.fixture
def connect(keyed: GrpcTestServer) -> Iterator[Callable[[str], Client]]:
    made: list[Client] = []

    def client(name: str) -> Client:
        made.append(Client(keyed.target, api_key=SECRETS[name], max_retries=1))
        return made[-1]

    yield client
    for one in made:
        one.close()


def recording(text: str, **fields: Any) -> Recording:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}]
    return Recording(messages=messages, **fields)


@pytest.fixture(autouse=True)
def _forget(toy_engine: Engine) -> Iterator[None]:
    yield
    desk = EmbeddedBackend(toy_engine).desk()
    for tenant in ("a", "b"):
        desk.delete_all(Selection(tenant))


def test_import_is_idempotent_and_stays_within_the_project(
    connect: Callable[[str], Client],
) -> None:
    runs = [recording("hello there", run_id="r1"), recording("goodbye", run_id="r2", subject="x")]
    ann, web, bob = connect("ann").store, connect("web").store, connect("bob").store
    said = ann.add(runs)
    assert (said.num_added, said.num_known, len(said.bad)) == (2, 0, 0)
    assert (ann.add(runs).num_added, ann.add(runs).num_known) == (0, 2)
    assert len(list(ann.export())) == 2
    assert list(web.export()) == list(bob.export()) == []
    assert sum(one.num_records for one in ann.stats()) == 2
    assert bob.add(list(ann.export())).num_added == 2
    assert sorted(turn["run_id"] for turn in bob.export()) == ["r1", "r2"]


def test_bad_runs_are_named_by_their_place(connect: Callable[[str], Client]) -> None:
    robot = Recording(messages=[{"role": "robot", "content": "x"}])
    said = connect("ann").store.add(
        [robot, recording("good one"), {"tokens": [1], "tokenizer": "x"}]
    )
    assert said.num_added == 1
    assert [bad.index for bad in said.bad] == [0, 2]
    assert "role" in said.bad[0].reason
    assert "tokenizer" in said.bad[1].reason


def test_deletion_by_run_subject_project_and_tenant(connect: Callable[[str], Client]) -> None:
    ann, web, bob, boss = (connect(name).store for name in ("ann", "web", "bob", "boss"))
    runs = [recording(f"text {n}", run_id=f"r{n}") for n in range(3)]
    own = recording("own text", run_id="r0", subject="x")
    for store in (ann, web, bob):
        store.add([*runs, own])

    def left(store: Any) -> int:
        return len(list(store.export()))

    gone = ann.delete(run_id="r0")
    assert (gone.num_turns, gone.num_namespaces) == (2, 2)
    assert ann.delete(run_id="r0").num_turns == 0
    assert [left(ann), left(web), left(bob)] == [2, 4, 4]
    web.delete(subject="x")
    assert [left(ann), left(web), left(bob)] == [2, 3, 4]
    web.delete(whole_project=True)
    assert [left(ann), left(web), left(bob)] == [2, 0, 4]
    boss.delete(whole_tenant=True)
    assert [left(ann), left(web), left(bob)] == [0, 0, 4]


def test_every_method_needs_its_scope(connect: Callable[[str], Client]) -> None:
    poor, ann = connect("poor").store, connect("ann").store
    for refused in (
        lambda: poor.add([]), lambda: list(poor.export()), poor.stats,
        lambda: poor.delete(run_id="r"), lambda: ann.delete(whole_tenant=True),
        lambda: ann.stats(whole_tenant=True),
    ):  # fmt: skip
        with pytest.raises(PermissionDeniedError):
            refused()
    assert connect("boss").store.stats(whole_tenant=True) == []


@pytest.mark.parametrize("what", [{}, {"run_id": ""}, {"whole_project": False}])
def test_a_deletion_of_nothing_is_refused(
    connect: Callable[[str], Client], what: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgumentError):
        connect("ann").store.delete(**what)


def test_what_one_call_taught_another_drafts_until_it_is_deleted_and_never_another_tenant(
    connect: Callable[[str], Client], toy_engine: Engine
) -> None:
    """In pairs: the same project hits, another does not; the same run deleted in the session."""
    ann, bob = connect("ann"), connect("bob")
    texts: list[str] = []

    def rounds(client: Client, **more: Any) -> int:
        answer = client.generate(
            "what was it again", max_tokens=60, drafter="retrieval", ignore_eos=True, **more
        ).choices[0]
        texts.append(answer.text)
        assert toy_engine.store.indexes.flush()
        return answer.ended.usage.rounds

    def known(tenant: str) -> int:
        return toy_engine.store.indexes.live(toy_engine.store.namespace(tenant)).num_tokens

    cold = rounds(ann, run_id="r1")
    assert (known("a"), known("b")) == (60, 0)
    warm = rounds(ann, no_store=True)
    assert warm * 2 < cold
    assert rounds(ann, no_store=True, no_shared_drafts=True) > 2 * warm
    assert rounds(bob, no_store=True) > 2 * warm
    assert rounds(ann, no_store=True, subject="x") > 2 * warm
    assert (known("a"), known("b")) == (60, 0)
    ann.store.delete(run_id="r1")
    assert toy_engine.store.indexes.flush()
    assert known("a") == 0
    assert rounds(ann, no_store=True) > 2 * warm
    assert len(set(texts)) == 1


def test_end_users_draft_from_each_other_only_where_their_tenant_says_so(
    connect: Callable[[str], Client], toy_engine: Engine
) -> None:
    """In pairs: bob drafts from ann's turn under a key that shares, and not under one that does
    not; what ann wrote is still found under her name."""
    for name, shares in (("ann", False), ("team", True)):
        client = connect(name)

        def rounds(subject: str, client: Client = client, **more: Any) -> int:
            answer = client.generate(
                "what was it again", max_tokens=60, drafter="retrieval", ignore_eos=True,
                subject=subject, **more,
            ).choices[0]  # fmt: skip
            assert toy_engine.store.indexes.flush()
            return answer.ended.usage.rounds

        cold = rounds("ann", run_id="r1")
        assert (rounds("bob", no_store=True) * 2 < cold) is shares
        assert client.store.add([recording("text", subject="ann")]).num_added == 1
        assert client.store.delete(subject="ann").num_turns == 2
        assert rounds("ann", no_store=True) * 2 > cold


def test_the_async_client_does_the_same(keyed: GrpcTestServer) -> None:
    async def run() -> None:
        async with AsyncClient(keyed.target, api_key=SECRETS["ann"]) as client:
            assert (await client.store.add([recording("by asyncio", run_id="r")])).num_added == 1
            turns = [turn async for turn in client.store.export()]
            assert [turn["run_id"] for turn in turns] == ["r"]
            assert (await client.store.stats())[0].num_runs == 1
            assert (await client.store.delete(run_id="r")).num_turns == 1
            assert [turn async for turn in client.store.export()] == []

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_server_without_a_store_desk_has_no_such_service(
    toy_backend: EmbeddedBackend,
) -> None:
    with (
        GrpcTestServer(toy_backend) as server,
        Client(server.target, max_retries=0) as client,
        pytest.raises(CallError, match="Method not found"),
    ):
        client.store.stats()

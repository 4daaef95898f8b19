from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from whiflash.serving.caller import LOCAL_CALLER, Caller
from whiflash.serving.request_ids import request_id_of
from whiflash.serving.scope import owner_of
from whiflash.trajectories.scope import Owner


def test_credentials_decide_and_a_call_only_narrows() -> None:
    caller = Caller("acme", "web", frozenset(), "k")
    assert owner_of(caller) == Owner("acme", "web", "")
    assert owner_of(caller, '["other","web",""]') == Owner("acme", "web", '["other","web",""]')


def test_a_tenant_may_let_its_end_users_share_a_project() -> None:
    caller = Caller("acme", "web", frozenset(), "k", shares_users=True)
    assert owner_of(caller, "ann") == owner_of(caller, "bob") == Owner("acme", "web", "")


def test_a_server_without_keys_serves_the_librarys_default() -> None:
    assert owner_of(LOCAL_CALLER).name == "local"


@given(st.text(max_size=200))
def test_a_clients_request_id_is_kept_where_it_can_stand_in_a_header(given_id: str) -> None:
    request_id = request_id_of(given_id)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", request_id)
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", given_id):
        assert request_id == given_id


def test_new_request_ids_differ() -> None:
    assert len({request_id_of(None) for _ in range(100)}) == 100

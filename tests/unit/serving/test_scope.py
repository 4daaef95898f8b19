from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from whiflash.serving.caller import Caller
from whiflash.serving.request_ids import request_id_of
from whiflash.serving.scope import namespace_of

Triple = st.tuples(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6))


def name_of(triple: tuple[str, str, str]) -> str:
    tenant, project, subject = triple
    return namespace_of(Caller(tenant, project, frozenset(), "k"), subject)


@given(Triple, Triple)
def test_different_owners_have_different_namespaces(
    first: tuple[str, str, str], second: tuple[str, str, str]
) -> None:
    assert (name_of(first) == name_of(second)) == (first == second)


def test_borders_between_the_parts_count() -> None:
    names = {
        name_of(t) for t in (("a", "bc", ""), ("ab", "c", ""), ("a", "b", "c"), ("a,b", "c", ""))
    }
    assert len(names) == 4


def test_a_name_tells_nothing_of_its_owner() -> None:
    assert re.fullmatch(r"[0-9a-f]{32}", name_of(("acme", "web", "somebody")))


@given(st.text(max_size=200))
def test_a_clients_request_id_is_kept_where_it_can_stand_in_a_header(given_id: str) -> None:
    request_id = request_id_of(given_id)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", request_id)
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", given_id):
        assert request_id == given_id


def test_new_request_ids_differ() -> None:
    assert len({request_id_of(None) for _ in range(100)}) == 100

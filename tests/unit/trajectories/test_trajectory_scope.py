"""Namespaces: apart for different owners, secrets and tokenizers, and telling nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from whiflash.trajectories.scope import Owner, ScopeKey, Scopes, Selection

OLD, NEW = ScopeKey("k1", b"o" * 32), ScopeKey("k2", b"n" * 32)
SCOPES = Scopes((OLD,), "f" * 16)
Text = st.text(max_size=5) | st.sampled_from(["", "local", "default", '["a"]', '["a", "b", ""]'])
Owners = st.builds(Owner, Text.filter(bool), Text, Text)


@given(Owners, Owners)
@example(Owner("a", "bc", ""), Owner("ab", "c", ""))
@example(Owner("a", "b", "c"), Owner("a", "bc", ""))
@example(Owner('["a", "default", ""]'), Owner("a", "default"))
def test_different_owners_have_different_names_and_namespaces(one: Owner, other: Owner) -> None:
    assert (one.name == other.name) == (one == other)
    assert (SCOPES.namespace(one) == SCOPES.namespace(other)) == (one == other)


@given(Owners)
def test_a_name_leads_back_to_its_owner(owner: Owner) -> None:
    assert Owner.named(owner.name) == owner


def test_a_plain_name_is_a_tenants() -> None:
    assert Owner.named("local") == Owner()
    assert Owner.named("[not json") == Owner("[not json")


def test_secret_key_id_and_tokenizer_are_part_of_it() -> None:
    owner = Owner("acme", "web", "ann")
    same_id = Scopes((ScopeKey("k1", b"x" * 32),), "f" * 16)
    same_secret = Scopes((ScopeKey("k3", b"o" * 32),), "f" * 16)
    other_tokenizer = Scopes((OLD,), "e" * 16)
    all_four = (SCOPES, same_id, same_secret, other_tokenizer)
    assert len({scopes.namespace(owner) for scopes in all_four}) == 4


def test_a_namespace_tells_nothing_of_its_owner() -> None:
    name = SCOPES.namespace(Owner("acme", "web", "ann@example.com"))
    assert re.fullmatch(r"k1\.[0-9a-f]{16}\.[0-9a-f]{16}\.[0-9a-f]{32}\.f{16}", name)
    assert "oooo" not in repr(OLD)


def test_a_selection_finds_a_tenants_namespaces_of_every_tokenizer_and_known_secret() -> None:
    both = Scopes((NEW, OLD), "f" * 16)
    owners = [Owner("a"), Owner("a", "web"), Owner("a", "web", "ann"), Owner("b", "web", "ann")]
    kinds = (both, SCOPES, Scopes((OLD,), "e" * 16))
    names = {scopes.namespace(owner): owner for scopes in kinds for owner in owners}
    assert len(names) == 12

    def chosen(selection: Selection) -> list[Owner]:
        return [owner for name, owner in names.items() if both.selects(selection, name)]

    assert set(chosen(Selection("a"))) == set(owners[:3])
    assert set(chosen(Selection("a", "web"))) == set(owners[1:3])
    assert set(chosen(Selection("a", "web", "ann"))) == {owners[2]}
    assert set(chosen(Selection("a", "web", ""))) == {owners[1]}
    assert len(chosen(Selection("a", "web", "ann"))) == 3
    assert chosen(Selection("c")) == []
    unknown = Scopes((ScopeKey("k9", b"u" * 32),), "f" * 16).namespace(owners[0])
    assert not both.selects(Selection("a"), unknown)
    assert not both.selects(Selection("a"), "some other name")


def test_the_first_secret_is_the_current_one() -> None:
    both = Scopes((NEW, OLD), "f" * 16)
    assert both.key_id == "k2"
    assert both.namespace(Owner()) == Scopes((NEW,), "f" * 16).namespace(Owner())


def test_what_cannot_be_a_namespace_is_refused() -> None:
    with pytest.raises(ValueError, match="tenant"):
        SCOPES.namespace(Owner(""))
    with pytest.raises(ValueError, match="secret"):
        Scopes((), "f")

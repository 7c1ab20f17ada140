"""Rendezvous: everybody comes to the same answer, and little moves."""

from __future__ import annotations

import random
from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from detent.fire.shards import Candidate, owners, shards_of
from detent.model.ids import SHARDS

NODES = st.lists(st.uuids(), min_size=1, max_size=12, unique=True)


@given(NODES, st.randoms(use_true_random=False))
def test_the_order_of_the_candidates_does_not_matter(nodes: list[UUID], chance: random.Random) -> None:
    shuffled = list(nodes)
    chance.shuffle(shuffled)
    assert owners(map(Candidate, nodes)) == owners(map(Candidate, shuffled))


@given(NODES)
def test_every_shard_has_one_owner_among_the_candidates(nodes: list[UUID]) -> None:
    found = owners(map(Candidate, nodes))
    assert set(found) == set(range(SHARDS))
    assert set(found.values()) <= set(nodes)
    assert sum(len(shards_of(node, map(Candidate, nodes))) for node in nodes) == SHARDS


@given(NODES, st.uuids())
def test_a_node_that_joins_takes_shards_and_moves_no_others(nodes: list[UUID], joining: UUID) -> None:
    before = owners(map(Candidate, nodes))
    after = owners(map(Candidate, {*nodes, joining}))
    assert all(after[shard] in (owner, joining) for shard, owner in before.items())


def test_the_shares_are_about_even() -> None:
    nodes = [UUID(int=random.Random(n).getrandbits(128)) for n in range(4)]
    shares = Counter(owners(map(Candidate, nodes)).values())
    assert all(40 <= share <= 90 for share in shares.values()), shares


def test_one_on_standby_owns_something_only_when_nobody_else_is_there() -> None:
    active, standby = UUID(int=1), UUID(int=2)
    assert set(owners([Candidate(active), Candidate(standby, standby=True)]).values()) == {active}
    assert set(owners([Candidate(standby, standby=True)]).values()) == {standby}


def test_one_that_leaves_owns_nothing() -> None:
    staying, leaving = UUID(int=1), UUID(int=2)
    assert set(owners([Candidate(staying), Candidate(leaving, leaving=True)]).values()) == {staying}
    assert owners([Candidate(leaving, leaving=True)]) == {}

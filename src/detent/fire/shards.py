"""Which node should own which shard: rendezvous hashing over the nodes that live. Pure.

Each node weighs every shard with every candidate and gives the shard to the heaviest. All nodes that see the
same candidates come to the same answer without talking, and a node that comes or goes moves only the shards
that it gains or loses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID

from detent.model.ids import SHARDS


@dataclass(frozen=True, slots=True)
class Candidate:
    node_id: UUID
    standby: bool = False
    leaving: bool = False


def owners(candidates: Iterable[Candidate]) -> dict[int, UUID]:
    """The owner of each shard; nobody's if there are no candidates. One on standby owns nothing as long as
    there is any other, and one that leaves owns nothing at all.
    """
    staying = [one for one in candidates if not one.leaving]
    active = [one.node_id for one in staying if not one.standby] or [one.node_id for one in staying]
    if not active:
        return {}
    weights = {node: _weights(node) for node in active}
    return {
        shard: max(active, key=lambda node: (weights[node][shard], node.bytes)) for shard in range(SHARDS)
    }


def shards_of(node_id: UUID, candidates: Iterable[Candidate]) -> list[int]:
    return [shard for shard, owner in owners(candidates).items() if owner == node_id]


def _weights(node_id: UUID) -> Sequence[bytes]:
    return [blake2b(node_id.bytes + bytes((shard,)), digest_size=8).digest() for shard in range(SHARDS)]

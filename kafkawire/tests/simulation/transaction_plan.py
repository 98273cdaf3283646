"""The plan that a seed makes for transactions: topics of their own, their producers, and time-outs. Pure.

It has random sources of its own, so that topics, groups and faults of a seed stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from coordinator.transactions.api import FIRST_PROTOCOL, SECOND_PROTOCOL
from kafkawire.tests.simulation.plan import Target, TopicPlan

SHARE_WITHOUT_TRANSACTIONS = 0.2
KEYS = 3  # of the records of a compacted topic
LATE_EPOCH = 32_760  # not many are left


@dataclass(frozen=True)
class TransactorPlan:
    """A transactional producer. Two may have the same transactional id, and fence each other. A share `late_share` of
    the requests come late, or twice: only the second protocol (KIP-890) is safe against that."""

    name: str
    transactional_id: str
    timeout_ms: int
    pause_s: float
    has_twin: bool
    protocol: int
    late_share: float

    @property
    def group(self) -> str:
        """The group whose offsets it commits."""
        return f"group-of-{self.transactional_id}"


@dataclass(frozen=True)
class TransactionsPlan:
    """All transactions of a run, and the broker's properties for them."""

    topics: tuple[TopicPlan, ...]
    transactors: tuple[TransactorPlan, ...]
    readers: int
    properties: dict[str, str]
    first_epoch: int = 0  # of producers

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(Target(topic.name, one) for topic in self.topics for one in range(topic.partition_count))

    @property
    def offset_target(self) -> Target:
        """The partition whose offsets are committed."""
        return self.targets[0]

    def is_compacted(self, target: Target) -> bool:
        return self._of(target).is_compacted

    def is_tiered(self, target: Target) -> bool:
        return self._of(target).is_tiered

    def _of(self, target: Target) -> TopicPlan:
        return next(topic for topic in self.topics if topic.name == target.topic)


def plan_transactions(seed: int) -> TransactionsPlan:
    """The plan of transactions; most seeds have transactions."""
    rng = Random(f"{seed}/transactions")
    if rng.random() < SHARE_WITHOUT_TRANSACTIONS:
        return TransactionsPlan((), (), 0, {})
    plain = {"segment.bytes": str(rng.choice((1500, 3000, 1 << 20)))}
    compacted = {"segment.bytes": "1500", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    topics = [TopicPlan("transactions", rng.randint(1, 2), plain)]
    if rng.random() < 0.5:
        topics.append(TopicPlan("transactions-compacted", 1, compacted | {"delete.retention.ms": "0"}))
    by_protocol = Random(f"{seed}/protocols")
    transactors: list[TransactorPlan] = []
    for number in range(rng.choice((1, 1, 2))):
        name, has_twin = f"transactional-{number}", rng.random() < 0.4
        timeout_ms, pause_s = rng.choice((400, 1_000, 10_000)), rng.choice((0.01, 0.03, 0.1))
        for each in (name, f"{name}-twin") if has_twin else (name,):
            protocol = by_protocol.choice((FIRST_PROTOCOL, SECOND_PROTOCOL, SECOND_PROTOCOL))
            late_share = by_protocol.choice((0.0, 0.05, 0.2)) if protocol == SECOND_PROTOCOL else 0.0
            transactors.append(TransactorPlan(each, name, timeout_ms, pause_s, has_twin, protocol, late_share))
    properties = {
        "transaction.state.log.num.partitions": str(rng.choice((1, 2))),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(rng.choice((100, 500))),
    }
    readers, first_epoch = rng.randint(1, 2), by_protocol.choice((0, 0, LATE_EPOCH))
    return TransactionsPlan(tuple(topics), tuple(transactors), readers, properties, first_epoch)

"""What a seed means for transactions: topics of their own, who writes to them, how quickly they are given up. Pure.

It draws from a source of its own, so that topics, groups and faults of a seed stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from kafkawire.tests.simulation.plan import Target, TopicPlan

SHARE_WITHOUT_TRANSACTIONS = 0.2
KEYS = 3  # of the records of a compacted topic


@dataclass(frozen=True)
class TransactorPlan:
    """A process that writes in transactions; twins have the same transactional id, and fence each other."""

    name: str
    transactional_id: str
    timeout_ms: int
    pause_s: float
    has_twin: bool

    @property
    def group(self) -> str:
        """Whose offsets it commits."""
        return f"group-of-{self.transactional_id}"


@dataclass(frozen=True)
class TransactionsPlan:
    """All transactions of a run, and what the operator set for them."""

    topics: tuple[TopicPlan, ...]
    transactors: tuple[TransactorPlan, ...]
    readers: int
    properties: dict[str, str]

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(Target(topic.name, one) for topic in self.topics for one in range(topic.partition_count))

    @property
    def offset_target(self) -> Target:
        """The partition whose offsets are committed."""
        return self.targets[0]

    def is_compacted(self, target: Target) -> bool:
        return next(topic for topic in self.topics if topic.name == target.topic).is_compacted


def plan_transactions(seed: int) -> TransactionsPlan:
    """Most seeds have transactions."""
    rng = Random(f"{seed}/transactions")
    if rng.random() < SHARE_WITHOUT_TRANSACTIONS:
        return TransactionsPlan((), (), 0, {})
    plain = {"segment.bytes": str(rng.choice((1500, 3000, 1 << 20)))}
    compacted = {"segment.bytes": "1500", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    topics = [TopicPlan("transactions", rng.randint(1, 2), plain)]
    if rng.random() < 0.5:
        topics.append(TopicPlan("transactions-compacted", 1, compacted | {"delete.retention.ms": "0"}))
    transactors: list[TransactorPlan] = []
    for number in range(rng.choice((1, 1, 2))):
        name, has_twin = f"transactional-{number}", rng.random() < 0.4
        timeout_ms, pause_s = rng.choice((400, 1_000, 10_000)), rng.choice((0.01, 0.03, 0.1))
        twins = (name, f"{name}-twin") if has_twin else (name,)
        transactors += [TransactorPlan(each, name, timeout_ms, pause_s, has_twin) for each in twins]
    properties = {
        "transaction.state.log.num.partitions": str(rng.choice((1, 2))),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(rng.choice((100, 500))),
    }
    return TransactionsPlan(tuple(topics), tuple(transactors), rng.randint(1, 2), properties)

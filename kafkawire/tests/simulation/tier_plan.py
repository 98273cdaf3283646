"""The plan that a seed makes for the remote tier: whether there is one, its topics, and the state of its store. Pure.

It has a random source of its own, so that topics, clients and faults of a seed stay the same; only topics in the tier
get smaller segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random

from kafkawire.tests.simulation.pages import has_memory_pressure
from kafkawire.tests.simulation.plan import TopicPlan

FIRST_WITH_TIER = 1_000_000  # seeds from here on have a tier
ROOT = "lake/"
CACHE_OF_ALL_BYTES = "1000000"
PROPERTIES = {"remote.log.storage.system.enable": "true", "tier.store": f"s3://bucket/{ROOT}"}


class StoreState(Enum):
    """The state of a store for a while."""

    FINE = "healthy"
    FLAKY = "some requests fail, or are answered wrongly"
    AWAY = "nobody gets through"


@dataclass(frozen=True)
class TierPlan:
    """`topics`: additional configs by topic. `store_states`: the states of the store to choose from, one after the
    other."""

    is_on: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    store_states: tuple[StoreState, ...] = (StoreState.FINE,)
    fault_rate: float = 0.0  # of the requests, when it is flaky
    loses_indexes: float = 0.0  # the probability that the next start finds no index
    has_files: bool = False  # whether its objects are files, which are read in place

    @property
    def pace(self) -> int:
        """A factor for the duration of processes: segments have to be filled and copied."""
        return 4 if self.is_on else 1

    def of(self, topic: TopicPlan) -> TopicPlan:
        """The topic as it is created."""
        return replace(topic, configs=topic.configs | self.topics.get(topic.name, {}))


def has_tier(seed: int) -> bool:
    return seed >= FIRST_WITH_TIER


def _rng(seed: int) -> Random:
    return Random(f"{seed}/tier")


def plan_tier(seed: int, topics: Sequence[TopicPlan]) -> TierPlan:
    """The plan; only some seeds have a tier. `topics`: of all clients."""
    rng = _rng(seed)
    if not has_tier(seed):
        return TierPlan()
    properties = PROPERTIES | {
        "remote.log.manager.task.interval.ms": rng.choice(("20", "20", "100")),
        "tier.copiers": rng.choice(("1", "2", "4")),
        "tier.cache.size.bytes": rng.choice(("0", "0", "5000", CACHE_OF_ALL_BYTES)),
    }
    if has_memory_pressure(seed):
        properties["tier.cache.size.bytes"] = CACHE_OF_ALL_BYTES  # what it keeps leaves the page cache
    if rng.random() < 0.5:
        properties["tier.cache.dir"] = "/cache"
    plain = [one for one in topics if not one.is_compacted]  # Kafka refuses the others
    chosen = [one for one in plain if rng.random() < 0.8]
    return TierPlan(
        is_on=True,
        properties=properties,
        topics={one.name: _configs(rng, one) for one in chosen or plain[:1]},
        store_states=rng.choice(((StoreState.FINE, StoreState.FLAKY), (StoreState.FLAKY,), tuple(StoreState))),
        fault_rate=rng.choice((0.05, 0.2, 0.4)),
        loses_indexes=rng.choice((0.0, 0.2, 0.5)),
        has_files=rng.random() < 0.5,
    )


def _configs(rng: Random, topic: TopicPlan) -> dict[str, str]:
    configs = {"remote.storage.enable": "true", "segment.bytes": rng.choice(("1000", "1500", "1500", "3000"))}
    match rng.randrange(4):
        case 0:
            configs["local.retention.ms"] = "100"
        case 1:
            configs["local.retention.ms"] = str(min(2000, topic.retention_ms or 2000))
        case 2:
            configs["local.retention.bytes"] = "1"
        case _:
            configs["local.retention.bytes"] = "5000"
    if rng.random() < 0.7:
        configs["file.delete.delay.ms"] = rng.choice(("100", "1000", "5000"))
    return configs

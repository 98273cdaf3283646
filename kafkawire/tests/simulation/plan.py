"""The plan that a seed makes: topics, clients, and the order of the faults. Pure, without a broker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import NamedTuple

from kafkawire.handlers import API_TABLE


class FaultKind(Enum):
    """The kinds of faults; `faults` injects them."""

    POWER_CUT = "power cut"
    KILL = "kill -9"
    POWER_CUT_WITHIN = "power cut at a file operation"
    KILL_WITHIN = "kill -9 at a file operation"
    CRASH_AT_START = "crash while starting"
    CLEAN_RESTART = "clean restart"
    SLOW_DISK = "slow disk"
    STALL = "disk stalls, connections are cut, producers retry, the power goes"
    IO_ERROR = "EIO"
    FULL_DISK = "ENOSPC for a while"
    SHORT_WRITE = "short write"
    LOG_DIR_LOST = "one log dir fails"
    CONNECTIONS_CUT = "connections are cut"
    SESSION_LOST = "the metadata session is lost"


# A seed has at least this many faults that end a process: most bugs need them.
CRASHES = (
    FaultKind.POWER_CUT,
    FaultKind.POWER_CUT_WITHIN,
    FaultKind.POWER_CUT_WITHIN,
    FaultKind.STALL,
    FaultKind.KILL,
    FaultKind.KILL_WITHIN,
    FaultKind.CRASH_AT_START,
)
CRASHES_MIN = 2
IS_IDEMPOTENT = any(api.name == "init_producer_id" for api in API_TABLE)


class Target(NamedTuple):
    """A partition of a topic by name."""

    topic: str
    partition: int


@dataclass(frozen=True)
class TopicPlan:
    """A topic as it is to be created."""

    name: str
    partition_count: int
    configs: dict[str, str]
    is_volatile: bool = False
    replication_factor: int = 1

    @property
    def is_sync(self) -> bool:
        return self.configs.get("flush.policy") != "async"

    @property
    def is_compacted(self) -> bool:
        return "cleanup.policy" in self.configs

    @property
    def is_tiered(self) -> bool:
        return "remote.storage.enable" in self.configs

    @property
    def segment_size_bytes(self) -> int:
        return int(self.configs["segment.bytes"])

    @property
    def retention_ms(self) -> int | None:
        return int(self.configs["retention.ms"]) if "retention.ms" in self.configs else None


@dataclass(frozen=True)
class WriterPlan:
    """A producer."""

    number: int
    targets: list[Target]
    acks: int
    is_idempotent: bool
    window: int
    pause_s: float


@dataclass(frozen=True)
class Plan:
    """All decisions before a run begins."""

    seed: int
    log_dirs: tuple[str, ...]
    topics: list[TopicPlan]
    writers: list[WriterPlan]
    faults: list[FaultKind]
    followers: int
    wanderers: int
    journal_slot_size_bytes: int
    operations_between_faults: int
    overlap_min_bytes: int


def plan(seed: int) -> Plan:
    """The plan of a seed."""
    rng = Random(f"{seed}/plan")
    log_dirs = tuple(f"/disk{number}" for number in range(rng.choice((1, 1, 2, 3))))
    topics = [_topic(rng, number) for number in range(rng.randint(1, 3))]
    topics.append(_topic(rng, len(topics), is_volatile=True))
    _forget_some(Random(f"{seed}/retention"), topics)
    compacting = Random(f"{seed}/compaction")
    topics = [_compacted(one) if compacting.random() < 0.4 else one for one in topics]
    return Plan(
        seed=seed,
        log_dirs=log_dirs,
        topics=topics,
        writers=[_writer(rng, number, topics) for number in range(rng.randint(3, 5))],
        faults=_faults(rng, len(log_dirs)),
        followers=rng.randint(1, 2),
        wanderers=1,
        journal_slot_size_bytes=rng.choice((65_536, 65_536, 131_072)),
        operations_between_faults=rng.randint(20, 45),
        overlap_min_bytes=Random(f"{seed}/overlap").choice((1, 2000, 65_536)),
    )


def _topic(rng: Random, number: int, *, is_volatile: bool = False) -> TopicPlan:
    configs = {"segment.bytes": str(rng.choice((3000, 3000, 10_000, 40_000, 1 << 20)))}
    if number and rng.random() < 0.4:
        configs["flush.policy"] = "async"
        configs["flush.ms"] = rng.choice(("100", "1000", str(2**63 - 1)))
        configs["flush.messages"] = rng.choice(("10", str(2**63 - 1)))
    if rng.random() < 0.15:
        configs["message.timestamp.type"] = "LogAppendTime"
    name = "volatile" if is_volatile else f"topic-{number}"
    return TopicPlan(name, rng.randint(1, 3), configs, is_volatile)


def _forget_some(rng: Random, topics: list[TopicPlan]) -> None:
    """Topics with a retention so short that records are removed within a run."""
    for topic in topics:
        if rng.random() < 0.4:
            topic.configs["retention.ms"] = rng.choice(("500", "2000", "5000"))


def _compacted(topic: TopicPlan) -> TopicPlan:
    policy = "compact,delete" if "retention.ms" in topic.configs else "compact"
    configs = {**topic.configs, "cleanup.policy": policy, "min.cleanable.dirty.ratio": "0.01"}
    return replace(topic, configs=configs)


def _writer(rng: Random, number: int, topics: list[TopicPlan]) -> WriterPlan:
    is_idempotent = IS_IDEMPOTENT and number % 2 == 0
    places = [Target(topic.name, one) for topic in topics for one in range(topic.partition_count)]
    first = Target(topics[0].name, 0)  # a topic that stays, and has a writer at all times
    targets = sorted({first, *rng.sample(places, min(len(places), rng.randint(1, 3)))})
    acks = -1 if is_idempotent or number == 1 else rng.choice((-1, 1, 1, 0))
    pause_s = rng.choice((0.01, 0.03, 0.1))
    return WriterPlan(number, targets, acks, is_idempotent, rng.randint(1, 5), pause_s)


def _faults(rng: Random, log_dir_count: int) -> list[FaultKind]:
    kinds = [kind for kind in FaultKind if log_dir_count > 1 or kind is not FaultKind.LOG_DIR_LOST]
    faults = [rng.choice(CRASHES) for _ in range(CRASHES_MIN)]
    faults += [rng.choice(kinds) for _ in range(rng.randint(2, 5))]
    rng.shuffle(faults)
    return faults

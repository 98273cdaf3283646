"""The plan that a seed makes for three brokers: topics, clients, and the order of the faults. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from coordinator.groups.service import OFFSETS_TOPIC
from coordinator.testing.simulated_metadata_store import Faults as StoreFaults
from coordinator.transactions.service import TRANSACTIONS_TOPIC
from kafkawire.tests.simulation.group_plan import GroupPlan
from kafkawire.tests.simulation.plan import Target, TopicPlan, WriterPlan
from kafkawire.tests.simulation.transaction_plan import TransactionsPlan, plan_transactions


class FaultKind(Enum):
    """The kinds of faults; `faults` injects them."""

    KILL_ONE = "kill -9 of one"
    KILL_LEADER_WITHIN = "kill -9 of a leader at a file operation"
    KILL_TWO = "kill -9 of two"
    KILL_ALL = "kill -9 of all"
    POWER_ONE = "power cut of one"
    POWER_WITHIN = "power cut of one at a file operation"
    POWER_TWO = "power cut of two"
    POWER_ALL = "power cut of all at once"
    CLEAN_RESTART = "clean restart of one"
    ROLLING_RESTART = "clean restarts, one after the other"
    PAUSE = "one stands still"
    PAUSE_LONG = "one stands still for longer than its session"
    CUT_PAIR = "two brokers do not hear each other"
    CUT_ONE_WAY = "one broker does not hear another"
    ISOLATE = "one broker and the others do not hear each other"
    DEAF = "one broker hears none of the others"
    LINKS_BROKEN = "all connections of one break"
    STORE_LOST = "one loses its session"
    STORE_AWAY = "one does not reach the metadata store"
    STORE_AWAY_LONG = "one does not reach the metadata store for longer than its session"
    STORE_AWAY_FROM_ALL = "nobody reaches the metadata store"
    STORE_LAGS = "one reads old metadata"
    SLOW_DISK = "one has a slow disk"
    STALLED_DISK = "a leader's disk stalls, and the leader dies"
    IO_ERROR = "EIO from a disk"
    FULL_DISK = "a disk is full for a while"
    SHORT_WRITE = "a disk takes only the beginning of what is written"
    LOG_DIR_LOST = "a log dir fails"
    MOVE = "a partition moves to other replicas"


# Most bugs of replication need a change of the leader, and one of these causes it.
FAILOVERS = (
    FaultKind.KILL_ONE,
    FaultKind.KILL_LEADER_WITHIN,
    FaultKind.KILL_TWO,
    FaultKind.KILL_ALL,
    FaultKind.POWER_ONE,
    FaultKind.POWER_WITHIN,
    FaultKind.POWER_ALL,
    FaultKind.PAUSE_LONG,
    FaultKind.STALLED_DISK,
)
FAILOVERS_MIN = 3
TRANSACTIONAL = 0.4  # the share of seeds with transactions, among those that have some with one broker
TRANSACTIONS_TAKE = 3  # a factor for the operations between faults: else no transaction would end
REASSIGNMENTS = (0, 1, 2)  # possible counts of reassignments
PAUSED_MAX = 1.5  # sessions
LAGS_MAX_S = 8.0  # the greatest lag of a reader of metadata
STALE_SLACK_MS = 1_000
GROUP = "simple"
OFFSETS = Target(OFFSETS_TOPIC, 0)
TRANSACTION_STATE = Target(TRANSACTIONS_TOPIC, 0)


@dataclass(frozen=True)
class Plan:
    """All decisions before a run begins."""

    seed: int
    topics: list[TopicPlan]
    writers: list[WriterPlan]
    faults: list[FaultKind]
    properties: dict[str, str]
    session_timeout_s: float
    store_faults: StoreFaults
    operations_between_faults: int
    overlap_min_bytes: int
    committers: int
    transactions: TransactionsPlan

    @property
    def group(self) -> GroupPlan:
        """The group of all commits. It has no members, so each client may commit for it at any time."""
        return GroupPlan(GROUP, tuple(self.targets), committers=self.committers)

    @property
    def log_dirs(self) -> list[str]:
        return self.properties["log.dirs"].split(",")

    @property
    def stale_max_ms(self) -> int:
        """The greatest age in milliseconds of an offset that was not requested as a stable one. A coordinator answers
        as long as it has a session, or as followers fetch; it may have stood still, or have read old metadata."""
        lag_max_ms = int(self.properties["replica.lag.time.max.ms"])
        return lag_max_ms + int(1000 * (self.session_timeout_s * (1 + PAUSED_MAX) + LAGS_MAX_S)) + STALE_SLACK_MS

    @property
    def targets(self) -> list[Target]:
        """All partitions that producers without transactions write to."""
        return [Target(topic.name, one) for topic in self.topics for one in range(topic.partition_count)]

    @property
    def everything(self) -> list[Target]:
        """All partitions, including those of the coordinators."""
        transactions = self.transactions.targets
        offsets = [OFFSETS] if self.committers or transactions else []
        return [*self.targets, *transactions, *offsets, *([TRANSACTION_STATE] if transactions else [])]


def plan(seed: int) -> Plan:
    """The plan of a seed."""
    rng = Random(f"{seed}/cluster plan")
    topics = [_topic(rng, number) for number in range(rng.randint(1, 2))]
    targets = [Target(topic.name, one) for topic in topics for one in range(topic.partition_count)]
    faults = [rng.choice(FAILOVERS) for _ in range(FAILOVERS_MIN)]
    faults += [rng.choice([*FaultKind]) for _ in range(rng.randint(3, 6))]
    faults += [FaultKind.MOVE] * rng.choice(REASSIGNMENTS)
    rng.shuffle(faults)
    log_dirs = [f"/disk{number}" for number in range(rng.choice((1, 1, 1, 2)))]
    properties = {
        "log.dirs": ",".join(log_dirs),
        "http.listeners": "",
        "auto.create.topics.enable": "false",
        "journal.slot.bytes": str(rng.choice((65_536, 65_536, 131_072))),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "replica.lag.time.max.ms": str(rng.choice((500, 2_000, 5_000, 30_000))),
        "replica.fetch.backoff.ms": str(rng.choice((20, 200, 1_000))),
        "replica.fetch.wait.max.ms": str(rng.choice((50, 500))),
        "replica.fetch.max.bytes": str(rng.choice((1, 2_000, 1 << 20))),
    }
    if (fetch_max_bytes := int(properties["replica.fetch.max.bytes"])) < 1 << 20:  # else followers get all the room
        properties["replica.fetch.response.max.bytes"] = str(4 * fetch_max_bytes)
    transactions = _transactions(rng, seed)
    between = rng.randint(15, 50) * (TRANSACTIONS_TAKE if transactions.targets else 1)
    return Plan(
        seed=seed,
        topics=topics,
        writers=[_writer(rng, number, targets) for number in range(len(targets) + rng.randint(1, 3))],
        faults=faults,
        properties=properties,
        session_timeout_s=rng.choice((1.5, 3.0, 6.0)),
        store_faults=_store_faults(rng),
        operations_between_faults=between,
        overlap_min_bytes=rng.choice((1, 2000, 65_536)),
        committers=Random(f"{seed}/group").randint(0, 3),
        transactions=transactions,
    )


def _topic(rng: Random, number: int) -> TopicPlan:
    configs = {"segment.bytes": str(rng.choice((3000, 10_000, 40_000, 1 << 20)))}
    configs["min.insync.replicas"] = str(rng.choice((1, 2, 2)))
    return TopicPlan(f"topic-{number}", rng.choice((1, 1, 2)), configs, replication_factor=3)


def _writer(rng: Random, number: int, targets: list[Target]) -> WriterPlan:
    """The plan of a writer to one partition. The first writers ensure that each partition has one with acks=all."""
    target = targets[number] if number < len(targets) else rng.choice(targets)
    is_idempotent = number % 3 != 1
    acks = -1 if is_idempotent or number < len(targets) else 1
    return WriterPlan(number, [target], acks, is_idempotent, rng.randint(1, 4), rng.choice((0.05, 0.2, 0.5)))


def _transactions(rng: Random, seed: int) -> TransactionsPlan:
    """The plan as for one broker, in fewer seeds, and without compacted topics: each replica compacts by itself."""
    one = plan_transactions(seed)
    if rng.random() >= TRANSACTIONAL:
        return TransactionsPlan((), (), 0, {})
    in_sync = {"min.insync.replicas": str(rng.choice((1, 2, 2)))}
    topics = [replace(topic, configs=topic.configs | in_sync, replication_factor=3) for topic in one.topics]
    plain = tuple(topic for topic in topics if not topic.is_compacted)
    return replace(one, topics=plain, readers=min(one.readers, 1), first_epoch=0)


def _store_faults(rng: Random) -> StoreFaults:
    """Faults of the metadata store, in half of the runs."""
    if rng.random() < 0.5:
        return StoreFaults()
    often = rng.choice((0.02, 0.1))
    return StoreFaults(often, often, often, replica_lags=0.2, deposed_sync=0.1, flap=0.02)
